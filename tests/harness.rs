//! Common parts of tests on the kernel: exclusive use of the machine, the real binary, its tables.
//!
//! Guarantees: a test that cannot run here is skipped as described in `skip.rs`; a missing program
//! that `cargo xtask setup` installs is never a reason to skip; everything that a test starts or
//! makes is removed when it ends, also when it fails.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

pub(crate) mod browser;
pub(crate) mod cgroup;
pub(crate) mod load;
pub(crate) mod made;
pub(crate) mod page;
pub(crate) mod recorder;
pub(crate) mod rows;
pub(crate) mod store;
pub(crate) mod subject;
pub(crate) mod upload;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::geteuid;
use rustix::time::{ClockId, clock_gettime};

use crate::command::NO_CONFIG;
use crate::skip::skip;

/// Tests on the kernel measure the machine, so they run one after the other.
static MACHINE: Mutex<()> = Mutex::new(());

/// Locks the machine for the rest of the test; without root the test is skipped.
macro_rules! root_or_skip {
    () => {
        match $crate::harness::machine() {
            Some(machine) => machine,
            None => return,
        }
    };
}
/// The value; after an error the test is skipped for that reason.
macro_rules! or_skip {
    ($found:expr) => {
        match $found {
            Ok(found) => found,
            Err(reason) => return $crate::skip::skip(&reason),
        }
    };
}
pub(crate) use or_skip;
pub(crate) use root_or_skip;

/// Whether this is root; if not, the test is skipped.
pub(crate) fn has_root(untested: &str) -> bool {
    let root = geteuid().is_root();
    if !root {
        skip(&format!("not root: cannot test {untested}"));
    }
    root
}

/// The machine, if this is root.
pub(crate) fn machine() -> Option<MutexGuard<'static, ()>> {
    has_root("recording").then(|| MACHINE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The program under test.
pub(crate) fn uncore_trace() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uncore-trace"));
    command.env("XDG_CONFIG_HOME", NO_CONFIG);
    command
}

/// Runs it to its end.
pub(crate) fn run<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Output {
    uncore_trace().args(args).output().unwrap()
}

/// Runs it to its end, which must be exit code 0; returns stdout.
pub(crate) fn run_ok<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> String {
    let output = run(args);
    assert!(output.status.success(), "{:?}: {}", output.status, text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Its output, for messages.
pub(crate) fn text(output: &Output) -> String {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", lossy(&output.stdout), lossy(&output.stderr))
}

/// The least of up to three measurements, the first that is at most `enough`. The host of a virtual
/// machine may stop it for a second, and its kernel may hide one of its processes from tracers,
/// with the interrupts during it (seen: process 1 of one that runs a single job).
pub(crate) fn best_of_three(enough: f64, mut measure: impl FnMut() -> f64) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        best = best.min(measure());
        if best <= enough {
            break;
        }
    }
    best
}

/// `uncore-trace check` must pass.
pub(crate) fn assert_checked(recording: &Path) {
    let output = run([OsStr::new("check"), recording.as_os_str()]);
    assert_eq!(output.status.code(), Some(0), "{}: {}", recording.display(), text(&output));
}

/// `CLOCK_MONOTONIC`, ns.
pub(crate) fn mono_ns() -> i64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The Python with the readers that `cargo xtask setup` installs into the target directory; panics
/// if it is missing.
pub(crate) fn python() -> PathBuf {
    // The binary is TARGET/PROFILE/uncore-trace.
    let target = Path::new(env!("CARGO_BIN_EXE_uncore-trace")).parent().and_then(Path::parent);
    python_in(target.unwrap())
}

/// Imports of the tests' scripts.
const IMPORTS: &str = "import duckdb, pandas, perfetto, prometheus_client, pyarrow";

fn python_in(target: &Path) -> PathBuf {
    let python = target.join("venv/bin/python");
    let mut command = Command::new(&python);
    let failed = match command.args(["-c", IMPORTS]).output() {
        Ok(output) if output.status.success() => return python,
        Ok(output) => text(&output).lines().last().unwrap_or_default().to_owned(),
        Err(error) => error.to_string(),
    };
    panic!("{} lacks a reader ({failed}): run `cargo xtask setup`", python.display());
}

/// Panics if a program that `cargo xtask setup` installs cannot be run.
pub(crate) fn need(program: &str) {
    if let Err(error) = Command::new(program).arg("--version").output() {
        panic!("{program} cannot be run ({error}): run `cargo xtask setup`");
    }
}

/// Runs `readers.py`; its output is JSON.
pub(crate) fn readers(python: &Path, args: &[&OsStr]) -> serde_json::Value {
    python_answers(python, include_str!("readers.py"), args)
}

/// Output of a script, parsed as JSON.
pub(crate) fn python_answers(python: &Path, script: &str, args: &[&OsStr]) -> serde_json::Value {
    let output = Command::new(python).arg("-c").arg(script).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

mod tests {
    use std::panic::catch_unwind;
    use std::{env, fs};

    use super::*;
    use crate::command::script;

    /// Set when a test is run by itself.
    const EXAMPLE: &str = "UNCORE_TRACE_TEST_SKIPS";

    /// libtest captures the output of tests, so this test runs itself again as a process, where it
    /// is skipped.
    #[test]
    fn skipped_tests_are_listed_at_the_end() {
        if env::var_os(EXAMPLE).is_some() {
            return skip("an example");
        }
        let name = "harness::tests::skipped_tests_are_listed_at_the_end";
        for (required, code) in [("0", 0), ("1", 101)] {
            let mut again = Command::new(env::current_exe().unwrap());
            again.args(["--exact", name]).env(EXAMPLE, "1");
            // Both streams go to one file, which shows the order of their output.
            let file = tempfile::NamedTempFile::new().unwrap();
            let stream = || file.as_file().try_clone().unwrap();
            again.stdout(stream()).stderr(stream());
            let status = again.env("UNCORE_TRACE_REQUIRE_ROOT", required).status().unwrap();
            let text = fs::read_to_string(file.path()).unwrap();
            assert_eq!(status.code(), Some(code), "{text}");
            let list = format!("\nskipped {name}: an example\ntests skipped: 1\n");
            assert_eq!(text.ends_with(&list), code == 0, "{text}");
        }
    }

    #[test]
    #[should_panic(expected = "run `cargo xtask setup`")]
    fn a_missing_program_fails() {
        need("uncore-trace-no-such-program");
    }

    /// Without an environment, and with one that has Python but no readers.
    #[test]
    fn missing_readers_fail() {
        let dir = tempfile::tempdir().unwrap();
        let error = |line: &str| {
            let panic = catch_unwind(|| python_in(dir.path())).unwrap_err();
            let text = panic.downcast_ref::<String>().unwrap();
            let begin = format!("{}/venv/bin/python lacks a reader", dir.path().display());
            assert_eq!(*text, format!("{begin} ({line}): run `cargo xtask setup`"));
        };
        error("No such file or directory (os error 2)");
        fs::create_dir_all(dir.path().join("venv/bin")).unwrap();
        let python = dir.path().join("venv/bin/python");
        let missing = "ModuleNotFoundError: No module named 'duckdb'";
        script(&python, &format!("#!/bin/sh\necho \"{missing}\" >&2\nexit 1\n"));
        error(missing);
    }
}
