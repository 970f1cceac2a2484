//! Runs the real binary as a user does: its answer, and the files it leaves.
//!
//! Guarantees: every run has a directory of its own; a refused command that leaves a file there
//! fails the test.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use uncore_trace_lab::fixtures;

use crate::PROGRAM;

/// In place of the user's own catalog, which the user who runs the tests may have.
pub(crate) const NO_CONFIG: &str = "/nonexistent";

/// A user without privileges, `nobody`.
pub(crate) const NOBODY: u32 = 65534;

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Exit code; -1 after death by a signal.
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Answer {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// Panics unless it is exit code 0; returns what was printed.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:#?}");
        self.out
    }

    /// Panics unless something was recorded, completely or, on a machine that is too busy, mostly.
    pub(crate) fn recorded(self) -> Self {
        assert!(self.code == 0 || self.recorded_in_part(), "{self:#?}");
        self
    }

    /// Whether `record` says that it lost something.
    pub(crate) fn recorded_in_part(&self) -> bool {
        self.code == 1 && self.err.contains("incomplete (exit code 1)")
    }

    /// Panics unless the exit code is 2 and stderr is one printable line; returns the line.
    pub(crate) fn refused(self) -> String {
        assert_eq!(self.code, 2, "{self:#?}");
        let line = self.err.strip_suffix('\n').unwrap_or_default();
        assert!(line.starts_with("uncore-trace: "), "{self:#?}");
        assert!(!line.chars().any(char::is_control), "{self:#?}");
        line.to_owned()
    }
}

/// Copies a program to the place where it is executed. A program that this process wrote itself
/// could be "text file busy": a child that another test forks has a copy of the descriptor until it
/// executes its own program.
pub(crate) fn install(program: &Path, target: &Path) {
    let status = Command::new("install").args(["-m", "755"]).args([program, target]).status();
    assert!(status.unwrap().success(), "cannot install {}", target.display());
}

/// Makes a script that can be executed.
pub(crate) fn script(target: &Path, text: &str) {
    let written = target.with_extension("text");
    fs::write(&written, text).unwrap();
    install(&written, target);
    fs::remove_file(&written).unwrap();
}

/// A directory to run in.
#[derive(Debug)]
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The tool, to be run here.
    pub(crate) fn tool<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(args).current_dir(self.dir.path()).env_remove("UNCORE_TRACE_LOG");
        command.env("XDG_CONFIG_HOME", NO_CONFIG);
        command
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Answer {
        Answer::of(self.tool(args).output().unwrap())
    }

    /// Runs a command line, as typed in a shell without quotes.
    pub(crate) fn typed(&self, line: &str) -> Answer {
        self.run(line.split_whitespace())
    }

    /// Runs a command that must be refused without changing any file here; returns its error.
    pub(crate) fn refuses<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let before = self.content();
        let line = self.run(args).refused();
        assert_eq!(self.content(), before, "left behind after: {line}");
        line
    }

    /// Every file below, with its bytes; directories have no bytes.
    pub(crate) fn content(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        fn walk(dir: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, found);
                    found.insert(path, Vec::new());
                } else {
                    let bytes = fs::read(&path).unwrap();
                    found.insert(path, bytes);
                }
            }
        }
        let mut found = BTreeMap::new();
        walk(self.dir.path(), &mut found);
        found
    }

    /// A copy of the tool here that every user may run.
    pub(crate) fn tool_for_all(&self) -> PathBuf {
        let program = Path::new(PROGRAM);
        let copy = self.path(program.file_name().unwrap().to_str().unwrap());
        install(program, &copy);
        fs::set_permissions(self.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        copy
    }

    /// A captured machine, unpacked here: the value of `--root`.
    pub(crate) fn machine(&self, name: &str) -> String {
        let dir = self.path(name);
        fixtures::machine(name).unwrap().unpack_to(&dir).unwrap();
        dir.to_str().unwrap().to_owned()
    }
}
