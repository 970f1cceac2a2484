//! A directory that looks like a machine with resctrl.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The directory.
#[derive(Clone, Debug)]
pub(crate) struct FakeResctrl {
    root: PathBuf,
}

impl FakeResctrl {
    /// A root with the mounts.
    pub(crate) fn new(root: &Path) -> Self {
        let fake = Self { root: root.to_owned() };
        fake.write_at(
            "proc/self/mountinfo",
            "30 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
             31 23 0:29 / /sys/fs/resctrl rw,relatime - resctrl resctrl rw\n",
        );
        fs::create_dir_all(fake.mount_dir()).unwrap();
        fake
    }

    /// The mount point of resctrl.
    pub(crate) fn mount_dir(&self) -> PathBuf {
        self.root.join("sys/fs/resctrl")
    }

    /// A group with these threads and CPUs.
    pub(crate) fn add_group(&self, name: &str, tasks: &[u32], cpus: &str) {
        self.write_file(&format!("{name}/tasks"), &id_lines(tasks));
        self.write_file(&format!("{name}/cpus_list"), &format!("{cpus}\n"));
        if is_control(name) {
            fs::create_dir_all(self.mount_dir().join(name).join("mon_groups")).unwrap();
        }
    }

    /// The text of a count.
    pub(crate) fn write_count(&self, group: &str, domain: u32, file: &str, text: &str) {
        self.write_file(&format!("{group}/mon_data/mon_L3_{domain:02}/{file}"), text);
    }

    /// A file below the mount point.
    pub(crate) fn write_file(&self, path: &str, text: &str) {
        self.write_at(&format!("sys/fs/resctrl/{path}"), text);
    }

    /// A cgroup with these threads.
    pub(crate) fn add_cgroup(&self, path: &str, threads: &[u32]) {
        self.write_at(&format!("sys/fs/cgroup{path}/cgroup.threads"), &id_lines(threads));
        for thread in threads {
            self.write_at(&format!("proc/{thread}/cgroup"), &format!("0::{path}\n"));
        }
    }

    /// The threads of a group.
    pub(crate) fn read_tasks(&self, group: &str) -> Vec<u32> {
        let text =
            fs::read_to_string(self.mount_dir().join(group).join("tasks")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// RMIDs that are in no group, but whose lines are still in the caches.
    pub(crate) fn set_limbo(&self, rmids: usize) {
        self.write_at("limbo", &rmids.to_string());
    }

    /// Makes a group, as the kernel does.
    pub(crate) fn make_group(&self, group: &Path) -> io::Result<()> {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default().trim().parse();
        let rmids = read(self.mount_dir().join("info/L3_MON/num_rmids")).unwrap_or(usize::MAX);
        let limbo = read(self.root.join("limbo")).unwrap_or(0_usize);
        if self.group_names().len() + limbo >= rmids {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        fs::create_dir(group)?;
        let name = group.strip_prefix(self.mount_dir()).unwrap().to_str().unwrap();
        self.add_group(name, &[], "");
        Ok(())
    }

    /// Removes a group, as the kernel does: its threads are in the control group as before.
    pub(crate) fn remove_group(&self, group: &Path) -> io::Result<()> {
        assert!(group.starts_with(self.mount_dir()));
        fs::remove_dir_all(group)
    }

    /// Moves a thread to a group, as the kernel does.
    pub(crate) fn move_thread(&self, thread: u32, group: &Path) -> io::Result<()> {
        let name = group.strip_prefix(self.mount_dir()).unwrap().to_str().unwrap();
        if !self.root.join(format!("proc/{thread}")).exists() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let control = control_name(name);
        let group_names = self.group_names();
        let has_thread = |group: &str| self.read_tasks(group).contains(&thread);
        let is_there = match control {
            "" => !group_names.iter().any(|candidate| {
                !candidate.is_empty() && is_control(candidate) && has_thread(candidate)
            }),
            control => has_thread(control),
        };
        if !is_there || !group.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        for holder in
            group_names.iter().filter(|candidate| !is_control(candidate) && has_thread(candidate))
        {
            let remaining: Vec<u32> =
                self.read_tasks(holder).into_iter().filter(|id| *id != thread).collect();
            self.write_file(&format!("{holder}/tasks"), &id_lines(&remaining));
        }
        if !is_control(name) {
            let mut tasks = self.read_tasks(name);
            tasks.push(thread);
            self.write_file(&format!("{name}/tasks"), &id_lines(&tasks));
        }
        Ok(())
    }

    /// A process forks: the new thread is in the same cgroup and group.
    pub(crate) fn fork_thread(&self, cgroup: &str, parent: u32, thread: u32) {
        let path = self.root.join(format!("sys/fs/cgroup{cgroup}/cgroup.threads"));
        let text = fs::read_to_string(path).unwrap();
        let mut threads: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
        threads.push(thread);
        self.add_cgroup(cgroup, &threads);
        for group in self.group_names() {
            let mut tasks = self.read_tasks(&group);
            if tasks.contains(&parent) {
                tasks.push(thread);
                self.write_file(&format!("{group}/tasks"), &id_lines(&tasks));
            }
        }
    }

    /// Names of all groups.
    pub(crate) fn group_names(&self) -> Vec<String> {
        let groups = super::Resctrl { dir: self.mount_dir() }.read_groups().unwrap();
        groups.into_iter().map(|group| group.name).collect()
    }

    fn write_at(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // As in the kernel, a reader never sees a part of a text.
        let new = path.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, path).unwrap();
    }
}

/// Whether a name is of a control group.
fn is_control(name: &str) -> bool {
    !name.contains("mon_groups/")
}

/// The control group of a group.
fn control_name(name: &str) -> &str {
    name.split("mon_groups/").next().unwrap_or_default().trim_end_matches('/')
}

fn id_lines(ids: &[u32]) -> String {
    ids.iter().flat_map(|id| [id.to_string(), "\n".to_owned()]).collect()
}
