use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::drain::Comm;
use crate::identity::cgroups::Cgroups;
use crate::schema::columns::{bits_column, i32_column, i64_column, nullable_value, word_column};

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

    fn feed(&mut self, time: u64, change: FileChange, number: DeviceNumber, pid: u32) -> Vec<u64> {
        let event = event(time, change, number, pid);
        self.holders.feed_report(&event, &mut self.names, &mut self.sink)
    }

    fn read(&mut self, (begin_ns, end_ns): (u64, u64), files: &[(DeviceNumber, u32)]) {
        let event = |&(number, pid)| event(begin_ns, FileChange::Seen, number, pid);
        let files: Vec<_> = files.iter().map(event).collect();
        let reading = FilesReading { span: TimeSpan { begin_ns, end_ns }, files: &files };
        self.holders.feed_reading(&reading, &mut self.names, &mut self.sink);
    }

    fn end(mut self) -> Vec<Line> {
        self.holders.write_held_rows(&mut self.sink);
        let rows = self.sink.rows.holders.finish();
        let (pid, cgroup) =
            (i32_column(&rows, "pid").unwrap(), bits_column(&rows, "cgroup_id").unwrap());
        let (begin, end) =
            (i64_column(&rows, "begin_ns").unwrap(), i64_column(&rows, "end_ns").unwrap());
        let word =
            |name: &str, row: usize| word_column(&rows, name).unwrap().get(row).map(str::to_owned);
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
