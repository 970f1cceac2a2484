//! Verifies that every reading was made on a CPU that `cpus` lists as reader of its counter. The
//! statistics of disks and interfaces are read on any CPU.

use std::collections::HashSet;

use anyhow::{Context as _, Result};
use arrow::array::Array as _;

use super::{CheckOutcome, FaultTally};
use crate::schema::columns::{i32_column, text_column};
use crate::schema::{counters, cpus, readings};
use crate::tables::reader::Recording;

/// Verifies the rows; `None` if the recording has no such table.
pub(super) fn verify_reader_cpus(recording: &Recording) -> Option<CheckOutcome> {
    let scan = || FaultTally::scan_outcome(scan_readings(recording), "readings");
    recording.has_table(&cpus::TABLE).then(scan)
}

fn scan_readings(recording: &Recording) -> Result<FaultTally> {
    let (readers, anywhere) = (load_reader_pairs(recording)?, load_statistics(recording)?);
    let wanted = ["mono_ns", "counter", "cpu"];
    FaultTally::scan_table(recording, &readings::TABLE, &wanted, |batch, _, tally| {
        let (counter, cpu) = (i32_column(batch, "counter")?, i32_column(batch, "cpu")?);
        for row in 0..batch.num_rows() {
            let (counter, cpu) = (counter.value(row), cpu.value(row));
            tally.examine_item(|| {
                let is_reader = readers.contains(&(counter, cpu)) || anywhere.contains(&counter);
                (!is_reader).then(|| {
                    format!("counter {counter} was read on CPU {cpu}, which does not read it")
                })
            });
        }
        Ok(())
    })
}

/// The counters that are statistics of a device.
fn load_statistics(recording: &Recording) -> Result<HashSet<i32>> {
    let mut statistic_ids = HashSet::new();
    for batch in recording.open_table(&counters::TABLE)?.scan_columns(&["counter", "attr_type"])? {
        let batch = batch?;
        let (counter, attribute_type) =
            (i32_column(&batch, "counter")?, i32_column(&batch, "attr_type")?);
        let is_statistic = |row: &usize| attribute_type.value(*row) >= counters::STATISTICS as i32;
        statistic_ids
            .extend((0..batch.num_rows()).filter(is_statistic).map(|row| counter.value(row)));
    }
    Ok(statistic_ids)
}

/// The pairs of counter and CPU in `cpus`. The list is parsed with separate code, so that the check
/// is independent of the recorder.
fn load_reader_pairs(recording: &Recording) -> Result<HashSet<(i32, i32)>> {
    let mut readers = HashSet::new();
    for batch in recording.open_table(&cpus::TABLE)?.scan_columns(&["cpu", "counters"])? {
        let batch = batch?;
        let (cpu, counters) = (i32_column(&batch, "cpu")?, text_column(&batch, "counters")?);
        for row in (0..batch.num_rows()).filter(|&row| counters.is_valid(row)) {
            for range in counters.value(row).split(',').filter(|range| !range.is_empty()) {
                let (begin, end) = range.split_once('-').unwrap_or((range, range));
                let number = |text: &str| {
                    text.parse::<i32>().with_context(|| format!("'{range}' is no list of counters"))
                };
                // A damaged list must not exhaust the memory.
                let (begin, end) = (number(begin)?, number(end)?.min(1 << 20));
                readers.extend((begin..=end).map(|counter| (counter, cpu.value(row))));
            }
        }
    }
    Ok(readers)
}
