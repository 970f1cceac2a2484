//! Who used the CPUs, as entries and as rows of `runtime` and `irqs`.
//!
//! A bin can be closed once the time of every CPU until its end is known. What no record tells is
//! looked up in the CPU's unsent state.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::cputime::CpuTimes;
use super::io::IoUse;
use super::offline::OfflineCpus;
use super::raw;
use super::running_tasks::{RunningTask, RunningTasks};
use super::sink::Sink;
use super::span::TickTime;
use super::stream::{AppliedChange, ClosingBin, RawStream, StreamContext, StreamStart};
use crate::assemble::cpu::{CpuBin, CpuTrack};
use crate::clock::TimeSpan;
use crate::drain::{CpuContext, DrainedRecord, Peek, RunRecord, TaskSlot};
use crate::entries::{LogEntry, Owner};
use crate::identity::irqs::IrqNames;
use crate::identity::names::TaskNames;
use crate::schema::loss::LossCause;

/// Interrupt time without a record that counts as a gap if longer than this in a tick, ns.
/// `uncore-trace check` has the same tolerance: times that are cut at the edges of a tick are
/// shorter.
const MOST_UNTOLD_NS: u64 = 50_000;

/// What an incomplete bin still waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Records that may be in the ring.
    ForRecords,
    /// Switches in progress. The ring was emptied since the bin ended, so earlier records were
    /// dropped.
    ForSwitches,
    /// Nothing: what is missing is a gap.
    Over,
}

/// Looks at the unsent states of CPUs. A peek shows a CPU after the horizon up to which bins are
/// closed, so one serves all of these bins.
pub(super) struct CpuPeeks<'a> {
    peek: &'a mut dyn FnMut(u32) -> Option<Peek>,
    running_tasks: BTreeMap<u32, RunningTask>,
}

impl<'a> CpuPeeks<'a> {
    /// None so far; `peek` returns a CPU's unsent state.
    pub(super) fn new(peek: &'a mut dyn FnMut(u32) -> Option<Peek>) -> Self {
        Self { peek, running_tasks: BTreeMap::new() }
    }
}

/// The CPUs whose time is accounted.
#[derive(Debug)]
pub(super) struct UsageStream {
    bin_ns: u64,
    tracks: BTreeMap<u32, CpuTrack>,
    running_tasks: RunningTasks,
    irq_names: IrqNames,
    /// How each CPU's time is divided over the owners so far.
    pub times: CpuTimes,
    offline: OfflineCpus,
    /// End of the last closed bin.
    closed_ns: u64,
}

impl RawStream for UsageStream {
    fn start_stream(start: &StreamStart<'_>, _sink: &mut Sink) -> Self {
        let (setup, start_ns) = (start.setup, start.start_ns);
        let to_track = |&cpu| {
            let mut track = CpuTrack::new(start_ns, start.bin_ns);
            if setup.offline.contains(&cpu) {
                track.go_offline(None);
            }
            (cpu, track)
        };
        Self {
            bin_ns: start.bin_ns,
            tracks: setup.cpus.iter().map(to_track).collect(),
            running_tasks: RunningTasks::default(),
            irq_names: IrqNames::new(setup.root),
            times: CpuTimes::new(setup.cpus, start_ns),
            offline: OfflineCpus::default(),
            closed_ns: start_ns,
        }
    }

    fn feed_record(&mut self, record: &mut DrainedRecord, context: &mut StreamContext<'_>) {
        match record {
            DrainedRecord::Run(run) => self.feed_run(run, context),
            DrainedRecord::Irq(irq) => {
                if let Some(track) = self.tracks.get_mut(&irq.cpu) {
                    track.add_irq_record(std::mem::take(irq));
                }
            }
            _ => {}
        }
    }

