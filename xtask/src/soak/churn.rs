//! Cgroups that come and go: one after the other for a moment, and tenants that work for a minute.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::getpid;

/// Parent of the cgroups.
const CGROUP: &str = "uncore-trace-soak";

/// Prefix of the names of cgroups that exist for a moment.
pub(super) const SHORT: &str = "short-";

/// The program of a cgroup that exists for a moment: some milliseconds of CPU time.
const WORK: &str = "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done";

/// The program of a tenant: a moment of work in each second of a minute.
const TENANT: &str = "s=0; while [ $s -lt 60 ]; do s=$((s+1)); i=0; while [ $i -lt 2000 ]; do \
                      i=$((i+1)); done; sleep 1; done";

/// The cgroups of a soak below a parent of their own, which is removed when dropped.
#[derive(Debug)]
pub(super) struct Churn {
    parent: PathBuf,
    /// Cgroups for a moment, and tenants, that were made.
    pub short_count: u64,
    pub tenants: u64,
    running: Vec<(PathBuf, Child)>,
}

impl Churn {
    /// # Errors
    ///
    /// There is no cgroup v2 here.
    pub(super) fn new() -> Result<Self> {
        let mounts = procfs::mounts().context("cannot read the mounts")?;
        let cgroup_mount = mounts.into_iter().find(|mount| mount.fs_vfstype == "cgroup2");
        let root = PathBuf::from(cgroup_mount.context("cgroup v2 is not mounted")?.fs_file);
        let parent = root.join(format!("{CGROUP}-{}", getpid()));
        Ok(Self { parent, short_count: 0, tenants: 0, running: Vec::new() })
    }

    /// Makes and removes `short` cgroups a second for a minute, and starts `tenants` that work for
    /// a minute. Those of the minute before have ended.
    pub(super) fn run_minute(&mut self, short: u32, tenants: u32) -> Result<()> {
        let begin = Instant::now();
        self.end_tenants();
        for _ in 0..tenants {
            let dir = self.parent.join(format!("tenant-{}", self.tenants));
            let child = start_in_cgroup(&dir, TENANT)?;
            self.running.push((dir, child));
            self.tenants += 1;
        }
        let mut made_count = 0;
        while begin.elapsed() < Duration::from_mins(1) {
            let due = begin + Duration::from_secs(1) * made_count / short.max(1);
            sleep(
                due.min(begin + Duration::from_mins(1)).saturating_duration_since(Instant::now()),
            );
            if short > 0 {
                let dir = self.parent.join(format!("{SHORT}{}", self.short_count));
                let status = start_in_cgroup(&dir, WORK)?.wait().context("cannot wait for sh")?;
                ensure!(status.success(), "a process of {} failed: {status}", dir.display());
                fs::remove_dir(&dir)
                    .with_context(|| format!("cannot remove the cgroup {}", dir.display()))?;
                self.short_count += 1;
            }
            made_count += 1;
        }
        Ok(())
    }

    /// Ends the tenants that run, and removes their cgroups.
    fn end_tenants(&mut self) {
        for (dir, mut child) in self.running.drain(..) {
            // All three fail only if it has ended; an empty cgroup that is left does no harm.
            child.kill().ok();
            child.wait().ok();
            fs::write(dir.join("cgroup.kill"), "1").ok();
            for _ in 0..100 {
                if fs::remove_dir(&dir).is_ok() {
                    break;
                }
                sleep(Duration::from_millis(10));
            }
        }
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.end_tenants();
        fs::remove_dir(&self.parent).ok();
    }
}

/// Starts a shell that moves itself into a new cgroup and runs `script`.
fn start_in_cgroup(dir: &Path, script: &str) -> Result<Child> {
    let dir = dir.display();
    fs::create_dir_all(dir.to_string()).with_context(|| format!("cannot make the cgroup {dir}"))?;
    let script = format!("echo $$ > {dir}/cgroup.procs; {script}");
    Command::new("sh").args(["-c", &script]).spawn().context("cannot run sh")
}
