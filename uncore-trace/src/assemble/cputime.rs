//! How the time of each CPU is divided over a recording: the metadata `uncore_trace.cpu_time`.

use std::collections::BTreeMap;

use crate::assemble::cpu::CpuBin;

/// How the time of one CPU is divided over the owners in the whole recording. Times are in ns.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct CpuTimeSplit {
    /// The CPU.
    pub cpu: u32,
    /// Begin of the accounted time, `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    /// End of the accounted time, `CLOCK_MONOTONIC`.
    pub end_ns: u64,
    /// Tasks, without interrupts.
    pub task_ns: u64,
    /// Interrupt handlers.
    pub irq_ns: u64,
    /// Softirqs.
    pub softirq_ns: u64,
    /// Idle, without interrupts.
    pub idle_ns: u64,
    /// Time for which no record exists.
    pub unattributed_ns: u64,
    /// Offline.
    pub offline_ns: u64,
    /// The largest [`CpuBin::excess_ns`] of a bin.
    pub worst_window_error_ns: u64,
}

/// The times of all CPUs.
#[derive(Debug)]
pub(super) struct CpuTimes(BTreeMap<u32, CpuTimeSplit>);

impl CpuTimes {
    /// Starts to count the time of `cpus` at `begin_ns`.
    pub(super) fn new(cpus: &[u32], begin_ns: u64) -> Self {
        let mut times = Self(BTreeMap::new());
        for &cpu in cpus {
            times.add_cpu(cpu, begin_ns);
        }
        times
    }

    /// Adds a CPU whose time counts from `begin_ns`.
    pub(super) fn add_cpu(&mut self, cpu: u32, begin_ns: u64) {
        let new_split = CpuTimeSplit { cpu, begin_ns, end_ns: begin_ns, ..CpuTimeSplit::default() };
        self.0.entry(cpu).or_insert(new_split);
    }

    /// Adds a closed bin.
    pub(super) fn add_bin(&mut self, cpu: u32, bin: &CpuBin) {
        let Some(time) = self.0.get_mut(&cpu) else {
            return;
        };
        for slot in &bin.tasks {
            if slot.task.tid == 0 {
                time.idle_ns += slot.wall_ns;
            } else {
                time.task_ns += slot.wall_ns;
            }
        }
        time.unattributed_ns += bin.unknown_ns;
        time.irq_ns += bin.irq_ns(false);
        time.softirq_ns += bin.irq_ns(true);
        time.offline_ns += bin.offline_ns;
        time.end_ns = bin.end_ns;
        time.worst_window_error_ns = time.worst_window_error_ns.max(bin.excess_ns);
    }

    /// The times so far.
    pub(super) fn all_times(&self) -> Vec<CpuTimeSplit> {
        self.0.values().copied().collect()
    }
}
