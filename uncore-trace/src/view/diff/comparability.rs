//! Lists what makes two recordings hard to compare: different facts of the recordings, and links
//! with other counters or peaks.
//!
//! Guarantee: a link or event with different counters or filters is never compared without a note.

use std::collections::BTreeMap;

use super::side::{SideEvent, SideUsage};
use crate::schema::link::PeakRate;
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
pub(super) fn compare_metadata(before_side: &SideUsage, after_side: &SideUsage) -> Vec<String> {
    let mut notes = Vec::new();
    for (key, name) in FACTS {
        let (before_value, after_value) =
            (before_side.metadata_value(key), after_side.metadata_value(key));
        if before_value != after_value {
            let (before_text, after_text) =
                (describe_fact(key, before_value), describe_fact(key, after_value));
            notes.push(format!("the {name} differs: {before_text} before, {after_text} after"));
        }
    }
    notes
}

/// A note if two spans of one recording overlap.
pub(super) fn note_overlap(before_side: &SideUsage, after_side: &SideUsage) -> Option<String> {
    let (before, after) = (before_side.facts.span, after_side.facts.span);
    let begin_ns = before.begin_ns.max(after.begin_ns);
    let common = before.end_ns.min(after.end_ns).saturating_sub(begin_ns);
    let text = || format!("the two spans have {} in common", units::human(common as f64, "ns"));
    (common > 0).then(text)
}

fn describe_fact(key: &str, value: Option<&str>) -> String {
    let Some(value) = value else { return "not known".to_owned() };
    let ns = value.parse::<f64>().ok().filter(|_| key.ends_with("_ns"));
    ns.map_or_else(|| value.to_owned(), |ns| units::human(ns, "ns"))
}

/// Whether both count in the same way, and notes on the counters, their filters and the peaks of a
/// link.
pub(super) fn compare_counters(before: SideEvent<'_>, after: SideEvent<'_>) -> (bool, Vec<String>) {
    let (counted_before, counted_after) = match (before.event, after.event) {
        (Some(counted_before), Some(counted_after)) => (counted_before, counted_after),
        (Some(_), None) => return (false, vec!["not counted after".to_owned()]),
        (None, _) => return (false, vec!["not counted before".to_owned()]),
    };
    let mut notes = Vec::new();
    let (before_counters, after_counters) = (&counted_before.counters, &counted_after.counters);
    let is_same = before_counters == after_counters;
    if !is_same {
        notes.push(format!(
            "the counters differ: {} before, {} after",
            counters_in_words(before_counters, after_counters),
            counters_in_words(after_counters, before_counters)
        ));
    }
    let (before_peak, after_peak) = (before.link_peak(), after.link_peak());
    let is_one_peak = match (before_peak, after_peak) {
        (Some(before_peak), Some(after_peak)) => {
            let (before_per_s, after_per_s) = (before_peak.bytes_per_s, after_peak.bytes_per_s);
            (before_per_s - after_per_s).abs() <= SAME * before_per_s.max(after_per_s)
        }
        (before_peak, after_peak) => before_peak.is_none() && after_peak.is_none(),
    };
    if !is_one_peak {
        let words = |peak: &PeakRate| {
            let rate = units::human_rate(peak.bytes_per_s, "bytes");
            format!("{rate} ({})", peak.source.source_name())
        };
        let [before_text, after_text] = [before_peak, after_peak]
            .map(|peak| peak.map_or_else(|| "not known".to_owned(), words));
        notes.push(format!("the peak differs: {before_text} before, {after_text} after"));
    }
    (is_same, notes)
}

/// The counters that one has and the other lacks, or has fewer of: `12 x rd_data`.
fn counters_in_words(
    counters: &BTreeMap<String, usize>,
    other_counters: &BTreeMap<String, usize>,
) -> String {
    let differs = counters
        .iter()
        .filter(|(counter_name, count)| other_counters.get(*counter_name) != Some(count));
    let words: Vec<String> =
        differs.map(|(counter_name, count)| format!("{count} x {counter_name}")).collect();
    if words.is_empty() { "nothing more".to_owned() } else { words.join(", ") }
}
