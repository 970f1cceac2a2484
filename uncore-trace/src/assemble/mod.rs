//! Turns the records of a live recording into entries of the log, and into the rows of the raw
//! tables that store them.
//!
//! State is kept for open ticks only, so memory does not depend on the length of the recording.
//! [`Timeline::feed_record`] takes records in the order of the ring. [`Timeline::close_ticks`]
//! closes every tick that ended before a horizon up to which all records have been fed.

mod accounts;
mod assignments;
pub mod cpu;
mod cpus;
mod cputime;
mod held;
mod holders;
mod io;
mod looks;
mod loss;
mod monitors;
mod moves;
mod offline;
mod output;
mod raw;
mod readers;
mod seen;
mod sink;
mod span;
mod statistics;
mod unnamed;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

pub use self::accounts::AccountReading;
use self::accounts::PendingAccounts;
pub use self::assignments::AssignmentReading;
use self::assignments::Assignments;
use self::cpus::CpuStates;
pub use self::cputime::CpuTimeSplit;
use self::cputime::CpuTimes;
use self::holders::HolderTable;
use self::io::IoUse;
use self::looks::{RunningTask, RunningTasks};
pub use self::loss::Ledger;
use self::monitors::PendingMonitors;
pub use self::monitors::{MonitorLoss, MonitorReading};
use self::offline::OfflineCpus;
use self::output::EntryOutput;
use self::readers::Readers;
use self::seen::SeenThreads;
pub use self::sink::Sink;
use self::span::TimelineSpan;
use self::statistics::StatisticCounters;
use self::unnamed::UnnamedCgroups;
use crate::assemble::cpu::{CpuBin, CpuTrack};
use crate::clock::Snapshot;
use crate::count::Count;
use crate::discover::CgroupMounts;
use crate::discover::accounts::HeldDevices;
use crate::discover::cpus::CpuLocation;
use crate::drain::{
    CgroupChange, CgroupRecord, CpuContext, DrainedRecord, FileRecord, Peek, RunRecord,
    SampleRecord, TaskChange, TaskRecord, TaskSlot,
};
use crate::entries::{self, LogConsumer, Owner};
use crate::identity::cgroups::Cgroups;
use crate::identity::guests::Guests;
use crate::identity::irqs::IrqNames;
use crate::identity::names::TaskNames;
use crate::open::{CpuSetChange, Layout, StatisticsSample};
use crate::plan::{Counter, Plan};
use crate::schema::loss::Cause;
use crate::schema::{runtime, slices, tasks};

/// A boundary reading is missing if it has not arrived after this time, ns: ten times the longest
/// delay of a pinned timer measured under hackbench on two busy CPUs.
const GRACE_NS: u64 = 25_000_000;

/// Interrupt time without a record that counts as a gap if longer than this in a tick, ns.
/// `uncore-trace check` has the same tolerance: times that are cut at the edges of a tick are
/// shorter.
const MOST_UNTOLD_NS: u64 = 50_000;
/// Time of a CPU without a record or a look counts as a gap after this wait, ns. It is longer than
/// [`GRACE_NS`], because a hypervisor may stop the CPU in the middle of a switch. If a record was
/// dropped, the next one reveals the gap without a wait.
const GAP_NS: u64 = 1_000_000_000;

/// Cgroups whose rows are made in one bin. Each may need a file or two to be read for the name of
/// its container, and a machine can have thousands when a recording begins.
const FRESH_AT_ONCE: usize = 32;

/// What an incomplete bin still waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Records that may be in the ring.
    ForRecords,
    /// Switches in progress. The ring was emptied since the bin ended, so earlier records were
    /// dropped.
    ForSwitches,
    /// Nothing: what is missing is a gap.
    Over,
}

