//! Verifies the rows of `assignments`: times in order, and that a device is assigned to a container
//! once at a time.

use std::collections::HashMap;

use anyhow::Result;
use arrow::array::RecordBatch;

use super::holders::{ends_early, is_within};
use super::{CheckOutcome, FaultTally, find_fault};
use crate::schema::assignments::TABLE;
use crate::schema::columns::{i64_column, nullable_value, word_column};
use crate::tables::reader::Recording;

/// What is assigned to whom.
const KEY: [&str; 6] = ["pod", "container", "resource", "device", "claim", "cdi"];

/// Verifies the rows; `None` if the recording has none.
pub(super) fn verify_assignment_rows(recording: &Recording) -> Option<CheckOutcome> {
    let mut ends: HashMap<[Option<String>; 8], i64> = HashMap::new();
    let wanted = [&KEY[..], &["bdf", "port", "begin_ns", "end_ns"]].concat();
    FaultTally::rows_outcome(recording, &TABLE, &wanted, |batch, number, tally| {
        examine_batch(batch, number, &mut ends, tally)
    })
}

fn examine_batch(
    batch: &RecordBatch,
    number: u64,
    ends: &mut HashMap<[Option<String>; 8], i64>,
    tally: &mut FaultTally,
) -> Result<()> {
    let [pod, container, resource, device, claim, cdi] = KEY.map(|name| word_column(batch, name));
    let (bdf, port) = (word_column(batch, "bdf")?, word_column(batch, "port")?);
    let key = [pod?, container?, resource?, device?, claim?, cdi?, bdf, port];
    let (begin, end) = (i64_column(batch, "begin_ns")?, i64_column(batch, "end_ns")?);
    for row in 0..batch.num_rows() {
        let (from_ns, to_ns) = (nullable_value(begin, row), nullable_value(end, row));
        let assignment = key.map(|words| words.get(row).map(str::to_owned));
        // Rows come in the order of their ends.
        let previous_end_ns = ends.insert(assignment, to_ns.unwrap_or(i64::MAX));
        tally.examine_item(|| {
            let is_again = previous_end_ns.is_some_and(|end_ns| is_within(from_ns, end_ns));
            let is_half_placed = bdf.get(row).is_some() != port.get(row).is_some();
            let wrong = find_fault([
                (ends_early(from_ns, to_ns), "ends before it begins"),
                (is_again, "begins while the device is assigned to the container"),
                (
                    is_half_placed,
                    "has a function without a root port, or a root port without a function",
                ),
            ])?;
            Some(format!("row {} {wrong}", number + row as u64))
        });
    }
    Ok(())
}
