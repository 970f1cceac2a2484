//! Who holds which device, from what the programs report and from readings of all files.
//!
//! A report says that a process got its first file of a device or left its last one, and when. What
//! no report says is found by the next reading: its time is then that of the reading. A report that
//! was made during or after a reading is newer than it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::held::{FileUse, HeldTimes};
use super::sink::Sink;
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
    pub(super) fn feed_report(
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
                self.add_holder(
                    (pid, event.number),
                    event.task,
                    Some(event.time_ns),
                    OPEN,
                    (names, sink),
                )
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
                    let key = (pid, number);
                    cgroup = self
                        .add_holder(key, event.task, Some(event.time_ns), FORK, (names, sink))
                        .or(cgroup);
                }
                cgroup
            }
        }
        .into_iter()
        .collect()
    }

    /// Takes a reading of all files; all reports from before its end have been fed.
    pub(super) fn feed_reading(
        &mut self,
        (begin, _): (u64, u64),
        files: &[FileRecord],
        names: &mut TaskNames,
        sink: &mut Sink,
    ) -> Vec<u64> {
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
            let key = (file.task.pid, file.number);
            let (since, learnt) = if is_first { (None, START) } else { (Some(begin), REREAD) };
            if is_older(&self.reported, &key) {
                cgroups.extend(self.add_holder(key, file.task, since, learnt, (names, sink)));
            }
        }
        self.reported.retain(|_, time| *time >= begin);
        self.first_reading_ns.get_or_insert(begin);
        cgroups
    }

    /// Notes that a process executes another program.
    pub(super) fn rename_process(&mut self, task: &TaskIdentity, time_ns: u64) {
        let keys = (task.pid, DeviceNumber::MIN)..=(task.pid, DeviceNumber::MAX);
        for held in self.held.range_mut(keys).map(|(_, held)| held) {
            held.task.comm = task.comm.to_table_form();
            self.times.note_change(Some(time_ns));
        }
    }

    /// Notes that a process came to a cgroup. `true` if it holds a device.
    pub(super) fn move_process(
        &mut self,
        pid: u32,
        cgroup_id: u64,
        time_ns: u64,
        sink: &mut Sink,
    ) -> bool {
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

    /// The times in which functions are held.
    pub(super) const fn held_times(&self) -> &HeldTimes {
        &self.times
    }

    /// Enters what is still held.
    pub(super) fn write_held_rows(&mut self, sink: &mut Sink) {
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
        key: HolderKey,
        task: TaskIdentity,
        begin_ns: Option<u64>,
        learnt: &'static str,
        (names, sink): (&mut TaskNames, &mut Sink),
    ) -> Option<u64> {
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
        let device_file = self.look_up_file(key.1)?;
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

    /// Closes the tick from `begin_ns` to `end_ns`. Returns the changed times of owners.
    pub(super) fn close_tick(
        &mut self,
        (begin_ns, end_ns): (u64, u64),
        names: &mut TaskNames,
    ) -> Vec<entries::DeviceHold> {
        if !self.times.is_due(begin_ns, end_ns) {
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
        let changes = self.times.close_tick(&spans, (begin_ns, end_ns), names);
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
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::drain::Comm;
    use crate::identity::cgroups::Cgroups;
    use crate::schema::columns::{
        bits_column, i32_column, i64_column, nullable_value, word_column,
    };

    const CARD: DeviceNumber = DeviceNumber { is_block: false, major: 226, minor: 0 };
    const RENDER: DeviceNumber = DeviceNumber { is_block: false, major: 226, minor: 128 };

    /// A row: process, cgroup, device, root port, begin, end, and how it was learnt.
    type Line = (i32, u64, String, Option<String>, Option<i64>, Option<i64>, String);

    /// Two files of a GPU below a root port, and what was entered.
    struct Case {
        _dir: tempfile::TempDir,
        holders: HolderTable,
        names: TaskNames,
        sink: Sink,
    }

    impl Case {
        fn new(start: u64) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path();
            let link = |path: &str, target: &str| {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                symlink(target, path).unwrap();
            };
            fs::create_dir_all(root.join("proc")).unwrap();
            fs::write(root.join("proc/devices"), "Character devices:\n226 drm\n").unwrap();
            let gpu = "devices/pci0002:00/0002:00:03.0/0002:01:00.0";
            for (minor, name) in [(0, "card0"), (128, "renderD128")] {
                link(&format!("sys/dev/char/226:{minor}"), &format!("../../{gpu}/drm/{name}"));
                let dir = root.join("sys").join(gpu).join("drm").join(name);
                fs::create_dir_all(&dir).unwrap();
                fs::write(dir.join("uevent"), format!("DEVNAME=dri/{name}\n")).unwrap();
            }
            link("sys/bus/pci/devices/0002:01:00.0", &format!("../../../{gpu}"));
            let names = TaskNames::new(root, Cgroups::new(None, root, Vec::new()), Vec::new());
            let holders = HolderTable::new(root, start, BTreeSet::new());
            Self { _dir: dir, holders, names, sink: Sink::default() }
        }

        fn feed(
            &mut self,
            time: u64,
            change: FileChange,
            number: DeviceNumber,
            pid: u32,
        ) -> Vec<u64> {
            let event = event(time, change, number, pid);
            self.holders.feed_report(&event, &mut self.names, &mut self.sink)
        }

        fn read(&mut self, span: (u64, u64), files: &[(DeviceNumber, u32)]) {
            let event = |&(number, pid)| event(span.0, FileChange::Seen, number, pid);
            let files: Vec<_> = files.iter().map(event).collect();
            self.holders.feed_reading(span, &files, &mut self.names, &mut self.sink);
        }

        fn end(mut self) -> Vec<Line> {
            self.holders.write_held_rows(&mut self.sink);
            let rows = self.sink.rows.holders.finish();
            let (pid, cgroup) =
                (i32_column(&rows, "pid").unwrap(), bits_column(&rows, "cgroup_id").unwrap());
            let (begin, end) =
                (i64_column(&rows, "begin_ns").unwrap(), i64_column(&rows, "end_ns").unwrap());
            let word = |name: &str, row: usize| {
                word_column(&rows, name).unwrap().get(row).map(str::to_owned)
            };
            let line = |row| {
                (
                    pid.value(row),
                    cgroup.value_or_zero(row),
                    word("device", row).unwrap(),
                    word("port", row),
                    nullable_value(begin, row),
                    nullable_value(end, row),
                    word("learnt", row).unwrap(),
                )
            };
            (0..rows.num_rows()).map(line).collect()
        }
    }

    fn event(time: u64, change: FileChange, number: DeviceNumber, pid: u32) -> FileRecord {
        let comm = Comm::from_bytes(b"train");
        let task = TaskIdentity { tid: pid, pid, cgroup_id: u64::from(pid) + 1000, comm };
        FileRecord { time_ns: time, change, number, task }
    }

    fn line(pid: u32, device: &str, span: (Option<i64>, Option<i64>), learnt: &str) -> Line {
        let port = Some("0002:00:03.0".to_owned());
        let cgroup = u64::from(pid) + 1000;
        (pid as i32, cgroup, format!("/dev/dri/{device}"), port, span.0, span.1, learnt.to_owned())
    }

    #[test]
    fn who_has_it_from_when_to_when() {
        let mut case = Case::new(0);
        // Reports from before the first reading are in it.
        case.feed(5, FileChange::Got, CARD, 1);
        case.read((10, 12), &[(CARD, 7), (CARD, 7), (RENDER, 7)]);
        assert_eq!(case.feed(20, FileChange::Got, RENDER, 8), [1008]);
        // It has it already.
        assert!(case.feed(21, FileChange::Got, RENDER, 8).is_empty());
        case.feed(30, FileChange::Fork(7), DeviceNumber::MIN, 9);
        case.feed(40, FileChange::Left, CARD, 7);
        case.feed(41, FileChange::Left, CARD, 7);
        case.feed(50, FileChange::Left, RENDER, 8);
        case.feed(60, FileChange::Got, RENDER, 8);
        // A device that is not known.
        case.feed(61, FileChange::Got, DeviceNumber { minor: 99, ..CARD }, 8);
        assert_eq!(
            case.end(),
            [
                line(7, "card0", (None, Some(40)), "start"),
                line(8, "renderD128", (Some(20), Some(50)), "open"),
                line(7, "renderD128", (None, None), "start"),
                line(8, "renderD128", (Some(60), None), "open"),
                line(9, "card0", (Some(30), None), "fork"),
                line(9, "renderD128", (Some(30), None), "fork"),
            ]
        );
    }

    #[test]
    fn accounts_are_read_of_what_is_held_now() {
        let mut case = Case::new(0);
        case.read((10, 12), &[(CARD, 7), (RENDER, 7), (CARD, 8)]);
        case.feed(20, FileChange::Left, CARD, 8);
        let gpu: BTreeSet<PciAddress> = ["0002:01:00.0".parse().unwrap()].into();
        let clients = [(7, gpu.clone())].into();
        assert_eq!(case.holders.held_devices(), accounts::HeldDevices { functions: gpu, clients });
    }

    #[test]
    fn what_no_report_says_is_found_by_the_next_reading() {
        let mut case = Case::new(0);
        case.read((10, 12), &[(CARD, 7), (CARD, 8)]);
        // Newer than the reading that follows, whose files were read before.
        case.feed(101, FileChange::Got, CARD, 5);
        case.feed(101, FileChange::Left, CARD, 8);
        case.read((100, 102), &[(CARD, 8), (CARD, 9)]);
        case.read((200, 202), &[(CARD, 9)]);
        assert!(!case.holders.take_doubt());
        case.feed(300, FileChange::Doubt, CARD, 9);
        assert!(case.holders.take_doubt() && !case.holders.take_doubt());
        assert_eq!(
            case.end(),
            [
                line(8, "card0", (None, Some(101)), "start"),
                line(7, "card0", (None, Some(100)), "start"),
                line(5, "card0", (Some(101), Some(200)), "open"),
                line(9, "card0", (Some(100), None), "reread"),
            ]
        );
    }

    #[test]
    fn a_process_that_is_moved_has_a_row_for_each_cgroup() {
        let mut case = Case::new(50);
        case.read((10, 12), &[(CARD, 7), (CARD, 8)]);
        // Before the part begins.
        case.feed(20, FileChange::Left, CARD, 8);
        case.feed(30, FileChange::Got, RENDER, 7);
        assert!(case.holders.move_process(7, 5, 100, &mut case.sink));
        assert!(!case.holders.move_process(7, 5, 110, &mut case.sink));
        let rows: Vec<_> = case.end().into_iter().map(|it| (it.1, it.2, it.4, it.5)).collect();
        let (card, render) = ("/dev/dri/card0".to_owned(), "/dev/dri/renderD128".to_owned());
        assert_eq!(
            rows,
            [
                (1007, card.clone(), None, Some(100)),
                (1007, render.clone(), None, Some(100)),
                (5, card, Some(100), None),
                (5, render, Some(100), None),
            ]
        );
    }
}
