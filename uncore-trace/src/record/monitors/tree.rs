//! Changes of the file system resctrl: groups are made and removed, threads are moved.
//!
//! Each group is locked by who made it, for as long as it runs: flock(2) ends with the process,
//! also by `kill -9`. So a group by the name of this program that can be locked was left, and
//! [`remove_left_groups`] removes it: the kernel gives its threads back to the control group. The
//! file system itself is locked during each change, as Documentation/filesystems/resctrl.rst asks.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::discover::resctrl::{Resctrl, ResctrlGroup};

/// Begin of the names of the groups that this program makes: the process's id and a number follow.
pub(super) const PREFIX: &str = "uncore-trace-";

/// The changes that the kernel makes when files of resctrl are written.
pub(super) trait ResctrlTree: Debug + Send {
    /// Makes a group; the kernel fills its directory.
    fn make_group(&mut self, group: &Path) -> io::Result<()>;

    /// Removes a group with the files that the kernel made in it.
    fn remove_group(&mut self, group: &Path) -> io::Result<()>;

    /// Moves a thread to a group.
    fn move_thread(&mut self, thread: u32, group: &Path) -> io::Result<()>;
}

/// The file system resctrl.
#[derive(Debug)]
pub(super) struct KernelTree;

impl ResctrlTree for KernelTree {
    fn make_group(&mut self, group: &Path) -> io::Result<()> {
        fs::create_dir(group)
    }

    fn remove_group(&mut self, group: &Path) -> io::Result<()> {
        fs::remove_dir(group)
    }

    fn move_thread(&mut self, thread: u32, group: &Path) -> io::Result<()> {
        // One thread at a time: a list ends at the first that has exited.
        let mut tasks = OpenOptions::new().write(true).open(group.join("tasks"))?;
        tasks.write_all(thread.to_string().as_bytes())
    }
}

/// Locks a directory until the file is dropped; `None` if somebody else has locked it.
pub(super) fn lock_dir(dir: &Path) -> Option<File> {
    let file = File::open(dir).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok().map(|()| file)
}

/// Removes the groups that recorders which were killed have left on this machine. Errors are
/// ignored: without permission no group was made. Returns what was removed.
pub fn remove_left_groups() -> Vec<PathBuf> {
    let resctrl = Resctrl::find_mounted(Path::new("/"));
    resctrl.map(|resctrl| remove_left_groups_in(&resctrl, &mut KernelTree)).unwrap_or_default()
}

pub(super) fn remove_left_groups_in(resctrl: &Resctrl, tree: &mut dyn ResctrlTree) -> Vec<PathBuf> {
    let mut removed = Vec::new();
    let groups = resctrl.read_groups().unwrap_or_default();
    let mut left_groups = groups.iter().filter(|group| is_own_name(group)).peekable();
    if left_groups.peek().is_none() {
        return removed;
    }
    // A recorder that makes a group has locked the file system, until the group is locked too.
    let Some(_changes) = lock_dir(resctrl.mount_dir()) else { return removed };
    for group in left_groups {
        if let Some(_unused) = lock_dir(group.group_dir())
            && tree.remove_group(group.group_dir()).is_ok()
        {
            removed.push(group.group_dir().to_owned());
        }
    }
    removed
}

/// Whether this program made a group.
pub(super) fn is_own_name(group: &ResctrlGroup) -> bool {
    let name = group.name.rsplit('/').next().unwrap_or_default();
    let ids = name.strip_prefix(PREFIX).and_then(|ids| ids.split_once('-'));
    let is_number = |id: &str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    !group.is_control && ids.is_some_and(|(pid, number)| is_number(pid) && is_number(number))
}

#[cfg(test)]
impl ResctrlTree for crate::discover::resctrl::fake::FakeResctrl {
    fn make_group(&mut self, group: &Path) -> io::Result<()> {
        Self::make_group(self, group)
    }

    fn remove_group(&mut self, group: &Path) -> io::Result<()> {
        Self::remove_group(self, group)
    }

    fn move_thread(&mut self, thread: u32, group: &Path) -> io::Result<()> {
        Self::move_thread(self, thread, group)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;
    use crate::discover::resctrl::fake::FakeResctrl;

    /// A process that holds a lock; it is killed with `kill -9`.
    struct Holder(Child);

    impl Drop for Holder {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn the_kernels_files_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("group");
        KernelTree.make_group(&group).unwrap();
        assert!(KernelTree.make_group(&group).is_err());
        assert!(KernelTree.move_thread(7, &group).is_err());
        fs::write(group.join("tasks"), "").unwrap();
        KernelTree.move_thread(7, &group).unwrap();
        assert_eq!(fs::read_to_string(group.join("tasks")).unwrap(), "7");
        fs::remove_file(group.join("tasks")).unwrap();
        KernelTree.remove_group(&group).unwrap();
        assert!(!group.exists());
    }

    #[test]
    fn what_a_killed_recorder_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let mut fake = FakeResctrl::new(dir.path());
        fake.add_group("", &[1, 5], "0-1");
        fake.add_group("web", &[2, 3], "");
        fake.add_group("mon_groups/uncore-trace-7-0", &[1], "");
        fake.add_group("web/mon_groups/uncore-trace-7-1", &[2], "");
        let foreign = ["mon_groups/a", "mon_groups/uncore-trace-x", "uncore-trace-7-2"];
        for name in foreign {
            fake.add_group(name, &[], "");
        }
        let resctrl = Resctrl::find_mounted(dir.path()).unwrap();
        let left = fake.mount_dir().join("mon_groups/uncore-trace-7-0");
        let mut flock = Command::new("flock");
        let holder = Holder(flock.arg("-F").arg(&left).args(["sleep", "1000"]).spawn().unwrap());
        while lock_dir(&left).is_some() {
            std::thread::yield_now();
        }
        let names = || {
            let groups = resctrl.read_groups().unwrap();
            groups.into_iter().map(|its| its.name).collect::<Vec<_>>()
        };
        remove_left_groups_in(&resctrl, &mut fake);
        let with = |own: &[&'static str]| {
            let mut all = [&["", "web"], &foreign[..], own].concat();
            all.sort_unstable();
            all
        };
        let sorted = || {
            let mut names = names();
            names.sort_unstable();
            names
        };
        assert_eq!(sorted(), with(&["mon_groups/uncore-trace-7-0"]));
        assert_eq!(fake.read_tasks("web"), [2, 3]);
        drop(holder);
        remove_left_groups_in(&resctrl, &mut fake);
        assert_eq!(sorted(), with(&[]));
        assert_eq!(fake.read_tasks(""), [1, 5]);
    }
}
