//! Turns the records of a live recording into entries of the log, and into the rows of the raw
//! tables that store them.
//!
//! Each raw table has a stream ([`streams`]), which makes its entries and rows. The [`Timeline`]
//! decides when a bin is closed, and closes it in all streams.
//!
//! State is kept for open ticks only, so memory does not depend on the length of the recording.
//! [`Timeline::feed_record`] takes records in the order of the ring. [`Timeline::close_bins`]
//! closes every tick that ended before a horizon up to which all records have been fed.

mod accounts;
mod assignments;
mod cgroups;
pub mod cpu;
mod cpus;
mod cputime;
mod held;
mod holders;
mod io;
mod loss;
mod monitors;
mod moves;
mod offline;
mod output;
mod progress;
mod raw;
mod readers;
mod reading_output;
mod readings;
mod running_tasks;
mod seen_threads;
mod setup;
mod sink;
mod slices;
mod span;
mod statistics;
mod stream;
mod streams;
mod tasks;
mod unnamed_cgroups;
mod usage;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use self::accounts::AccountReading;
pub use self::assignments::AssignmentReading;
pub use self::cputime::CpuTimeSplit;
pub use self::holders::FilesReading;
use self::holders::HolderTable;
pub use self::loss::Ledger;
pub use self::monitors::{MonitorLoss, MonitorReading};
use self::output::EntryOutput;
use self::progress::TimelineProgress;
pub use self::setup::TimelineSetup;
pub use self::sink::Sink;
use self::span::TickTime;
pub use self::stream::SourceReading;
use self::stream::{AppliedChange, ClosingBin, StreamContext, StreamStart};
use self::streams::Streams;
use self::unnamed_cgroups::UnnamedCgroups;
use self::usage::CpuPeeks;
use crate::count::Count;
use crate::discover::accounts::HeldDevices;
use crate::drain::{DrainedRecord, Peek};
use crate::entries::{EntryConsumer, LogEntry, Relief};
use crate::identity::cgroups::Cgroups;
use crate::identity::names::TaskNames;
use crate::open::CpuSetChange;
use crate::schema::loss::LossCause;
use crate::schema::runtime;

/// A boundary reading is missing if it has not arrived after this time, ns: ten times the longest
/// delay of a pinned timer measured under hackbench on two busy CPUs.
const GRACE_NS: u64 = 25_000_000;

/// The state of a live recording.
#[derive(Debug)]
pub struct Timeline {
    progress: TimelineProgress,
    streams: Streams,
    names: TaskNames,
    unnamed: UnnamedCgroups,
    consumer: Box<dyn EntryConsumer>,
    raw: bool,
    /// The losses, as rows and as totals.
    pub ledger: Ledger,
}

impl Timeline {
    /// An empty time line whose log goes to `consumer`. Bins are ticks if `consumer` or `sink`
    /// needs ticks, otherwise windows.
    pub fn new(
        setup: &TimelineSetup<'_>,
        consumer: Box<dyn EntryConsumer>,
        sink: &mut Sink,
    ) -> Self {
        let (tick_ns, window_ns) = (setup.plan.tick_ns, setup.plan.window_ns);
        let start_ns = setup.start_tick * tick_ns;
        let raw = sink.wants_table(&runtime::TABLE);
        let by_tick = raw || setup.io || consumer.needs_ticks();
        let bin_ns = if by_tick { tick_ns } else { window_ns };
        let cgroups =
            Cgroups::from_mounts(setup.cgroups, setup.root, setup.trusted_cgroups.clone());
        Self {
            progress: TimelineProgress::new(setup.plan, bin_ns, start_ns),
            streams: Streams::start_all(&StreamStart { setup, start_ns, bin_ns, raw }, sink),
            names: TaskNames::new(setup.root, cgroups, setup.only_cgroups.clone())
                .with_depth(setup.cgroup_depth),
            unnamed: UnnamedCgroups::default(),
            consumer,
            raw,
            ledger: Ledger::default(),
        }
    }

