//! What the kernel tests share: the machine one at a time, the real binary, its tables.
//!
//! Guarantees: a test that cannot run here prints why and returns, and fails instead where
//! `UNCORE_TRACE_REQUIRE_ROOT=1`; what a test starts or makes is gone when it ends, also when it
//! fails.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stderr, reason = "a skipped test says why")]

pub mod cgroup;
pub mod load;
pub mod recorder;
pub mod rows;
pub mod subject;

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::command::NO_CONFIG;
use rustix::process::geteuid;
use rustix::time::{ClockId, clock_gettime};

/// Kernel tests measure the machine, so they have it one after the other.
static MACHINE: Mutex<()> = Mutex::new(());

/// The machine for the rest of the test; without root the test is skipped.
macro_rules! root_or_skip {
    () => {
        match $crate::harness::machine() {
            Some(machine) => machine,
            None => return,
        }
    };
}
/// The value, or the test is skipped for the reason in the error.
macro_rules! or_skip {
    ($found:expr) => {
        match $found {
            Ok(found) => found,
            Err(reason) => return $crate::harness::skip(&reason),
        }
    };
}
pub(crate) use {or_skip, root_or_skip};

/// Says why the test is skipped, or fails where nothing may be skipped.
pub fn skip(reason: &str) {
    let required = env::var_os("UNCORE_TRACE_REQUIRE_ROOT").is_some_and(|value| value == "1");
    assert!(!required, "must not be skipped (UNCORE_TRACE_REQUIRE_ROOT=1): {reason}");
    eprintln!("skipped: {reason}");
}

/// The machine, if this is root.
pub fn machine() -> Option<MutexGuard<'static, ()>> {
    if !geteuid().is_root() {
        skip("recording needs root");
        return None;
    }
    Some(MACHINE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The program under test.
pub fn uncore_trace() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uncore-trace"));
    command.env("XDG_CONFIG_HOME", NO_CONFIG);
    command
}

/// Runs it to its end.
pub fn run<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Output {
    uncore_trace().args(args).output().unwrap()
}

/// Runs it to its end, which must be exit code 0; returns stdout.
pub fn run_ok<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> String {
    let output = run(args);
    assert!(output.status.success(), "{:?}: {}", output.status, text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// What it printed, for messages.
pub fn text(output: &Output) -> String {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", lossy(&output.stdout), lossy(&output.stderr))
}

/// The least of up to three measurements, the first that is `enough`: the host of a virtual machine
/// may stop it for a second, and its kernel may hide a process of its own from tracers, with the
/// interrupts that come while it runs (seen: process 1 of one that runs a single job).
pub fn best_of_three(enough: f64, mut measure: impl FnMut() -> f64) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        best = best.min(measure());
        if best <= enough {
            break;
        }
    }
    best
}

/// `uncore-trace check` finds nothing wrong.
pub fn assert_checked(recording: &Path) {
    let output = run([OsStr::new("check"), recording.as_os_str()]);
    assert_eq!(output.status.code(), Some(0), "{}: {}", recording.display(), text(&output));
}

/// `CLOCK_MONOTONIC`, ns.
pub fn mono_ns() -> i64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The Python with the readers that `cargo xtask setup` installs into the target directory.
pub fn python() -> Result<PathBuf, String> {
    // The binary is TARGET/PROFILE/uncore-trace.
    let target = Path::new(env!("CARGO_BIN_EXE_uncore-trace")).parent().and_then(Path::parent);
    let python = target.unwrap().join("venv/bin/python");
    if python.is_file() {
        Ok(python)
    } else {
        Err(format!("{} is missing: run `cargo xtask setup`", python.display()))
    }
}

/// That a tool can be run.
pub fn tool(name: &str) -> Result<(), String> {
    match Command::new(name).arg("--version").output() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{name} cannot be run ({error}): run `cargo xtask setup`")),
    }
}

/// Asks `readers.py`; the answer is JSON.
pub fn readers(python: &Path, args: &[&OsStr]) -> serde_json::Value {
    let script = include_str!("readers.py");
    let output = Command::new(python).arg("-c").arg(script).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}
