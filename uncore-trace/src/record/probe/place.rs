//! Which cgroups may be paused, and how they are thawed whatever happens.
//!
//! Before cgroups are frozen, their directories are noted in a file in [`RUN`]. Who finds a note of a
//! process that has gone thaws those cgroups ([`thaw_left`]): the recorder, the next one, or `repair`.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::NAME;
use crate::clock::mono_ns;

/// Files that last until the next boot (hier(7)), as a frozen cgroup does.
pub(super) const RUN: &str = "/run";

/// Begin of a note's name; the process's id follows.
const PREFIX: &str = "uncore-trace-probe-";

/// No directory has this in its name.
const BETWEEN: u8 = 0;

/// The canary moves bytes at times that it has noted.
const CANARY: &str = "uncore-trace-canary-";

/// Cgroups that are never paused, and those that contain them: the recorder's, this process's and
/// that of init.
#[derive(Debug)]
pub(super) struct Spared {
    mount: PathBuf,
    directories: Vec<PathBuf>,
}

impl Spared {
    pub(super) fn new(mount: &Path) -> Result<Self> {
        let mut spared = Self { mount: mount.to_owned(), directories: Vec::new() };
        for process in ["1", "self", &std::os::unix::process::parent_id().to_string()] {
            let file = format!("/proc/{process}/cgroup");
            let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
            let own = text.lines().find_map(|line| line.strip_prefix("0::"));
            // A path that begins with `/..` is above all that this process sees.
            let inside = own.filter(|path| !path.starts_with("/.."));
            spared.directories.extend(inside.map(|own| mount.join(own.trim_start_matches('/'))));
        }
        Ok(spared)
    }

    /// The directory of the cgroup with this id, if it may be paused.
    pub(super) fn find(&self, id: u64) -> Option<PathBuf> {
        let mut waiting = vec![self.mount.clone()];
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                // The id of a cgroup is its inode's number (`cgroup_id`, include/linux/cgroup.h).
                if entry.metadata().is_ok_and(|its| its.ino() == id) {
                    return Some(entry.path()).filter(|found| self.may_pause(found));
                }
                waiting.push(entry.path());
            }
        }
        None
    }

    fn may_pause(&self, directory: &Path) -> bool {
        let is_canary = |name: &OsStr| name.as_bytes().starts_with(CANARY.as_bytes());
        let spares = self.directories.iter().any(|spared| spared.starts_with(directory));
        // Somebody else may have frozen it, and would not expect it to run.
        let runs = fs::read_to_string(directory.join("cgroup.freeze"))
            .is_ok_and(|text| text.trim() == "0");
        directory != self.mount && !spares && !directory.file_name().is_none_or(is_canary) && runs
    }
}

/// Pauses cgroups.
#[derive(Debug)]
pub(super) struct Freezer {
    note: PathBuf,
}

/// A cgroup that is frozen; it is thawed when this is dropped.
struct Frozen(File);

impl Drop for Frozen {
    fn drop(&mut self) {
        // It fails only if the cgroup is gone.
        self.0.write_all(b"0").ok();
    }
}

impl Freezer {
    /// `run` is the directory for its note.
    pub(super) fn new(run: &Path) -> Self {
        Self { note: run.join(format!("{PREFIX}{}", process::id())) }
    }

    /// Checks that cgroups below a mount point can be frozen, and a note can be written.
    pub(super) fn check(&self, mount: &Path) -> Result<()> {
        let below = fs::read_dir(mount).into_iter().flatten().flatten();
        let file = below.map(|entry| entry.path().join("cgroup.freeze")).find(|its| its.exists());
        if let Some(file) = file {
            let opened = OpenOptions::new().write(true).open(&file);
            opened.with_context(|| format!("cannot write {}", file.display()))?;
        }
        fs::write(&self.note, "").with_context(|| format!("cannot write {}", self.note.display()))
    }

