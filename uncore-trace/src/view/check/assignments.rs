//! Verifies the rows of `assignments`: times in order, and that a device is assigned to a container once at
//! a time.

use std::collections::HashMap;

use anyhow::Result;
use arrow::array::RecordBatch;

use super::holders::is_within;
use super::{First, Outcome};
use crate::schema::assignments::TABLE;
use crate::schema::columns::{nullable_value, i64_column, words};
use crate::tables::reader::Recording;

/// What is assigned to whom.
const KEY: [&str; 6] = ["pod", "container", "resource", "device", "claim", "cdi"];

/// Verifies the rows; `None` if the recording has none.
pub(super) fn rows(recording: &Recording) -> Option<Outcome> {
    First::of_table(recording, &TABLE, scan, "rows of assignments")
}

fn scan(recording: &Recording) -> Result<First> {
    let (mut first, mut number) = (First::default(), 0);
    let mut ends: HashMap<[Option<String>; 8], i64> = HashMap::new();
    let wanted = [&KEY[..], &["bdf", "port", "begin_ns", "end_ns"]].concat();
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
    ends: &mut HashMap<[Option<String>; 8], i64>,
    first: &mut First,
) -> Result<()> {
    let [pod, container, resource, device, claim, cdi] = KEY.map(|name| words(batch, name));
    let (bdf, port) = (words(batch, "bdf")?, words(batch, "port")?);
    let key = [pod?, container?, resource?, device?, claim?, cdi?, bdf, port];
    let (begin, end) = (i64_column(batch, "begin_ns")?, i64_column(batch, "end_ns")?);
    for row in 0..batch.num_rows() {
        let (from, to) = (nullable_value(begin, row), nullable_value(end, row));
        let what = key.map(|words| words.get(row).map(str::to_owned));
        // Rows come in the order of their ends.
        let before = ends.insert(what, to.unwrap_or(i64::MAX));
        first.look(|| {
            let wrong = if from.zip(to).is_some_and(|(from, to)| to < from) {
                "ends before it begins"
            } else if before.is_some_and(|before| is_within(from, before)) {
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
