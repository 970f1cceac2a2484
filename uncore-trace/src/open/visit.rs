//! Makes every CPU switch tasks once, to start what must start on that CPU.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Runs for a moment on each of `cpus`, in a thread of its own. Returns the CPUs that could not be
/// visited: they are offline, or outside this process's cpuset.
pub(super) fn visit_cpus(cpus: &[u32]) -> Result<Vec<u32>> {
    let cpus = cpus.to_vec();
    thread::Builder::new()
        .name("visit".to_owned())
        .spawn(move || cpus.into_iter().filter(|&cpu| !visit_one(cpu)).collect())
        .context("cannot start a thread to visit the CPUs")?
        .join()
        .map_err(|_panic| anyhow!("the thread that visits the CPUs ended early"))
}

fn visit_one(cpu: u32) -> bool {
    let mut set = CpuSet::new();
    if cpu as usize >= CpuSet::MAX_CPU {
        return false;
    }
    set.set(cpu as usize);
    if sched_setaffinity(None, &set).is_err() {
        return false;
    }
    // Sleeping forces a switch even if the migration needed none.
    thread::sleep(Duration::from_micros(1));
    true
}
