//! Which part of a recording the table `sums` has, where windows of `fabric` have rows of the largest
//! owners only.
//!
//! Seconds that are in the selected time in part, and those that a killed recording did not write,
//! are of `fabric`.

use std::ops::RangeInclusive;

use anyhow::Result;

use crate::schema::metadata;
use crate::schema::sums::{self, SecondGrid};
use crate::tables::reader::{OpenTable, Recording};

/// The table `sums`, and the ends of the windows that its seconds have.
#[derive(Debug)]
pub struct SummedTime {
    /// The table.
    pub table: OpenTable,
    /// Ends of windows in whole seconds.
    pub ends: RangeInclusive<i64>,
}

impl SummedTime {
    /// The whole seconds of which all windows end in `wanted`; `None` if the windows have rows of
    /// all owners, or if there are no sums.
    ///
    /// # Errors
    ///
    /// The table cannot be opened.
    pub fn find_seconds(
        recording: &Recording,
        wanted: &RangeInclusive<i64>,
    ) -> Result<Option<Self>> {
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
        let grid = SecondGrid::from_window(window_ns.unsigned_abs());
        let asked_begin_ns = grid.round_up(wanted.start().saturating_sub(1));
        let begin_ns = grid.round_down(first_ns.saturating_sub(1)).max(asked_begin_ns);
        let is_whole = number(metadata::STOP_TICK).is_some();
        let known_end_ns = if is_whole { last_ns } else { grid.round_down(last_ns) };
        let is_all_wanted = *wanted.end() >= known_end_ns;
        let end_ns = if is_all_wanted { known_end_ns } else { grid.round_down(*wanted.end()) };
        let ends = begin_ns.saturating_add(1)..=end_ns;
        Ok((!ends.is_empty()).then_some(Self { table, ends }))
    }

    /// The ends of windows that are selected and in no whole second.
    pub fn other_ends(&self, wanted: &RangeInclusive<i64>) -> Vec<RangeInclusive<i64>> {
        let before = *wanted.start()..=self.ends.start().saturating_sub(1);
        let after = self.ends.end().saturating_add(1)..=*wanted.end();
        [before, after].into_iter().filter(|ends| !ends.is_empty()).collect()
    }
}