/// The parameters of a time line.
#[derive(Debug)]
pub struct Setup<'a> {
    /// The planned counters.
    pub plan: &'a Plan,
    /// What each reader CPU reads.
    pub layouts: &'a BTreeMap<u32, Layout>,
    /// The counters that were opened.
    pub opened: &'a HashSet<u32>,
    /// CPUs whose time is accounted.
    pub cpus: &'a [u32],
    /// Those of `cpus` that are offline.
    pub offline: &'a [u32],
    /// The location of each possible CPU.
    pub cpu_locations: &'a BTreeMap<u32, CpuLocation>,
    /// The first tick; earlier records are ignored.
    pub start_tick: u64,
    /// Converts times to wall-clock time.
    pub clock: Snapshot,
    /// Where procfs and sysfs are.
    pub root: &'a Path,
    /// The cgroup v2 hierarchy.
    pub cgroups: &'a CgroupMounts,
    /// Cgroups below which all names of containers, pods and jobs are believed.
    pub trusted_cgroups: Vec<String>,
    /// Cgroups with owners of their own; empty: all.
    pub only_cgroups: Vec<String>,
    /// Owners in deeper cgroups are replaced by their ancestor at this depth; 0 is the root.
    pub cgroup_depth: Option<usize>,
    /// Whether I/O is recorded.
    pub io: bool,
    /// Whether it is recorded who holds which device.
    pub holders: bool,
}

/// The state of a live recording.
#[derive(Debug)]
pub struct Timeline {
    tick_ns: u64,
    window_ns: u64,
    bin_ns: u64,
    tracks: BTreeMap<u32, CpuTrack>,
    names: TaskNames,
    running_tasks: RunningTasks,
    irq_names: IrqNames,
    readers: Readers,
    /// Needed if a witness does not count virtual machines.
    guests: Option<Guests>,
    consumer: Box<dyn LogConsumer>,
    times: CpuTimes,
    io: Option<IoUse>,
    holders: Option<HolderTable>,
    assignments: Assignments,
    statistics: StatisticCounters,
    monitors: PendingMonitors,
    accounts: PendingAccounts,
    cpus: CpuStates,
    offline: OfflineCpus,
    unnamed: UnnamedCgroups,
    /// First and last tick.
    span: TimelineSpan,
    /// End of the last closed bin.
    closed_ns: u64,
    /// Latest time of a record so far.
    newest_ns: u64,
    /// Some CPU's time was unknown up to this time although the ring had been emptied.
    waited_ns: u64,
    seen: SeenThreads,
    raw: bool,
    every_slice: bool,
    /// The losses, as rows and as totals.
    pub ledger: Ledger,
}

impl Timeline {
    /// An empty time line whose log goes to `consumer`. Bins are ticks if `consumer` or `sink`
    /// needs ticks, otherwise windows.
    pub fn new(setup: &Setup<'_>, consumer: Box<dyn LogConsumer>, sink: &mut Sink) -> Self {
        let (tick_ns, window_ns) = (setup.plan.tick_ns, setup.plan.window_ns);
        let start_ns = setup.start_tick * tick_ns;
        let raw = sink.wants_table(&runtime::TABLE);
        let by_tick = raw || setup.io || consumer.needs_ticks();
        let bin_ns = if by_tick { tick_ns } else { window_ns };
        let track = |&cpu| {
            let mut track = CpuTrack::new(start_ns, bin_ns);
            if setup.offline.contains(&cpu) {
                track.go_offline(None);
            }
            (cpu, track)
        };
        let tracks = setup.cpus.iter().map(track).collect();
        let cgroups =
            Cgroups::from_mounts(setup.cgroups, setup.root, setup.trusted_cgroups.clone());
        let mut cpus = CpuStates::new(setup.cpu_locations, setup.cpus, setup.layouts);
        cpus.apply_change(&CpuSetChange {
            went_offline: setup.offline.to_vec(),
            ..CpuSetChange::default()
        });
        if raw {
            cpus.write_rows(start_ns, sink);
        }
        Self {
            tick_ns,
            window_ns,
            bin_ns,
            tracks,
            names: TaskNames::new(setup.root, cgroups, setup.only_cgroups.clone())
                .with_depth(setup.cgroup_depth),
            running_tasks: RunningTasks::default(),
            irq_names: IrqNames::new(setup.root),
            readers: Readers::new(setup.plan, setup.layouts, setup.opened, setup.start_tick),
            guests: setup
                .plan
                .counters
                .iter()
                .any(Counter::is_blind_witness)
                .then(|| Guests::new(setup.root)),
            consumer,
            times: CpuTimes::new(setup.cpus, start_ns),
            io: setup.io.then(|| IoUse::new(setup.root, tick_ns, start_ns)),
            holders: setup.holders.then(|| {
                let functions_behind =
                    setup.plan.counters.iter().flat_map(|counter| &counter.behind);
                HolderTable::new(
                    setup.root,
                    start_ns,
                    functions_behind.map(|function_behind| function_behind.function).collect(),
                )
            }),
            assignments: Assignments::new(start_ns),
            statistics: StatisticCounters::new(setup.plan, setup.opened),
            monitors: PendingMonitors::new(start_ns, window_ns),
            accounts: PendingAccounts::new(start_ns, window_ns),
            unnamed: UnnamedCgroups::default(),
            cpus,
            offline: OfflineCpus::default(),
            span: TimelineSpan { start_ns, stop_ns: None },
            closed_ns: start_ns,
            newest_ns: start_ns,
            waited_ns: 0,
            seen: SeenThreads::default(),
            raw,
            every_slice: sink.wants_table(&slices::TABLE),
            ledger: Ledger::default(),
        }
    }

