//! Reads the bytes that monitors measured from the table `monitors`.

use std::sync::Arc;

use anyhow::Result;
use arrow::array::{Int16Array, RecordBatch};

use super::rows::TableForm;
use crate::entries::{LogEntry, Monitored};
use crate::schema::{columns, monitors};

/// The table's form.
pub(super) const FORM: TableForm<Monitored> = TableForm {
    table: &monitors::TABLE,
    columns: &["mono_ns", "cgroup", "socket", "bytes"],
    decode: decode_monitored,
    entry: |monitored| LogEntry::Monitored(monitored),
};

fn decode_monitored(batch: &RecordBatch) -> Result<Vec<(u64, Monitored)>> {
    let (end, cgroup) =
        (columns::i64_column(batch, "mono_ns")?, columns::word_column(batch, "cgroup")?);
    let (socket, bytes) = (
        columns::typed_column::<Int16Array>(batch, "socket")?,
        columns::bits_column(batch, "bytes")?,
    );
    let row = |row| {
        let cgroup = cgroup.get(row).map(Arc::from);
        let (socket, bytes) = (socket.value(row), bytes.value_or_zero(row));
        (end.value(row) as u64, Monitored { cgroup, socket, bytes })
    };
    Ok((0..batch.num_rows()).map(row).collect())
}
