//! A directory that looks like a machine with resctrl.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The directory.
#[derive(Clone, Debug)]
pub(crate) struct Fake {
    root: PathBuf,
}

impl Fake {
    /// A root with the mounts.
    pub(crate) fn new(root: &Path) -> Self {
        let fake = Self { root: root.to_owned() };
        fake.at(
            "proc/self/mountinfo",
            "30 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
             31 23 0:29 / /sys/fs/resctrl rw,relatime - resctrl resctrl rw\n",
        );
        fs::create_dir_all(fake.dir()).unwrap();
        fake
    }

    /// The mount point of resctrl.
    pub(crate) fn dir(&self) -> PathBuf {
        self.root.join("sys/fs/resctrl")
    }

    /// A group with these threads and CPUs.
    pub(crate) fn group(&self, name: &str, tasks: &[u32], cpus: &str) {
        self.write(&format!("{name}/tasks"), &lines(tasks));
        self.write(&format!("{name}/cpus_list"), &format!("{cpus}\n"));
        if control_is(name) {
            fs::create_dir_all(self.dir().join(name).join("mon_groups")).unwrap();
        }
    }

    /// The text of a count.
    pub(crate) fn value(&self, group: &str, domain: u32, file: &str, text: &str) {
        self.write(&format!("{group}/mon_data/mon_L3_{domain:02}/{file}"), text);
    }

    /// A file below the mount point.
    pub(crate) fn write(&self, path: &str, text: &str) {
        self.at(&format!("sys/fs/resctrl/{path}"), text);
    }

    /// A cgroup with these threads.
    pub(crate) fn cgroup(&self, path: &str, threads: &[u32]) {
        self.at(&format!("sys/fs/cgroup{path}/cgroup.threads"), &lines(threads));
        for thread in threads {
            self.at(&format!("proc/{thread}/cgroup"), &format!("0::{path}\n"));
        }
    }

    /// The threads of a group.
    pub(crate) fn tasks(&self, group: &str) -> Vec<u32> {
        let text = fs::read_to_string(self.dir().join(group).join("tasks")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// RMIDs that are in no group, but whose lines are still in the caches.
    pub(crate) fn limbo(&self, rmids: usize) {
        self.at("limbo", &rmids.to_string());
    }

    /// Makes a group, as the kernel does.
    pub(crate) fn make(&self, group: &Path) -> io::Result<()> {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default().trim().parse();
        let rmids = read(self.dir().join("info/L3_MON/num_rmids")).unwrap_or(usize::MAX);
        let limbo = read(self.root.join("limbo")).unwrap_or(0_usize);
        if self.groups().len() + limbo >= rmids {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        fs::create_dir(group)?;
        let name = group.strip_prefix(self.dir()).unwrap().to_str().unwrap();
        self.group(name, &[], "");
        Ok(())
    }

    /// Removes a group, as the kernel does: its threads are in the control group as before.
    pub(crate) fn remove(&self, group: &Path) -> io::Result<()> {
        assert!(group.starts_with(self.dir()));
        fs::remove_dir_all(group)
    }

    /// Moves a thread to a group, as the kernel does.
    pub(crate) fn put(&self, thread: u32, group: &Path) -> io::Result<()> {
        let name = group.strip_prefix(self.dir()).unwrap().to_str().unwrap();
        if !self.root.join(format!("proc/{thread}")).exists() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let control = control(name);
        let all = self.groups();
        let has = |group: &str| self.tasks(group).contains(&thread);
        let is_there = match control {
            "" => !all.iter().any(|its| !its.is_empty() && control_is(its) && has(its)),
            control => has(control),
        };
        if !is_there || !group.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        for other in all.iter().filter(|its| !control_is(its) && has(its)) {
            let left: Vec<u32> =
                self.tasks(other).into_iter().filter(|its| *its != thread).collect();
            self.write(&format!("{other}/tasks"), &lines(&left));
        }
        if !control_is(name) {
            let mut tasks = self.tasks(name);
            tasks.push(thread);
            self.write(&format!("{name}/tasks"), &lines(&tasks));
        }
        Ok(())
    }

    /// A process forks: the new thread is in the same cgroup and group.
    pub(crate) fn fork(&self, cgroup: &str, parent: u32, thread: u32) {
        let path = self.root.join(format!("sys/fs/cgroup{cgroup}/cgroup.threads"));
        let text = fs::read_to_string(path).unwrap();
        let mut threads: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
        threads.push(thread);
        self.cgroup(cgroup, &threads);
        for group in self.groups() {
            let mut tasks = self.tasks(&group);
            if tasks.contains(&parent) {
                tasks.push(thread);
                self.write(&format!("{group}/tasks"), &lines(&tasks));
            }
        }
    }

    /// Names of all groups.
    pub(crate) fn groups(&self) -> Vec<String> {
        let groups = super::Resctrl { dir: self.dir() }.read_groups().unwrap();
        groups.into_iter().map(|group| group.name).collect()
    }

    fn at(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // As in the kernel, a reader never sees a part of a text.
        let new = path.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, path).unwrap();
    }
}

/// Whether a name is of a control group.
fn control_is(name: &str) -> bool {
    !name.contains("mon_groups/")
}

/// The control group of a group.
fn control(name: &str) -> &str {
    name.split("mon_groups/").next().unwrap_or_default().trim_end_matches('/')
}

fn lines(ids: &[u32]) -> String {
    ids.iter().flat_map(|id| [id.to_string(), "\n".to_owned()]).collect()
}