    /// Takes one record.
    pub fn feed_record(&mut self, record: DrainedRecord, sink: &mut Sink) {
        self.newest_ns = self.newest_ns.max(record.sent_ns().unwrap_or(0));
        match record {
            DrainedRecord::Run(run) => self.feed_run(&run, sink),
            DrainedRecord::Irq(irq) => {
                if let Some(track) = self.tracks.get_mut(&irq.cpu) {
                    track.add_irq_record(irq);
                }
            }
            DrainedRecord::Sample(sample) => self.feed_sample(&sample, sink),
            DrainedRecord::Task(event) => self.task_event(&event, sink),
            DrainedRecord::Cgroup(event) => self.cgroup_event(&event, sink),
            DrainedRecord::Io(moved) => {
                if let Some(io) = &mut self.io {
                    io.feed_record(&moved, &mut self.names);
                }
            }
            DrainedRecord::File(event) => self.file_event(&event, sink),
        }
    }

    fn file_event(&mut self, event: &FileRecord, sink: &mut Sink) {
        let is_over = self.span.stop_ns.is_some_and(|stop| event.time_ns > stop);
        if let Some(holders) = self.holders.as_mut().filter(|_| !is_over) {
            let new = holders.feed_report(event, &mut self.names, sink);
            self.need_names(new);
        }
    }

    /// Takes a reading of all files of watched devices, made in `span`. All records sent until its
    /// end must have been fed, except with the first one.
    pub fn feed_files(&mut self, span: (u64, u64), files: &[FileRecord], sink: &mut Sink) {
        let is_over = self.span.stop_ns.is_some_and(|stop| span.0 > stop);
        if let Some(holders) = self.holders.as_mut().filter(|_| !is_over) {
            let new = holders.feed_reading(span, files, &mut self.names, sink);
            self.need_names(new);
        }
    }

    /// Whether all files of watched devices should be read again, since the last call.
    pub const fn take_doubt(&mut self) -> bool {
        match &mut self.holders {
            Some(holders) => holders.take_doubt(),
            None => false,
        }
    }

    /// Takes what the kubelet said of devices and pods.
    pub fn feed_assignments(&mut self, assigned: &AssignmentReading, sink: &mut Sink) {
        if self.span.stop_ns.is_none_or(|stop| assigned.time_ns <= stop) {
            self.assignments.feed_reading(assigned, sink);
        }
    }

    /// Enters the devices that are still held or assigned, at the end.
    pub fn end_holders(&mut self, sink: &mut Sink) {
        self.assignments.write_current_rows(sink);
        if let Some(holders) = &mut self.holders {
            holders.write_held_rows(sink);
            let end_ns = self.closed_ns + self.tick_ns;
            let mut output = EntryOutput { consumer: self.consumer.as_mut(), sink, raw: self.raw };
            held::end_all(holders.held_times(), end_ns, &mut output);
        }
    }

    /// Requests the names of cgroups.
    fn need_names(&mut self, cgroups: Vec<u64>) {
        for id in cgroups {
            if !self.names.cgroups.is_logged(id) {
                self.unnamed.add_cgroup(id);
            }
        }
    }

    /// Takes a reading of the hardware's monitors.
    pub fn feed_monitors(&mut self, measured: &Arc<MonitorReading>) {
        self.monitors.feed_reading(measured);
    }

