//! One of the recordings that are copied.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};

use super::rows::CutTicks;
use crate::clock::{Snapshot, TimeSpan};
use crate::schema::columns::word_column;
use crate::schema::loss::{self, LossCause};
use crate::schema::sums::SecondGrid;
use crate::schema::{columns, fabric, metadata};
use crate::tables::reader::Recording;

/// Metadata that must be equal in all parts of one recording.
const IN_COMMON: [&str; 5] = [
    metadata::BOOT_ID,
    metadata::TICK_NS,
    metadata::INTERVAL_NS,
    metadata::PLAN,
    metadata::SCHEMA_VERSION,
];

/// An open recording, with the metadata that `cut` needs.
#[derive(Debug)]
pub(super) struct PartToCut {
    pub recording: Recording,
    pub pairs: BTreeMap<String, String>,
    pub clocks: Vec<Snapshot>,
    /// Begin of the first tick and end of the last, `CLOCK_MONOTONIC`, ns.
    pub begin_ns: i64,
    pub end_ns: i64,
    pub tick_ns: i64,
    window_ns: i64,
    /// Whether the recorder finished it.
    pub is_whole: bool,
}

impl PartToCut {
    /// Opens the tables and reads the metadata.
    ///
    /// # Errors
    ///
    /// It has no raw tables, is empty or is damaged.
    pub(super) fn open_part(recording: &Recording) -> Result<Self> {
        let shown = recording.recording_path().display();
        recording.require_dataset()?;
        recording.require_own_tables()?;
        let timeline = recording.open_table(&fabric::TABLE)?;
        let pairs = timeline.metadata_pairs().clone();
        let clocks = pairs.get(metadata::CLOCKS).and_then(|text| serde_json::from_str(text).ok());
        let tick_ns = metadata::number(&pairs, metadata::TICK_NS, 1)?;
        let window_ns = metadata::number(&pairs, metadata::INTERVAL_NS, 1)?;
        let stop = pairs.get(metadata::STOP_TICK).and_then(|text| text.parse::<i64>().ok());
        let end = stop
            .map(|tick| tick.saturating_mul(tick_ns))
            .or_else(|| timeline.column_bounds("mono_ns").map(|(_, last_end_ns)| last_end_ns));
        let (Some(begin_ns), Some(end_ns)) = (recording.first_tick_ns()?, end) else {
            bail!("{shown} has no rows");
        };
        let recording = recording.clone();
        let clocks = clocks.with_context(|| format!("{shown} has no clocks in its metadata"))?;
        let is_whole = stop.is_some();
        Ok(Self { recording, pairs, clocks, begin_ns, end_ns, tick_ns, window_ns, is_whole })
    }

    /// Checks that `next_part` begins where this part ends, and has the same counters.
    pub(super) fn require_next(&self, next_part: &Self) -> Result<()> {
        let (this_path, next_path) = (
            self.recording.recording_path().display(),
            next_part.recording.recording_path().display(),
        );
        let differing_key =
            IN_COMMON.iter().find(|key| self.pairs.get(**key) != next_part.pairs.get(**key));
        if let Some(key) = differing_key {
            bail!(
                "{this_path} and {next_path} are of different recordings: their {key} differ; \
                 name one of them"
            );
        }
        if self.end_ns != next_part.begin_ns {
            let gap = (next_part.begin_ns - self.end_ns) as f64 / 1e9;
            bail!(
                "{next_path} does not begin where {this_path} ends, but {gap:.3} s later: name \
                 one of them, or a time that is in one"
            );
        }
        Ok(())
    }

    /// What the part has of a span.
    pub(super) fn overlap(&self, span: TimeSpan<i64>) -> TimeSpan<i64> {
        TimeSpan::new(span.begin_ns.max(self.begin_ns), span.end_ns.min(self.end_ns))
    }

