//! CPUs that go offline and come back during a recording.
//!
//! When the CPU of an uncore PMU goes offline, its driver moves the counters to another CPU. They
//! continue to count; only the CPU on which they can be read changes (`perf_pmu_migrate_context`,
//! kernel/events/core.c, Linux 6.18). Per-CPU counters, and counters whose driver finds no other
//! CPU, stop for good. They are opened again when a CPU for them is online.
//!
//! The reader CPU of a counter is not taken from sysfs, because the `cpumask` of `ali_drw` is not
//! updated: the program `probe` tries to read the counter on a CPU. A change gives all counters new
//! slots, in the other half of the perf event array. So samples with old slots can still be told
//! apart, and the ring is drained at least once between two changes.

use std::collections::BTreeMap;
use std::mem;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use aya::programs::{RawTracePoint, RawTracePointRunOptions, TestRun as _};
use uncore_trace_common::record::MAX_COUNTERS;
use uncore_trace_common::state::CpuState;

use super::open_counter::{self, Layout, OpenCounter};
use super::perf::{EventRequest, PerfEvent};
use super::pmu;
use super::programs;
use super::sampler::{self, RunningSampler};
use super::session::{CpuFollower, Session};
use super::shared_counters;
use crate::bounds;
use crate::count::Count;

/// How long a CPU that comes online, and the drivers that follow it, are waited for. A look costs
/// little, but the search for a counter that no CPU can read must end.
pub(super) const SETTLE: Duration = Duration::from_secs(5);

/// How long a driver may take to move a counter, which does not count meanwhile: the driver waits
/// for an RCU grace period.
const MOVE: Duration = Duration::from_millis(500);

/// A change of the CPUs or of the counters that they read.
#[derive(Debug, Default)]
pub struct CpuSetChange {
    /// CPUs that went offline.
    pub went_offline: Vec<u32>,
    /// CPUs that came online.
    pub came_online: Vec<u32>,
    /// Counters that stopped.
    pub stopped: Vec<Stopped>,
    /// Counters that were stopped on purpose; they do not start again.
    pub retired: Vec<u32>,
    /// What each reader CPU reads from now on; `None` if unchanged.
    pub layouts: Option<BTreeMap<u32, Layout>>,
}

/// What says that counters or timers are no longer where they were, beside the list of CPUs.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlacementHints {
    /// A counter could not be read where it was expected.
    pub counter_moved: bool,
    /// The kernel has moved a timer to another CPU, where it stopped.
    pub timer_moved: bool,
}

/// A counter that stopped.
#[derive(Clone, Copy, Debug)]
pub struct Stopped {
    /// Its id in the plan.
    pub id: u32,
    /// Its total count.
    pub count: Count,
    /// What made it stop.
    pub why: StopCause,
}

/// Why a counter stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// Its CPU went offline.
    Cpu,
    /// Its PMU was removed: the driver was unloaded or unbound from the device, and the kernel
    /// revoked the events (`perf_pmu_unregister`, kernel/events/core.c, since Linux 6.15). They can
    /// still be read, but do not count.
    Pmu,
    /// The recorder stopped it.
    Purpose,
}

