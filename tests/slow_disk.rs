//! Disks that do not respond, and syncs that take seconds: the recording continues, and nothing is
//! lost.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use uncore_trace::schema::metadata;

use crate::faults::assert_told;
use crate::harness::recorder::{Recorder, WORKLOAD};
use crate::harness::{assert_checked, mono_ns, need, or_skip, root_or_skip, rows};
use crate::wait::hold_for;

/// How long a disk does not respond.
const STILL: Duration = Duration::from_secs(3);

/// A ring that holds the records while a recorder waits for a CPU, but not while it waits for a
/// disk.
const OPTIONS: [&str; 8] = ["-p", "host", "-I", "10ms", "--flush", "100ms", "--buffer", "2"];

/// Runs a program silently; the error has its output.
fn quietly(program: &str, args: &[&OsStr]) -> Result<(), String> {
    match Command::new(program).args(args).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

/// A file system that can be frozen: writers wait until it is thawed.
struct Disk {
    dir: tempfile::TempDir,
}

impl Disk {
    fn mount() -> Result<Self, String> {
        let disk = Self { dir: tempfile::tempdir().unwrap() };
        let image = disk.dir.path().join("image");
        File::create(&image).unwrap().set_len(32 << 20).unwrap();
        fs::create_dir(disk.path()).unwrap();
        need("mkfs.ext4");
        quietly("mkfs.ext4", &["-q".as_ref(), image.as_os_str()])?;
        let path = disk.path();
        quietly("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), path.as_os_str()])?;
        Ok(disk)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    fn freeze(&self) -> Result<Frozen<'_>, String> {
        quietly("fsfreeze", &["-f".as_ref(), self.path().as_os_str()])?;
        Ok(Frozen(self))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // If it was not mounted, there is nothing to unmount.
        quietly("umount", &["-l".as_ref(), self.path().as_os_str()]).ok();
    }
}

/// Thawed on drop.
struct Frozen<'a>(&'a Disk);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        quietly("fsfreeze", &["-u".as_ref(), self.0.path().as_os_str()]).unwrap();
    }
}

/// Each CPU has windows from the start to `end` without gaps.
fn assert_whole(recording: &Path, start: i64, end: i64) {
    assert_eq!(rows::metadata_value(recording, metadata::COMPLETE).as_deref(), Some("true"));
    for time in rows::read_cpu_time(recording) {
        assert!(time.begin_ns < start && time.end_ns >= end, "{time:?}: {start} to {end}");
    }
    let ticks: Vec<i64> = rows::read_runtime(recording).iter().map(|time| time.mono_ns).collect();
    assert!(ticks.iter().any(|tick| *tick >= end), "no tick after {end}");
}

#[test]
fn a_frozen_disk_loses_no_data() {
    let _machine = root_or_skip!();
    let disk = or_skip!(Disk::mount());
    let output = disk.path().join("run/");
    let mut recorder = Recorder::start(&output, &OPTIONS);
    let start = mono_ns() + 100_000_000;
    rows::wait_for_window_after(&output, start);
    let frozen = or_skip!(disk.freeze());
    hold_for(STILL);
    drop(frozen);
    rows::wait_for_window_after(&output, mono_ns());
    // Also while it waits for its last files.
    let objects = recorder.objects();
    let frozen = or_skip!(disk.freeze());
    let end = mono_ns();
    recorder.signal(Signal::TERM);
    objects.assert_gone();
    drop(frozen);
    let ended = recorder.wait();
    assert!(assert_told(&output, &ended), "{}", ended.stderr);
    assert_whole(&output, start, end);
}

/// Replaces the C library's function: takes time, and logs the call.
const SLOW_SYNC: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
int fsync(int fd)
{
    static const char said[] = "a slow fsync\n";
    write(2, said, sizeof said - 1);
    sleep(3);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
"#;

#[test]
fn a_sync_that_takes_seconds_loses_nothing() {
    let _machine = root_or_skip!();
    need("cc");
    let dir = tempfile::tempdir().unwrap();
    let (source, library) = (dir.path().join("sync.c"), dir.path().join("sync.so"));
    fs::write(&source, SLOW_SYNC).unwrap();
    let args = ["-shared".as_ref(), "-fPIC".as_ref(), "-o".as_ref(), library.as_os_str()];
    quietly("cc", &[&args[..], &[source.as_os_str(), "-ldl".as_ref()]].concat()).unwrap();
    // A single file: a dataset is synced table by table.
    let output = dir.path().join("run.parquet");
    let env = [("LD_PRELOAD", library.as_os_str())];
    let mut recorder = Recorder::with_env(&output, &OPTIONS, WORKLOAD, &env);
    let start = mono_ns() + 100_000_000;
    rows::wait_for_window_after(&output, start);
    let objects = recorder.objects();
    let end = mono_ns();
    recorder.signal(Signal::TERM);
    // Programs and counters are removed before.
    objects.assert_gone();
    assert!(!output.exists(), "it is there before it is on disk");
    let ended = recorder.wait();
    assert!(ended.stderr.contains("a slow fsync"), "{}", ended.stderr);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_checked(&output);
    for time in rows::read_cpu_time(&output) {
        assert!(time.begin_ns < start && time.end_ns >= end, "{time:?}: {start} to {end}");
    }
}
