//! Reads paths of cgroups from the table `cgroups`.

use std::sync::Arc;

use anyhow::Result;
use arrow::array::RecordBatch;

use super::rows::TableForm;
use crate::entries::LogEntry;
use crate::schema::cgroups::{self, CgroupNames};
use crate::schema::columns;

/// The id and the names of a cgroup.
type IdentifiedCgroup = (u64, Arc<CgroupNames>);

/// The table's form. The end of a row's tick is that of the first one in which the path is known.
pub(super) const FORM: TableForm<IdentifiedCgroup> = TableForm {
    table: &cgroups::TABLE,
    columns: &["id", "path", "container", "pod", "job", "mono_ns"],
    decode: decode_cgroups,
    entry: |(id, names)| LogEntry::Cgroup { id: *id, names },
};

fn decode_cgroups(batch: &RecordBatch) -> Result<Vec<(u64, IdentifiedCgroup)>> {
    let (id, path) = (columns::bits_column(batch, "id")?, columns::text_column(batch, "path")?);
    let (container, pod) =
        (columns::word_column(batch, "container")?, columns::word_column(batch, "pod")?);
    let job = columns::word_column(batch, "job")?;
    let tick_ends = columns::i64_column(batch, "mono_ns")?;
    let row = |row| {
        let names = CgroupNames {
            path: path.value(row).into(),
            container: container.get(row).map(Into::into),
            pod: pod.get(row).map(Into::into),
            job: job.get(row).map(Into::into),
        };
        (tick_ends.value(row) as u64, (id.value_or_zero(row), Arc::new(names)))
    };
    Ok((0..batch.num_rows()).map(row).collect())
}