    fn apply_change(&mut self, applied: &AppliedChange<'_>, context: &mut StreamContext<'_>) {
        let ledger = &mut *context.ledger;
        for cpu in &applied.change.went_offline {
            if let Some(track) = self.tracks.get_mut(cpu) {
                let state = applied.offline_states.get(cpu);
                if let Some(state) = state.filter(|_| track.is_offline()) {
                    // The CPU came back and left again between two peeks.
                    self.offline.end_offline(*cpu, track.come_online(state.run.begin_ns), ledger);
                }
                ledger.add_run_gap(*cpu, track.go_offline(state));
            }
        }
        for &cpu in &applied.change.came_online {
            if let Entry::Vacant(entry) = self.tracks.entry(cpu) {
                let mut track = CpuTrack::new(self.closed_ns, self.bin_ns);
                track.stop_at(context.span.stop_ns.unwrap_or(u64::MAX));
                track.go_offline(None);
                entry.insert(track);
                self.times.add_cpu(cpu, self.closed_ns);
                ledger.add_unplanned_cpu(applied.time_ns, cpu);
            }
        }
    }

    fn stop_at(&mut self, stop: TickTime) {
        for track in self.tracks.values_mut() {
            track.stop_at(stop.time_ns);
        }
    }

    fn close_bin(&mut self, closing: &mut ClosingBin, context: &mut StreamContext<'_>) {
        let end_ns = closing.span.end_ns;
        for (&cpu, track) in &mut self.tracks {
            let bin = track.close_first_bin(end_ns);
            log_usage(cpu, &bin, &mut self.irq_names, context);
            self.times.add_bin(cpu, &bin);
        }
        self.offline.report_due(closing.is_last, context.ledger);
        self.closed_ns = end_ns;
    }
}

impl UsageStream {
    fn feed_run(&mut self, run: &mut RunRecord, context: &mut StreamContext<'_>) {
        let Some(track) = self.tracks.get_mut(&run.cpu) else {
            // The CPU has just come online, and its time counts from the change that says so. The
            // streams of tasks and slices take no part of its time either.
            run.slots.clear();
            return;
        };
        if track.is_offline() && run.end > track.accounted_ns {
            self.offline.end_offline(run.cpu, track.come_online(run.begin_ns), context.ledger);
        }
        context.ledger.add_run_gap(run.cpu, track.add_run(run, context.names));
    }

    /// Whether the CPUs for which `is_offline` is true have sent nothing after `fed_ns`, the time
    /// up to which all records were fed.
    pub(super) fn has_all_records_of(
        &self,
        is_offline: impl Fn(u32) -> bool,
        fed_ns: u64,
        peek: &mut dyn FnMut(u32) -> Option<Peek>,
    ) -> bool {
        let mut offline_cpus = self.tracks.keys().copied().filter(|cpu| is_offline(*cpu));
        offline_cpus.all(|cpu| peek(cpu).is_none_or(|state| state.run.end <= fed_ns))
    }

    /// Whether the time of this CPU is accounted.
    pub(super) fn has_cpu(&self, cpu: u32) -> bool {
        self.tracks.contains_key(&cpu)
    }

    /// Remembers which task runs on every CPU. `false` if a CPU was switching.
    pub(super) fn remember_running(
        &mut self,
        names: &TaskNames,
        peek: &mut dyn FnMut(u32) -> Option<Peek>,
    ) -> bool {
        let mut are_all_known = true;
        for (&cpu, track) in &self.tracks {
            are_all_known &=
                track.is_offline() || self.running_tasks.remember_running(cpu, names, peek);
        }
        are_all_known
    }