impl Session {
    /// Finds the CPU that can read each counter, and has it read there. It does nothing unless
    /// `online` differs from the last call, a counter has no reader yet, or `hints` report a
    /// problem. All records that were in the ring before must have been fed.
    pub fn follow_cpus(
        &mut self,
        online: &[u32],
        root: &Path,
        hints: PlacementHints,
    ) -> Result<Option<CpuSetChange>> {
        let Some(running) = &self.running else {
            return Ok(None);
        };
        let PlacementHints { counter_moved, timer_moved } = hints;
        let hint =
            running.take_unreached() | counter_moved | timer_moved | self.take_returned(root);
        let as_before = self.follower.online == online;
        if self.follower.unsettled.is_some_and(|until| Instant::now() > until) {
            self.follower.unsettled = None;
        }
        if as_before && !hint && self.follower.unsettled.is_none() {
            return Ok(None);
        }
        let mut change = CpuSetChange {
            went_offline: not_in(&self.follower.online, online),
            came_online: not_in(online, &self.follower.online),
            ..CpuSetChange::default()
        };
        online.clone_into(&mut self.follower.online);
        let readers: Vec<Option<u32>> = self.opened.iter().map(|counter| counter.reader).collect();
        // Stopped counters come first: they can be opened again at once, and `find_readers` then
        // looks for the reader of the new event as well.
        change.stopped = self.take_stopped();
        let reopened = self.reopen_stopped(root);
        for counter in reopened.iter().filter_map(|&index| self.opened.get(index)) {
            counter.event.enable().context("cannot enable a counter")?;
        }
        self.find_readers(root)?;
        let moved =
            readers.iter().zip(&self.opened).any(|(reader, counter)| *reader != counter.reader);
        let mut settled = self.opened.iter().all(|counter| counter.is_settled(online));
        // All counters get new slots together: a sample is identified by its first slot alone.
        if moved || !reopened.is_empty() || timer_moved || self.has_lost_a_timer()? {
            settled &= self.place_counters(timer_moved)?;
            change.layouts = Some(self.layouts.clone());
        }
        // The time to settle starts again with every change, since drivers follow each of them.
        let until = self.follower.unsettled.filter(|_| as_before && !moved);
        let until = until.unwrap_or_else(|| Instant::now() + SETTLE);
        self.follower.unsettled = (!settled).then_some(until);
        Ok(Some(change))
    }

    /// Clears the programs' state of an offline CPU, so that its time begins anew when it comes
    /// back.
    pub fn reset_cpu(&mut self, cpu: u32) -> Result<()> {
        self.cpus
            .set(cpu, CpuState::default(), 0)
            .with_context(|| format!("cannot write the state of CPU {cpu}"))
    }

    /// The CPUs that went offline since the last look. `online` lists those that are online.
    pub fn take_offline(&mut self, online: &[u32]) -> Vec<u32> {
        let offline = not_in(&self.follower.online, online);
        online.clone_into(&mut self.follower.online);
        offline
    }

    /// Whether a PMU that was removed has come back since the last call.
    fn take_returned(&mut self, root: &Path) -> bool {
        let mut any = false;
        for counter in self.opened.iter_mut().filter(|counter| counter.absent) {
            counter.absent = counter.attr_type(root).is_none();
            any |= !counter.absent;
        }
        any
    }

    /// The counters that stopped since the last call.
    pub fn take_stopped(&mut self) -> Vec<Stopped> {
        let mut stopped = Vec::new();
        for counter in self.opened.iter_mut().filter(|counter| !counter.stopped) {
            if counter.event.is_enabled() {
                counter.idle = None;
                continue;
            }
            let since = *counter.idle.get_or_insert_with(Instant::now);
            if !counter.per_cpu && since.elapsed() < MOVE {
                continue;
            }
            // A driver that finds no CPU for a counter leaves it on its CPU.
            let has_cpu = counter.reader.is_some_and(|cpu| self.follower.online.contains(&cpu));
            let why = if has_cpu && !counter.per_cpu { StopCause::Pmu } else { StopCause::Cpu };
            stopped.push(counter.note_stop(why));
        }
        stopped
    }

    /// Opens stopped counters again if a CPU for them is online; they are disabled. Returns their
    /// indices.
    fn reopen_stopped(&mut self, root: &Path) -> Vec<usize> {
        let (mut reopened, mut refused) = (Vec::new(), false);
        for index in 0..self.opened.len() {
            let Some(counter) = self
                .opened
                .get_mut(index)
                .filter(|candidate| candidate.stopped && !candidate.retired)
            else {
                continue;
            };
            let attr_type = counter.attr_type(root);
            counter.absent = attr_type.is_none();
            let Some(attr_type) = attr_type else {
                continue;
            };
            let Some(counter) = self.opened.get(index) else { continue };
            let leader = counter.leader.and_then(|leader| self.opened.get(leader));
            let cpus = match leader {
                Some(leader) if leader.stopped => continue,
                Some(leader) => vec![leader.request.cpu],
                None if counter.per_cpu => vec![counter.request.cpu],
                None => counter.reopen_cpus(root),
            };
            let online = cpus.into_iter().filter(|cpu| self.follower.online.contains(cpu));
            let mut tries = online.map(|cpu| EventRequest { attr_type, cpu, ..counter.request });
            let opened = tries.find_map(|request| {
                match PerfEvent::open(&request, leader.map(|leader| &leader.event)) {
                    Ok(event) => Some((request, event)),
                    Err(error) => {
                        refused |= error.raw_os_error() == Some(libc::EACCES);
                        None
                    }
                }
            });
            if let Some((request, event)) = opened
                && let Some(counter) = self.opened.get_mut(index)
            {
                counter.reader = counter.per_cpu.then_some(request.cpu);
                (counter.request, counter.event, counter.stopped) = (request, event, false);
                reopened.push(index);
            }
        }
        if refused && !mem::replace(&mut self.follower.was_refused, true) {
            // Debian's kernels patch `perf_event_open` (kernel/events/core.c) to require this.
            log::warn!(
                "counters that stopped cannot be opened again: with kernel.perf_event_paranoid \
                 above 2 this kernel requires CAP_SYS_ADMIN, which a recorder gives up; set it to 2"
            );
        }
        reopened
    }

