//! Rows of every table, before they go to the writer.
//!
//! Guarantee: the rows that wait for the writer are bounded, whatever the machine does:
//! [`BATCH_ROWS`] and the rows of one drain for each table here, and the limit of the [`RowStore`].

use anyhow::Result;
use arrow::array::{AsArray, RecordBatch};
use arrow::compute::{max, min};
use arrow::datatypes::Int64Type;

use crate::clock::mono_ns;
use crate::drain::TaskIdentity;
use crate::entries::{Disorder, ROWS_AT_ONCE};
use crate::schema::cgroups::CgroupNames;
use crate::schema::origin::RecordingOrigin;
use crate::schema::{Builders, RowStore, TableDef, cgroups, fabric, slices, tasks};

/// Rows of a table that go to the writer together: 4 MB of `fabric`. Every batch may become a
/// segment, and many small segments cost the writer more time than few large ones.
///
/// More rows than this wait here only between two calls of [`Sink::hand_over`]: those of one tick,
/// or the slices of one drain.
pub(super) const BATCH_ROWS: usize = ROWS_AT_ONCE;

/// Collects rows of every table.
#[derive(Debug, Default)]
pub struct Sink {
    wanted: Vec<&'static str>,
    /// The origin of the recording.
    pub origin: RecordingOrigin,
    /// Rows that were not handed to the writer yet.
    pub rows: Builders,
    /// Rows of `fabric` that were handed to the writer.
    handed_rows: u64,
    /// The rows of `slices` that were dropped, and are not in the table `loss` yet.
    pub(super) dropped: Vec<DroppedSlices>,
    refused: Option<RefusedEntries>,
}

/// Entries of the log that were refused because they were out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RefusedEntries {
    /// Number of entries.
    pub count: u64,
    /// When the first one was, ns on `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Why the first one was.
    pub why: Disorder,
}

/// Rows of `slices` that were dropped because they came faster than they could be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DroppedSlices {
    /// Number of rows.
    pub rows: u64,
    /// Begin of the first one, ns on `CLOCK_MONOTONIC`.
    pub begin_ns: i64,
    /// End of the last one, ns on `CLOCK_MONOTONIC`.
    pub end_ns: i64,
}

impl DroppedSlices {
    fn of_batch(slices: &RecordBatch) -> Self {
        let times = |name| slices.column_by_name(name).map(AsArray::as_primitive::<Int64Type>);
        Self {
            rows: slices.num_rows() as u64,
            begin_ns: times("begin_ns").and_then(min).unwrap_or_default(),
            end_ns: times("end_ns").and_then(max).unwrap_or_default(),
        }
    }
}

impl Sink {
    /// Rows for the tables that `writer` wants; `slices` only if every slice is recorded.
    pub fn new(writer: &dyn RowStore, every_slice: bool, origin: RecordingOrigin) -> Self {
        let wanted = crate::schema::ALL
            .iter()
            .filter(|table| writer.wants_table(table))
            .filter(|table| every_slice || table.name != slices::TABLE.name)
            .map(|table| table.name)
            .collect();
        Self { wanted, origin, ..Self::default() }
    }

    /// Whether rows of this table are kept.
    pub fn wants_table(&self, table: &TableDef) -> bool {
        self.wanted.contains(&table.name)
    }

    /// Whether a table has enough rows for [`Sink::hand_over`].
    pub(super) fn is_full(&self) -> bool {
        self.rows.max_table_rows() >= BATCH_ROWS
    }

    /// Hands the rows of each table that has [`BATCH_ROWS`] of them to the writer.
    pub fn hand_over(&mut self, writer: &mut dyn RowStore) -> Result<()> {
        self.hand_rows(writer, BATCH_ROWS)
    }

    /// Hands all rows to the writer.
    pub fn hand_over_all(&mut self, writer: &mut dyn RowStore) -> Result<()> {
        self.hand_rows(writer, 1)
    }

    /// Hands all rows to the writer and waits for room. For the end of a recording, when the ring
    /// is no longer drained.
    pub fn finish_rows(&mut self, writer: &mut dyn RowStore) -> Result<()> {
        self.handed_rows += self.rows.fabric.len() as u64;
        self.rows.finish(1, |table, batch| writer.write_rows(table, batch))
    }

    fn hand_rows(&mut self, writer: &mut dyn RowStore, min_rows: usize) -> Result<()> {
        let Self { wanted: _, origin: _, rows, handed_rows: handed, dropped, refused: _ } = self;
        rows.finish(min_rows, |table, batch| {
            if table.name == fabric::TABLE.name {
                *handed += batch.num_rows() as u64;
            }
            if table.name != slices::TABLE.name {
                return writer.write_rows(table, batch);
            }
            // Slices are dropped rather than waited for: during a wait the ring would fill, and all
            // other tables would lose records. No other table is made from slices.
            let dropped_slices = DroppedSlices::of_batch(&batch);
            if !writer.offer_rows(table, batch)? {
                dropped.push(dropped_slices);
            }
            Ok(())
        })
    }

    /// Number of rows of `fabric` so far.
    pub fn fabric_rows(&self) -> u64 {
        self.handed_rows + self.rows.fabric.len() as u64
    }

    /// Notes that an entry was refused.
    pub(super) fn refuse_entry(&mut self, why: Disorder) {
        let first_refusal = RefusedEntries { count: 0, time_ns: mono_ns() as u64, why };
        self.refused.get_or_insert(first_refusal).count += 1;
    }

    /// The entries that were refused since the last call.
    pub(super) const fn take_refused(&mut self) -> Option<RefusedEntries> {
        self.refused.take()
    }

    /// A row of `tasks`.
    pub fn append_task(&mut self, task: &TaskIdentity, time_ns: u64, event_name: &str) {
        self.rows.tasks.append(&tasks::Row {
            mono_ns: time_ns as i64,
            pid: task.pid as i32,
            tid: task.tid as i32,
            comm: &task.comm.to_text(),
            cgroup_id: task.cgroup_id,
            what: event_name,
        });
    }

    /// A row of `cgroups`.
    pub fn append_cgroup(&mut self, id: u64, names: &CgroupNames, time_ns: u64) {
        let RecordingOrigin { host, boot_id, cluster } = &self.origin;
        self.rows.cgroups.append(&cgroups::Row {
            host,
            boot_id,
            cluster: cluster.as_deref(),
            id,
            path: &names.path,
            container: names.container.as_deref(),
            pod: names.pod.as_deref(),
            job: names.job.as_deref(),
            mono_ns: time_ns as i64,
        });
    }
}
