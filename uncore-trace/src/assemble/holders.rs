//! Who holds which device, from what the programs report and from readings of all files.
//!
//! A report says that a process got its first file of a device or left its last one, and when. What
//! no report says is found by the next reading: its time is then that of the reading. A report that
//! was made during or after a reading is newer than it.

mod stream;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::held::{FileUse, HeldTimes};
use super::sink::Sink;
use crate::clock::TimeSpan;
use crate::discover::accounts;
use crate::discover::nodes::{DeviceDrivers, DeviceNode, DeviceNumber};
use crate::discover::pci::{self, PciAddress};
use crate::drain::{FileChange, FileRecord, TaskIdentity};
use crate::entries;
use crate::identity::names::TaskNames;
use crate::schema::holders::{FORK, MOVE, OPEN, REREAD, Row, START};
use crate::schema::origin::RecordingOrigin;

/// Devices of processes that are remembered, some 10 MB. More are not entered.
const MOST: usize = 1 << 16;

/// A process and a device file.
type HolderKey = (u32, DeviceNumber);

/// A device file.
#[derive(Debug)]
struct DescribedFile {
    node: DeviceNode,
    functions: Option<String>,
    ports: Option<String>,
}

/// A device that a process holds.
#[derive(Clone, Debug)]
struct HeldFile {
    begin_ns: Option<u64>,
    learnt: &'static str,
    task: TaskIdentity,
    device_file: Rc<DescribedFile>,
}

/// A process that holds a device from now on.
#[derive(Clone, Copy, Debug)]
struct NewHolder {
    task: TaskIdentity,
    number: DeviceNumber,
    /// Since when, ns; `None` if that was before the recording.
    begin_ns: Option<u64>,
    /// How that was learnt.
    learnt: &'static str,
}

/// The holders in a part of a recording.
#[derive(Debug)]
pub(super) struct HolderTable {
    root: PathBuf,
    drivers: DeviceDrivers,
    device_files: HashMap<DeviceNumber, Option<Rc<DescribedFile>>>,
    held: BTreeMap<HolderKey, HeldFile>,
    /// The last report of each process and device since the last reading.
    reported: HashMap<HolderKey, u64>,
    /// Begin of the first reading: earlier reports are in it.
    first_reading_ns: Option<u64>,
    /// Begin of the part.
    start_ns: u64,
    /// Whether all files should be read again.
    in_doubt: bool,
    /// Those that ended in ticks that are not closed.
    ended_files: Vec<(HolderKey, HeldFile, u64)>,
    times: HeldTimes,
}

/// A reading of all files of watched devices.
#[derive(Debug)]
pub struct FilesReading<'a> {
    /// When it was made.
    pub span: TimeSpan,
    /// The files.
    pub files: &'a [FileRecord],
}

impl HolderTable {
    /// Starts without holders, for a part that begins at `start_ns`. Sysfs is under `root`.
    pub(super) fn new(root: &Path, start_ns: u64, counted: BTreeSet<PciAddress>) -> Self {
        Self {
            root: root.to_owned(),
            drivers: DeviceDrivers::read(root),
            device_files: HashMap::new(),
            held: BTreeMap::new(),
            reported: HashMap::new(),
            first_reading_ns: None,
            start_ns,
            in_doubt: false,
            ended_files: Vec::new(),
            times: HeldTimes::new(start_ns, counted),
        }
    }

    /// Takes a report. Returns the cgroup of a new holder, whose name is needed.
    fn feed_report(
        &mut self,
        event: &FileRecord,
        names: &mut TaskNames,
        sink: &mut Sink,
    ) -> Vec<u64> {
        if self.first_reading_ns.is_none_or(|since| event.time_ns < since) {
            return Vec::new();
        }
        let pid = event.task.pid;
        match event.change {
            FileChange::Got | FileChange::Seen => {
                self.note_report((pid, event.number), event.time_ns);
                let (task, number, begin_ns) = (event.task, event.number, Some(event.time_ns));
                self.add_holder(NewHolder { task, number, begin_ns, learnt: OPEN }, names, sink)
            }
            FileChange::Left => {
                self.note_report((pid, event.number), event.time_ns);
                self.remove_holder((pid, event.number), event.time_ns, sink);
                None
            }
            FileChange::Doubt => {
                self.in_doubt = true;
                None
            }
            FileChange::Fork(parent) => {
                let devices: Vec<DeviceNumber> =
                    self.files_of_process(parent).map(|(number, _)| number).collect();
                let mut cgroup = None;
                for number in devices {
                    self.note_report((pid, number), event.time_ns);
                    let (task, begin_ns) = (event.task, Some(event.time_ns));
                    let new = NewHolder { task, number, begin_ns, learnt: FORK };
                    cgroup = self.add_holder(new, names, sink).or(cgroup);
                }
                cgroup
            }
        }
        .into_iter()
        .collect()
    }

