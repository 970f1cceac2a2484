//! The tables' builders, and the way of their rows to the writer.

use anyhow::Result;
use arrow::array::RecordBatch;

use super::irqnames::IrqNames;
use crate::{
    align::{cgroups::Place, names::Names, who::Who},
    drain::{Comm, Task},
    tables::{
        TableDef, cgroups, counters, fabric, io, irqs, loss, readings, runtime, slices, tasks,
        thread::WriterHandle,
    },
};

/// Collects rows of every table.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "each field is the builder of the table of its name")]
pub struct Sink {
    wanted: Vec<&'static str>,
    pub fabric: fabric::Builder,
    pub readings: readings::Builder,
    pub runtime: runtime::Builder,
    pub slices: slices::Builder,
    pub irqs: irqs::Builder,
    pub io: io::Builder,
    pub tasks: tasks::Builder,
    pub cgroups: cgroups::Builder,
    pub counters: counters::Builder,
    pub loss: loss::Builder,
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

    /// Hands all rows to the writer; returns how many fabric rows there were.
    pub fn flush(&mut self, writer: &mut WriterHandle) -> Result<u64> {
        let Self {
            wanted: _,
            fabric,
            readings,
            runtime,
            slices,
            irqs,
            io,
            tasks,
            cgroups,
            counters,
            loss,
        } = self;
        let rows = fabric.len() as u64;
        let mut write =
            |table: &'static TableDef, len: usize, finish: &mut dyn FnMut() -> RecordBatch| {
                if len == 0 { Ok(()) } else { writer.write(table, finish()) }
            };
        write(&readings::TABLE, readings.len(), &mut || readings.finish())?;
        write(&runtime::TABLE, runtime.len(), &mut || runtime.finish())?;
        write(&slices::TABLE, slices.len(), &mut || slices.finish())?;
        write(&irqs::TABLE, irqs.len(), &mut || irqs.finish())?;
        write(&io::TABLE, io.len(), &mut || io.finish())?;
        write(&tasks::TABLE, tasks.len(), &mut || tasks.finish())?;
        write(&cgroups::TABLE, cgroups.len(), &mut || cgroups.finish())?;
        write(&counters::TABLE, counters.len(), &mut || counters.finish())?;
        write(&loss::TABLE, loss.len(), &mut || loss.finish())?;
        write(&fabric::TABLE, fabric.len(), &mut || fabric.finish())?;
        Ok(rows)
    }

    /// A row of `tasks`.
    pub fn task(&mut self, task: &Task, time: u64, what: &str) {
        self.tasks.append(&tasks::Row {
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
        self.cgroups.append(&cgroups::Row {
            id,
            path: &place.path,
            container: place.container.as_deref(),
            pod: place.pod.as_deref(),
            mono_ns: time as i64,
        });
    }
}

/// Turns owners into the words of a row.
#[derive(Debug)]
pub struct Labels<'a> {
    /// Processes and cgroups.
    pub names: &'a mut Names,
    /// Interrupts.
    pub irq_names: &'a mut IrqNames,
    /// End of the window.
    pub now: u64,
}

/// The owner columns of a row.
#[derive(Debug)]
pub struct Label<'a> {
    /// `pid`.
    pub pid: Option<i32>,
    /// `comm`.
    pub comm: Option<std::borrow::Cow<'a, str>>,
    /// `cgroup_id`.
    pub cgroup_id: Option<u64>,
    /// `cgroup`.
    pub cgroup: Option<&'a str>,
    /// `container`.
    pub container: Option<&'a str>,
    /// `pod`.
    pub pod: Option<&'a str>,
}

impl Labels<'_> {
    /// The columns for an owner; `comm` is the owner's own if it is a task.
    pub fn of<'a>(&'a mut self, who: Who, comm: &'a Comm) -> Label<'a> {
        let nobody = Label {
            pid: None,
            comm: None,
            cgroup_id: None,
            cgroup: None,
            container: None,
            pod: None,
        };
        match who {
            Who::Task { pid, cgroup_id, .. } => {
                let place = self.names.cgroups.place(cgroup_id, self.now);
                let known = pid != 0;
                Label {
                    pid: known.then_some(pid as i32),
                    comm: known.then(|| comm.text()),
                    cgroup_id: Some(cgroup_id),
                    cgroup: place.map(|place| place.path.as_str()),
                    container: place.and_then(|place| place.container.as_deref()),
                    pod: place.and_then(|place| place.pod.as_deref()),
                }
            }
            Who::Irq(number) => Label { comm: Some(self.irq_names.irq(number).into()), ..nobody },
            Who::Softirq(vector) => {
                Label { comm: Some(IrqNames::softirq(vector).into()), ..nobody }
            }
            Who::OtherTasks => Label { cgroup: Some(fabric::OTHER_TASKS), ..nobody },
            Who::Idle | Who::Device | Who::Unknown => nobody,
        }
    }
}
