//! Selects rows by time.

use std::collections::HashSet;

use anyhow::{Context as _, Result};
use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;

use crate::schema::columns::{get, i32s, i64s, words};
use crate::schema::readings;
use crate::tables::reader::{Scan, Table};

/// Receives the selected rows.
pub(super) type Write<'a> = dyn FnMut(RecordBatch) -> Result<()> + 'a;

/// Identifies a reading: counter, CPU, time, and whether the timer caused it.
type Key = (i32, i32, i64, bool);

/// Copies readings.
#[derive(Debug, Default)]
pub(super) struct Readings {
    /// Readings at the end of the last part, which the next part may repeat.
    last: HashSet<Key>,
}

impl Readings {
    /// Copies the readings of the ticks from `begin` to `end`. If the begin is cut, the timer's
    /// readings at the end of the first tick are the start values of the counts. Other readings have
    /// the number of the tick whose end is the last before them: those before the timer's belong to
    /// the time before. Readings of a CPU are in the order of time. Parts that meet both have the
    /// readings of that moment, which are copied once.
    pub(super) fn copy(
        &mut self,
        table: &Table,
        columns: &[&str],
        tick: &str,
        (begin, end): (i64, i64),
        (is_cut, is_cut_at_end): (bool, bool),
        write: &mut Write<'_>,
    ) -> Result<()> {
        let before = std::mem::take(&mut self.last);
        let most = if is_cut_at_end { end } else { i64::MAX };
        let least = if is_cut { begin } else { i64::MIN };
        let mut started = HashSet::new();
        for batch in table.scan_within(columns, tick, least..=most)? {
            let batch = batch?;
            let (ticks, times) = (i64s(&batch, tick)?, i64s(&batch, "mono_ns")?);
            let (counters, cpus) = (i32s(&batch, "counter")?, i32s(&batch, "cpu")?);
            let trigger = words(&batch, "trigger")?;
            let is_wanted = |row: usize| {
                let at = ticks.value(row);
                let is_timer = trigger.get(row) == Some(readings::TIMER);
                let key = (counters.value(row), cpus.value(row), times.value(row), is_timer);
                if at >= end {
                    self.last.insert(key);
                }
                let (counter, cpu, ..) = key;
                if at == begin && is_timer {
                    started.insert((counter, cpu));
                }
                let has_start = !is_cut || at != begin || started.contains(&(counter, cpu));
                least <= at && at <= most && has_start && !before.contains(&key)
            };
            write(filtered(&batch, &(0..batch.num_rows()).map(is_wanted).collect::<Vec<_>>())?)?;
        }
        Ok(())
    }
}

/// Copies rows of windows or ticks that end between two times.
pub(super) fn ended(
    table: &Table,
    columns: &[&str],
    time: &str,
    (begin, end): (i64, i64),
    write: &mut Write<'_>,
) -> Result<()> {
    for batch in table.scan_within(columns, time, begin.saturating_add(1)..=end)? {
        let batch = batch?;
        let ends = i64s(&batch, time)?;
        let is_within = ends.values().iter().map(|at| begin < *at && *at <= end);
        write(filtered(&batch, &is_within.collect::<Vec<bool>>())?)?;
    }
    Ok(())
}

/// Copies rows that overlap the time, unchanged.
pub(super) fn between(
    table: &Table,
    columns: &[&str],
    names: (&str, &str),
    span: (i64, i64),
    write: &mut Write<'_>,
) -> Result<()> {
    let rows = table.scan_within(columns, names.1, span.0.saturating_add(1)..=i64::MAX)?;
    overlapping(rows, names, span, write)
}

/// Copies rows that overlap the time, of which the begin or the end may be null, unchanged.
pub(super) fn during(
    table: &Table,
    columns: &[&str],
    names: (&str, &str),
    span: (i64, i64),
    write: &mut Write<'_>,
) -> Result<()> {
    overlapping(table.scan(columns)?, names, span, write)
}

/// Copies the rows of a scan that overlap the time. A null is before the recording, and after it.
fn overlapping(
    rows: Scan,
    (from, to): (&str, &str),
    (begin, end): (i64, i64),
    write: &mut Write<'_>,
) -> Result<()> {
    for batch in rows {
        let batch = batch?;
        let (froms, tos) = (i64s(&batch, from)?, i64s(&batch, to)?);
        let is_within = (0..batch.num_rows()).map(|row| {
            get(froms, row).is_none_or(|from| from < end)
                && get(tos, row).is_none_or(|to| begin < to)
        });
        write(filtered(&batch, &is_within.collect::<Vec<bool>>())?)?;
    }
    Ok(())
}

/// The rows for which `wanted` is true.
pub(super) fn filtered(batch: &RecordBatch, wanted: &[bool]) -> Result<RecordBatch> {
    filter_record_batch(batch, &BooleanArray::from(wanted.to_vec())).context("cannot copy rows")
}