    /// Takes a reading of what devices count themselves.
    pub fn feed_accounts(&mut self, reading: &Arc<AccountReading>) {
        self.accounts.feed_reading(reading);
    }

    /// Who holds what, of which accounts are read.
    pub fn held_devices(&self) -> HeldDevices {
        self.holders.as_ref().map(HolderTable::held_devices).unwrap_or_default()
    }

    /// Takes a reading of the kernel's statistics of disks and interfaces.
    pub fn feed_statistics(&mut self, sampled: &StatisticsSample) {
        self.statistics.feed_reading(sampled);
    }

    /// Whether the CPUs for which `is_offline` is true have sent nothing after `fed_ns`, the time
    /// up to which all records were fed. A CPU that came back and left again while the ring was
    /// behind has sent more than at its first departure.
    pub fn has_all_records_of(
        &self,
        is_offline: impl Fn(u32) -> bool,
        fed_ns: u64,
        peek: &mut dyn FnMut(u32) -> Option<Peek>,
    ) -> bool {
        let mut offline_cpus = self.tracks.keys().copied().filter(|cpu| is_offline(*cpu));
        offline_cpus.all(|cpu| peek(cpu).is_none_or(|state| state.run.end <= fed_ns))
    }

    /// Applies a change of CPUs and counters at `now_ns`. All records sent before the change must
    /// have been fed. `peek` returns the unsent state of an offline CPU.
    pub fn apply_change(
        &mut self,
        change: &CpuSetChange,
        now_ns: u64,
        sink: &mut Sink,
        peek: &mut dyn FnMut(u32) -> Option<Peek>,
    ) {
        for cpu in &change.went_offline {
            if let Some(track) = self.tracks.get_mut(cpu) {
                let state = peek(*cpu);
                if let Some(state) = state.as_ref().filter(|_| track.is_offline()) {
                    // The CPU came back and left again between two looks.
                    let span = track.come_online(state.run.begin_ns);
                    self.offline.end_offline(*cpu, span, &mut self.ledger);
                }
                if let Some((begin, end)) = track.go_offline(state.as_ref()) {
                    self.ledger.add_loss(Cause::RunGap, end, end - begin, Some(*cpu), None, 1);
                }
                let moved = state.as_ref().and_then(|state| state.io.as_ref());
                if let Some((io, moved)) = self.io.as_mut().zip(moved) {
                    io.add_peek(moved, u64::MAX, &mut self.names);
                }
            }
        }
        for &cpu in &change.came_online {
            if let Entry::Vacant(entry) = self.tracks.entry(cpu) {
                let mut track = CpuTrack::new(self.closed_ns, self.bin_ns);
                track.stop_at(self.span.stop_ns.unwrap_or(u64::MAX));
                track.go_offline(None);
                entry.insert(track);
                self.times.add_cpu(cpu, self.closed_ns);
                self.ledger.add_unplanned_cpu(now_ns, cpu);
            }
        }
        self.cpus.apply_change(change);
        if self.raw {
            self.cpus.write_rows(now_ns, sink);
        }
        let (readers, mut output, ledger) = self.split_output(sink);
        readers.apply_change(change, now_ns, ledger, &mut output);
    }

