//! Losses of the copied time.

use std::collections::{BTreeMap, HashSet};

use anyhow::Result;
use arrow::array::Array as _;

use super::cut_source::PartToCut;
use super::rows::filter_rows;
use crate::clock::TimeSpan;
use crate::schema::columns::{i32_column, i64_column, nullable_value, text_column, word_column};
use crate::schema::loss::{self, does_hold};
use crate::tables::writer::Writer;

/// Totals, and the time of the first loss, by cause.
#[derive(Debug, Default)]
pub(super) struct LossTotals {
    pub totals: BTreeMap<String, u64>,
    pub first_ns: BTreeMap<String, u64>,
}

/// Copies the losses that may affect a span of time. A loss that lasts, such
/// as a counter that could not be opened, has a row in each part, and is copied once.
pub(super) fn copy_losses(
    source_parts: &[PartToCut],
    span: TimeSpan<i64>,
    writer: &mut Writer,
) -> Result<LossTotals> {
    let mut loss_totals = LossTotals::default();
    let mut copied_states = HashSet::new();
    for source_part in source_parts {
        let Some(table) = source_part.recording.find_table(&loss::TABLE)? else { continue };
        for batch in table.scan_columns(&loss::TABLE.column_names())? {
            let batch = batch?;
            let (times, spans) = (i64_column(&batch, "mono_ns")?, i64_column(&batch, "span_ns")?);
            let (causes, counts) = (word_column(&batch, "cause")?, i64_column(&batch, "count")?);
            let (cpus, counters) = (i32_column(&batch, "cpu")?, i32_column(&batch, "counter")?);
            let details = text_column(&batch, "detail")?;
            let is_wanted = |row: usize| {
                let cause = causes.get(row).unwrap_or_default();
                let (time_ns, since_ns) =
                    (times.value(row), times.value(row).saturating_sub(spans.value(row)));
                let is_wanted = if does_hold(cause) {
                    let key = (
                        cause.to_owned(),
                        nullable_value(cpus, row),
                        nullable_value(counters, row),
                        details.is_valid(row).then(|| details.value(row).to_owned()),
                    );
                    time_ns <= span.end_ns && copied_states.insert(key)
                } else {
                    span.begin_ns < time_ns && since_ns < span.end_ns
                };
                if is_wanted {
                    let count = counts.value(row).max(0).unsigned_abs();
                    *loss_totals.totals.entry(cause.to_owned()).or_default() += count;
                    let since_unsigned = since_ns.max(0).unsigned_abs();
                    let first_loss_ns =
                        loss_totals.first_ns.entry(cause.to_owned()).or_insert(since_unsigned);
                    *first_loss_ns = since_unsigned.min(*first_loss_ns);
                }
                is_wanted
            };
            let wanted: Vec<bool> = (0..batch.num_rows()).map(is_wanted).collect();
            writer.write(&loss::TABLE, &filter_rows(&batch, &wanted)?)?;
        }
    }
    Ok(loss_totals)
}
