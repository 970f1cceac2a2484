//! The rows of `readings`, in the order of time as far as that matters.
//!
//! They are sorted by counter within a row group; within a counter they are in the order of time.

use std::collections::HashMap;

use anyhow::Result;
use arrow::array::RecordBatch;

use super::facts::Facts;
use crate::{
    align::who::Who,
    drain::Reading,
    tables::{
        columns::{self, get},
        reader::{Recording, Table},
        readings,
    },
    timeline::{Made, Replay, Reread},
};

const COLUMNS: [&str; 12] = [
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
    "tid",
    "cgroup_id",
];

/// The table, as far as it was taken.
#[derive(Debug)]
pub struct Readings {
    table: Table,
    group: usize,
    /// Latest time so far, ns.
    newest: u64,
    start_tick: u64,
    /// What is to be added to a counter's times, once they are told.
    since: HashMap<u32, Since>,
}

/// The times of a counter that was never multiplexed are not told: that they are equal is. In
/// their place stands the time of the reading.
#[derive(Debug, Clone, Copy, Default)]
struct Since {
    untold: bool,
    offset: u64,
}

impl Readings {
    /// Before the first row.
    pub fn open(recording: &Recording, facts: &Facts) -> Result<Self> {
        let table = recording.table(&readings::TABLE)?;
        let start_tick = facts.told.start_tick;
        Ok(Self { table, group: 0, newest: 0, start_tick, since: HashMap::new() })
    }

    /// Hands on all rows before `until`, and maybe more.
    pub fn feed(&mut self, until: u64, replay: &mut Replay) -> Result<()> {
        while self.newest < until && self.group < self.table.row_groups() {
            let columns: Vec<&str> = COLUMNS.iter().copied().chain(["process"]).collect();
            let mut rows = Vec::new();
            for batch in self.table.scan_group(&columns, self.group)? {
                self.decode(&batch?, &mut rows)?;
            }
            self.group += 1;
            for row in &rows {
                self.newest = self.newest.max(row.time);
                if row.tick >= self.start_tick {
                    replay.reading(row);
                }
            }
        }
        Ok(())
    }

    fn decode(&mut self, batch: &RecordBatch, rows: &mut Vec<Reread>) -> Result<()> {
        let (mono_ns, tick) = (columns::i64s(batch, "mono_ns")?, columns::i64s(batch, "tick")?);
        let (counter, cpu) = (columns::i32s(batch, "counter")?, columns::i32s(batch, "cpu")?);
        let (value, error) = (columns::u64s(batch, "value")?, columns::i32s(batch, "error")?);
        let (enabled, running) =
            (columns::u64s(batch, "enabled")?, columns::u64s(batch, "running")?);
        let (pid, tid) = (columns::i32s(batch, "pid")?, columns::i32s(batch, "tid")?);
        let cgroup_id = columns::u64s(batch, "cgroup_id")?;
        let (trigger, process) =
            (columns::words(batch, "trigger")?, columns::words(batch, "process")?);
        for row in 0..batch.num_rows() {
            let time = mono_ns.value(row) as u64;
            let counter = counter.value(row) as u32;
            let reading = match get(value, row) {
                Some(value) => {
                    let told = get(enabled, row).zip(get(running, row));
                    let (enabled, running) = self.times(counter, time, told);
                    Reading::Counted { value, enabled, running }
                }
                None => Reading::Failed(get(error, row).unwrap_or(0)),
            };
            let made = match trigger.get(row) {
                Some("timer") => Made::Timer,
                Some(readings::STOP) => Made::Stop,
                _ => Made::Between,
            };
            let task = |number| get(number, row).unwrap_or(0) as u32;
            let cgroup_id = get(cgroup_id, row).unwrap_or(0);
            let who =
                process.get(row).map(|word| Who::of_word(word, task(tid), task(pid), cgroup_id));
            let (tick, cpu) = (tick.value(row) as u64, cpu.value(row) as u32);
            rows.push(Reread { time, tick, counter, cpu, reading, made, who });
        }
        Ok(())
    }

    fn times(&mut self, counter: u32, time: u64, told: Option<(u64, u64)>) -> (u64, u64) {
        let since = self.since.entry(counter).or_default();
        let Some((enabled, running)) = told else {
            since.untold = true;
            return (time, time);
        };
        if std::mem::take(&mut since.untold) {
            since.offset = time.saturating_sub(enabled);
        }
        (enabled + since.offset, running + since.offset)
    }
}
