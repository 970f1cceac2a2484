//! Sums the table `loss` of a dataset by cause.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use crate::schema::columns::{i64_column, word_column};
use crate::schema::loss;
use crate::tables::reader::Recording;

/// The sum of the rows of one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LossTotal {
    /// Sum of their counts.
    pub count: i64,
    /// Begin of the earliest time that one of them may affect, `CLOCK_MONOTONIC`, ns.
    pub first_ns: i64,
}

/// The rows of a dataset's table, summed by cause.
///
/// # Errors
///
/// The table does not exist or cannot be read.
pub(super) fn totals_by_cause(recording: &Recording) -> Result<BTreeMap<String, LossTotal>> {
    let mut totals: BTreeMap<String, LossTotal> = BTreeMap::new();
    for batch in recording
        .open_table(&loss::TABLE)?
        .scan_columns(&["mono_ns", "span_ns", "cause", "count"])?
    {
        let batch = batch?;
        let (ends, spans) = (i64_column(&batch, "mono_ns")?, i64_column(&batch, "span_ns")?);
        let (causes, counts) = (word_column(&batch, "cause")?, i64_column(&batch, "count")?);
        for row in 0..batch.num_rows() {
            let cause = causes.get(row).context("a loss row without a cause")?;
            let first_ns = ends.value(row).saturating_sub(spans.value(row));
            let total = totals.entry(cause.to_owned()).or_insert(LossTotal { count: 0, first_ns });
            total.count = total.count.saturating_add(counts.value(row));
            total.first_ns = total.first_ns.min(first_ns);
        }
    }
    Ok(totals)
}