    /// Pauses cgroups together; returns for how long each, ns.
    pub(super) fn pause(&self, directories: &[&Path], length_ns: i64) -> Result<Vec<i64>> {
        if directories.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&[u8]> = directories.iter().map(|its| its.as_os_str().as_bytes()).collect();
        fs::write(&self.note, names.join(&BETWEEN))
            .with_context(|| format!("cannot write {}", self.note.display()))?;
        let begins = directories.iter().map(|directory| {
            let failed = || format!("cannot freeze {}", directory.display());
            let file = directory.join("cgroup.freeze");
            let mut switch = OpenOptions::new().write(true).open(file).with_context(failed)?;
            let begin = mono_ns();
            switch.write_all(b"1").with_context(failed)?;
            Ok((Frozen(switch), begin))
        });
        let frozen: Vec<(Frozen, i64)> = begins.collect::<Result<_>>()?;
        thread::sleep(Duration::from_nanos(length_ns as u64));
        let thaw = |(frozen, begin)| {
            drop(frozen);
            mono_ns() - begin
        };
        let took = frozen.into_iter().map(thaw).collect();
        fs::write(&self.note, "").ok();
        Ok(took)
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        fs::remove_file(&self.note).ok();
    }
}

/// Thaws what processes that were killed on this machine left frozen. Errors are ignored: without
/// permission nothing was frozen. Returns what was thawed.
pub fn thaw_left() -> Vec<PathBuf> {
    thaw_left_in(Path::new(RUN))
}

fn thaw_left_in(run: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(run).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let Ok(pid) = pid.parse::<u32>() else { continue };
        if is_running(pid) {
            continue;
        }
        if let Ok(thawed) = thaw(&entry.path()) {
            all.extend(thawed);
            fs::remove_file(entry.path()).ok();
        }
    }
    all
}

/// Whether this process pauses cgroups. One that has ended, and was not waited for, has no command
/// line.
fn is_running(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).next() == Some(NAME.as_bytes())
}

/// Thaws the cgroups of a note.
fn thaw(note: &Path) -> Result<Vec<PathBuf>> {
    let mut thawed = Vec::new();
    for name in fs::read(note)?.split(|byte| *byte == BETWEEN).filter(|name| !name.is_empty()) {
        let directory = Path::new(OsStr::from_bytes(name));
        ensure!(directory.is_absolute(), "the note is damaged");
        if directory.is_dir() {
            OpenOptions::new()
                .write(true)
                .open(directory.join("cgroup.freeze"))?
                .write_all(b"0")?;
            thawed.push(directory.to_owned());
        }
    }
    Ok(thawed)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn who_holds_the_recorder_or_is_frozen_already_is_spared() {
        let mount = tempfile::tempdir().unwrap();
        let spared = Spared {
            mount: mount.path().to_owned(),
            directories: vec![mount.path().join("a/recorder")],
        };
        for (path, state) in [
            ("a", "0\n"),
            ("a/recorder", "0\n"),
            ("a/recorder/uncore-trace-canary-7", "0\n"),
            ("frozen", "1\n"),
            ("b", "0\n"),
        ] {
            let directory = mount.path().join(path);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("cgroup.freeze"), state).unwrap();
            let id = directory.metadata().unwrap().ino();
            assert_eq!(spared.find(id), (path == "b").then_some(directory), "{path}");
        }
        assert_eq!(spared.find(mount.path().metadata().unwrap().ino()), None);
    }

    #[test]
    fn what_a_process_that_has_gone_left_is_thawed() {
        let run = tempfile::tempdir().unwrap();
        let cgroups = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let cgroups = cgroups.each_ref().map(TempDir::path);
        let switches = cgroups.map(|its| its.join("cgroup.freeze"));
        let all = |text: &str| switches.iter().all(|its| fs::read_to_string(its).unwrap() == text);
        let write = |text: &str| switches.iter().try_for_each(|its| fs::write(its, text));
        write("0").unwrap();
        let freezer = Freezer::new(run.path());
        let took = freezer.pause(&cgroups, 1_000_000).unwrap();
        assert!(took.len() == 2 && took.iter().all(|ns| *ns >= 1_000_000), "{took:?}");
        // A file, unlike the kernel's, keeps all that is written to it.
        assert!(all("10"));
        assert!(freezer.note.exists());
        let names = cgroups.map(|its| its.as_os_str().as_bytes());
        fs::write(&freezer.note, names.join(&BETWEEN)).unwrap();
        write("1").unwrap();
        assert_eq!(thaw_left_in(run.path()), cgroups);
        assert!(all("0"));
        assert!(!freezer.note.exists());
    }
}
