//! Reads paths of cgroups from the table `cgroups`, tick by tick.

use std::sync::Arc;

use anyhow::Result;
use arrow::array::RecordBatch;

use super::Log;
use super::rows::Rows;
use crate::entries::LogEntry;
use crate::schema::cgroups::{self, CgroupNames};
use crate::schema::columns;
use crate::tables::reader::Recording;

/// The rows that were not used yet.
#[derive(Debug)]
pub(super) struct Cgroups(Rows<Row>);

/// A row of `cgroups`.
#[derive(Debug)]
struct Row {
    end: u64,
    id: u64,
    names: Arc<CgroupNames>,
}

impl Cgroups {
    /// Opens the table.
    pub(super) fn open(recording: &Recording) -> Result<Self> {
        let wanted = ["id", "path", "container", "pod", "job", "mono_ns"];
        let scan = recording.open_table(&cgroups::TABLE)?.scan_columns(&wanted)?;
        Ok(Self(Rows::new(scan, decode)))
    }

    /// Adds the paths that are known from the tick that ends at `end` on.
    pub(super) fn feed(&mut self, end: u64, log: &mut Log) -> Result<()> {
        while let Some(row) = self.0.next_if(|row| row.end <= end)? {
            log.take(LogEntry::Cgroup { id: row.id, names: &row.names })?;
        }
        Ok(())
    }
}

fn decode(batch: &RecordBatch) -> Result<Vec<Row>> {
    let (id, path) = (columns::bits_column(batch, "id")?, columns::texts(batch, "path")?);
    let (container, pod) = (columns::words(batch, "container")?, columns::words(batch, "pod")?);
    let job = columns::words(batch, "job")?;
    let end = columns::i64_column(batch, "mono_ns")?;
    let row = |row| Row {
        end: end.value(row) as u64,
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