    /// Finds a CPU that can read each counter, except per-CPU counters.
    fn find_readers(&mut self, root: &Path) -> Result<()> {
        let mut known: BTreeMap<(String, Option<u32>), u32> = BTreeMap::new();
        for index in 0..self.opened.len() {
            let Some(counter) = self.opened.get(index) else { continue };
            if counter.stopped || counter.per_cpu {
                continue;
            }
            if counter.idle.is_some() {
                // The driver is moving the counter, or it has stopped: what a read says now does
                // not hold.
                let is_offline =
                    counter.reader.is_some_and(|cpu| !self.follower.online.contains(&cpu));
                if is_offline && let Some(counter) = self.opened.get_mut(index) {
                    counter.reader = None;
                }
                continue;
            }
            let (old, pmu_and_reader) = (counter.reader, (counter.pmu.clone(), counter.reader));
            // A probe interrupts a CPU. So the last reader is tried first, then the CPU on which
            // another counter of the same PMU was just found, then the rest.
            let mut cpus: Vec<u32> =
                old.into_iter().chain(known.get(&pmu_and_reader).copied()).collect();
            cpus.extend(self.follower.likely_readers(root, counter));
            cpus.retain(|cpu| self.follower.online.contains(cpu));
            let reader = self.first_reader(index, cpus)?;
            if let Some(cpu) = reader {
                known.insert(pmu_and_reader, cpu);
            }
            if let Some(counter) = self.opened.get_mut(index) {
                counter.reader = reader;
                counter
                    .past_readers
                    .extend(reader.filter(|cpu| !counter.past_readers.contains(cpu)));
            }
        }
        Ok(())
    }

    /// The slot after both halves, in which the probe reads a counter.
    const fn probe_slot(&self) -> u32 {
        2 * self.opened.len() as u32
    }

    pub(super) fn offer_to_probe(&self, index: usize) -> Result<()> {
        let Some(counter) = self.opened.get(index) else {
            return Ok(());
        };
        self.counters
            .insert(self.probe_slot(), counter.event.as_fd())
            .context("cannot put a counter into the perf event array")
    }

    /// The first of these CPUs that can read the counter with this index.
    pub(super) fn first_reader(&mut self, index: usize, cpus: Vec<u32>) -> Result<Option<u32>> {
        self.offer_to_probe(index)?;
        for cpu in cpus {
            if self.can_read(cpu)? {
                return Ok(Some(cpu));
            }
        }
        Ok(None)
    }

    /// Whether the counter in the probe's slot can be read on `cpu`.
    pub(super) fn can_read(&mut self, cpu: u32) -> Result<bool> {
        let slot = u64::from(self.probe_slot());
        let program: &mut RawTracePoint = programs::find_program(&mut self.ebpf, "probe")?;
        let mut options = RawTracePointRunOptions { cpu: Some(cpu), ..Default::default() };
        if let Some(argument) = options.args.first_mut() {
            *argument = slot;
        }
        // A CPU that went offline just now fails too.
        Ok(program.test_run(options).is_ok_and(|result| result.return_value == 0))
    }

