//! Reserves a CPU for everything but tenants: init and its children (the recorder), kernel threads
//! and interrupts.
//!
//! Tenants choose their own CPUs. Timers and the kernel threads of each CPU are bound to their CPU
//! and are not moved.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Number of CPUs in a one-word mask.
const MASK: usize = 32;

/// Moves everything that can be moved to a CPU.
pub(crate) fn keep_to(cpu: usize) -> Result<()> {
    ensure!(cpu < MASK, "only CPUs below {MASK} can do this");
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).context("pin init")?;
    let mask = format!("{:x}", 1_u32 << cpu);
    // The kernel refuses all of the following for threads and interrupts that are bound to a CPU.
    for pid in numeric_names(Path::new("/proc"))? {
        if let Some(pid) = Pid::from_raw(pid) {
            sched_setaffinity(Some(pid), &set).unwrap_or_default();
        }
    }
    fs::write("/sys/devices/virtual/workqueue/cpumask", &mask).unwrap_or_default();
    fs::write("/proc/irq/default_smp_affinity", &mask).unwrap_or_default();
    for irq in numeric_names(Path::new("/proc/irq"))? {
        fs::write(format!("/proc/irq/{irq}/smp_affinity"), &mask).unwrap_or_default();
    }
    Ok(())
}

/// The entries of a directory whose names are numbers.
fn numeric_names(dir: &Path) -> Result<Vec<i32>> {
    let entries = fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_found_by_their_numbers() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(numeric_names(Path::new("/proc")).unwrap().contains(&own));
        assert!(numeric_names(Path::new("/proc/self/ns")).unwrap().is_empty());
        assert!(keep_to(MASK).is_err());
    }
}
