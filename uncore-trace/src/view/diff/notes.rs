//! Lists what makes two recordings hard to compare: different facts of the recordings, and links
//! with other counters or peaks.
//!
//! Guarantee: a link or event with different counters or filters is never compared without a note.

use std::collections::BTreeMap;

use super::super::links::limit;
use super::super::usage::Event;
use super::side::Side;
use crate::schema::link::Direction;
use crate::schema::metadata;
use crate::units;

/// Metadata that describe how a recording was made, and their names in notes.
const FACTS: [(&str, &str); 6] = [
    (metadata::HOST, "host"),
    (metadata::KERNEL, "kernel"),
    (metadata::TOOL_VERSION, "version of uncore-trace"),
    (metadata::METHOD, "method"),
    (metadata::INTERVAL_NS, "length of windows"),
    (metadata::TICK_NS, "length of ticks"),
];

/// Peaks that differ by less than this fraction are equal; the difference is rounding.
const SAME: f64 = 1e-9;

/// Differences between two recordings as a whole. Texts are as recorded: not escaped.
pub(super) fn recordings(before: &Side, after: &Side) -> Vec<String> {
    let mut notes = Vec::new();
    for (key, name) in FACTS {
        let (one, other) = (before.fact(key), after.fact(key));
        if one != other {
            let (one, other) = (fact(key, one), fact(key, other));
            notes.push(format!("the {name} differs: {one} before, {other} after"));
        }
    }
    notes
}

/// A note if two spans of one recording overlap.
pub(super) fn overlap(before: &Side, after: &Side) -> Option<String> {
    let (one, other) = (&before.about, &after.about);
    let common = one.end_ns.min(other.end_ns).saturating_sub(one.begin_ns.max(other.begin_ns));
    let text = || format!("the two spans have {} in common", units::human(common as f64, "ns"));
    (common > 0).then(text)
}

fn fact(key: &str, value: Option<&str>) -> String {
    let Some(value) = value else { return "not known".to_owned() };
    let ns = value.parse::<f64>().ok().filter(|_| key.ends_with("_ns"));
    ns.map_or_else(|| value.to_owned(), |ns| units::human(ns, "ns"))
}

/// Whether both count in the same way, and notes on the counters, their filters and the peaks of a
/// link.
pub(super) fn counted(
    (before, event_before): (&Side, Option<&Event>),
    (after, event_after): (&Side, Option<&Event>),
) -> (bool, Vec<String>) {
    let (one, other) = match (event_before, event_after) {
        (Some(one), Some(other)) => (one, other),
        (Some(_), None) => return (false, vec!["not counted after".to_owned()]),
        (None, _) => return (false, vec!["not counted before".to_owned()]),
    };
    let mut notes = Vec::new();
    let (first, second) = (&one.counters, &other.counters);
    let is_same = first == second;
    if !is_same {
        notes.push(format!(
            "the counters differ: {} before, {} after",
            counters_in_words(first, second),
            counters_in_words(second, first)
        ));
    }
    let peaks = |side: &Side, event: &Event| {
        let (place, direction) = event.link?;
        peak(side, place, direction)
    };
    let (first, second) = (peaks(before, one), peaks(after, other));
    let is_one_peak = match (&first, &second) {
        (Some((one, _)), Some((other, _))) => (one - other).abs() <= SAME * one.max(*other),
        (one, other) => one.is_none() && other.is_none(),
    };
    if !is_one_peak {
        let words = |peak: Option<(f64, String)>| peak.map_or("not known".to_owned(), |it| it.1);
        notes.push(format!("the peak differs: {} before, {} after", words(first), words(second)));
    }
    (is_same, notes)
}

/// The peak of a link, as a number and in words.
fn peak(side: &Side, place: usize, direction: Direction) -> Option<(f64, String)> {
    let peak = limit(side.links.links.get(place)?, direction)?.peak;
    let words = format!("{} ({})", units::rate(peak.bytes_per_s, "bytes"), peak.source.name());
    Some((peak.bytes_per_s, words))
}

/// The counters that one has and the other lacks, or has fewer of: `12 x rd_data`.
fn counters_in_words(of: &BTreeMap<String, usize>, other: &BTreeMap<String, usize>) -> String {
    let differs = of.iter().filter(|(what, count)| other.get(*what) != Some(count));
    let words: Vec<String> = differs.map(|(what, count)| format!("{count} x {what}")).collect();
    if words.is_empty() { "nothing more".to_owned() } else { words.join(", ") }
}
