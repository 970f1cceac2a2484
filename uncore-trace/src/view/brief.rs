//! A recording in three lines: the fullest links or the largest events, and who had them.
//!
//! Guarantee: at most [`MAX_ROWS`] rows, and those of the row groups at their ends, are read
//! however long the recording is. What is said of a longer one is of its last part, and says so.

use anyhow::Result;

use super::answer::{RankedEvent, line_name, rank_events, share_text};
use super::canary;
use super::links::Links;
use super::question::ReportQuestion;
use super::report_sums::ReportEvent;
use super::span::TimePoint;
use super::tenants::sum_report_of_tenants;
use crate::schema::fabric;
use crate::tables::reader::Recording;
use crate::terminal::{cells, mark, shorten, wrap_words};
use crate::text::printable;
use crate::units::{self, percent};

/// Number of rows that are read: about half a second. `report` reads 5 million in 0.9 s and 33 MiB
/// (a recording of `cargo xtask bench read`, 2026-11-26).
pub const MAX_ROWS: i64 = 3_000_000;

/// Number of links or events.
const EVENTS: usize = 3;

/// Smallest part of an event for which a second owner is named.
const MIN_FRACTION: f64 = 0.01;

/// Fewest cells of an owner's name.
const MIN_NAME_CELLS: usize = 16;

/// A heading, and one line for each of the fullest links or, where nothing was counted on a link,
/// of the events with the highest rates in their units. A line has at most `width` cells unless
/// that is very small.
///
/// # Errors
///
/// The recording cannot be read.
pub fn brief_of_recording(recording: &Recording, width: usize) -> Result<Vec<String>> {
    brief_of_rows(recording, width, MAX_ROWS)
}

fn brief_of_rows(recording: &Recording, width: usize, max_rows: i64) -> Result<Vec<String>> {
    let table = recording.open_table(&fabric::TABLE)?;
    let last_part = table.column_bounds("mono_ns").filter(|_| table.row_count() > max_rows).map(
        |(begin_ns, end_ns)| {
            let whole_ns = end_ns.saturating_sub(begin_ns) as f64;
            let part_ns = whole_ns * max_rows as f64 / table.row_count() as f64;
            (part_ns, TimePoint::After((whole_ns - part_ns) as i64))
        },
    );
    let is_whole = last_part.is_none();
    let links = Links::from_recording(recording)?;
    let wanted_links = (!links.links.is_empty()).then_some(&links);
    let mut question = ReportQuestion { links: wanted_links, ..ReportQuestion::default() };
    let mut time = String::new();
    if let Some((ns, from)) = last_part {
        time = format!(" in the last {}", units::human(ns, "ns"));
        question.begin = Some(from);
    }
    let mut answer = vec![format!("who had most{time}, with its 90 % interval:")];
    let mut sums = sum_report_of_tenants(recording, &question)?;
    let is_idle = sums.events.iter().all(|event| event.total <= 0.0);
    if is_idle && question.links.take().is_some() {
        sums = sum_report_of_tenants(recording, &question)?;
    }
    let ranked = rank_events(&sums.events, &links);
    answer.extend(fold_equal_owners(ranked.iter().take(EVENTS), width));
    if ranked.is_empty() {
        answer = vec![format!("nothing was counted{time}")];
    }
    if is_whole && let Some(canary_credits) = canary::read_credits(recording)? {
        let sentence = wrap_words(&canary::credits_sentence(&canary_credits), width);
        answer.extend(sentence.lines().map(str::to_owned));
    }
    Ok(answer)
}

/// A line for each of the links or events; those with the same owners, to the digit, are one line.
fn fold_equal_owners<'a>(
    ranked: impl Iterator<Item = &'a RankedEvent<'a>>,
    width: usize,
) -> Vec<String> {
    let mut lines: Vec<(String, String)> = Vec::new();
    for ranked_event in ranked {
        let rate = rate_text(ranked_event);
        let owners = owners_text(ranked_event.event, width.saturating_sub(cells(&rate)));
        match lines.last_mut() {
            Some((rates, last_owners))
                if *last_owners == owners
                    && cells(rates) + cells(&rate) + cells(last_owners) + 2 <= width =>
            {
                rates.push_str(", ");
                rates.push_str(&rate);
            }
            _ => lines.push((rate, owners)),
        }
    }
    lines.into_iter().map(|(rates, owners)| format!("{rates}{owners}")).collect()
}

/// `memory 0 in 13.9 GB/s, 40 % full`.
fn rate_text(&RankedEvent { event, rate, full }: &RankedEvent<'_>) -> String {
    let full = full.map(|fraction| format!(", {} full", percent(fraction))).unwrap_or_default();
    format!("{} {}{full}", printable(&event.name), units::human_rate(rate, &printable(&event.unit)))
}

/// The one or two owners with most, after a colon, in at most `room` cells unless that is very
/// small.
fn owners_text(event: &ReportEvent, room: usize) -> String {
    let mut text = String::from(": ");
    let largest = event.lines.iter().filter(|line| line.sum.value > 0.0).take(2);
    for (position, owner) in largest.enumerate() {
        let fraction = owner.sum.value / event.total;
        let share_of_event = format!(" {}", share_text(owner, event));
        let joined = if position == 0 { "" } else { ", " };
        let remaining = room.saturating_sub(cells(&text) + cells(&share_of_event) + cells(joined));
        if position > 0 && (fraction < MIN_FRACTION || remaining < MIN_NAME_CELLS) {
            break;
        }
        let name = line_name(owner);
        text.push_str(joined);
        text.push_str(&shorten(&name, remaining.max(MIN_NAME_CELLS), mark(false)));
        text.push_str(&share_of_event);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::sample::{INTACT, SampleRecording};
    use super::*;

    #[test]
    fn a_long_recording_is_read_in_part_and_says_so() {
        let sample = SampleRecording::new(false, &INTACT);
        let recording = sample.open();
        let rows = recording.open_table(&fabric::TABLE).unwrap().row_count();
        let whole = brief_of_rows(&recording, 86, rows).unwrap();
        assert_eq!(whole[0], "who had most, with its 90 % interval:");
        let part = brief_of_rows(&recording, 86, rows / 2).unwrap();
        assert!(part[0].starts_with("who had most in the last "), "{part:?}");
        assert!(part.len() > 1 && part.len() <= 1 + EVENTS, "{part:?}");
    }

    #[test]
    fn the_fullest_links_come_first() {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples/grace");
        let lines = brief_of_recording(&Recording::open(&sample).unwrap(), 100).unwrap();
        assert_eq!(
            lines,
            [
                "who had most, with its 90 % interval:",
                "memory of other sockets 0 in 13.9 GB/s: train 96 % (85 to 100 %), web 3 % (2 to \
                 4 %)",
                "PCIe vda, vdb in 33.6 MB/s: backup 99 %",
                "PCIe vda, vdb out 25.9 MB/s: logger 99 % (99 to 100 %)",
            ]
        );
    }

    #[test]
    fn lines_of_the_brief_fit_and_name_the_largest_owner() {
        let sample = SampleRecording::new(false, &INTACT);
        let recording = sample.open();
        for width in [66, 86, 186] {
            let lines = brief_of_recording(&recording, width).unwrap();
            assert!((2..=1 + EVENTS).contains(&lines.len()), "{lines:?}");
            for line in &lines {
                assert!(cells(line) <= width, "{width}: {line}");
                assert!(line.contains(" %"), "{line}");
            }
        }
    }
}
