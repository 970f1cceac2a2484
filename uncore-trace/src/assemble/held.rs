//! How long each owner holds the functions whose traffic is counted, in each tick.

use std::collections::{BTreeMap, BTreeSet};

use super::output::EntryOutput;
use crate::clock::TimeSpan;
use crate::discover::nodes::{DeviceAccess, DeviceNode, DeviceNumber};
use crate::discover::pci::PciAddress;
use crate::drain::TaskIdentity;
use crate::entries::{DeviceHold, LogEntry, Owner};
use crate::identity::names::TaskNames;
use crate::schema::held::Row;

/// A device file that a process has open in a tick.
#[derive(Debug)]
pub(super) struct FileUse<'a> {
    /// The file.
    pub node: &'a DeviceNode,
    /// The process.
    pub task: TaskIdentity,
    /// How long in the tick.
    pub ns: u64,
}

/// The times of the last tick.
#[derive(Debug)]
pub(super) struct HeldTimes {
    /// The functions whose traffic a counter counts.
    counted: BTreeSet<PciAddress>,
    /// Nanoseconds by function and owner; none is 0.
    current: BTreeMap<(PciAddress, Owner), u64>,
    /// End of the last tick.
    closed_ns: u64,
    /// Time of the last change, or the end of the last tick then if that is later.
    changed_ns: u64,
}

impl HeldTimes {
    /// Before the first tick, which begins at `start_ns`.
    pub(super) const fn new(start_ns: u64, counted: BTreeSet<PciAddress>) -> Self {
        Self { counted, current: BTreeMap::new(), closed_ns: start_ns, changed_ns: start_ns }
    }

    /// Notes that somebody begins or ceases to hold a device; `None`: before the first tick.
    pub(super) fn note_change(&mut self, time_ns: Option<u64>) {
        self.changed_ns = self.changed_ns.max(time_ns.unwrap_or_default()).max(self.closed_ns);
    }

    /// Whether a tick that has this time is not closed.
    pub(super) fn is_open_at(&self, time_ns: u64) -> bool {
        !self.counted.is_empty() && time_ns > self.closed_ns
    }

    /// Whether the tick may differ from the one before.
    pub(super) fn is_due(&mut self, tick: TimeSpan) -> bool {
        self.closed_ns = tick.end_ns;
        // A holder has a part of the tick in which it begins, and the whole next one.
        !self.counted.is_empty() && tick.begin_ns <= self.changed_ns + tick.len_ns()
    }

    /// Returns what is different in the tick, in which these processes have these files open.
    pub(super) fn close_tick(
        &mut self,
        files: &BTreeMap<(u32, DeviceNumber), FileUse<'_>>,
        tick: TimeSpan,
        names: &mut TaskNames,
    ) -> Vec<DeviceHold> {
        let kinds: BTreeSet<(u32, &str)> =
            files.iter().map(|((pid, _), file)| (*pid, file.node.kind_name)).collect();
        let can_work = |pid: u32, access: DeviceAccess| match access {
            DeviceAccess::Work => true,
            DeviceAccess::With(kind) => kinds.contains(&(pid, kind)),
            DeviceAccess::Manage => false,
        };
        let mut of_processes: BTreeMap<(PciAddress, u32), (TaskIdentity, u64)> = BTreeMap::new();
        for (&(pid, _), file) in
            files.iter().filter(|((pid, _), file)| can_work(*pid, file.node.access))
        {
            for function in
                file.node.functions.iter().filter(|address| self.counted.contains(address))
            {
                let (_, ns) = of_processes.entry((*function, pid)).or_insert((file.task, 0));
                *ns = file.ns.max(*ns);
            }
        }
        let mut new_times: BTreeMap<(PciAddress, Owner), u64> = BTreeMap::new();
        for ((function, _), (task, ns)) in of_processes {
            *new_times
                .entry((function, names.owner_of_process(&task, tick.end_ns)))
                .or_default() += ns;
        }
        // Several processes of one owner may hold a function at the same time.
        for ns in new_times.values_mut() {
            *ns = (*ns).min(tick.len_ns());
        }
        let released =
            self.current.keys().filter(|key| !new_times.contains_key(key)).map(|key| (key, 0));
        let changed = new_times.iter().filter(|(key, ns)| self.current.get(key) != Some(ns));
        let differences = released.chain(changed.map(|(key, ns)| (key, *ns)));
        let to_hold = |(&(function, owner), ns)| DeviceHold { function, owner, ns };
        let holds = differences.map(to_hold).collect();
        self.current = new_times;
        holds
    }
}

/// Ends all times: a row with 0 ns for each owner, in the tick that ends at `end_ns`, the first
/// after the recording. Where recordings are joined, the next one has new rows for what is held.
pub(super) fn end_all(times: &HeldTimes, end_ns: u64, output: &mut EntryOutput<'_>) {
    for (function, owner) in times.current.keys() {
        write_row(&DeviceHold { function: *function, owner: *owner, ns: 0 }, end_ns, output);
    }
}

/// Logs what changed in the tick that ends at `end_ns`.
pub(super) fn log_changes(changes: &[DeviceHold], end_ns: u64, output: &mut EntryOutput<'_>) {
    for held in changes {
        output.log_entry(LogEntry::Held(held));
        write_row(held, end_ns, output);
    }
}

fn write_row(held: &DeviceHold, end_ns: u64, output: &mut EntryOutput<'_>) {
    if !output.raw {
        return;
    }
    let owner = held.owner.to_columns();
    output.sink.rows.held.append(&Row {
        mono_ns: end_ns as i64,
        bdf: &held.function.to_string(),
        owner: owner.kind,
        pid: owner.pid,
        comm: owner.process.as_deref(),
        cgroup_id: owner.cgroup_id,
        ns: held.ns,
    });
}
