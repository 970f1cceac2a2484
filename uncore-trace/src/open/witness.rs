//! Witnesses during a recording: the cost of their readings, and how they are dropped.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::Result;
use aya::programs::BtfTracePoint;
use aya::sys::{Stats, enable_stats};

use super::hotplug::{CpuSetChange, SETTLE, StopCause};
use super::open_counter::OpenCounter;
use super::programs;
use super::session::Session;
use crate::count::Count;

/// Fewest runs of the hook for a meaningful average.
const LEAST_RUNS: u64 = 1000;

/// While this exists, the kernel measures the run time of BPF programs (`BPF_ENABLE_STATS`, Linux
/// >= 5.8), with two more clock readings at each run of every program.
#[derive(Debug)]
pub struct HookMeter {
    _stats: OwnedFd,
    run_time: Duration,
    runs: u64,
}

impl Session {
    /// Starts to measure the run time of the hook of `sched_switch`; `None` if the kernel cannot.
    pub fn start_meter(&mut self) -> Option<HookMeter> {
        let stats = enable_stats(Stats::RunTime).ok()?;
        let (time, runs) = self.hook_runs()?;
        Some(HookMeter { _stats: stats, run_time: time, runs })
    }

    /// Average run time of the hook since then over all CPUs, including its readings, ns. `None`
    /// after too few runs.
    pub fn hook_ns(&mut self, since: &HookMeter) -> Option<f64> {
        let (time, runs) = self.hook_runs()?;
        let runs = runs.saturating_sub(since.runs);
        let time = time.saturating_sub(since.run_time);
        (runs >= LEAST_RUNS).then(|| time.as_nanos() as f64 / runs as f64)
    }

    fn hook_runs(&mut self) -> Option<(Duration, u64)> {
        let program: &mut BtfTracePoint =
            programs::find_program(&mut self.ebpf, "sched_switch").ok()?;
        let info = program.info().ok()?;
        Some((info.run_time(), info.run_count()))
    }

    /// The current counts of these counters. Counters that stopped or cannot be read are left out.
    pub fn counts_of(&self, ids: &[u32]) -> Vec<(u32, Count)> {
        let counters =
            self.opened.iter().filter(|counter| ids.contains(&counter.id) && !counter.stopped);
        counters.filter_map(OpenCounter::total_count).collect()
    }

    /// Stops these counters for good, which must not be in a group. They are no longer read and
    /// free their hardware. All records that were in the ring before must have been fed.
    ///
    /// # Errors
    ///
    /// The other counters cannot be given their new slots.
    pub fn retire_counters(&mut self, ids: &[u32]) -> Result<CpuSetChange> {
        let mut change = CpuSetChange::default();
        for counter in self
            .opened
            .iter_mut()
            .filter(|candidate| ids.contains(&candidate.id) && !candidate.retired)
        {
            counter.retired = true;
            change.retired.push(counter.id);
            if counter.stopped {
                continue;
            }
            change.stopped.push(counter.note_stop(StopCause::Purpose));
        }
        let settled = self.place_counters(false)?;
        change.layouts = Some(self.layouts.clone());
        if !settled {
            self.follower.unsettled = Some(Instant::now() + SETTLE);
        }
        for counter in self.opened.iter().filter(|candidate| change.retired.contains(&candidate.id))
        {
            if let Err(error) = counter.event.disable() {
                log::info!("cannot disable counter {}: {error}", counter.id);
            }
        }
        Ok(change)
    }
}
