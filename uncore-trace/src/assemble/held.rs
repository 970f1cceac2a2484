//! How long each owner holds the functions whose traffic is counted, in each tick.

use std::collections::{BTreeMap, BTreeSet};

use super::output::Output;
use crate::discover::nodes::{Access, Node, Number};
use crate::discover::pci::Address;
use crate::drain::Task;
use crate::entries::{LogEntry, DeviceHold, Owner};
use crate::identity::names::TaskNames;
use crate::schema::held::Row;

/// A device file that a process has open in a tick.
#[derive(Debug)]
pub(super) struct Use<'a> {
    /// The file.
    pub node: &'a Node,
    /// The process.
    pub task: Task,
    /// How long in the tick.
    pub ns: u64,
}

/// The times of the last tick.
#[derive(Debug)]
pub(super) struct HeldTimes {
    /// The functions whose traffic a counter counts.
    counted: BTreeSet<Address>,
    /// Nanoseconds by function and owner; none is 0.
    now: BTreeMap<(Address, Owner), u64>,
    /// End of the last tick.
    closed: u64,
    /// Time of the last change, or the end of the last tick then if that is later.
    changed: u64,
}

impl HeldTimes {
    /// Before the first tick, which begins at `start`.
    pub(super) const fn new(start: u64, counted: BTreeSet<Address>) -> Self {
        Self { counted, now: BTreeMap::new(), closed: start, changed: start }
    }

    /// Somebody begins or ceases to hold a device at this time; `None`: before the first tick.
    pub(super) fn change(&mut self, time: Option<u64>) {
        self.changed = self.changed.max(time.unwrap_or_default()).max(self.closed);
    }

    /// Whether a tick that has this time is not closed.
    pub(super) fn are_open(&self, time: u64) -> bool {
        !self.counted.is_empty() && time > self.closed
    }

    /// Whether the tick from `from` to `to` may differ from the one before.
    pub(super) fn are_due(&mut self, from: u64, to: u64) -> bool {
        self.closed = to;
        // A holder has a part of the tick in which it begins, and the whole next one.
        !self.counted.is_empty() && from <= self.changed + (to - from)
    }

    /// Returns what is different in the tick from `from` to `to`, in which these processes have these
    /// files open.
    pub(super) fn close(
        &mut self,
        files: &BTreeMap<(u32, Number), Use<'_>>,
        (from, to): (u64, u64),
        names: &mut TaskNames,
    ) -> Vec<DeviceHold> {
        let kinds: BTreeSet<(u32, &str)> =
            files.iter().map(|((pid, _), file)| (*pid, file.node.kind)).collect();
        let works = |pid: u32, access: Access| match access {
            Access::Work => true,
            Access::With(kind) => kinds.contains(&(pid, kind)),
            Access::Manage => false,
        };
        let mut of_processes: BTreeMap<(Address, u32), (Task, u64)> = BTreeMap::new();
        for (&(pid, _), file) in
            files.iter().filter(|((pid, _), file)| works(*pid, file.node.access))
        {
            for function in file.node.functions.iter().filter(|at| self.counted.contains(at)) {
                let (_, ns) = of_processes.entry((*function, pid)).or_insert((file.task, 0));
                *ns = file.ns.max(*ns);
            }
        }
        let mut now: BTreeMap<(Address, Owner), u64> = BTreeMap::new();
        for ((function, _), (task, ns)) in of_processes {
            *now.entry((function, names.owner_of_process(&task, to))).or_default() += ns;
        }
        // Several processes of one owner may hold a function at the same time.
        for ns in now.values_mut() {
            *ns = (*ns).min(to - from);
        }
        let gone = self.now.keys().filter(|key| !now.contains_key(key)).map(|key| (key, 0));
        let other = now.iter().filter(|(key, ns)| self.now.get(key) != Some(ns));
        let changes = gone.chain(other.map(|(key, ns)| (key, *ns)));
        let changes =
            changes.map(|(&(function, owner), ns)| DeviceHold { function, owner, ns }).collect();
        self.now = now;
        changes
    }
}

/// Ends all times: a row with 0 ns for each owner, in the tick that ends at `end`, the first after the
/// recording. Where recordings are joined, the next one has new rows for what is still held.
pub(super) fn end(times: &HeldTimes, end: u64, output: &mut Output<'_>) {
    for (function, owner) in times.now.keys() {
        row(&DeviceHold { function: *function, owner: *owner, ns: 0 }, end, output);
    }
}

/// Logs what changed in the tick that ends at `end`.
pub(super) fn log(changes: &[DeviceHold], end: u64, output: &mut Output<'_>) {
    for held in changes {
        output.entry(LogEntry::Held(held));
        row(held, end, output);
    }
}

fn row(held: &DeviceHold, end: u64, output: &mut Output<'_>) {
    if !output.raw {
        return;
    }
    let owner = held.owner.to_columns();
    output.sink.rows.held.append(&Row {
        mono_ns: end as i64,
        bdf: &held.function.to_string(),
        owner: owner.kind,
        pid: owner.pid,
        comm: owner.process.as_deref(),
        cgroup_id: owner.cgroup_id,
        ns: held.ns,
    });
}
