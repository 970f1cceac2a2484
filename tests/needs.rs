//! Requirements of tests on the machine: root, programs, the Python readers, a small disk.
//!
//! Guarantees: a test that cannot run here is skipped as described in `skip.rs`; a missing program
//! that `cargo xtask setup` installs is never a reason to skip.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::PROGRAM;
pub(crate) use crate::skip::has_root;

/// The output of a program, for messages.
pub(crate) fn text(output: &Output) -> String {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", lossy(&output.stdout), lossy(&output.stderr))
}

/// The Python with the readers that `cargo xtask setup` installs into the target directory; panics
/// if it is missing.
pub(crate) fn python() -> PathBuf {
    // The binary is TARGET/PROFILE/uncore-trace.
    let target = Path::new(PROGRAM).parent().and_then(Path::parent);
    python_in(target.unwrap())
}

/// Modules that the tests' scripts import.
const IMPORTS: &str = "import build, duckdb, grpc, matplotlib, mcp, mypy, \
     opentelemetry.proto, pandas, perfetto, prometheus_client, pyarrow, twine, xxhash";

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

/// A small file system; unmounted on drop.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts a file system of 1 MiB.
    pub(crate) fn mount(path: PathBuf) -> Self {
        Self::mount_at(path, 1)
    }

    pub(crate) fn mount_at(path: PathBuf, mib: u32) -> Self {
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "none"]).arg(&path);
        assert!(mount.status().unwrap().success(), "cannot mount a tmpfs at {}", path.display());
        Self(path)
    }

    pub(crate) fn fill(&self, bytes: usize) {
        fs::write(self.0.join("filler"), vec![0; bytes]).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A failed unmount does no harm, and must not hide the result of the test.
        let _status = Command::new("umount").arg(&self.0).status();
    }
}

mod tests {
    use std::panic::catch_unwind;

    use super::*;
    use crate::command::script;

    #[test]
    #[should_panic(expected = "run `cargo xtask setup`")]
    fn a_missing_program_fails_the_test() {
        need("uncore-trace-no-such-program");
    }

    /// Without a virtual environment, and with one that has Python but no readers.
    #[test]
    fn missing_readers_fail_the_test() {
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
