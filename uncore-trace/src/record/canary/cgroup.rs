//! The cgroup of the canary: a child of the recorder's own, so that limits of the recorder hold for
//! it too, and a service manager that removes the recorder's cgroup removes it.

use std::path::{Path, PathBuf};
use std::{fs, process};

use anyhow::{Context as _, Result};

use super::keeper::Keeper;
use crate::bounds;
use crate::discover::mounts::MountTable;
use crate::discover::{CgroupMounts, CgroupView, subdirectories};

/// Begin of its name; the process's id follows.
const PREFIX: &str = "uncore-trace-canary-";

/// The way out, if it cannot be made.
const REMEDY: &str = "record as root with a cgroup v2 hierarchy that can be written (systemd: \
                      Delegate=yes and ProtectControlGroups=no), or leave out the canary";

/// The cgroup with this process in it. When it is dropped, the keeper takes the process back and
/// removes the cgroup.
#[derive(Debug)]
pub(super) struct CanaryCgroup {
    /// Its path in the hierarchy.
    pub path: String,
    directory: PathBuf,
    /// `None` while there is nothing to remove.
    keeper: Option<Keeper>,
}

impl CanaryCgroup {
    /// Makes a cgroup below the cgroup of this process, and moves this process there.
    pub(super) fn enter_new(mount: &Path, view: &CgroupView) -> Result<Self> {
        let memberships =
            bounds::system_text("/proc/self/cgroup").context("cannot read cgroups")?;
        Self::make_below(mount, &own_cgroup(&memberships, view)?)
    }

    fn make_below(mount: &Path, own_path: &str) -> Result<Self> {
        remove_below(mount);
        let name = format!("{PREFIX}{}", process::id());
        let parent = mount.join(own_path.trim_start_matches('/'));
        let directory = parent.join(&name);
        let failed = |act| {
            let shown = parent.display();
            format!("cannot {act} a cgroup for the canary in {shown}: {REMEDY}")
        };
        fs::create_dir(&directory).with_context(|| failed("make"))?;
        // It is started before, so that it stays outside.
        let started = Keeper::start_process(&directory).and_then(|keeper| {
            fs::write(directory.join("cgroup.procs"), process::id().to_string())
                .with_context(|| failed("enter"))?;
            Ok(keeper)
        });
        let keeper = started.inspect_err(|_| drop(fs::remove_dir(&directory)))?;
        let path = format!("{}/{name}", own_path.trim_end_matches('/'));
        Ok(Self { path, directory, keeper: Some(keeper) })
    }

    /// Bytes that the memory limits of the cgroups up to the mount point leave; `None`: no limit.
    pub(super) fn free_memory(&self, mount: &Path) -> Option<u64> {
        let number = |path: PathBuf| {
            bounds::read_text(&path, bounds::ATTRIBUTE).ok()?.trim().parse::<u64>().ok()
        };
        let free_bytes = |directory: &Path| {
            // A file without a limit has the word `max`.
            let limit = number(directory.join("memory.max"))?;
            Some(limit.saturating_sub(number(directory.join("memory.current"))?))
        };
        let levels =
            self.directory.ancestors().take_while(|directory| directory.starts_with(mount));
        levels.filter_map(free_bytes).min()
    }
}

impl Drop for CanaryCgroup {
    fn drop(&mut self) {
        // If this fails the next canary removes it.
        self.keeper.iter_mut().for_each(Keeper::remove_cgroup);
    }
}

/// The path of a process's own cgroup below the mount point, from its `/proc/PID/cgroup`.
fn own_cgroup(memberships: &str, view: &CgroupView) -> Result<String> {
    let membership = memberships.lines().find_map(|line| line.strip_prefix("0::"));
    let path = membership.and_then(|path| view.path_of(Path::new(path)));
    path.and_then(|path| path.into_os_string().into_string().ok())
        .with_context(|| format!("the recorder is in no cgroup v2 that it can see: {REMEDY}"))
}

/// Removes the cgroups of canaries that were killed on this machine. A cgroup with a process cannot
/// be removed. Errors are ignored: without permission nothing is removed. Returns what was removed.
pub fn remove_left_cgroups() -> Vec<PathBuf> {
    let mounts = bounds::system_bytes("/proc/self/mountinfo").unwrap_or_default();
    let mounts = MountTable::parse(&String::from_utf8_lossy(&mounts));
    let mount = CgroupMounts::from_mounts(Path::new("/"), &mounts).v2;
    mount.map(|mount| remove_below(&mount)).unwrap_or_default()
}

/// As [`remove_left_cgroups`], below a mount point.
fn remove_below(mount: &Path) -> Vec<PathBuf> {
    let mut removed = Vec::new();
    let mut waiting = vec![mount.to_owned()];
    while let Some(directory) = waiting.pop() {
        for path in subdirectories(&directory) {
            let name = path.file_name().unwrap_or_default();
            if !name.to_string_lossy().starts_with(PREFIX) {
                waiting.push(path);
            } else if fs::remove_dir(&path).is_ok() {
                removed.push(path);
            }
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_cgroup_is_that_of_the_second_hierarchy() {
        let own = |memberships| own_cgroup(memberships, &CgroupView::default());
        assert_eq!(own("4:memory:/a\n0::/system.slice/b\n").unwrap(), "/system.slice/b");
        for wrong in ["4:memory:/a\n", "0::/../b\n", ""] {
            assert!(own(wrong).unwrap_err().to_string().contains("leave out the canary"));
        }
    }

    #[test]
    fn an_error_names_the_place_and_the_way_out() {
        let error =
            CanaryCgroup::make_below(Path::new("/nowhere"), "/a/b").unwrap_err().to_string();
        assert!(error.contains("in /nowhere/a/b: record as root"), "{error}");
    }

    #[test]
    fn the_lowest_limit_counts() {
        let mount = tempfile::tempdir().unwrap();
        let directory = mount.path().join("a/b");
        fs::create_dir_all(&directory).unwrap();
        let cgroup = CanaryCgroup { path: "/a/b".to_owned(), directory, keeper: None };
        assert_eq!(cgroup.free_memory(mount.path()), None);
        for (file, text) in [
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "300\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.current", "5\n"),
        ] {
            fs::write(mount.path().join(file), text).unwrap();
        }
        assert_eq!(cgroup.free_memory(mount.path()), Some(700));
    }

    #[test]
    fn what_was_left_is_removed_and_nothing_else() {
        let mount = tempfile::tempdir().unwrap();
        let left = mount.path().join("a/uncore-trace-canary-7");
        let other = mount.path().join("a/uncore-trace");
        for dir in [&left, &other] {
            fs::create_dir_all(dir).unwrap();
        }
        assert_eq!(remove_below(mount.path()), std::slice::from_ref(&left));
        assert!(!left.exists() && other.exists());
    }
}
