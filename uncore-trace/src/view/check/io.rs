//! Verifies the rows of `io`: times on ticks, known words, and owners that fit their columns. Bytes
//! are not verified: only the devices' own statistics could do that.

use anyhow::Result;
use arrow::array::{Array as _, RecordBatch};

use super::{CheckOutcome, FaultTally, find_fault};
use crate::schema::columns::{bits_column, i32_column, i64_column, word_column};
use crate::schema::io;
use crate::schema::owner::{KINDS, TASK};
use crate::tables::reader::Recording;

/// Verifies the rows; `None` if the recording has none.
pub(super) fn verify_io_rows(recording: &Recording) -> Option<CheckOutcome> {
    let wanted =
        ["mono_ns", "tick_ns", "direction", "owner", "pid", "cgroup_id", "bytes", "requests"];
    recording.has_table(&io::TABLE).then(|| {
        let scanned = FaultTally::scan_table(recording, &io::TABLE, &wanted, examine_batch);
        FaultTally::scan_outcome(scanned, "rows of io")
    })
}

fn examine_batch(batch: &RecordBatch, number: u64, tally: &mut FaultTally) -> Result<()> {
    let (end, tick) = (i64_column(batch, "mono_ns")?, i64_column(batch, "tick_ns")?);
    let (direction, owner) = (word_column(batch, "direction")?, word_column(batch, "owner")?);
    let (pid, cgroup) = (i32_column(batch, "pid")?, bits_column(batch, "cgroup_id")?);
    let (bytes, requests) = (bits_column(batch, "bytes")?, bits_column(batch, "requests")?);
    let directions = [io::READ, io::WRITE];
    for row in 0..batch.num_rows() {
        let (end_ns, owner) = (end.value(row), owner.get(row).unwrap_or("(null)"));
        tally.examine_item(|| {
            let tick_ns = tick.value(row);
            let is_known_direction =
                direction.get(row).is_some_and(|word| directions.contains(&word));
            let has_holder = pid.is_valid(row) || cgroup.get(row).is_some();
            let is_nothing = bytes.value_or_zero(row) == 0 && requests.value_or_zero(row) == 0;
            let wrong = find_fault([
                (tick_ns <= 0 || end_ns % tick_ns != 0, "does not end with a tick"),
                (!is_known_direction, "has no known direction"),
                (!KINDS.contains(&owner), "has no known owner"),
                (
                    owner != TASK && has_holder,
                    "has a process or cgroup, but its owner is not a task",
                ),
                (is_nothing, "is of nothing"),
            ])?;
            Some(format!("row {} at mono_ns {end_ns} {wrong}", number + row as u64))
        });
    }
    Ok(())
}
