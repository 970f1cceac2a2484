//! Rows of every table, on their way to the writer.

use anyhow::Result;

use crate::{
    align::cgroups::Place,
    drain::Task,
    tables::{Builders, TableDef, cgroups, slices, tasks, thread::WriterHandle},
};

/// Collects rows of every table.
#[derive(Debug, Default)]
pub struct Sink {
    wanted: Vec<&'static str>,
    /// The rows since the last flush.
    pub rows: Builders,
}

impl Sink {
    /// Rows for the tables that `writer` wants; `slices` only if every slice is recorded.
    pub fn new(writer: &WriterHandle, every_slice: bool) -> Self {
        let wanted = crate::tables::ALL
            .iter()
            .filter(|table| writer.wants(table))
            .filter(|table| every_slice || table.name != slices::TABLE.name)
            .map(|table| table.name)
            .collect();
        Self { wanted, ..Self::default() }
    }

    /// Whether rows of this table are kept.
    pub fn wants(&self, table: &TableDef) -> bool {
        self.wanted.contains(&table.name)
    }

    /// Hands all rows to the writer; returns how many rows of `fabric` there were.
    pub fn flush(&mut self, writer: &mut WriterHandle) -> Result<u64> {
        let rows = self.rows.fabric.len() as u64;
        self.rows.finish(|table, batch| writer.write(table, batch))?;
        Ok(rows)
    }

    /// A row of `tasks`.
    pub fn task(&mut self, task: &Task, time: u64, what: &str) {
        self.rows.tasks.append(&tasks::Row {
            mono_ns: time as i64,
            pid: task.pid as i32,
            tid: task.tid as i32,
            comm: &task.comm.text(),
            cgroup_id: task.cgroup_id,
            what,
        });
    }

    /// A row of `cgroups`.
    pub fn cgroup(&mut self, id: u64, place: &Place, time: u64) {
        self.rows.cgroups.append(&cgroups::Row {
            id,
            path: &place.path,
            container: place.container.as_deref(),
            pod: place.pod.as_deref(),
            mono_ns: time as i64,
        });
    }
}
