//! Reads paths of cgroups from the table `cgroups`, tick by tick.

use std::sync::Arc;

use anyhow::Result;
use arrow::array::RecordBatch;

use super::ReplayLog;
use super::rows::TableRows;
use crate::entries::LogEntry;
use crate::schema::cgroups::{self, CgroupNames};
use crate::schema::columns;
use crate::tables::reader::Recording;

/// The rows that were not used yet.
#[derive(Debug)]
pub(super) struct StoredCgroups(TableRows<CgroupRow>);

/// A row of `cgroups`.
#[derive(Debug)]
struct CgroupRow {
    tick_end_ns: u64,
    id: u64,
    names: Arc<CgroupNames>,
}

impl StoredCgroups {
    /// Opens the table.
    pub(super) fn open_table(recording: &Recording) -> Result<Self> {
        let wanted = ["id", "path", "container", "pod", "job", "mono_ns"];
        let scan = recording.open_table(&cgroups::TABLE)?.scan_columns(&wanted)?;
        Ok(Self(TableRows::new(scan, decode_cgroups)))
    }

    /// Adds the paths that are known from the tick that ends at `tick_end_ns` on.
    pub(super) fn feed_until(&mut self, tick_end_ns: u64, log: &mut ReplayLog) -> Result<()> {
        while let Some(row) = self.0.next_if(|row| row.tick_end_ns <= tick_end_ns)? {
            log.log_entry(LogEntry::Cgroup { id: row.id, names: &row.names })?;
        }
        Ok(())
    }
}

fn decode_cgroups(batch: &RecordBatch) -> Result<Vec<CgroupRow>> {
    let (id, path) = (columns::bits_column(batch, "id")?, columns::text_column(batch, "path")?);
    let (container, pod) =
        (columns::word_column(batch, "container")?, columns::word_column(batch, "pod")?);
    let job = columns::word_column(batch, "job")?;
    let tick_ends = columns::i64_column(batch, "mono_ns")?;
    let row = |row| CgroupRow {
        tick_end_ns: tick_ends.value(row) as u64,
        id: id.value_or_zero(row),
        names: Arc::new(CgroupNames {
            path: path.value(row).into(),
            container: container.get(row).map(Into::into),
            pod: pod.get(row).map(Into::into),
            job: job.get(row).map(Into::into),
        }),
    };
    Ok((0..batch.num_rows()).map(row).collect())
}
