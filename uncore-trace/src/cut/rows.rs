//! Selects rows by time.

use std::collections::HashSet;

use anyhow::{Context as _, Result};
use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;

use crate::clock::TimeSpan;
use crate::schema::columns::{i32_column, i64_column, nullable_value, word_column};
use crate::schema::readings;
use crate::tables::reader::{OpenTable, TableScan};

/// Identifies a reading: counter, CPU, time, and whether the timer caused it.
type ReadingKey = (i32, i32, i64, bool);

/// The ticks of a part that are copied.
#[derive(Debug, Clone, Copy)]
pub(super) struct CutTicks {
    /// The first tick, or the one before it.
    pub begin_tick: i64,
    /// The last tick.
    pub end_tick: i64,
    /// Whether earlier ticks of the part are left out.
    pub is_cut_at_begin: bool,
    /// Whether later ticks of the part are left out.
    pub is_cut_at_end: bool,
}

/// Copies rows of one table of a part.
pub(super) struct RowCopier<'a> {
    /// The table.
    pub table: &'a OpenTable,
    /// Its columns.
    pub columns: &'a [&'static str],
    /// Receives the selected rows.
    pub write: &'a mut dyn FnMut(RecordBatch) -> Result<()>,
}

impl RowCopier<'_> {
    /// Copies rows of windows or ticks that end between two times.
    pub(super) fn copy_ended(&mut self, time: &str, span: TimeSpan<i64>) -> Result<()> {
        let after_begin = span.begin_ns.saturating_add(1)..=span.end_ns;
        let rows = self.table.scan_within(self.columns, time, after_begin.clone())?;
        self.copy_selected(rows, |batch| {
            let ends = i64_column(batch, time)?.values().iter();
            Ok(ends.map(|end_ns| after_begin.contains(end_ns)).collect())
        })
    }

    /// Copies rows that overlap the time, unchanged. `begin` and `end` are the columns of their
    /// times.
    pub(super) fn copy_between(
        &mut self,
        begin: &str,
        end: &str,
        span: TimeSpan<i64>,
    ) -> Result<()> {
        let after_begin = span.begin_ns.saturating_add(1)..=i64::MAX;
        let rows = self.table.scan_within(self.columns, end, after_begin)?;
        self.copy_overlapping(rows, begin, end, span)
    }

    /// As [`Self::copy_between`], if the begin or the end may be null.
    pub(super) fn copy_during(
        &mut self,
        begin: &str,
        end: &str,
        span: TimeSpan<i64>,
    ) -> Result<()> {
        self.copy_overlapping(self.table.scan_columns(self.columns)?, begin, end, span)
    }

    /// Copies the rows of a scan that overlap the time. A null is before the recording, and after
    /// it.
    fn copy_overlapping(
        &mut self,
        rows: TableScan,
        begin: &str,
        end: &str,
        span: TimeSpan<i64>,
    ) -> Result<()> {
        self.copy_selected(rows, |batch| {
            let (begins, ends) = (i64_column(batch, begin)?, i64_column(batch, end)?);
            let is_within = (0..batch.num_rows()).map(|row| {
                nullable_value(begins, row).is_none_or(|row_begin| row_begin < span.end_ns)
                    && nullable_value(ends, row).is_none_or(|row_end| span.begin_ns < row_end)
            });
            Ok(is_within.collect())
        })
    }

    /// Copies the rows of a scan for which `select` returns `true`, batch by batch.
    fn copy_selected(
        &mut self,
        scan: TableScan,
        mut select: impl FnMut(&RecordBatch) -> Result<Vec<bool>>,
    ) -> Result<()> {
        for batch in scan {
            let batch = batch?;
            (self.write)(filter_rows(&batch, &select(&batch)?)?)?;
        }
        Ok(())
    }
}

/// Copies readings.
#[derive(Debug, Default)]
pub(super) struct ReadingsCopier {
    /// Readings at the end of the last part, which the next part may repeat.
    last_readings: HashSet<ReadingKey>,
}

impl ReadingsCopier {
    /// Copies the readings of the ticks from `begin_tick` to `end_tick`. If the begin is cut, the
    /// timer's readings at the end of the first tick are the start values of the counts. Other
    /// readings have the number of the tick whose end is the last before them: those before the
    /// timer's belong to the time before. Readings of a CPU are in the order of time. Parts that
    /// meet both have the readings of that moment, which are copied once.
    pub(super) fn copy_ticks(
        &mut self,
        copier: &mut RowCopier<'_>,
        tick: &str,
        ticks: &CutTicks,
    ) -> Result<()> {
        let previous_readings = std::mem::take(&mut self.last_readings);
        let CutTicks { begin_tick, end_tick, is_cut_at_begin, is_cut_at_end } = *ticks;
        let last_tick = if is_cut_at_end { end_tick } else { i64::MAX };
        let first_tick = if is_cut_at_begin { begin_tick } else { i64::MIN };
        let mut started = HashSet::new();
        let scan = copier.table.scan_within(copier.columns, tick, first_tick..=last_tick)?;
        copier.copy_selected(scan, |batch| {
            let (ticks, times) = (i64_column(batch, tick)?, i64_column(batch, "mono_ns")?);
            let (counters, cpus) = (i32_column(batch, "counter")?, i32_column(batch, "cpu")?);
            let trigger = word_column(batch, "trigger")?;
            let is_wanted = |row: usize| {
                let tick_number = ticks.value(row);
                let is_timer = trigger.get(row) == Some(readings::TIMER);
                let key = (counters.value(row), cpus.value(row), times.value(row), is_timer);
                if tick_number >= end_tick {
                    self.last_readings.insert(key);
                }
                let (counter, cpu, ..) = key;
                if tick_number == begin_tick && is_timer {
                    started.insert((counter, cpu));
                }
                let has_start = !is_cut_at_begin
                    || tick_number != begin_tick
                    || started.contains(&(counter, cpu));
                first_tick <= tick_number
                    && tick_number <= last_tick
                    && has_start
                    && !previous_readings.contains(&key)
            };
            Ok((0..batch.num_rows()).map(is_wanted).collect())
        })
    }
}

/// The rows for which `wanted` is true.
pub(super) fn filter_rows(batch: &RecordBatch, wanted: &[bool]) -> Result<RecordBatch> {
    filter_record_batch(batch, &BooleanArray::from(wanted.to_vec())).context("cannot copy rows")
}
