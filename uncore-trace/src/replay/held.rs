//! Reads from the table `held` who holds which device.

use anyhow::{Context as _, Result};
use arrow::array::RecordBatch;

use super::owners::OwnerColumns;
use super::rows::TableForm;
use crate::entries::{DeviceHold, LogEntry};
use crate::schema::{columns, held};

/// The table's form.
pub(super) const FORM: TableForm<DeviceHold> = TableForm {
    table: &held::TABLE,
    columns: &["mono_ns", "bdf", "owner", "pid", "comm", "cgroup_id", "ns"],
    decode: decode_held,
    entry: |held| LogEntry::Held(held),
};

fn decode_held(batch: &RecordBatch) -> Result<Vec<(u64, DeviceHold)>> {
    let (end, ns) = (columns::i64_column(batch, "mono_ns")?, columns::bits_column(batch, "ns")?);
    let function = columns::word_column(batch, "bdf")?;
    let owners = OwnerColumns::from_batch("held", batch, "comm", "cgroup_id")?;
    let row = |row| {
        let function = function.get(row).unwrap_or_default();
        let function = function.parse().context("held has a row without a PCI function")?;
        let owner = owners.row_owner(row)?;
        Ok((end.value(row) as u64, DeviceHold { function, owner, ns: ns.value_or_zero(row) }))
    };
    (0..batch.num_rows()).map(row).collect()
}