    fn has_lost_a_timer(&self) -> Result<bool> {
        if !self.running.as_ref().is_some_and(RunningSampler::has_timers) {
            return Ok(false);
        }
        for &cpu in self.layouts.keys() {
            if !sampler::is_armed(&self.samplers, cpu)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives every counter that has a reader a slot, and has it read there. With `restart_timers`,
    /// all timers start again. `false` if a CPU could not be reached yet.
    pub(super) fn place_counters(&mut self, restart_timers: bool) -> Result<bool> {
        self.drop_excess_counters();
        let readers_before: Vec<u32> = self.layouts.keys().copied().collect();
        // The other half: the slots in use stay valid until every CPU has its new layout.
        self.follower.upper_half = !self.follower.upper_half;
        let first_slot = if self.follower.upper_half { self.opened.len() as u32 } else { 0 };
        self.fill_slots(first_slot)?;
        let Self { running: Some(running), ebpf, samplers, layouts, .. } = self else {
            return Ok(true);
        };
        let settled = running.reassign(ebpf, samplers, &readers_before, layouts, restart_timers)?;
        shared_counters::assign_others(samplers, layouts)?;
        Ok(settled)
    }

    /// Gives the counters with readers slots from `first_slot` on, and finds the other CPUs that
    /// can read them.
    pub(super) fn fill_slots(&mut self, first_slot: u32) -> Result<()> {
        self.layouts = open_counter::lay_out(&mut self.opened, first_slot);
        for counter in self.opened.iter().filter(|counter| counter.reader.is_some()) {
            self.put_in_slot(counter)?;
        }
        self.find_others()
    }

    /// Drops counters that a CPU took over beyond what it can read in one tick.
    fn drop_excess_counters(&mut self) {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for counter in &mut self.opened {
            let Some(cpu) = counter.reader else { continue };
            let count = counts.entry(cpu).or_default();
            *count += 1;
            if *count > MAX_COUNTERS {
                counter.reader = None;
                log::warn!(
                    "CPU {cpu} can read only {MAX_COUNTERS} counters: one of {} is left out",
                    counter.pmu
                );
            }
        }
    }
}

impl OpenCounter {
    /// The CPUs on which the counter can be opened again and still be the same. On another CPU the
    /// driver may give the counter of another package.
    fn reopen_cpus(&self, root: &Path) -> Vec<u32> {
        let mut cpus = self.past_readers.clone();
        if self.single
            && let Some(mask) = pmu::read_cpumask(root, &self.pmu)
            && mask.len() == 1
        {
            cpus.extend(mask.iter());
        }
        cpus
    }

    /// The `type` with which the counter can be opened again; `None` while its PMU is missing.
    fn attr_type(&self, root: &Path) -> Option<u32> {
        if self.per_cpu {
            // The events of a core have generic types, which are not the `type` of a PMU.
            return Some(self.request.attr_type);
        }
        let attr_type = pmu::attr_type(root, &self.pmu)?;
        (pmu::device_directory(root, &self.pmu) == self.directory).then_some(attr_type)
    }

    /// Whether the counter needs no further look.
    fn is_settled(&self, online: &[u32]) -> bool {
        let is_offline = self.per_cpu && !online.contains(&self.request.cpu);
        self.retired || self.idle.is_none() && (self.reader.is_some() || is_offline)
    }
}

impl CpuFollower {
    /// The CPUs on which a PMU's counter may be, the most likely first: those of its `cpumask`,
    /// then those with numbers near that of its first CPU, which are mostly in the same package.
    fn likely_readers(&self, root: &Path, counter: &OpenCounter) -> Vec<u32> {
        let mask = pmu::read_cpumask(root, &counter.pmu);
        let likely = |cpu: &u32| mask.as_ref().is_some_and(|mask| mask.contains(*cpu));
        // Some counters can be read on any CPU of their package. The kernel takes a CPU that is
        // coming up or going down for one of package 0 (`__perf_event_read_cpu`,
        // kernel/events/core.c).
        let package = |cpu: u32| -> Option<i16> {
            let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
            bounds::system_text(root.join(file)).ok()?.trim().parse().ok()
        };
        let at_home = |cpu: &u32| {
            counter.single || counter.socket.is_none() || package(*cpu) == counter.socket
        };
        let mut cpus: Vec<u32> = self.online.iter().copied().filter(at_home).collect();
        cpus.sort_by_key(|cpu| (!likely(cpu), cpu.abs_diff(counter.request.cpu)));
        cpus
    }
}

fn not_in(cpus: &[u32], known: &[u32]) -> Vec<u32> {
    cpus.iter().filter(|cpu| !known.contains(cpu)).copied().collect()
}
