//! Common parts of tests on the kernel: exclusive use of the machine, the real binary, its tables.
//!
//! Guarantees: everything that a test starts or makes is removed when it ends, also when it fails.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

pub(crate) mod browser;
pub(crate) mod cgroup;
pub(crate) mod disk;
pub(crate) mod load;
pub(crate) mod made;
pub(crate) mod mounts;
pub(crate) mod page;
pub(crate) mod recorder;
pub(crate) mod rows;
pub(crate) mod subject;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::time::{ClockId, clock_gettime};

use crate::PROGRAM;
use crate::command::NO_CONFIG;
pub(crate) use crate::needs::{has_root, need, python, text};

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

/// The machine, if this is root.
pub(crate) fn machine() -> Option<MutexGuard<'static, ()>> {
    has_root("recording").then(|| MACHINE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The program under test.
pub(crate) fn uncore_trace() -> Command {
    let mut command = Command::new(PROGRAM);
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

/// The same for all of them; there must be some.
pub(crate) fn assert_all_checked(recordings: &[PathBuf]) {
    assert!(!recordings.is_empty());
    for recording in recordings {
        assert_checked(recording);
    }
}

/// `CLOCK_MONOTONIC`, ns.
pub(crate) fn mono_ns() -> i64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
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
    use std::{env, fs};

    use super::*;
    use crate::skip::skip;

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
}
