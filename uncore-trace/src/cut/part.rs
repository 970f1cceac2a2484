//! One of the recordings that are copied.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};

use super::number;
use crate::clock::Snapshot;
use crate::schema::columns::words;
use crate::schema::loss::{self, Cause};
use crate::schema::{TableDef, columns, fabric, metadata, runtime};
use crate::tables::manifest::Manifest;
use crate::tables::reader::{Recording, Table};

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
pub(super) struct Part {
    pub recording: Recording,
    pub pairs: BTreeMap<String, String>,
    pub clocks: Vec<Snapshot>,
    /// Begin of the first tick and end of the last, `CLOCK_MONOTONIC`, ns.
    pub begin: i64,
    pub end: i64,
    pub tick_ns: i64,
    window_ns: i64,
    /// Whether the recorder finished it.
    pub is_whole: bool,
}

impl Part {
    /// Opens the tables and reads the metadata.
    ///
    /// # Errors
    ///
    /// It has no raw tables, is empty or is damaged.
    pub(super) fn open(recording: &Recording) -> Result<Self> {
        let shown = recording.path().display();
        ensure!(
            recording.is_dataset(),
            "{shown} is a single file without raw tables: record into a directory, e.g. -o run/"
        );
        let wrong = Manifest::of_dataset(recording)?.map(|list| list.wrong(recording));
        if let Some(wrong) = wrong.as_deref().and_then(<[String]>::first) {
            bail!("{shown} is not as it was recorded: {wrong}");
        }
        let timeline = recording.table(&fabric::TABLE)?;
        let pairs = timeline.metadata().clone();
        let clocks = pairs.get(metadata::CLOCKS).and_then(|text| serde_json::from_str(text).ok());
        let (tick_ns, window_ns) =
            (number(&pairs, metadata::TICK_NS)?, number(&pairs, metadata::INTERVAL_NS)?);
        let stop = pairs.get(metadata::STOP_TICK).and_then(|text| text.parse::<i64>().ok());
        let end = stop
            .map(|tick| tick.saturating_mul(tick_ns))
            .or_else(|| timeline.bounds("mono_ns").map(|(_, last)| last));
        let begin = begin(recording)?;
        let (Some(begin), Some(end)) = (begin, end) else {
            bail!("{shown} has no rows");
        };
        let recording = recording.clone();
        let clocks = clocks.with_context(|| format!("{shown} has no clocks in its metadata"))?;
        let is_whole = stop.is_some();
        Ok(Self { recording, pairs, clocks, begin, end, tick_ns, window_ns, is_whole })
    }

    /// One of its tables, if it has that.
    pub(super) fn table(&self, def: &'static TableDef) -> Result<Option<Table>> {
        let is_there = self.recording.tables().iter().any(|table| table.name == def.name);
        is_there.then(|| self.recording.table(def)).transpose()
    }

    /// Checks that `next` begins where this part ends, and has the same counters.
    pub(super) fn require_next(&self, next: &Self) -> Result<()> {
        let (one, other) = (self.recording.path().display(), next.recording.path().display());
        let differs = IN_COMMON.iter().find(|key| self.pairs.get(**key) != next.pairs.get(**key));
        if let Some(key) = differs {
            bail!(
                "{one} and {other} are of different recordings: their {key} differ; name one of them"
            );
        }
        if self.end != next.begin {
            let gap = (next.begin - self.end) as f64 / 1e9;
            bail!(
                "{other} does not begin where {one} ends, but {gap:.3} s later: name one of them, or a time \
                 that is in one"
            );
        }
        Ok(())
    }

    /// Numbers of the ticks that end at these times.
    pub(super) const fn ticks(&self, (begin, end): (i64, i64)) -> (i64, i64) {
        (begin / self.tick_ns, end / self.tick_ns)
    }

    /// Begin of the window that contains `time`, or of an earlier one: all counters were read at it.
    pub(super) fn window_begin(&self, time: i64) -> Result<i64> {
        let unread = self.unread()?;
        let mut to = time;
        while to > self.begin {
            // A window that ends at `time` does not contain it.
            let ends = self.ends(to.saturating_sub(self.window_ns), to)?;
            let read = ends.into_iter().filter(|end| *end <= time && !unread.contains(end));
            if let Some(end) = read.max() {
                return Ok(end.max(self.begin));
            }
            to = to.saturating_sub(self.window_ns);
        }
        Ok(self.begin)
    }

    /// End of the window that contains `time`, or of a later one: all counters were read at it.
    pub(super) fn window_end(&self, time: i64) -> Result<i64> {
        let unread = self.unread()?;
        let mut from = time;
        while from < self.end {
            let ends = self.ends(from, from.saturating_add(self.window_ns))?;
            let read = ends.into_iter().filter(|end| *end >= time && !unread.contains(end));
            if let Some(end) = read.min() {
                return Ok(end.min(self.end));
            }
            from = from.saturating_add(self.window_ns);
        }
        Ok(self.end)
    }

    /// Ends of windows at which a counter was not read: its count up to there is in a later row.
    fn unread(&self) -> Result<BTreeSet<i64>> {
        let Some(table) = self.table(&loss::TABLE)? else { return Ok(BTreeSet::new()) };
        let mut found = BTreeSet::new();
        for batch in table.scan(&["mono_ns", "cause"])? {
            let batch = batch?;
            let (times, causes) = (columns::i64s(&batch, "mono_ns")?, words(&batch, "cause")?);
            let is_unread = |row: &usize| causes.get(*row) == Some(Cause::NoBoundary.name());
            found.extend((0..batch.num_rows()).filter(is_unread).map(|row| times.value(row)));
        }
        Ok(found)
    }

    /// Ends of windows between two times; some outside may be included.
    fn ends(&self, from: i64, to: i64) -> Result<Vec<i64>> {
        let table = self.recording.table(&fabric::TABLE)?;
        let mut found = Vec::new();
        for batch in table.scan_within(&["mono_ns"], "mono_ns", from..=to)? {
            let batch = batch?;
            found.extend_from_slice(columns::i64s(&batch, "mono_ns")?.values());
            found.dedup();
        }
        Ok(found)
    }
}

/// Begin of the first tick, ns.
fn begin(recording: &Recording) -> Result<Option<i64>> {
    let mut scan = recording.table(&runtime::TABLE)?.scan(&["mono_ns", "tick_ns"])?;
    let Some(batch) = scan.next().transpose()?.filter(|batch| batch.num_rows() > 0) else {
        return Ok(None);
    };
    let (end, length) = (columns::i64s(&batch, "mono_ns")?, columns::i64s(&batch, "tick_ns")?);
    Ok(Some(end.value(0).saturating_sub(length.value(0))))
}