    /// Takes a reading of all files; all reports from before its end have been fed.
    fn feed_reading(
        &mut self,
        reading: &FilesReading<'_>,
        names: &mut TaskNames,
        sink: &mut Sink,
    ) -> Vec<u64> {
        let (begin, files) = (reading.span.begin_ns, reading.files);
        // A reading that was begun before the part, whose own is newer.
        if self.first_reading_ns.is_some_and(|since| begin < since) {
            return Vec::new();
        }
        self.times.note_change(Some(begin));
        self.device_files.clear();
        let is_first = self.first_reading_ns.is_none();
        let is_older = |reported: &HashMap<HolderKey, u64>, key: &HolderKey| {
            reported.get(key).is_none_or(|time| *time < begin)
        };
        let seen: BTreeSet<HolderKey> =
            files.iter().map(|file| (file.task.pid, file.number)).collect();
        let unseen = self.held.keys().filter(|key| !seen.contains(key));
        let vanished: Vec<HolderKey> =
            unseen.filter(|key| is_older(&self.reported, key)).copied().collect();
        for key in vanished {
            self.remove_holder(key, begin, sink);
        }
        let mut cgroups = Vec::new();
        for file in files {
            let &FileRecord { task, number, .. } = file;
            let (begin_ns, learnt) = if is_first { (None, START) } else { (Some(begin), REREAD) };
            if is_older(&self.reported, &(task.pid, number)) {
                let new = NewHolder { task, number, begin_ns, learnt };
                cgroups.extend(self.add_holder(new, names, sink));
            }
        }
        self.reported.retain(|_, time| *time >= begin);
        self.first_reading_ns.get_or_insert(begin);
        cgroups
    }

    /// Notes that a process executes another program.
    fn rename_process(&mut self, task: &TaskIdentity, time_ns: u64) {
        let keys = (task.pid, DeviceNumber::MIN)..=(task.pid, DeviceNumber::MAX);
        for held in self.held.range_mut(keys).map(|(_, held)| held) {
            held.task.comm = task.comm.to_table_form();
            self.times.note_change(Some(time_ns));
        }
    }

    /// Notes that a process came to a cgroup. `true` if it holds a device.
    fn move_process(&mut self, pid: u32, cgroup_id: u64, time_ns: u64, sink: &mut Sink) -> bool {
        let held: Vec<(DeviceNumber, HeldFile)> =
            self.files_of_process(pid).map(|(device, held)| (device, held.clone())).collect();
        let moved = held.into_iter().filter(|(_, held)| held.task.cgroup_id != cgroup_id);
        let mut has_moved = false;
        for (number, held) in moved {
            has_moved = true;
            self.remove_holder((pid, number), time_ns, sink);
            let task = TaskIdentity { cgroup_id, ..held.task };
            let held = HeldFile { begin_ns: Some(time_ns), learnt: MOVE, task, ..held };
            self.held.insert((pid, number), held);
        }
        has_moved
    }

    /// Whether all files should be read again, since the last call.
    pub(super) const fn take_doubt(&mut self) -> bool {
        std::mem::replace(&mut self.in_doubt, false)
    }

    /// Who holds what, of which accounts are read.
    pub(super) fn held_devices(&self) -> accounts::HeldDevices {
        let mut devices = accounts::HeldDevices::default();
        for ((pid, _), held) in &self.held {
            let DeviceNode { functions, .. } = &held.device_file.node;
            devices.functions.extend(functions);
            if held.device_file.node.has_clients() {
                devices.clients.entry(*pid).or_default().extend(functions);
            }
        }
        devices
    }

    /// Enters what is still held.
    fn write_held_rows(&mut self, sink: &mut Sink) {
        for ((pid, number), held) in std::mem::take(&mut self.held) {
            write_row((pid, number), &held, self.start_ns, None, sink);
        }
    }

    /// The devices of a process.
    fn files_of_process(&self, pid: u32) -> impl Iterator<Item = (DeviceNumber, &HeldFile)> {
        let keys = (pid, DeviceNumber::MIN)..=(pid, DeviceNumber::MAX);
        self.held.range(keys).map(|((_, number), held)| (*number, held))
    }

