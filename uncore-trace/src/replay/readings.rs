//! Reads the table `readings` in the order of the log.
//!
//! Within a row group the rows are sorted by counter; the rows of one counter are in the order of
//! the log over the whole table. A row group is read as soon as one of its rows may belong to the
//! tick that ends next, according to its statistics.

use anyhow::Result;
use arrow::array::RecordBatch;

use super::ReplayLog;
use super::owners::OwnerColumns;
use crate::entries::{CounterReading, CounterValue, LogEntry, ReadingTrigger};
use crate::schema::columns::{self, nullable_value};
use crate::schema::readings;
use crate::tables::reader::{OpenTable, Recording};

const COLUMNS: [&str; 14] = [
    "mono_ns",
    "tick",
    "counter",
    "cpu",
    "value",
    "enabled",
    "running",
    "trigger",
    "error",
    "pid",
    "owner",
    "process",
    "owner_cgroup_id",
    "number",
];

/// The row groups that were not used yet.
#[derive(Debug)]
pub(super) struct StoredReadings {
    table: OpenTable,
    group: usize,
    /// For each row group, the lowest tick in it and in all later ones.
    lowest: Vec<u64>,
}

impl StoredReadings {
    /// Opens the table.
    pub(super) fn open_table(recording: &Recording) -> Result<Self> {
        let table = recording.open_table(&readings::TABLE)?;
        let lowest_in_group =
            |group| table.group_minimum(group, "tick").map_or(0, |tick| tick as u64);
        let mut lowest: Vec<u64> = (0..table.row_groups()).map(lowest_in_group).collect();
        for group in (1..lowest.len()).rev() {
            lowest[group - 1] = lowest[group - 1].min(lowest[group]);
        }
        Ok(Self { table, group: 0, lowest })
    }

    /// Adds all rows up to `tick`, and possibly later ones.
    pub(super) fn feed_until(&mut self, tick: u64, log: &mut ReplayLog) -> Result<()> {
        while self.lowest.get(self.group).is_some_and(|lowest| *lowest <= tick) {
            for batch in self.table.scan_group(&COLUMNS, self.group)? {
                log_batch(&batch?, log)?;
            }
            self.group += 1;
        }
        Ok(())
    }
}

fn log_batch(batch: &RecordBatch, log: &mut ReplayLog) -> Result<()> {
    let (mono_ns, tick) =
        (columns::i64_column(batch, "mono_ns")?, columns::i64_column(batch, "tick")?);
    let (counter, cpu) =
        (columns::i32_column(batch, "counter")?, columns::i32_column(batch, "cpu")?);
    let (value, error) =
        (columns::bits_column(batch, "value")?, columns::i32_column(batch, "error")?);
    let (enabled, running) =
        (columns::bits_column(batch, "enabled")?, columns::bits_column(batch, "running")?);
    let owners = OwnerColumns::from_batch("readings", batch, "process", "owner_cgroup_id")?;
    let trigger = columns::word_column(batch, "trigger")?;
    for row in 0..batch.num_rows() {
        let times = enabled.get(row).zip(running.get(row));
        let value = value.get(row).map(|value| CounterValue { value, times });
        let owner = owners.owner_kind(row).map(|_| owners.row_owner(row));
        log.log_entry(LogEntry::Reading(CounterReading {
            tick: tick.value(row) as u64,
            time: mono_ns.value(row) as u64,
            counter: counter.value(row) as u32,
            cpu: cpu.value(row) as u32,
            trigger: match trigger.get(row) {
                Some(readings::TIMER) => ReadingTrigger::Timer,
                Some(readings::STOP) => ReadingTrigger::Stop,
                Some(readings::START) => ReadingTrigger::Start,
                _ => ReadingTrigger::Event,
            },
            value: value.ok_or(nullable_value(error, row).unwrap_or(0)),
            owner: owner.transpose()?,
        }))?;
    }
    Ok(())
}
