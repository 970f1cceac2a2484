//! The lines of a recording whose windows have rows of the largest owners only: their sums are of
//! the table `sums`, which has all owners, and their shapes of `fabric`.
//!
//! Guarantees: a line has the sum of all of its owner's shares; seconds that are in the selected
//! time in part, and those that a killed recording did not write, are of `fabric`.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use anyhow::Result;

use super::{ReportLine, ShareSum, UsageEvent, merge_lines, sort_by_value};
use crate::schema::{metadata, owner, sums};
use crate::tables::reader::{OpenTable, Recording};
use crate::view::span::SelectedTime;

/// The largest part of a line that `fabric` may lack if its shape is that of `fabric`.
const MISSING_FROM_SHAPE: f64 = 0.01;

/// The table `sums`, and the ends of the windows that its seconds have.
#[derive(Debug)]
pub(super) struct SummedTime {
    /// The table.
    pub(super) table: OpenTable,
    /// Ends of windows in whole seconds.
    pub(super) ends: RangeInclusive<i64>,
}

impl SummedTime {
    /// The whole seconds of the selected time; `None` if `fabric` has all that is known.
    pub(super) fn find(recording: &Recording, span: &SelectedTime) -> Result<Option<Self>> {
        if recording.is_rollup() || !recording.has_table(&sums::TABLE) {
            return Ok(None);
        }
        let table = recording.open_table(&sums::TABLE)?;
        let number = |key: &str| table.metadata_pairs().get(key)?.parse::<i64>().ok();
        // Unknown if the recording was killed.
        if number(metadata::LIMITED_WINDOWS) == Some(0) {
            return Ok(None);
        }
        let bounds = table.column_bounds("mono_ns").zip(number(metadata::INTERVAL_NS));
        let Some(((first_ns, last_ns), window_ns)) = bounds.filter(|(_, length)| *length > 0)
        else {
            return Ok(None);
        };
        let second_ns = sums::second_length_ns(window_ns.unsigned_abs()).cast_signed();
        let round_down = |time_ns: i64| time_ns.div_euclid(second_ns).saturating_mul(second_ns);
        let begin_of_first_ns = round_down(first_ns.saturating_sub(1));
        let asked_begin_ns = span.wanted.start().saturating_sub(1);
        let begin_ns = begin_of_first_ns
            .max(round_down(asked_begin_ns.saturating_add(second_ns).saturating_sub(1)));
        let is_whole = number(metadata::STOP_TICK).is_some();
        let known_end_ns = if is_whole { last_ns } else { round_down(last_ns) };
        let end_ns = if *span.wanted.end() >= known_end_ns {
            known_end_ns
        } else {
            round_down(*span.wanted.end())
        };
        let ends = begin_ns.saturating_add(1)..=end_ns;
        Ok((!ends.is_empty()).then_some(Self { table, ends }))
    }

    /// The ends of windows that are selected and in no whole second.
    pub(super) fn other_ends(&self, wanted: &RangeInclusive<i64>) -> Vec<RangeInclusive<i64>> {
        let before = *wanted.start()..=self.ends.start().saturating_sub(1);
        let after = self.ends.end().saturating_add(1)..=*wanted.end();
        [before, after].into_iter().filter(|ends| !ends.is_empty()).collect()
    }
}

/// Gives the events of `fabric` the lines of `parts`: the sums of consecutive times.
pub(super) fn replace_lines(events: &mut [UsageEvent], parts: Vec<Vec<UsageEvent>>) {
    let mut lines_by_event: HashMap<(String, String), HashMap<(String, String), ReportLine>> =
        HashMap::new();
    for event in parts.into_iter().flatten() {
        let lines = lines_by_event.entry((event.name, event.unit)).or_default();
        for line in event.lines {
            let key = (line.owner.clone(), line.key.clone());
            let sum = match lines.remove(&key) {
                Some(sum) => add_later_line(sum, line),
                None => line,
            };
            lines.insert(key, sum);
        }
    }
    for event in events {
        let Some(mut lines) = lines_by_event.remove(&(event.name.clone(), event.unit.clone()))
        else {
            continue;
        };
        for shape in event.lines.drain(..) {
            if let Some(line) = lines.get_mut(&(shape.owner.clone(), shape.key.clone())) {
                take_shape(line, shape);
            }
        }
        event.lines = lines.into_values().collect();
        let nobody = event.lines.iter().filter(|line| line.owner == owner::UNATTRIBUTED);
        event.unattributed = nobody.map(|line| line.sum.value).sum();
        sort_by_value(&mut event.lines);
    }
}

/// Adds the same line of another time.
fn add_later_line(line: ReportLine, later: ReportLine) -> ReportLine {
    let highest = line.peak.into_iter().chain(later.peak).reduce(f64::max);
    ReportLine { peak: highest, ..merge_lines(line, later, ShareSum::add_same_owner) }
}

/// Gives a line the shape that `fabric` has of it, unless that lacks much of the line.
fn take_shape(line: &mut ReportLine, shape: ReportLine) {
    let missing = line.sum.value - shape.sum.value;
    if missing.abs() <= MISSING_FROM_SHAPE * line.sum.value.abs() {
        (line.heat, line.active) = (shape.heat, shape.active);
    }
    // Its windows are shorter than a second.
    line.peak = shape.peak.or(line.peak);
    line.methods.extend(shape.methods);
}
