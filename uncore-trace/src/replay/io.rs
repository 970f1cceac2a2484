//! Reads the bytes that devices moved from the table `io`, tick by tick; nothing if there is no
//! such table.

use std::collections::HashMap;
use std::rc::Rc;

use anyhow::Result;
use arrow::array::RecordBatch;

use super::ReplayLog;
use super::owners::OwnerColumns;
use super::rows::TableRows;
use crate::entries::{DeviceTransfer, LogEntry, Owner};
use crate::plan::IoDirection;
use crate::schema::{columns, io};
use crate::tables::reader::Recording;

const COLUMNS: [&str; 11] = [
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
];

/// The rows that were not used yet.
#[derive(Debug)]
pub(super) struct StoredIo {
    rows: Option<TableRows<IoRow>>,
    devices: HashMap<String, Rc<str>>,
}

/// A row of `io`.
#[derive(Debug)]
struct IoRow {
    tick_end_ns: u64,
    device: String,
    is_on_pci: bool,
    direction: IoDirection,
    owner: Owner,
    bytes: u64,
    requests: u64,
}

impl StoredIo {
    /// Opens the table.
    pub(super) fn open_table(recording: &Recording) -> Result<Self> {
        let table = recording.find_table(&io::TABLE)?;
        let scan = table.map(|table| table.scan_columns(&COLUMNS)).transpose()?;
        Ok(Self { rows: scan.map(|scan| TableRows::new(scan, decode_io)), devices: HashMap::new() })
    }

    /// Adds the rows of ticks up to the one that ends at `tick_end_ns`.
    pub(super) fn feed_until(&mut self, tick_end_ns: u64, log: &mut ReplayLog) -> Result<()> {
        let Some(rows) = &mut self.rows else {
            return Ok(());
        };
        while let Some(row) = rows.next_if(|row| row.tick_end_ns <= tick_end_ns)? {
            let IoRow { device, is_on_pci, direction, owner, bytes, requests, .. } = row;
            let device = self.devices.entry(device).or_insert_with_key(|name| name.as_str().into());
            log.log_entry(LogEntry::Moved(&DeviceTransfer {
                device: Rc::clone(device),
                is_on_pci,
                direction,
                owner,
                bytes,
                requests,
            }))?;
        }
        Ok(())
    }
}

fn decode_io(batch: &RecordBatch) -> Result<Vec<IoRow>> {
    let tick_ends = columns::i64_column(batch, "mono_ns")?;
    let owners = OwnerColumns::from_batch("io", batch, "comm", "cgroup_id")?;
    let (device, direction) =
        (columns::word_column(batch, "device")?, columns::word_column(batch, "direction")?);
    let functions = columns::word_column(batch, "bdf")?;
    let (bytes, requests) =
        (columns::bits_column(batch, "bytes")?, columns::bits_column(batch, "requests")?);
    let row = |row| {
        Ok(IoRow {
            tick_end_ns: tick_ends.value(row) as u64,
            device: device.get(row).unwrap_or_default().to_owned(),
            is_on_pci: functions.get(row).is_some(),
            direction: match direction.get(row) {
                Some(word) if word == IoDirection::Write.direction_name() => IoDirection::Write,
                _ => IoDirection::Read,
            },
            owner: owners.row_owner(row)?,
            bytes: bytes.value_or_zero(row),
            requests: requests.value_or_zero(row),
        })
    };
    (0..batch.num_rows()).map(row).collect()
}
