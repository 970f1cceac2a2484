//! Cgroups for a test, in the v2 hierarchy, and in the v1 hierarchy of the `cpu` controller if that
//! has the weights; removed on drop.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, process};

use uncore_trace::discover::{CgroupMounts, machine};

use crate::wait::wait_within;

/// How long a killed process may stay in its cgroup: until it is reaped.
const REAPED: Duration = Duration::from_secs(10);

/// A cgroup of the v2 hierarchy.
#[derive(Debug)]
pub(crate) struct Cgroup {
    /// The path in the tables.
    pub path: String,
    dirs: Vec<PathBuf>,
}

fn cgroup_mounts() -> CgroupMounts {
    machine(Path::new("/")).unwrap().cgroups
}

impl Cgroup {
    /// A new cgroup; an error says why there is no v2 hierarchy.
    pub(crate) fn new(tag: &str) -> Result<Self, String> {
        let mount = cgroup_mounts().v2.ok_or("no cgroup v2 hierarchy is mounted")?;
        let name = format!("uncore-trace-test-{}-{tag}", process::id());
        let dir = mount.join(&name);
        fs::create_dir(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        Ok(Self { path: format!("/{name}"), dirs: vec![dir] })
    }

    /// A new cgroup with this weight, relative to the default.
    pub(crate) fn weighted(tag: &str, weight: f64) -> Result<Self, String> {
        let mut cgroup = Self::new(tag)?;
        let file = cgroup.dirs[0].join("cpu.weight");
        if file.exists() {
            fs::write(file, format!("{}", (100.0 * weight).round())).unwrap();
            return Ok(cgroup);
        }
        let v1 = cgroup_mounts()
            .v1
            .into_iter()
            .find(|v1| v1.controllers.iter().any(|name| name == "cpu"));
        let v1 = v1.ok_or(
            "no hierarchy has the cpu controller (v2: echo +cpu > cgroup.subtree_control)",
        )?;
        let dir = v1.path.join(cgroup.path.trim_start_matches('/'));
        fs::create_dir(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        cgroup.dirs.push(dir.clone());
        fs::write(dir.join("cpu.shares"), format!("{}", (1024.0 * weight).round())).unwrap();
        Ok(cgroup)
    }

    /// Its directory in the v2 hierarchy.
    pub(crate) fn dir(&self) -> &Path {
        &self.dirs[0]
    }

    /// Moves a process into it.
    pub(crate) fn add_process(&self, pid: i32) {
        for dir in &self.dirs {
            fs::write(dir.join("cgroup.procs"), pid.to_string()).unwrap();
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.dirs.iter().for_each(|dir| remove_cgroup(dir));
    }
}

/// Removes a cgroup when its killed processes are gone. One that stays does no harm.
pub(crate) fn remove_cgroup(dir: &Path) {
    let is_gone = || (fs::remove_dir(dir).is_ok() || !dir.exists()).then_some(());
    let _removed = wait_within(REAPED, is_gone);
}
