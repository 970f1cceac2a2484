//! Reads the bytes that devices moved from the table `io`.

use std::rc::Rc;

use anyhow::Result;
use arrow::array::RecordBatch;

use super::owners::OwnerColumns;
use super::rows::TableForm;
use crate::entries::{DeviceTransfer, LogEntry};
use crate::plan::IoDirection;
use crate::schema::{columns, io};

/// The table's form.
pub(super) const FORM: TableForm<DeviceTransfer> = TableForm {
    table: &io::TABLE,
    columns: &[
        "mono_ns",
        "device",
        "bdf",
        "direction",
        "owner",
        "pid",
        "comm",
        "cgroup_id",
        "number",
        "bytes",
        "requests",
    ],
    decode: decode_io,
    entry: |moved| LogEntry::Moved(moved),
};

fn decode_io(batch: &RecordBatch) -> Result<Vec<(u64, DeviceTransfer)>> {
    let tick_ends = columns::i64_column(batch, "mono_ns")?;
    let owners = OwnerColumns::from_batch("io", batch, "comm", "cgroup_id")?;
    let (device, direction) =
        (columns::word_column(batch, "device")?, columns::word_column(batch, "direction")?);
    let functions = columns::word_column(batch, "bdf")?;
    let (bytes, requests) =
        (columns::bits_column(batch, "bytes")?, columns::bits_column(batch, "requests")?);
    let row = |row| {
        let moved = DeviceTransfer {
            device: Rc::from(device.get(row).unwrap_or_default()),
            is_on_pci: functions.get(row).is_some(),
            direction: direction
                .get(row)
                .and_then(IoDirection::from_name)
                .unwrap_or(IoDirection::Read),
            owner: owners.row_owner(row)?,
            bytes: bytes.value_or_zero(row),
            requests: requests.value_or_zero(row),
        };
        Ok((tick_ends.value(row) as u64, moved))
    };
    (0..batch.num_rows()).map(row).collect()
}