    fn note_report(&mut self, key: HolderKey, time_ns: u64) {
        if self.reported.len() >= MOST {
            // What is forgotten is decided by the next reading.
            self.reported.clear();
            self.in_doubt = true;
        }
        self.reported.insert(key, time_ns);
    }

    /// Enters a holder. Returns its cgroup, if it is new.
    fn add_holder(
        &mut self,
        new: NewHolder,
        names: &mut TaskNames,
        sink: &mut Sink,
    ) -> Option<u64> {
        let NewHolder { task, number, begin_ns, learnt } = new;
        let key = (task.pid, number);
        match self.held.get(&key) {
            Some(held) if held.task.cgroup_id == task.cgroup_id => return None,
            // Another process with its number, or its move was missed.
            Some(_) => self.remove_holder(key, begin_ns.unwrap_or_default(), sink),
            None if self.held.len() >= MOST => {
                self.in_doubt = true;
                return None;
            }
            None => {}
        }
        let device_file = self.look_up_file(number)?;
        self.times.note_change(begin_ns);
        let task = TaskIdentity { comm: names.process_name(&task).to_table_form(), ..task };
        self.held.insert(key, HeldFile { begin_ns, learnt, task, device_file });
        Some(task.cgroup_id)
    }

    fn remove_holder(&mut self, key: HolderKey, time_ns: u64, sink: &mut Sink) {
        if let Some(held) = self.held.remove(&key) {
            write_row(key, &held, self.start_ns, Some(time_ns), sink);
            self.times.note_change(Some(time_ns));
            if self.times.is_open_at(time_ns) {
                self.ended_files.push((key, held, time_ns));
            }
        }
    }

    /// Closes the tick of this span. Returns the changed times of owners.
    fn close_tick(&mut self, tick: TimeSpan, names: &mut TaskNames) -> Vec<entries::DeviceHold> {
        let TimeSpan { begin_ns, end_ns } = tick;
        if !self.times.is_due(tick) {
            return Vec::new();
        }
        let held = self.held.iter().map(|(key, held)| (*key, held, u64::MAX));
        let ended = self.ended_files.iter().map(|(key, held, end)| (*key, held, *end));
        let mut spans: BTreeMap<HolderKey, FileUse<'_>> = BTreeMap::new();
        for (key, held, end) in held.chain(ended) {
            let held_from_ns = held.begin_ns.unwrap_or(begin_ns).max(begin_ns);
            let ns = end.min(end_ns).saturating_sub(held_from_ns);
            if ns > 0 {
                let span = FileUse { node: &held.device_file.node, task: held.task, ns: 0 };
                spans.entry(key).or_insert(span).ns += ns;
            }
        }
        let changes = self.times.close_tick(&spans, tick, names);
        self.ended_files.retain(|(.., end)| *end > end_ns);
        changes
    }

    fn look_up_file(&mut self, number: DeviceNumber) -> Option<Rc<DescribedFile>> {
        if self.device_files.len() >= MOST {
            self.device_files.clear();
        }
        let Self { device_files: known_files, drivers, root, .. } = self;
        let device_file = known_files.entry(number).or_insert_with(|| {
            let node = drivers.device_file(root, number)?;
            let ports: BTreeSet<PciAddress> =
                node.functions.iter().filter_map(|function| pci::top(root, *function)).collect();
            let (functions, ports) =
                (pci::join_addresses(&node.functions), pci::join_addresses(&ports));
            Some(Rc::new(DescribedFile { node, functions, ports }))
        });
        device_file.clone()
    }
}

/// A row, unless it ended before the part begins.
fn write_row(
    key: HolderKey,
    held: &HeldFile,
    start_ns: u64,
    until_ns: Option<u64>,
    sink: &mut Sink,
) {
    if until_ns.is_some_and(|end| end <= start_ns) {
        return;
    }
    let ((pid, number), DescribedFile { node, functions, ports }) = (key, &*held.device_file);
    let RecordingOrigin { host, boot_id, cluster } = &sink.origin;
    sink.rows.holders.append(&Row {
        host,
        boot_id,
        cluster: cluster.as_deref(),
        pid: pid as i32,
        comm: &held.task.comm.to_text(),
        cgroup_id: held.task.cgroup_id,
        device: &node.path,
        kind: node.kind_name,
        is_block: i32::from(number.is_block),
        major: number.major as i32,
        minor: number.minor as i32,
        bdf: functions.as_deref(),
        port: ports.as_deref(),
        begin_ns: held.begin_ns.filter(|begin| *begin >= start_ns).map(|begin| begin as i64),
        end_ns: until_ns.map(|end| end as i64),
        learnt: held.learnt,
    });
}

#[cfg(test)]
mod tests;