    /// The whole seconds of the part that are in a span: the first and the last of the part are
    /// whole.
    pub(super) fn seconds_within(&self, span: TimeSpan<i64>) -> TimeSpan<i64> {
        let grid = SecondGrid::from_window(self.window_ns.unsigned_abs());
        let TimeSpan { mut begin_ns, mut end_ns } = self.overlap(span);
        if begin_ns > self.begin_ns {
            begin_ns = grid.round_up(begin_ns);
        }
        if end_ns < self.end_ns {
            end_ns = grid.round_down(end_ns);
        }
        TimeSpan { begin_ns, end_ns: end_ns.max(begin_ns) }
    }

    /// The ticks of the part that are in a span.
    pub(super) fn ticks_within(&self, span: TimeSpan<i64>) -> CutTicks {
        let overlap = self.overlap(span);
        CutTicks {
            begin_tick: overlap.begin_ns / self.tick_ns,
            end_tick: overlap.end_ns / self.tick_ns,
            is_cut_at_begin: span.begin_ns > self.begin_ns,
            is_cut_at_end: span.end_ns < self.end_ns,
        }
    }

    /// Begin of the window that contains `time`, or of an earlier one: all counters were read at
    /// it.
    pub(super) fn window_begin(&self, time: i64) -> Result<i64> {
        let unread = self.unread_boundaries()?;
        let mut search_end_ns = time;
        while search_end_ns > self.begin_ns {
            // A window that ends at `time` does not contain it.
            let ends =
                self.window_ends(search_end_ns.saturating_sub(self.window_ns), search_end_ns)?;
            let read = ends.into_iter().filter(|end| *end <= time && !unread.contains(end));
            if let Some(end) = read.max() {
                return Ok(end.max(self.begin_ns));
            }
            search_end_ns = search_end_ns.saturating_sub(self.window_ns);
        }
        Ok(self.begin_ns)
    }

    /// End of the window that contains `time`, or of a later one: all counters were read at it.
    pub(super) fn window_end(&self, time: i64) -> Result<i64> {
        let unread = self.unread_boundaries()?;
        let mut search_begin_ns = time;
        while search_begin_ns < self.end_ns {
            let ends =
                self.window_ends(search_begin_ns, search_begin_ns.saturating_add(self.window_ns))?;
            let read = ends.into_iter().filter(|end| *end >= time && !unread.contains(end));
            if let Some(end) = read.min() {
                return Ok(end.min(self.end_ns));
            }
            search_begin_ns = search_begin_ns.saturating_add(self.window_ns);
        }
        Ok(self.end_ns)
    }

    /// Ends of windows at which a counter was not read: its count up to there is in a later row.
    fn unread_boundaries(&self) -> Result<BTreeSet<i64>> {
        let Some(table) = self.recording.find_table(&loss::TABLE)? else {
            return Ok(BTreeSet::new());
        };
        let mut unread_ns = BTreeSet::new();
        for batch in table.scan_columns(&["mono_ns", "cause"])? {
            let batch = batch?;
            let (times, causes) =
                (columns::i64_column(&batch, "mono_ns")?, word_column(&batch, "cause")?);
            let is_unread = |row: &usize| causes.get(*row) == Some(LossCause::NoBoundary.name());
            unread_ns.extend((0..batch.num_rows()).filter(is_unread).map(|row| times.value(row)));
        }
        Ok(unread_ns)
    }

    /// Ends of windows between two times; some outside may be included.
    fn window_ends(&self, from_ns: i64, to_ns: i64) -> Result<Vec<i64>> {
        let table = self.recording.open_table(&fabric::TABLE)?;
        let mut ends_ns = Vec::new();
        for batch in table.scan_within(&["mono_ns"], "mono_ns", from_ns..=to_ns)? {
            ends_ns.extend_from_slice(columns::i64_column(&batch?, "mono_ns")?.values());
            ends_ns.dedup();
        }
        Ok(ends_ns)
    }
}