    /// Makes every CPU's time known until `end_ns`; `false` if that must wait. Bytes that a peek
    /// shows go to `io`.
    pub(super) fn account_until(
        &mut self,
        end_ns: u64,
        wait: Wait,
        peeks: &mut CpuPeeks<'_>,
        io: &mut Option<IoUse>,
        context: &mut StreamContext<'_>,
    ) -> bool {
        let CpuPeeks { peek, running_tasks } = peeks;
        let StreamContext { names, ledger, .. } = context;
        // Each CPU is tried in the order of trust: its records, a peek, a gap. What is entered
        // as a gap cannot be changed by a record that comes later, so a gap is the last resort.
        let is_final = wait == Wait::Over;
        for (&cpu, track) in &mut self.tracks {
            if track.accounted_ns >= end_ns {
                continue;
            }
            if track.is_offline() {
                match peek(cpu) {
                    // The CPU is back: what it has sent since comes with the next drain.
                    Some(_) if track.saw_switch() && !is_final => return false,
                    Some(state) if state.run.begin_ns < end_ns => {
                        let span = track.come_online(state.run.begin_ns);
                        self.offline.end_offline(cpu, span, ledger);
                    }
                    _ => {
                        self.offline.extend_offline(cpu, track.add_offline_until(end_ns));
                        continue;
                    }
                }
            }
            if let Entry::Vacant(entry) = running_tasks.entry(cpu) {
                match self.running_tasks.find_running(cpu, names, peek) {
                    Some(running_task) => {
                        entry.insert(running_task);
                    }
                    // The CPU is switching, or its task has exited: a record will come.
                    None if !is_final => return false,
                    None => {}
                }
            }
            if let Some(running_task) = running_tasks.get(&cpu)
                && running_task.peek.run.end < end_ns
            {
                // The peek covers its own span only. A record of the time before it may be in
                // the ring.
                let record_missing = running_task.peek.run.begin_ns > track.accounted_ns;
                if !running_task.is_certain && !is_final
                    || record_missing && wait == Wait::ForRecords
                {
                    return false;
                }
                ledger.add_run_gap(
                    cpu,
                    track.add_peek(&running_task.peek, &running_task.task, end_ns, names),
                );
                if let Some((io, unsent)) = io.as_mut().zip(running_task.peek.io.as_ref()) {
                    io.add_peek(unsent, end_ns, names);
                }
            }
            if track.accounted_ns < end_ns {
                // The CPU has switched since the drain: its record is in the ring.
                if !is_final {
                    return false;
                }
                let gap = TimeSpan { begin_ns: track.accounted_ns, end_ns };
                ledger.add_run_gap(cpu, Some(gap));
            }
        }
        true
    }
}

/// Logs who used a CPU in a bin, as one entry.
fn log_usage(cpu: u32, bin: &CpuBin, irq_names: &mut IrqNames, context: &mut StreamContext<'_>) {
    let find_owner = |slot: &TaskSlot| context.names.task_owner(&slot.task, bin.end_ns);
    let owners: Vec<Owner> = bin.tasks.iter().map(find_owner).collect();
    for &owner in &owners {
        context.request_owner_name(owner);
    }
    let StreamContext { output, ledger, .. } = context;
    if output.raw {
        raw::append_usage_rows(cpu, bin, &owners, irq_names, output.sink);
    }
    if bin.untold > MOST_UNTOLD_NS {
        ledger.add_loss(LossCause::RunGap, bin.end_ns, bin.untold, Some(cpu), None, 1);
    }
    let by_owner = |number: fn(&TaskSlot) -> u64| -> Vec<(Owner, u64)> {
        bin.tasks.iter().zip(&owners).map(|(slot, owner)| (*owner, number(slot))).collect()
    };
    if output.consumer.needs_switches() {
        output.log_entry(LogEntry::Switches { cpu, switches: &by_owner(|slot| slot.slices) });
    }
    let mut owner_times = by_owner(|slot| slot.wall_ns);
    for irq in &bin.irqs {
        // The name of an interrupt comes before its first time.
        if let CpuContext::Irq(number) = irq.source
            && let Some(name) = irq_names.take_unlogged(number)
        {
            output.log_entry(LogEntry::Interrupt { number, name });
        }
        owner_times.extend(Owner::of_interrupt(irq.source).map(|owner| (owner, irq.ns)));
    }
    if bin.unknown_ns > 0 {
        owner_times.push((Owner::Unattributed, bin.unknown_ns));
    }
    output.log_entry(LogEntry::Usage { cpu, usage: &owner_times });
}
