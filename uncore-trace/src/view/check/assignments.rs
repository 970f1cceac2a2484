//! Verifies the rows of `assignments`: times in order, and that a device is assigned to a container
//! once at a time.

use std::collections::HashMap;

use anyhow::Result;
use arrow::array::RecordBatch;

use super::holders::is_within;
use super::{CheckOutcome, FaultTally};
use crate::schema::assignments::TABLE;
use crate::schema::columns::{i64_column, nullable_value, word_column};
use crate::tables::reader::Recording;

/// What is assigned to whom.
const KEY: [&str; 6] = ["pod", "container", "resource", "device", "claim", "cdi"];

/// Verifies the rows; `None` if the recording has none.
pub(super) fn verify_assignment_rows(recording: &Recording) -> Option<CheckOutcome> {
    let mut ends: HashMap<[Option<String>; 8], i64> = HashMap::new();
    let wanted = [&KEY[..], &["bdf", "port", "begin_ns", "end_ns"]].concat();
    let scan = || {
        FaultTally::scan_table(recording, &TABLE, &wanted, |batch, number, tally| {
            examine_batch(batch, number, &mut ends, tally)
        })
    };
    FaultTally::table_outcome(recording, &TABLE, scan, "rows of assignments")
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
            let wrong = if from_ns.zip(to_ns).is_some_and(|(from_ns, to_ns)| to_ns < from_ns) {
                "ends before it begins"
            } else if previous_end_ns.is_some_and(|previous_ns| is_within(from_ns, previous_ns)) {
                "begins while the device is assigned to the container"
            } else if bdf.get(row).is_some() != port.get(row).is_some() {
                "has a function without a root port, or a root port without a function"
            } else {
                return None;
            };
            Some(format!("row {} {wrong}", number + row as u64))
        });
    }
    Ok(())
}
