//! Reads the bytes that monitors measured from the table `monitors`, tick by tick; nothing if there
//! is no such table.

use std::sync::Arc;

use anyhow::Result;
use arrow::array::{Int16Array, RecordBatch};

use super::Log;
use super::rows::Rows;
use crate::entries::{Entry, Monitored};
use crate::schema::{columns, monitors};
use crate::tables::reader::Recording;

const COLUMNS: [&str; 4] = ["mono_ns", "cgroup", "socket", "bytes"];

/// The rows that were not used yet.
#[derive(Debug)]
pub(super) struct StoredMonitors {
    rows: Option<Rows<(u64, Monitored)>>,
}

impl StoredMonitors {
    /// Opens the table.
    pub(super) fn open(recording: &Recording) -> Result<Self> {
        let table = &monitors::TABLE;
        let is_there = recording.tables().iter().any(|its| its.name == table.name);
        let open = || anyhow::Ok(Rows::new(recording.table(table)?.scan(&COLUMNS)?, decode));
        Ok(Self { rows: is_there.then(open).transpose()? })
    }

    /// Adds the rows of ticks up to the one that ends at `end`.
    pub(super) fn feed(&mut self, end: u64, log: &mut Log) -> Result<()> {
        let Some(rows) = &mut self.rows else {
            return Ok(());
        };
        while let Some((_, monitored)) = rows.next_if(|(its, _)| *its <= end)? {
            log.take(Entry::Monitored(&monitored))?;
        }
        Ok(())
    }
}

fn decode(batch: &RecordBatch) -> Result<Vec<(u64, Monitored)>> {
    let (end, cgroup) = (columns::i64s(batch, "mono_ns")?, columns::words(batch, "cgroup")?);
    let (socket, bytes) =
        (columns::column::<Int16Array>(batch, "socket")?, columns::bits(batch, "bytes")?);
    let row = |row| {
        let cgroup = cgroup.get(row).map(Arc::from);
        let (socket, bytes) = (socket.value(row), bytes.value(row));
        (end.value(row) as u64, Monitored { cgroup, socket, bytes })
    };
    Ok((0..batch.num_rows()).map(row).collect())
}
