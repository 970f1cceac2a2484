//! Reads from the table `held` who holds which device, tick by tick; nothing if there is no such table.

use anyhow::{Context as _, Result};
use arrow::array::RecordBatch;

use super::Log;
use super::owners::Owners;
use super::rows::Rows;
use crate::entries::{Entry, Held};
use crate::schema::{columns, held};
use crate::tables::reader::Recording;

const COLUMNS: [&str; 7] = ["mono_ns", "bdf", "owner", "pid", "comm", "cgroup_id", "ns"];

/// The rows that were not used yet.
#[derive(Debug)]
pub(super) struct StoredHeld {
    rows: Option<Rows<(u64, Held)>>,
}

impl StoredHeld {
    /// Opens the table.
    pub(super) fn open(recording: &Recording) -> Result<Self> {
        let table = &held::TABLE;
        let is_there = recording.tables().iter().any(|its| its.name == table.name);
        let open = || anyhow::Ok(Rows::new(recording.table(table)?.scan(&COLUMNS)?, decode));
        Ok(Self { rows: is_there.then(open).transpose()? })
    }

    /// Adds the rows of ticks up to the one that ends at `end`.
    pub(super) fn feed(&mut self, end: u64, log: &mut Log) -> Result<()> {
        let Some(rows) = &mut self.rows else {
            return Ok(());
        };
        while let Some((_, held)) = rows.next_if(|(its, _)| *its <= end)? {
            log.take(Entry::Held(&held))?;
        }
        Ok(())
    }
}

fn decode(batch: &RecordBatch) -> Result<Vec<(u64, Held)>> {
    let (end, ns) = (columns::i64s(batch, "mono_ns")?, columns::bits(batch, "ns")?);
    let function = columns::words(batch, "bdf")?;
    let owners = Owners::of("held", batch, "comm", "cgroup_id")?;
    let row = |row| {
        let function = function.get(row).unwrap_or_default();
        let function = function.parse().context("held has a row without a PCI function")?;
        let owner = owners.get(row)?;
        Ok((end.value(row) as u64, Held { function, owner, ns: ns.value(row) }))
    };
    (0..batch.num_rows()).map(row).collect()
}
