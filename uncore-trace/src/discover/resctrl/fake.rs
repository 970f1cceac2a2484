//! A directory that looks like a machine with resctrl.

use std::fs;
use std::path::{Path, PathBuf};

/// The directory.
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

    fn at(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // As in the kernel, a reader never sees a part of a text.
        let new = path.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, path).unwrap();
    }
}

fn lines(ids: &[u32]) -> String {
    ids.iter().flat_map(|id| [id.to_string(), "\n".to_owned()]).collect()
}
