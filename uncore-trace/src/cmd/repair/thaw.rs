//! Thaws cgroups that `record --probe` of an older version left frozen. That option is gone: this
//! file may go after the release that follows 0.1.
//!
//! Such a version noted in `/run` which cgroups it was about to freeze, so a note of a process that
//! has gone names those that may still be frozen.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::bounds;

/// Begin of a note's name; the id of the process that wrote it follows.
const PREFIX: &str = "uncore-trace-probe-";

/// `argv[0]` of that process.
const PROCESS: &[u8] = b"uncore-trace-probe";

/// Thaws what processes that have gone left frozen, by their notes in `run`, and returns it. Errors
/// are ignored: without permission nothing was frozen.
pub(super) fn thaw_noted_in(run: &Path) -> Vec<PathBuf> {
    let mut thawed = Vec::new();
    for entry in fs::read_dir(run).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        let Some(pid) = pid else { continue };
        let line = bounds::system_bytes(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if line.split(|byte| *byte == 0).next() == Some(PROCESS) {
            continue;
        }
        let Ok(note) = bounds::read_bytes(&entry.path(), bounds::TEXT) else { continue };
        let noted = note.split(|byte| *byte == 0).map(|path| Path::new(OsStr::from_bytes(path)));
        for directory in noted.filter(|directory| directory.is_absolute()) {
            let switch = OpenOptions::new().write(true).open(directory.join("cgroup.freeze"));
            if switch.and_then(|mut switch| switch.write_all(b"0")).is_ok() {
                thawed.push(directory.to_owned());
            }
        }
        fs::remove_file(entry.path()).ok();
    }
    thawed
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// Opening a pipe to read it waits for somebody who writes.
    #[test]
    fn a_note_that_is_a_pipe_or_endless_is_passed_over() {
        let run = tempfile::tempdir().unwrap();
        let pipe = run.path().join("uncore-trace-probe-4000000001");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        symlink("/dev/zero", run.path().join("uncore-trace-probe-4000000002")).unwrap();
        assert!(thaw_noted_in(run.path()).is_empty());
        assert!(pipe.exists());
    }

    #[test]
    fn cgroups_frozen_by_a_process_that_is_gone_are_thawed() {
        let run = tempfile::tempdir().unwrap();
        let cgroups = ["a", "b"].map(|name| run.path().join(name));
        for cgroup in &cgroups {
            fs::create_dir(cgroup).unwrap();
            fs::write(cgroup.join("cgroup.freeze"), "1").unwrap();
        }
        let gone = run.path().join("uncore-trace-probe-4000000000");
        let noted = [cgroups[0].as_path(), Path::new("/gone"), Path::new("relative"), &cgroups[1]];
        let noted = noted.map(|path| path.as_os_str().as_bytes());
        fs::write(&gone, noted.join(&0)).unwrap();
        assert_eq!(thaw_noted_in(run.path()), cgroups);
        for cgroup in &cgroups {
            assert_eq!(fs::read(cgroup.join("cgroup.freeze")).unwrap(), b"0");
        }
        assert!(!gone.exists());
    }
}
