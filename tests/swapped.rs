//! Something else in the place of each file of a captured machine: a pipe, a directory, a loop of
//! links, a large file, a device. `list`, `record --dry-run` and `doctor` end soon, in little
//! memory, and say what they say in short lines.
//!
//! An early failure hides what comes after it. So each tree has files of every kind at once, and
//! then one at a time of those without which nothing goes on.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use crate::PROGRAM;
use crate::command::{Answer, NO_CONFIG};
use crate::machines::unpacked;

/// Data that a command may have, bytes: 64 MiB beyond the 16 MiB that suffice for these machines.
/// The kernel refuses more, and the command dies of a signal. The resident size that wait4(2) tells
/// is no measure: it includes that of the process that forked.
const MEMORY: u64 = (16 + 64) << 20;

/// Longest time of a run, s.
const PATIENCE: &str = "10";

/// Longest line of stderr, and of stdout, bytes.
const LONGEST: (usize, usize) = (400, 4000);

/// Puts something else at a path where nothing is.
type Put = fn(&Path);

/// What is put in the place of a file. One of 15 MiB is below the limit of a mount table.
const KINDS: [(&str, Put); 6] = [
    ("a FIFO", fifo),
    ("a directory", |path| fs::create_dir(path).unwrap()),
    ("a link to itself", |path| symlink(path, path).unwrap()),
    ("1 GiB", |path| File::create(path).unwrap().set_len(1 << 30).unwrap()),
    ("a link to /dev/urandom", |path| symlink("/dev/urandom", path).unwrap()),
    ("15 MiB", |path| File::create(path).unwrap().set_len(15 << 20).unwrap()),
];

/// What is put in the place of a directory.
const NO_DIRECTORY: [(&str, Put); 3] = [
    ("a FIFO", fifo),
    ("a link to itself", |path| symlink(path, path).unwrap()),
    // Who follows it walks in a circle.
    ("a link to the directory above", |path| symlink("..", path).unwrap()),
];

/// Files that decide whether the machine can be used at all.
const ESSENTIAL: [&str; 4] = [
    "sys/devices/system/cpu/online",
    "sys/devices/system/node/node0/cpulist",
    "proc/self/mountinfo",
    "proc/sys/kernel/osrelease",
];

/// Files of other machines, which are read where they exist.
const OTHERS: [&str; 12] = [
    "boot/config-6.18.44",
    "proc/config.gz",
    "proc/cpuinfo",
    "proc/filesystems",
    "proc/self/cgroup",
    "proc/self/limits",
    "proc/self/status",
    "proc/sys/kernel/perf_event_paranoid",
    "sys/firmware/acpi/tables/IORT",
    "sys/fs/resctrl/info/L3_MON/mon_features",
    "sys/kernel/btf/vmlinux",
    "var/lib/uncore-trace/calibration.json",
];

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

/// Runs each command on the tree.
fn examine(root: &Path, what: &str) {
    for args in [&["list"][..], &["record", "--dry-run"], &["doctor"]] {
        let mut command = Command::new("timeout");
        command.args([PATIENCE, "prlimit", &format!("--data={MEMORY}"), PROGRAM]).args(args);
        command.arg("--root").arg(root).env("XDG_CONFIG_HOME", NO_CONFIG);
        let answer = Answer::of(command.output().unwrap());
        let begin = |text: &str| text.chars().take(1000).collect::<String>();
        let summary = format!("{args:?}, {what}: {} {}", answer.code, begin(&answer.err));
        // 124 is a run that did not end, 128 and more one that a signal ended.
        assert!((0..=2).contains(&answer.code), "{summary}");
        for (text, longest) in [(&answer.err, LONGEST.0), (&answer.out, LONGEST.1)] {
            let line = text.lines().max_by_key(|line| line.len()).unwrap_or_default();
            assert!(line.len() <= longest, "{summary}: {} bytes: {}", line.len(), begin(line));
        }
    }
}

/// The captured machine, with files of others.
fn tree(name: &str) -> TempDir {
    let dir = unpacked(name);
    for path in OTHERS.map(|path| dir.path().join(path)) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if !path.exists() {
            fs::write(path, "").unwrap();
        }
    }
    dir
}

/// The paths below, in order: directories, and what is none.
fn paths(root: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut directories, mut files) = (vec![root.to_owned()], Vec::new());
    let mut walked = 0;
    while let Some(directory) = directories.get(walked).cloned() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let is_directory = entry.file_type().unwrap().is_dir();
            if is_directory { &mut directories } else { &mut files }.push(entry.path());
        }
        walked += 1;
    }
    directories.remove(0);
    directories.sort();
    files.sort();
    (directories, files)
}

fn swap_each_file(name: &str) {
    for turn in 0..KINDS.len() {
        let root = tree(name);
        let (_, files) = paths(root.path());
        for (number, path) in files.iter().enumerate() {
            // These alone, below.
            if !ESSENTIAL.iter().any(|essential| path.ends_with(essential)) {
                fs::remove_file(path).unwrap();
                KINDS[(number + turn) % KINDS.len()].1(path);
            }
        }
        examine(root.path(), &format!("{name}, turn {turn}"));
    }
}

/// The essential files, each alone.
#[test]
fn each_essential_file_may_be_anything() {
    let root = tree("vm-no-uncore");
    for path in ESSENTIAL.map(|path| root.path().join(path)) {
        let before = fs::read(&path).unwrap();
        for (kind, put) in KINDS {
            fs::remove_file(&path).unwrap();
            put(&path);
            examine(root.path(), &format!("{} is {kind}", path.display()));
            if kind == "a directory" {
                fs::remove_dir(&path).unwrap();
            } else {
                fs::remove_file(&path).unwrap();
            }
            fs::write(&path, &before).unwrap();
        }
    }
}

#[test]
fn each_file_of_a_small_machine_may_be_anything() {
    swap_each_file("vm-no-uncore");
}

#[test]
fn each_file_of_a_machine_with_pmus_may_be_anything() {
    swap_each_file("grace-2s");
}

/// Those of a depth at once: none of them hides one.
#[test]
fn each_directory_may_be_anything() {
    for (name, turns) in [("vm-no-uncore", NO_DIRECTORY.len()), ("grace-2s", 1)] {
        let depth = |root: &Path, path: &Path| path.strip_prefix(root).unwrap().iter().count();
        let deepest = {
            let root = tree(name);
            paths(root.path()).0.iter().map(|path| depth(root.path(), path)).max().unwrap()
        };
        let each = |level| (0..turns).map(move |turn| (level, turn));
        for (level, turn) in (1..=deepest).flat_map(each) {
            let root = tree(name);
            let (mut directories, _) = paths(root.path());
            directories.retain(|path| depth(root.path(), path) == level);
            for (number, path) in directories.iter().enumerate() {
                fs::remove_dir_all(path).unwrap();
                NO_DIRECTORY[(number + turn) % NO_DIRECTORY.len()].1(path);
            }
            examine(root.path(), &format!("{name}, directories of depth {level}, turn {turn}"));
        }
    }
}
