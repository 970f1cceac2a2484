//! A recording in three lines: the fullest links or the largest events, and who had them.
//!
//! Guarantee: at most [`MOST_ROWS`] rows, and those of the row groups at their ends, are read
//! however long the recording is. What is said of a longer one is of its last part, and says so.

use std::borrow::Cow;

use anyhow::Result;

use super::interval::Interval;
use super::key::By;
use super::links::{Links, limit};
use super::span::Moment;
use super::usage::{Event, Line, Question, usage};
use crate::schema::fabric;
use crate::schema::link::Direction;
use crate::tables::reader::Recording;
use crate::terminal::{cells, mark, shorten};
use crate::text::printable;
use crate::units::{self, percent};

/// Number of rows that are read: about half a second. `report` reads 5 million in 0.9 s and 33 MiB
/// (a recording of `cargo xtask bench read`, 2026-11-26).
pub const MOST_ROWS: i64 = 3_000_000;

/// Number of links or events.
const EVENTS: usize = 3;

/// Smallest part of an event for which a second owner is named.
const LEAST: f64 = 0.01;

/// Fewest cells of an owner's name.
const NAME: usize = 16;

/// A heading, and one line for each of the fullest links or, where nothing was counted on a link, of
/// the events with the highest rates in their units. A line has at most `width` cells unless that is
/// very small.
///
/// # Errors
///
/// The recording cannot be read.
pub fn brief(recording: &Recording, width: usize) -> Result<Vec<String>> {
    within(recording, width, MOST_ROWS)
}

fn within(recording: &Recording, width: usize, most: i64) -> Result<Vec<String>> {
    let table = recording.table(&fabric::TABLE)?;
    let last = table.bounds("mono_ns").filter(|_| table.rows() > most).map(|(first, last)| {
        let whole = last.saturating_sub(first) as f64;
        let part = whole * most as f64 / table.rows() as f64;
        (part, Moment::After((whole - part) as i64))
    });
    let links = Links::of(recording)?;
    let mut question = Question::by(By::Cgroup);
    question.links = (!links.links.is_empty()).then_some(&links);
    let mut time = String::new();
    if let Some((ns, from)) = last {
        time = format!(" in the last {}", units::human(ns, "ns"));
        question.from = Some(from);
    }
    let mut answer = vec![format!("who had most{time}, with its 90 % interval:")];
    let mut sums = usage(recording, &question)?;
    let is_idle = sums.events.iter().all(|event| event.total <= 0.0);
    if is_idle && question.links.take().is_some() {
        sums = usage(recording, &question)?;
    }
    let mut events: Vec<(Option<f64>, f64, &Event)> = Vec::new();
    for event in sums.events.iter().filter(|event| event.total > 0.0) {
        let Some(rate) = event.rate(event.total) else { continue };
        events.push((fullness(event, rate, &sums.events, &links), rate, event));
    }
    events.sort_by(|a, b| {
        let full = |part: Option<f64>| part.unwrap_or(-1.0);
        full(b.0).total_cmp(&full(a.0)).then(b.1.total_cmp(&a.1))
    });
    let largest = events.iter().take(EVENTS);
    answer.extend(largest.map(|(full, rate, event)| line(event, *rate, *full, width)));
    if events.is_empty() {
        answer = vec![format!("nothing was counted{time}")];
    }
    Ok(answer)
}

/// How full the link of an event is, as a fraction of its peak; of both directions together if only
/// that peak is known.
fn fullness(event: &Event, rate: f64, all: &[Event], links: &Links) -> Option<f64> {
    let (place, direction) = event.link?;
    let link = links.links.get(place)?;
    if let Some(limit) = limit(link, direction) {
        return Some(limit.part(rate));
    }
    let of_link = all.iter().filter(|its| its.link.is_some_and(|(its, _)| its == place));
    let both = of_link.filter_map(|its| its.rate(its.total)).sum();
    limit(link, Direction::Both).map(|limit| limit.part(both))
}

fn line(event: &Event, rate: f64, full: Option<f64>, width: usize) -> String {
    let full = full.map(|part| format!(", {} full", percent(part))).unwrap_or_default();
    let mut text = format!("{} {}{full}: ", printable(&event.name), units::rate(rate, &event.unit));
    let owners = || event.lines.iter().filter(|line| line.sum.value > 0.0);
    for (at, owner) in owners().take(2).enumerate() {
        let part = owner.sum.value / event.total;
        let share = format!(" {}", had(owner, event, part));
        let joined = if at == 0 { "" } else { ", " };
        let room = width.saturating_sub(cells(&text) + cells(&share) + cells(joined));
        if at > 0 && (part < LEAST || room < NAME) {
            break;
        }
        let name = name(owner);
        text.push_str(joined);
        text.push_str(&shorten(&name, room.max(NAME), mark(false)));
        text.push_str(&share);
    }
    text
}

/// The name, in brackets if it is no tenant's.
fn name(line: &Line) -> Cow<'_, str> {
    let name = printable(&line.key);
    if line.key == line.owner { format!("({name})").into() } else { name }
}

/// `96 % (85 to 100 %)`; without the interval if that is the value.
fn had(owner: &Line, event: &Event, part: f64) -> String {
    let share = percent(part);
    let ends = |Interval { low, high }| [low, high].map(|end| percent(end / event.total));
    match owner.interval(event).map(ends) {
        Some([low, high]) if low != share || high != share => {
            let low = low.trim_end_matches(" %");
            format!("{share} ({low} to {high})")
        }
        _ => share,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::sample::{INTACT, Sample};
    use super::*;

    #[test]
    fn a_long_recording_is_read_in_part_and_says_so() {
        let sample = Sample::new(false, &INTACT);
        let recording = sample.open();
        let rows = recording.table(&fabric::TABLE).unwrap().rows();
        let whole = within(&recording, 86, rows).unwrap();
        assert_eq!(whole[0], "who had most, with its 90 % interval:");
        let part = within(&recording, 86, rows / 2).unwrap();
        assert!(part[0].starts_with("who had most in the last "), "{part:?}");
        assert!(part.len() > 1 && part.len() <= 1 + EVENTS, "{part:?}");
    }

    #[test]
    fn the_fullest_links_come_first() {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples/grace");
        let lines = brief(&Recording::open(&sample).unwrap(), 100).unwrap();
        assert_eq!(
            lines,
            [
                "who had most, with its 90 % interval:",
                "memory of other sockets 0 in 13.9 GB/s: /lab/train 96 % (85 to 100 %)",
                "PCIe vda, vdb in 33.6 MB/s: /lab/backup 99 %",
                "PCIe vda, vdb out 25.9 MB/s: /lab/logger 99 % (99 to 100 %)",
            ]
        );
    }

    #[test]
    fn lines_fit_and_name_who_had_most() {
        let sample = Sample::new(false, &INTACT);
        let recording = sample.open();
        for width in [66, 86, 186] {
            let lines = brief(&recording, width).unwrap();
            assert!((2..=1 + EVENTS).contains(&lines.len()), "{lines:?}");
            for line in &lines {
                assert!(cells(line) <= width, "{width}: {line}");
                assert!(line.contains(" %"), "{line}");
            }
        }
    }
}
