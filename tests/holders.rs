//! Who holds a device, on a machine that has none: the terminals of processes stand for GPUs,
//! because the recorder sees another `/proc/devices`. Where the kernel does not let files be
//! followed, all of them are read once a second, and the recording says so.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::harness::load::Load;
use crate::harness::recorder::Recorder;
use crate::harness::rows::{self, HolderRow};
use crate::harness::{assert_checked, mono_ns, python, root_or_skip};
use crate::wait::{hold_for, watch_for};

/// Longer than the time between two readings of all files of this machine: one takes at most a
/// thousandth of the time, which beside other work is some 7 s.
const READING: Duration = Duration::from_secs(10);

/// The driver of terminals in `/proc/devices`: sysfs has no links to its devices, as to those of
/// NVIDIA.
const TERMINALS: &str = "136 pts";

/// Opens and closes a terminal as it is told; the first one makes it.
const HOLD: &str = "
import os, sys
terminal, files = sys.argv[1], []
if not terminal:
    other, file = os.openpty()
    files.append(file)
    print(os.ttyname(file), flush=True)
for line in sys.stdin:
    if line.strip() == 'open':
        files.append(os.open(terminal, os.O_RDWR | os.O_NOCTTY))
    else:
        os.close(files.pop())
    print('done', flush=True)
";

/// A list of drivers in which that of terminals has another name.
fn drivers(dir: &Path, name: &str) -> PathBuf {
    let text = fs::read_to_string("/proc/devices").unwrap();
    assert!(text.contains(TERMINALS), "{text}");
    let path = dir.join("devices");
    fs::write(&path, text.replace(TERMINALS, name)).unwrap();
    path
}

/// Records while one process holds the terminal from the begin on, and another opens and closes it,
/// where a script has changed what the recorder sees. Returns the rows of the terminal, the two
/// processes, the times at which the other one opened and closed it, and why files were not
/// followed, if they were not.
fn recorded(dir: &Path, change: &str) -> (Vec<HolderRow>, [i32; 2], [i64; 2], Option<String>) {
    let python = python();
    let mut first = Load::start(&python, &["-c", HOLD, ""]);
    let terminal = first.read_line();
    let mut second = Load::start(&python, &["-c", HOLD, &terminal]);
    let run = dir.join("run/");
    let options = ["-p", "host", "--io", "--force", "--flush", "200ms"];
    let recorder = Recorder::after_script(change, &run, &options);
    let mut tell = |word: &str| {
        second.write_line(word);
        assert_eq!(second.read_line(), "done");
        mono_ns()
    };
    let opened_ns = tell("open");
    // While it is held there is no row.
    hold_for(READING);
    let times = [opened_ns, tell("close")];
    let pids = [first.pid(), second.pid()];
    let wait_for_end = |pid| {
        rows::wait_for_row(&run, "the end of a holder", rows::read_holders, |row| {
            row.pid == pid && row.end_ns.is_some()
        });
    };
    wait_for_end(pids[1]);
    drop(first);
    wait_for_end(pids[0]);
    recorder.stop();
    assert_checked(&run);
    let minor = terminal.trim_start_matches("/dev/pts/");
    let mut holder_rows = rows::read_holders(&run);
    holder_rows.retain(|row| row.device == format!("/dev/nvidia{minor}"));
    let mut losses =
        rows::read_losses(&run).into_iter().filter(|loss| loss.cause == "holder_unseen");
    (holder_rows, pids, times, losses.next_back().map(|loss| loss.detail.unwrap()))
}

#[test]
fn holders_are_seen_also_where_files_are_not_followed() {
    let _machine = root_or_skip!();
    let dir = tempfile::tempdir().unwrap();
    let gpus = dir.path().join("driver/nvidia/gpus");
    for minor in 0..64 {
        let gpu = gpus.join(format!("0009:{minor:02x}:00.0"));
        fs::create_dir_all(&gpu).unwrap();
        fs::write(gpu.join("information"), format!("Device Minor: \t {minor}\n")).unwrap();
    }
    let change = format!(
        "mount --bind {} /proc/devices; mount --bind {} /proc/driver",
        drivers(dir.path(), "136 nvidia").display(),
        dir.path().join("driver").display()
    );
    let (holder_rows, [first, second], [opened, closed], unfollowed) =
        recorded(dir.path(), &change);
    assert_eq!(holder_rows.len(), 2, "{holder_rows:?}");
    for row in &holder_rows {
        let minor: u32 = row.device.trim_start_matches("/dev/nvidia").parse().unwrap();
        assert_eq!(row.bdf, Some(format!("0009:{minor:02x}:00.0")), "{row:?}");
        assert_eq!(row.kind, "nvidia");
    }
    let row_of = |pid| holder_rows.iter().find(|row| row.pid == pid).unwrap();
    // It was closed by its end.
    assert_eq!((row_of(first).learnt.as_str(), row_of(first).begin_ns), ("start", None));
    assert!(row_of(first).end_ns.unwrap() > closed);
    let (begin, end) = (row_of(second).begin_ns.unwrap(), row_of(second).end_ns.unwrap());
    let late = match &unfollowed {
        // A reading that begins in time is not over when it is counted.
        Some(why) => {
            assert!(why.contains("fd_install"), "{why}");
            READING.as_nanos() as i64
        }
        None => 0,
    };
    assert_eq!(row_of(second).learnt, if unfollowed.is_some() { "reread" } else { "open" });
    // Each time was taken after the process had answered.
    let before = |time: i64| time - 100_000_000..=time + late;
    assert!(before(opened).contains(&begin), "{begin} {opened} {unfollowed:?}");
    assert!(before(closed).contains(&end), "{end} {closed} {unfollowed:?}");
}

/// A file that sysfs does not know is of no device: a driver without hardware, or a sysfs that
/// cannot be read.
#[test]
fn without_hardware_there_is_nothing_to_hold() {
    let _machine = root_or_skip!();
    for (name, more, is_watched) in [
        ("136 vfio", ":", true),
        ("136 drm", "mount -t tmpfs none /sys/dev", true),
        ("", ":", false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let change =
            format!("mount --bind {} /proc/devices; {more}", drivers(dir.path(), name).display());
        let mut holder = Load::start(python(), &["-c", HOLD, ""]);
        holder.read_line();
        let run = dir.path().join("run/");
        let recorder = Recorder::after_script(&change, &run, &["-p", "host", "--io"]);
        watch_for(READING / 8);
        recorder.stop();
        assert_checked(&run);
        assert!(rows::read_holders(&run).is_empty(), "{name}: {:?}", rows::read_holders(&run));
        let losses = rows::read_losses(&run);
        let unseen = losses.iter().find(|loss| loss.cause == "holder_unseen");
        // Where files cannot be followed, that is said only where something is watched.
        assert!(is_watched || unseen.is_none(), "{name}: {unseen:?}");
    }
}