    /// The streams, and what they share.
    fn split_streams<'a>(&'a mut self, sink: &'a mut Sink) -> (&'a mut Streams, StreamContext<'a>) {
        let Self { progress, streams, names, unnamed, consumer, raw, ledger } = self;
        let output = EntryOutput { consumer: consumer.as_mut(), sink, raw: *raw };
        (streams, StreamContext { names, unnamed, output, ledger, span: progress.span })
    }

    /// Takes one record.
    pub fn feed_record(&mut self, mut record: DrainedRecord, sink: &mut Sink) {
        let newest_ns = &mut self.progress.newest_ns;
        *newest_ns = record.sent_ns().map_or(*newest_ns, |sent_ns| sent_ns.max(*newest_ns));
        let (streams, mut context) = self.split_streams(sink);
        streams.feed_record(&mut record, &mut context);
    }

    /// Takes a reading of a source beside the rings. All records sent until the end of a reading of
    /// files must have been fed, except with the first one.
    pub fn feed_reading(&mut self, reading: &impl SourceReading, sink: &mut Sink) {
        let (streams, mut context) = self.split_streams(sink);
        reading.feed_stream(streams, &mut context);
    }

    /// Whether all files of watched devices should be read again, since the last call.
    pub fn take_doubt(&mut self) -> bool {
        self.streams.holders.as_mut().is_some_and(HolderTable::take_doubt)
    }

    /// Who holds what, of which accounts are read.
    pub fn held_devices(&self) -> HeldDevices {
        self.streams.holders.as_ref().map(HolderTable::held_devices).unwrap_or_default()
    }

    /// Whether a counter did not count where it was expected to, since the last call.
    pub const fn take_counter_moved(&mut self) -> bool {
        self.streams.readings.readers.take_counter_moved()
    }

    /// How each CPU's time is divided over the owners so far.
    pub fn cpu_times(&self) -> Vec<CpuTimeSplit> {
        self.streams.usage.times.all_times()
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
        self.streams.usage.has_all_records_of(is_offline, fed_ns, peek)
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
        let (streams, mut context) = self.split_streams(sink);
        let mut offline_states = BTreeMap::new();
        for &cpu in change.went_offline.iter().filter(|cpu| streams.usage.has_cpu(**cpu)) {
            offline_states.extend(peek(cpu).map(|state| (cpu, state)));
        }
        let applied = AppliedChange { change, time_ns: now_ns, offline_states };
        streams.apply_change(&applied, &mut context);
    }

    /// Ends the recording with this tick: no later window is closed.
    pub fn stop_at(&mut self, tick: u64) {
        let time_ns = tick * self.progress.tick_ns;
        self.progress.span.stop_ns = Some(time_ns);
        self.streams.stop_at(TickTime { tick, time_ns });
    }

    /// The last tick of the recording, once known.
    pub fn stop_tick(&self) -> Option<u64> {
        self.progress.span.stop_ns.map(|stop| stop / self.progress.tick_ns)
    }

    /// Remembers which task runs on every CPU. After the programs are detached, no record says
    /// which task left. `false` if a CPU was switching; its record will say.
    pub fn remember_running(&mut self, peek: &mut dyn FnMut(u32) -> Option<Peek>) -> bool {
        self.streams.usage.remember_running(&self.names, peek)
    }

    /// Takes the final counts of the counters, which were stopped after the stop tick. They end the
    /// last window if the reading of the stop tick is missing, so that no count is lost.
    pub fn log_last_counts(&mut self, counts: &[(u32, Count)], now_ns: u64, sink: &mut Sink) {
        let (streams, mut context) = self.split_streams(sink);
        streams.readings.readers.log_last_counts(counts, now_ns, &mut context.output);
    }

    /// Writes what each stream still has to say at the end: devices that are held or assigned.
    pub fn write_last_rows(&mut self, sink: &mut Sink) {
        let end_ns = self.progress.closed_ns + self.progress.tick_ns;
        let (streams, mut context) = self.split_streams(sink);
        streams.write_last_rows(end_ns, &mut context);
    }

    /// The time of the latest record. Records of other CPUs are older by at most the disorder of
    /// the ring.
    pub const fn newest_time(&self) -> u64 {
        self.progress.newest_ns
    }

    /// Whether everything up to the stop tick is closed.
    pub fn is_done(&self) -> bool {
        self.progress.is_done()
    }

    /// Whether rows of `fabric` wait for what comes after their window.
    pub fn is_waiting(&self) -> bool {
        self.consumer.has_waiting_windows()
    }

    /// What the counts say against the model by which they are divided, one line each.
    pub fn misfits(&self) -> Vec<String> {
        self.consumer.misfits()
    }

    /// Number of windows so far in which only the owners with the largest shares have rows.
    pub fn limited_windows(&self) -> u64 {
        self.consumer.limited_windows()
    }

    /// Paths of the cgroups that moved the most bytes of memory lately, the largest first.
    pub fn largest_cgroups(&mut self) -> Vec<Arc<str>> {
        self.consumer.largest_cgroups()
    }

    /// The steps that leave out something, least first.
    pub fn relief_steps(&self) -> Vec<Relief> {
        self.consumer.relief_steps()
    }

    /// Sets what is left out from now on.
    pub fn set_relief(&mut self, relief: Relief) {
        self.consumer.set_relief(relief);
    }

    /// Enters the time that could not be closed before the recording ended as a loss. Rows of
    /// windows that are closed and wait for later ones are written.
    pub fn give_up(&mut self, now_ns: u64, sink: &mut Sink) {
        let closed_ns = self.progress.closed_ns;
        if self.progress.span.stop_ns.is_some_and(|stop| closed_ns < stop) {
            self.consumer.finish_windows(&mut sink.rows);
            let span_ns = now_ns.saturating_sub(closed_ns);
            self.ledger.add_loss(LossCause::Unfinished, now_ns, span_ns, None, None, 1);
        }
    }

    /// Closes all bins and windows that end by `horizon_ns`. Returns `false` if `sink` is full:
    /// hand over its rows and call again. `peek` returns a CPU's unsent state. `emptied` says that
    /// everything sent before this call has been fed.
    ///
    /// A CPU that switches between the drain and the peek has sent a record that is still in the
    /// ring. So time becomes a gap only if the next emptied ring does not hold it either.
    pub fn close_bins(
        &mut self,
        horizon_ns: u64,
        emptied: bool,
        sink: &mut Sink,
        peek: &mut dyn FnMut(u32) -> Option<Peek>,
    ) -> bool {
        let closable_ns = horizon_ns.saturating_sub(self.streams.arrival_delay_ns());
        let mut peeks = CpuPeeks::new(peek);
        loop {
            if !self.consumer.make_rows(&mut sink.rows) {
                return false;
            }
            let closing = self.progress.next_bin();
            let end_ns = closing.span.end_ns;
            if end_ns > closable_ns || self.is_done() {
                return true;
            }
            if sink.is_full() {
                return false;
            }
            // What is still missing after the grace will not come: the bin is closed without it.
            let late = closable_ns > end_ns + GRACE_NS;
            if !late && !self.streams.are_complete(&closing, self.consumer.as_ref()) {
                return true;
            }
            let wait = self.progress.wait_of_bin(end_ns, closable_ns, emptied);
            let (streams, mut context) = self.split_streams(sink);
            let Streams { usage, io, .. } = streams;
            if !usage.account_until(end_ns, wait, &mut peeks, io, &mut context) {
                if emptied {
                    self.progress.waited_ns = closable_ns;
                }
                return true;
            }
            self.close_bin(closing, sink);
        }
    }

    /// Closes a bin. All its entries have been made.
    fn close_bin(&mut self, mut closing: ClosingBin, sink: &mut Sink) {
        let (streams, mut context) = self.split_streams(sink);
        streams.close_bin(&mut closing, &mut context);
        // The attributor divides the counts of a window when its last tick ends: all entries of
        // the tick come before that.
        let ClosingBin { tick, is_last, span, .. } = closing;
        context.output.log_entry(LogEntry::EndOfTick { tick, is_last });
        self.progress.closed_ns = span.end_ns;
        // The division says which windows have no count. They are losses of this bin like those
        // of the streams, so the rows are written last.
        for missing in self.consumer.take_missing() {
            self.ledger.add_missing_window(&missing);
        }
        self.ledger.write_rows(sink);
    }
}
