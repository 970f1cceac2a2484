//! Verifies the rows of `holders`: times in order, known words, and that a process holds a device once
//! at a time.

use std::collections::BTreeMap;

use anyhow::Result;
use arrow::array::RecordBatch;

use super::{First, Outcome};
use crate::schema::columns::{nullable_value, i32_column, i64_column, words};
use crate::schema::holders::{LEARNT, START, TABLE};
use crate::tables::reader::Recording;

/// A process, and the numbers of a device file.
type Key = (i32, i32, i32, i32);

/// Verifies the rows; `None` if the recording has none.
pub(super) fn rows(recording: &Recording) -> Option<Outcome> {
    First::of_table(recording, &TABLE, scan, "rows of holders")
}

/// Whether a row begins before the previous one ended. Parts of a recording that was rotated meet with
/// two nulls.
pub(super) fn is_within(from: Option<i64>, before: i64) -> bool {
    from.map_or(before != i64::MAX, |from| from < before)
}

fn scan(recording: &Recording) -> Result<First> {
    let (mut first, mut number) = (First::default(), 0);
    let mut ends: BTreeMap<Key, i64> = BTreeMap::new();
    let wanted = ["pid", "is_block", "major", "minor", "begin_ns", "end_ns", "learnt"];
    for batch in recording.open_table(&TABLE)?.scan_columns(&wanted)? {
        let batch = batch?;
        look(&batch, number, &mut ends, &mut first)?;
        number += batch.num_rows() as u64;
    }
    Ok(first)
}

fn look(
    batch: &RecordBatch,
    number: u64,
    ends: &mut BTreeMap<Key, i64>,
    first: &mut First,
) -> Result<()> {
    let (pid, is_block) = (i32_column(batch, "pid")?, i32_column(batch, "is_block")?);
    let (major, minor) = (i32_column(batch, "major")?, i32_column(batch, "minor")?);
    let (begin, end) = (i64_column(batch, "begin_ns")?, i64_column(batch, "end_ns")?);
    let learnt = words(batch, "learnt")?;
    for row in 0..batch.num_rows() {
        let key = (pid.value(row), is_block.value(row), major.value(row), minor.value(row));
        let (from, to) = (nullable_value(begin, row), nullable_value(end, row));
        // Rows come in the order of their ends.
        let before = ends.insert(key, to.unwrap_or(i64::MAX));
        let how = learnt.get(row).unwrap_or("(null)");
        first.look(|| {
            let wrong = if from.zip(to).is_some_and(|(from, to)| to < from) {
                "ends before it begins"
            } else if before.is_some_and(|before| is_within(from, before)) {
                "begins while the process holds the device"
            } else if !LEARNT.contains(&how) {
                "was learnt in no known way"
            } else if how == START && from.is_some() {
                "has a begin, but was open at the start"
            } else {
                return None;
            };
            Some(format!("row {} of process {} {wrong}", number + row as u64, key.0))
        });
    }
    Ok(())
}
