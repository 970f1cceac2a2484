//! Verifies the rows of `holders`: times in order, known words, and that a process holds a device
//! once at a time.

use std::collections::BTreeMap;

use anyhow::Result;
use arrow::array::RecordBatch;

use super::{CheckOutcome, FaultTally, find_fault};
use crate::schema::columns::{i32_column, i64_column, nullable_value, word_column};
use crate::schema::holders::{LEARNT, START, TABLE};
use crate::tables::reader::Recording;

/// A process, and the numbers of a device file.
type OpenFileKey = (i32, i32, i32, i32);

/// Verifies the rows; `None` if the recording has none.
pub(super) fn verify_holder_rows(recording: &Recording) -> Option<CheckOutcome> {
    let mut ends: BTreeMap<OpenFileKey, i64> = BTreeMap::new();
    let wanted = ["pid", "is_block", "major", "minor", "begin_ns", "end_ns", "learnt"];
    FaultTally::rows_outcome(recording, &TABLE, &wanted, |batch, number, tally| {
        examine_batch(batch, number, &mut ends, tally)
    })
}

/// Whether a row ends before it begins.
pub(super) fn ends_early(begin_ns: Option<i64>, end_ns: Option<i64>) -> bool {
    begin_ns.zip(end_ns).is_some_and(|(begin_ns, end_ns)| end_ns < begin_ns)
}

/// Whether a row begins before the previous one ended. Parts of a recording that was rotated meet
/// with two nulls.
pub(super) fn is_within(begin_ns: Option<i64>, previous_end_ns: i64) -> bool {
    begin_ns.map_or(previous_end_ns != i64::MAX, |begin_ns| begin_ns < previous_end_ns)
}

fn examine_batch(
    batch: &RecordBatch,
    number: u64,
    ends: &mut BTreeMap<OpenFileKey, i64>,
    tally: &mut FaultTally,
) -> Result<()> {
    let (pid, is_block) = (i32_column(batch, "pid")?, i32_column(batch, "is_block")?);
    let (major, minor) = (i32_column(batch, "major")?, i32_column(batch, "minor")?);
    let (begin, end) = (i64_column(batch, "begin_ns")?, i64_column(batch, "end_ns")?);
    let learnt = word_column(batch, "learnt")?;
    for row in 0..batch.num_rows() {
        let key = (pid.value(row), is_block.value(row), major.value(row), minor.value(row));
        let (from_ns, to_ns) = (nullable_value(begin, row), nullable_value(end, row));
        // Rows come in the order of their ends.
        let previous_end_ns = ends.insert(key, to_ns.unwrap_or(i64::MAX));
        let how = learnt.get(row).unwrap_or("(null)");
        tally.examine_item(|| {
            let is_again = previous_end_ns.is_some_and(|end_ns| is_within(from_ns, end_ns));
            let wrong = find_fault([
                (ends_early(from_ns, to_ns), "ends before it begins"),
                (is_again, "begins while the process holds the device"),
                (!LEARNT.contains(&how), "was learnt in no known way"),
                (how == START && from_ns.is_some(), "has a begin, but was open at the start"),
            ])?;
            Some(format!("row {} of process {} {wrong}", number + row as u64, key.0))
        });
    }
    Ok(())
}