    /// The readers, and the destination of their entries.
    fn split_output<'a>(
        &'a mut self,
        sink: &'a mut Sink,
    ) -> (&'a mut Readers, EntryOutput<'a>, &'a mut Ledger) {
        let output = EntryOutput { consumer: self.consumer.as_mut(), sink, raw: self.raw };
        (&mut self.readers, output, &mut self.ledger)
    }

    fn feed_sample(&mut self, sample: &SampleRecord, sink: &mut Sink) {
        let Some(wants_owner) = self.readers.wants_owner(sample) else {
            let (time_ns, cpu) = (sample.begin_ns, Some(sample.cpu));
            self.ledger.add_loss(Cause::LostSample, time_ns, 0, cpu, None, 1);
            return;
        };
        let owner = wants_owner.then(|| {
            let of_task = || self.names.task_owner(&sample.task, sample.begin_ns);
            Owner::of_interrupt(sample.context).unwrap_or_else(of_task)
        });
        if let Some(owner) = owner {
            self.need_name(owner);
        }
        let ran_guest = self.guests.as_mut().filter(|_| wants_owner);
        let ran_guest =
            ran_guest.is_some_and(|guests| guests.runs_guest(&sample.task, sample.begin_ns));
        let (readers, mut output, ledger) = self.split_output(sink);
        readers.log_sample(sample, (owner, ran_guest), ledger, &mut output);
    }

    /// Requests the name of an owner, which must be in the log before the tick ends.
    fn need_name(&mut self, owner: Owner) {
        if let Owner::Task { cgroup_id, .. } = owner
            && !self.names.cgroups.is_logged(cgroup_id)
        {
            self.unnamed.add_cgroup(cgroup_id);
        }
    }

    /// Whether a counter did not count where it was expected to, since the last call.
    pub const fn take_is_astray(&mut self) -> bool {
        self.readers.take_is_astray()
    }

    /// Ends the recording with this tick: no later window is closed.
    pub fn stop_at(&mut self, tick: u64) {
        let stop_ns = tick * self.tick_ns;
        self.span.stop_ns = Some(stop_ns);
        self.readers.stop_at(tick);
        for track in self.tracks.values_mut() {
            track.stop_at(stop_ns);
        }
    }

    /// The last tick of the recording, once known.
    pub fn stop_tick(&self) -> Option<u64> {
        self.span.stop_ns.map(|stop| stop / self.tick_ns)
    }

    /// Remembers which task runs on every CPU. After the programs are detached, no record says
    /// which task left. `false` if a CPU was switching; its record will say.
    pub fn remember_running(&mut self, peek: &mut dyn FnMut(u32) -> Option<Peek>) -> bool {
        let mut are_all_known = true;
        for (&cpu, track) in &self.tracks {
            are_all_known &=
                track.is_offline() || self.running_tasks.remember_running(cpu, &self.names, peek);
        }
        are_all_known
    }

    /// Takes the final counts of the counters, which were stopped after the stop tick. They end the
    /// last window if the reading of the stop tick is missing, so that no count is lost.
    pub fn log_last_counts(&mut self, counts: &[(u32, Count)], now_ns: u64, sink: &mut Sink) {
        let (readers, mut output, _) = self.split_output(sink);
        readers.log_last_counts(counts, now_ns, &mut output);
    }

    /// The time of the latest record. Records of other CPUs are older by at most the disorder of
    /// the ring.
    pub const fn newest_time(&self) -> u64 {
        self.newest_ns
    }

    /// Whether everything up to the stop tick is closed.
    pub fn is_done(&self) -> bool {
        self.span.stop_ns.is_some_and(|stop| self.closed_ns >= stop)
    }

    /// Whether rows of `fabric` wait for what comes after their window.
    pub fn is_waiting(&self) -> bool {
        self.consumer.has_waiting_windows()
    }

    /// Paths of the cgroups that moved the most bytes of memory lately, the largest first.
    pub fn largest_cgroups(&mut self) -> Vec<Arc<str>> {
        self.consumer.largest_cgroups()
    }

    /// The steps that leave out something, least first.
    pub fn relief_steps(&self) -> Vec<entries::Relief> {
        self.consumer.relief_steps()
    }

    /// Sets what is left out from now on.
    pub fn set_relief(&mut self, relief: entries::Relief) {
        self.consumer.set_relief(relief);
    }

    /// Enters the time that could not be closed before the recording ended as a loss. Rows of
    /// windows that are closed and wait for later ones are written.
    pub fn give_up(&mut self, now_ns: u64, sink: &mut Sink) {
        if let Some(stop) = self.span.stop_ns
            && self.closed_ns < stop
        {
            self.consumer.finish_windows(&mut sink.rows.fabric);
            self.ledger.add_loss(
                Cause::Unfinished,
                now_ns,
                now_ns.saturating_sub(self.closed_ns),
                None,
                None,
                1,
            );
        }
    }

    /// Closes all bins and windows that end by `horizon_ns`. Returns `false` if `sink` is full:
    /// hand over its rows and call again. `peek` returns a CPU's unsent state. `emptied` says that
    /// everything sent before this call has been fed.
    ///
    /// A CPU that switches between the drain and the peek has sent a record that is still in the
    /// ring. So time becomes a gap only if the next emptied ring does not hold it either.
    pub fn close_ticks(
        &mut self,
        horizon_ns: u64,
        emptied: bool,
        sink: &mut Sink,
        peek: &mut dyn FnMut(u32) -> Option<Peek>,
    ) -> bool {
        // A request is reported when it ends, so the I/O of a tick arrives later than its other
        // records.
        let lag = if self.io.is_some() { io::LAG_NS } else { self.monitors.lag_ns() };
        let closable_ns = horizon_ns.saturating_sub(lag);
        // A peek shows the CPU after the horizon, so one peek serves every bin that is closed
        // here.
        let mut peeked: BTreeMap<u32, RunningTask> = BTreeMap::new();
        loop {
            if !self.consumer.make_rows(&mut sink.rows.fabric) {
                return false;
            }
            let mut end_ns = (self.closed_ns / self.bin_ns + 1) * self.bin_ns;
            if let Some(stop) = self.span.stop_ns {
                end_ns = end_ns.min(stop);
            }
            if end_ns > closable_ns || self.is_done() {
                return true;
            }
            if sink.is_full() {
                return false;
            }
            let late = closable_ns > end_ns + GRACE_NS;
            let tick = end_ns / self.tick_ns;
            let is_last = self.span.stop_ns == Some(end_ns);
            // A window ends with the reading of its last tick. A reading that is still missing
            // after the grace will not come: the window is closed without it.
            if (is_last || self.consumer.needs_readings(tick))
                && !late
                && !self.readers.have_read(tick)
            {
                return true;
            }
            // Time becomes a gap in two steps. If an emptied ring leaves the bin incomplete, a
            // switch may have happened between the drain and the peek, and `waited` notes the
            // horizon. The next emptied ring holds that record. If it does not, only a CPU in
            // the middle of a switch can still complete the bin, and that is waited for until
            // `GAP_NS`.
            let wait = match emptied && self.waited_ns >= end_ns {
                false => Wait::ForRecords,
                true if closable_ns <= end_ns + GAP_NS => Wait::ForSwitches,
                true => Wait::Over,
            };
            if !self.account_cpus(end_ns, wait, &mut peeked, peek) {
                if emptied {
                    self.waited_ns = closable_ns;
                }
                return true;
            }
            self.close_bin(end_ns, sink);
        }
    }

    /// Makes every CPU's time known until `end`; `false` if that must wait.
    fn account_cpus(
        &mut self,
        end_ns: u64,
        wait: Wait,
        peeked: &mut BTreeMap<u32, RunningTask>,
        peek: &mut dyn FnMut(u32) -> Option<Peek>,
    ) -> bool {
        // Each CPU is tried in the order of trust: its records, a peek, a gap. What is entered
        // as a gap cannot be changed by a record that comes later, so a gap is the last resort.
        let is_final = wait == Wait::Over;
        for (&cpu, track) in &mut self.tracks {
            if track.accounted_until() >= end_ns {
                continue;
            }
            if track.is_offline() {
                match peek(cpu) {
                    // The CPU is back: what it has sent since comes with the next drain.
                    Some(_) if track.saw_switch() && !is_final => return false,
                    Some(state) if state.run.begin_ns < end_ns => {
                        let span = track.come_online(state.run.begin_ns);
                        self.offline.end_offline(cpu, span, &mut self.ledger);
                    }
                    _ => {
                        self.offline.extend_offline(cpu, track.add_offline_until(end_ns));
                        continue;
                    }
                }
            }
            if let Entry::Vacant(entry) = peeked.entry(cpu) {
                match self.running_tasks.find_running(cpu, &self.names, peek) {
                    Some(new_look) => {
                        entry.insert(new_look);
                    }
                    // The CPU is switching, or its task has exited: a record will come.
                    None if !is_final => return false,
                    None => {}
                }
            }
            if let Some(look) = peeked.get(&cpu)
                && look.peek.run.end < end_ns
            {
                // The peek covers its own span only. A record of the time before it may be in
                // the ring.
                let record_missing = look.peek.run.begin_ns > track.accounted_until();
                if !look.is_certain && !is_final || record_missing && wait == Wait::ForRecords {
                    return false;
                }
                let gap = track.add_peek(&look.peek, &look.task, end_ns, &mut self.names);
                if let Some((begin, end)) = gap {
                    self.ledger.add_loss(Cause::RunGap, end, end - begin, Some(cpu), None, 1);
                }
                if let Some((io, moved)) = self.io.as_mut().zip(look.peek.io.as_ref()) {
                    io.add_peek(moved, end_ns, &mut self.names);
                }
            }
            if track.accounted_until() < end_ns {
                // The CPU has switched since the drain: its record is in the ring.
                if !is_final {
                    return false;
                }
                let span_ns = end_ns - track.accounted_until();
                self.ledger.add_loss(Cause::RunGap, end_ns, span_ns, Some(cpu), None, 1);
            }
        }
        true
    }

    /// Closes the bin of every CPU that ends at `end_ns`. All its entries have been made.
    fn close_bin(&mut self, end_ns: u64, sink: &mut Sink) {
        let (tick, is_last) = (end_ns / self.tick_ns, self.span.stop_ns == Some(end_ns));
        let cpus: Vec<u32> = self.tracks.keys().copied().collect();
        for cpu in cpus {
            if let Some(bin) = self.tracks.get_mut(&cpu).map(|track| track.close_first_bin(end_ns))
            {
                self.log_usage(cpu, &bin, sink);
            }
        }
        if let Some(io) = &mut self.io {
            let moved = io.close_tick(end_ns, is_last, &mut self.names, sink);
            self.statistics.close_tick(end_ns, &io.take_completed(end_ns), &moved);
            for moved in moved {
                self.need_name(moved.owner);
                EntryOutput { consumer: self.consumer.as_mut(), sink, raw: self.raw }
                    .log_entry(entries::LogEntry::Moved(&moved));
            }
        }
        if let Some(holders) = &mut self.holders {
            let changes = holders.close_tick((self.closed_ns, end_ns), &mut self.names);
            for held_time in &changes {
                self.need_name(held_time.owner);
            }
            let mut output = EntryOutput { consumer: self.consumer.as_mut(), sink, raw: self.raw };
            held::log_changes(&changes, end_ns, &mut output);
        }
        if end_ns.is_multiple_of(self.window_ns) || is_last {
            let mut output = EntryOutput { consumer: self.consumer.as_mut(), sink, raw: self.raw };
            self.statistics.log_counts(end_ns, &mut self.ledger, &mut output);
            self.monitors.close_window(end_ns, &mut output);
            self.accounts.close_window(end_ns, is_last, &mut output);
        }
        // The attributor names its rows at the end of a tick, so names follow the owners of the
        // tick and come before its end.
        self.name_cgroups(end_ns, is_last, sink);
        self.closed_ns = end_ns;
        self.offline.report_due(is_last, &mut self.ledger);
        let mut output = EntryOutput { consumer: self.consumer.as_mut(), sink, raw: self.raw };
        output.log_entry(entries::LogEntry::EndOfTick { tick, is_last });
        for missing in self.consumer.take_missing() {
            self.ledger.add_missing_window(&missing);
        }
        self.ledger.write_rows(sink);
    }

    /// Logs who used a CPU in a bin, as one entry.
    fn log_usage(&mut self, cpu: u32, bin: &CpuBin, sink: &mut Sink) {
        let owner = |slot: &TaskSlot| self.names.task_owner(&slot.task, bin.end_ns);
        let owners: Vec<Owner> = bin.tasks.iter().map(owner).collect();
        for &owner in &owners {
            self.need_name(owner);
        }
        if self.raw {
            raw::append_usage_rows(cpu, bin, &owners, &mut self.irq_names, sink);
        }
        self.times.add_bin(cpu, bin);
        if bin.untold > MOST_UNTOLD_NS {
            self.ledger.add_loss(Cause::RunGap, bin.end_ns, bin.untold, Some(cpu), None, 1);
        }
        let of_slots = |number: fn(&TaskSlot) -> u64| -> Vec<(Owner, u64)> {
            bin.tasks.iter().zip(&owners).map(|(slot, owner)| (*owner, number(slot))).collect()
        };
        let mut output = EntryOutput { consumer: self.consumer.as_mut(), sink, raw: self.raw };
        if output.consumer.needs_switches() {
            let owner_slices = of_slots(|slot| slot.slices);
            output.log_entry(entries::LogEntry::Switches { cpu, switches: &owner_slices });
        }
        let mut owner_times = of_slots(|slot| slot.wall_ns);
        for irq in &bin.irqs {
            if let CpuContext::Irq(number) = irq.source
                && let Some(name) = self.irq_names.take_unlogged(number)
            {
                output.log_entry(entries::LogEntry::Interrupt { number, name });
            }
            owner_times.extend(Owner::of_interrupt(irq.source).map(|owner| (owner, irq.ns)));
        }
        if bin.unknown_ns > 0 {
            owner_times.push((Owner::Unattributed, bin.unknown_ns));
        }
        output.log_entry(entries::LogEntry::Usage { cpu, usage: &owner_times });
    }

    /// Logs the paths of cgroups: those of owners at once, the others a few per bin.
    fn name_cgroups(&mut self, end_ns: u64, is_last: bool, sink: &mut Sink) {
        let cgroups = &mut self.names.cgroups;
        let mut output = EntryOutput { consumer: self.consumer.as_mut(), sink, raw: self.raw };
        self.unnamed.look_up_due(end_ns, is_last, |id| {
            let names = cgroups.take_unlogged(id, end_ns);
            if let Some(names) = names {
                output.log_cgroup(id, names, end_ns);
            }
            names.is_some()
        });
        if self.raw {
            let limit = if is_last { usize::MAX } else { FRESH_AT_ONCE };
            for id in cgroups.take_new(limit) {
                if let Some(names) = cgroups.take_unlogged(id, end_ns) {
                    output.log_cgroup(id, names, end_ns);
                }
            }
        }
        for names in cgroups.take_refused() {
            let detail = format!("{}: others than root may have named it", names.path);
            self.ledger.add_explained(Cause::NameRefused, end_ns, None, &detail);
        }
    }

    /// How each CPU's time is divided over the owners so far.
    pub fn cpu_times(&self) -> Vec<CpuTimeSplit> {
        self.times.all_times()
    }

    fn feed_run(&mut self, run: &RunRecord, sink: &mut Sink) {
        let Some(track) = self.tracks.get_mut(&run.cpu) else {
            return;
        };
        if track.is_offline() && run.end > track.accounted_until() {
            let span = track.come_online(run.begin_ns);
            self.offline.end_offline(run.cpu, span, &mut self.ledger);
        }
        if let Some((begin, end)) = track.add_run(run, &mut self.names) {
            self.ledger.add_loss(Cause::RunGap, end, end - begin, Some(run.cpu), None, 1);
        }
        if self.raw && self.span.overlaps_span(run.begin_ns, run.end) {
            for slot in run.slots.iter().filter(|slot| slot.task.tid != 0) {
                if self.seen.is_first(slot.task.tid, run.begin_ns) {
                    sink.append_task(&slot.task, run.begin_ns, "seen");
                }
            }
        }
        if self.every_slice {
            raw::append_slice_rows(run, &self.span, &mut sink.rows.slices);
        }
    }

    fn task_event(&mut self, event: &TaskRecord, sink: &mut Sink) {
        self.names.task_event(event);
        let event_name = match event.change {
            TaskChange::Exec => {
                if let Some(holders) = &mut self.holders {
                    holders.rename_process(&event.task, event.time_ns);
                }
                "exec"
            }
            TaskChange::Exit => {
                self.seen.note_exit(event.task.tid, event.time_ns);
                "exit"
            }
        };
        if sink.wants_table(&tasks::TABLE) && self.span.contains_time(event.time_ns) {
            sink.append_task(&event.task, event.time_ns, event_name);
        }
    }

    fn cgroup_event(&mut self, event: &CgroupRecord, sink: &mut Sink) {
        if let CgroupChange::Attached(tid) = event.change
            && sink.wants_table(&tasks::TABLE)
        {
            let task = self.names.moved_task(tid, event.cgroup_id);
            if self.span.contains_time(event.time_ns) {
                sink.append_task(&task, event.time_ns, "move");
            }
        }
        if let CgroupChange::Attached(tid) = event.change
            && self.span.stop_ns.is_none_or(|stop| event.time_ns <= stop)
            && let Some(holders) = &mut self.holders
            && holders.move_process(tid, event.cgroup_id, event.time_ns, sink)
        {
            self.need_names(vec![event.cgroup_id]);
        }
        self.names.cgroup_event(event);
    }
}
