//! The reader CPUs: which counters each reads, which ticks arrived, and their samples as entries of
//! the log.
//!
//! A counter is not tied to a CPU: when its reader goes offline, another CPU reads it. The first
//! slot of a sample identifies its counters.

mod counter;
mod reader_cpu;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem;
use std::rc::Rc;

pub(super) use self::counter::SampleOwner;
use self::counter::{CounterProgress, EntryLimits, ObservedCount, logged_value};
use self::reader_cpu::{CounterSet, PlacedCounters, ReaderCpu};
use super::loss::Ledger;
use super::reading_output::{ReadingColumns, ReadingOutput};
use super::span::TickTime;
use crate::count::Count;
use crate::drain::{self, SampleRecord};
use crate::entries::{Owner, RAN_GUEST, ReadingTrigger, STANDS_STILL};
use crate::open::{CpuSetChange, Layout, PlacedCounter, StopCause, Stopped};
use crate::plan::{Counter, Plan};
use crate::schema::loss::LossCause;
use crate::schema::readings;

/// All reader CPUs.
#[derive(Debug)]
pub(super) struct Readers {
    cpus: BTreeMap<u32, ReaderCpu>,
    /// By the counter's id; `None` if it could not be opened.
    counters: Vec<Option<CounterProgress>>,
    tick_ns: u64,
    start_tick: u64,
    stop_tick: Option<u64>,
    /// Whether a reading says that a counter is no longer on its reader CPU.
    counter_moved: bool,
}

impl Readers {
    /// The opened counters, before their first reading.
    pub(super) fn new(
        plan: &Plan,
        layouts: &BTreeMap<u32, Layout>,
        opened: &HashSet<u32>,
        start_tick: u64,
    ) -> Self {
        let counters = plan.counters.iter().map(|counter| {
            let &Counter { id, cpu, per_cpu, .. } = counter;
            let is_blind = counter.is_blind_witness();
            let start =
                CounterProgress { id, cpu, per_cpu, is_blind, ..CounterProgress::default() };
            opened.contains(&id).then_some(start)
        });
        let mut readers = Self {
            cpus: BTreeMap::new(),
            counters: counters.collect(),
            tick_ns: plan.tick_ns,
            start_tick,
            stop_tick: None,
            counter_moved: false,
        };
        readers.lay_out(layouts);
        // Ticks count from the first one.
        for cpu in readers.cpus.values_mut() {
            cpu.next_tick = Some(start_tick);
        }
        readers
    }

    fn lay_out(&mut self, layouts: &BTreeMap<u32, Layout>) {
        for reader in self.cpus.values_mut() {
            // Only two sets are kept: all samples from before the previous change have been read.
            let old_sets = reader.sets.len().saturating_sub(1);
            reader.sets.drain(..old_sets);
            reader.is_active = layouts.contains_key(&reader.cpu);
        }
        for (&cpu, layout) in layouts {
            let reader = self.cpus.entry(cpu).or_default();
            (reader.cpu, reader.is_active) = (cpu, true);
            reader.sets.push(CounterSet::from_layout(layout));
        }
    }

    /// Ends the recording with this tick.
    pub(super) const fn stop_at(&mut self, tick: u64) {
        self.stop_tick = Some(tick);
    }

    /// Whether every reader CPU has read this tick or a later one.
    pub(super) fn have_read(&self, tick: u64) -> bool {
        let mut active = self.cpus.values().filter(|reader| reader.is_active);
        active.all(|reader| reader.next_tick.is_some_and(|next_tick| next_tick > tick))
    }

    /// Whether a counter did not count where it was expected to, since the last call.
    pub(super) const fn take_counter_moved(&mut self) -> bool {
        mem::replace(&mut self.counter_moved, false)
    }

    /// Logs the final counts of all counters, which the recording stopped at `now_ns`. All samples
    /// have been fed.
    pub(super) fn log_last_counts(
        &mut self,
        counts: &[(u32, Count)],
        now_ns: u64,
        log: &mut impl ReadingOutput,
    ) {
        let tick = self.stop_tick.unwrap_or(now_ns / self.tick_ns);
        let stop = TickTime { tick, time_ns: now_ns };
        let readers: HashMap<u32, u32> = self.placed_counters().collect();
        for &(id, count) in counts {
            let planned = self.counter_progress(id).map(|counter| counter.cpu);
            if let Some(cpu) = readers.get(&id).copied().or(planned) {
                self.stop_counter(&Stopped { id, count, why: StopCause::Purpose }, cpu, stop, log);
            }
        }
    }

    /// Applies a change of who reads what, at `now_ns`. All samples from before the change have
    /// been fed.
    pub(super) fn apply_change(
        &mut self,
        change: &CpuSetChange,
        now_ns: u64,
        ledger: &mut Ledger,
        log: &mut impl ReadingOutput,
    ) {
        let old_readers: HashMap<u32, u32> = self.placed_counters().collect();
        for stopped in &change.stopped {
            let reader = old_readers.get(&stopped.id).copied();
            self.log_stopped(stopped, reader, now_ns, ledger, log);
        }
        let Some(layouts) = &change.layouts else {
            return;
        };
        self.lay_out(layouts);
        let new_readers: Vec<(u32, u32)> = self.placed_counters().collect();
        for (id, cpu) in new_readers {
            self.assign_reader(id, old_readers.get(&id).copied(), cpu, now_ns, ledger, log);
        }
        for reader in self.cpus.values_mut().filter(|reader| !reader.is_active) {
            // The CPU's ticks count anew when it comes back.
            reader.next_tick = None;
        }
    }

    /// Logs that a counter stopped; `reader` is the CPU that read it, if any. One that was stopped
    /// on purpose is no loss.
    fn log_stopped(
        &mut self,
        stopped: &Stopped,
        reader: Option<u32>,
        now_ns: u64,
        ledger: &mut Ledger,
        log: &mut impl ReadingOutput,
    ) {
        let &Stopped { id, why, .. } = stopped;
        let Some(planned) = self.counter_progress(id).map(|counter| counter.cpu) else {
            return;
        };
        let is_loss = why != StopCause::Purpose;
        let reader_cpu = reader.filter(|_| is_loss).and_then(|cpu| self.cpus.get(&cpu));
        let next_tick = reader_cpu.and_then(|reader_cpu| reader_cpu.next_tick);
        let cpu = reader.unwrap_or(planned);
        let tick = next_tick.unwrap_or(now_ns / self.tick_ns);
        self.stop_counter(stopped, cpu, TickTime { tick, time_ns: now_ns }, log);
        // A counter that was read at the end of the recording has no missing time.
        let is_over =
            next_tick.zip(self.stop_tick).is_some_and(|(unread_tick, stop)| unread_tick > stop);
        if is_loss && !is_over {
            ledger.add_stopped_counter(now_ns, cpu, id, why, None);
        }
    }

    fn stop_counter(
        &mut self,
        &Stopped { id, count, why }: &Stopped,
        cpu: u32,
        stop: TickTime,
        log: &mut impl ReadingOutput,
    ) {
        let (trigger, value) = (ReadingTrigger::Stop, Ok(logged_value(count)));
        let observed = ObservedCount { trigger, value, owner: None };
        self.log_start_or_stop(id, cpu, stop, observed, readings::STOP, log);
        if let Some(counter) = self.counter_progress(id) {
            counter.stopped = Some((stop.time_ns, why));
        }
    }

    /// Logs that `cpu` reads a counter from now on; `old_cpu` is the CPU that read it before, if
    /// any.
    fn assign_reader(
        &mut self,
        id: u32,
        old_cpu: Option<u32>,
        cpu: u32,
        now_ns: u64,
        ledger: &mut Ledger,
        log: &mut impl ReadingOutput,
    ) {
        let Some(counter) = self.counter_progress(id) else {
            return;
        };
        let (planned, stopped) = (counter.cpu, counter.stopped.take());
        if stopped.is_none() && old_cpu == Some(cpu) {
            return;
        }
        let start = TickTime { tick: now_ns / self.tick_ns, time_ns: now_ns };
        let (trigger, value) = (ReadingTrigger::Start, Err(0));
        let observed = ObservedCount { trigger, value, owner: None };
        self.log_start_or_stop(id, cpu, start, observed, readings::START, log);
        if let Some((since, why)) = stopped {
            if let Some(counter) = self.counter_progress(id) {
                counter.last_read = None;
            }
            ledger.add_stopped_counter(now_ns, cpu, id, why, Some(now_ns.saturating_sub(since)));
            return;
        }
        // A counter that had no reader for a while continues from the CPU of its plan.
        let from_cpu = old_cpu.unwrap_or(planned);
        let next_tick = self.cpus.get(&from_cpu).and_then(|from_reader| from_reader.next_tick);
        let since_tick = next_tick.unwrap_or(start.tick);
        if let Some(reader) = self.cpus.get_mut(&cpu)
            && !reader.inherited_from.contains(&(from_cpu, since_tick))
        {
            reader.inherited_from.push((from_cpu, since_tick));
        }
    }

    /// The counters and the CPUs that read them.
    fn placed_counters(&self) -> impl Iterator<Item = (u32, u32)> {
        let active = self.cpus.values().filter(|reader| reader.is_active);
        active.flat_map(|reader| {
            let slots = reader.sets.last().map(|set| Rc::clone(&set.slots));
            let ids: Vec<u32> =
                slots.iter().flat_map(|slots| slots.iter().map(|placed| placed.id)).collect();
            ids.into_iter().map(move |id| (id, reader.cpu))
        })
    }

    fn counter_progress(&mut self, id: u32) -> Option<&mut CounterProgress> {
        self.counters.get_mut(id as usize)?.as_mut()
    }

    fn known_set(&self, sample: &SampleRecord) -> Option<&CounterSet> {
        let sets = &self.cpus.get(&sample.cpu)?.sets;
        let set = sets.iter().rev().find(|candidate| candidate.first_slot == sample.first_slot)?;
        let len = sample.readings.len();
        let is_switch_part = sample.trigger == drain::SampleTrigger::Sched && len == set.at_switch;
        (len == set.slots.len() || is_switch_part).then_some(set)
    }

    /// The counters of a sample, and how many of them are read at every context switch. A sample at
    /// a switch may be of counters that another CPU reads at each tick.
    fn sample_slots(&self, sample: &SampleRecord) -> Option<(PlacedCounters, usize)> {
        if let Some(known) = self.known_set(sample) {
            return Some((Rc::clone(&known.slots), known.at_switch));
        }
        if sample.trigger != drain::SampleTrigger::Sched {
            return None;
        }
        let mut sets = self.cpus.values().flat_map(|reader| reader.sets.iter().rev());
        let set = sets.find(|set| set.is_shared_part(sample))?;
        Some((set.slots.iter().skip(set.first_shared).copied().collect(), 0))
    }

    /// Whether a sample needs the owner of what was counted before it: it has readings of counters
    /// that are read at every switch. `None` if the sample's counters are unknown.
    pub(super) fn needs_owner(&self, sample: &SampleRecord) -> Option<bool> {
        self.sample_slots(sample).map(|(_, at_switch)| at_switch > 0)
    }

    /// Logs a sample. Counts of counters that are read at every context switch, since the previous
    /// sample, belong to `sample_owner`.
    pub(super) fn log_sample(
        &mut self,
        sample: &SampleRecord,
        sample_owner: SampleOwner,
        ledger: &mut Ledger,
        log: &mut impl ReadingOutput,
    ) {
        // The last tick that had ended: see [`CounterReading::tick`].
        let tick = sample.begin_ns / self.tick_ns;
        let Some((slots, at_switch)) =
            self.sample_slots(sample).filter(|_| tick >= self.start_tick)
        else {
            return;
        };
        // A CPU that reads only counters of others is not active: no tick is expected of it.
        let new_reader = || ReaderCpu { cpu: sample.cpu, ..ReaderCpu::default() };
        let reader = self.cpus.entry(sample.cpu).or_insert_with(new_reader);
        let has_read =
            |stop| reader.next_tick.map_or(!reader.is_active, |next_tick| next_tick > stop);
        if self.stop_tick.is_some_and(|stop| tick > stop && has_read(stop)) {
            // This reader has read the last tick.
            return;
        }
        let lost_after =
            |last_sequence: u64| sample.sequence.saturating_sub(last_sequence).saturating_sub(1);
        let lost = reader.sequence.map_or(0, lost_after);
        reader.sequence = Some(sample.sequence);
        if lost > 0 {
            ledger.add_loss(
                LossCause::LostSample,
                sample.begin_ns,
                0,
                Some(sample.cpu),
                None,
                lost,
            );
        }
        let SampleOwner { owner, ran_guest } = sample_owner;
        let owner = owner.map(|owner| if lost > 0 { Owner::Unattributed } else { owner });
        let is_tick = sample.trigger == drain::SampleTrigger::Timer;
        if is_tick {
            reader.note_tick(tick, self.tick_ns, self.stop_tick, sample.begin_ns, ledger);
        }
        let row = ReadingColumns {
            trigger: sample.trigger.name(),
            width_ns: sample.end_ns.saturating_sub(sample.begin_ns),
            task: Some(&sample.task),
        };
        let trigger = if is_tick { ReadingTrigger::Timer } else { ReadingTrigger::Event };
        let limits = EntryLimits { open_tick: log.open_tick(), is_sample: true };
        let read_at = TickTime { tick, time_ns: sample.begin_ns };
        let mut readings = Vec::with_capacity(slots.len());
        for (slot_index, (&PlacedCounter { id, base }, reading)) in
            slots.iter().zip(&sample.readings).enumerate()
        {
            let is_blind =
                ran_guest && self.counter_progress(id).is_some_and(|progress| progress.is_blind);
            let value = match *reading {
                drain::RawReading::Counted { .. } if is_blind => Err(RAN_GUEST),
                drain::RawReading::Counted { enabled, .. }
                    if is_tick
                        && self
                            .counter_progress(id)
                            .is_some_and(|counter| counter.stands_still(tick, enabled)) =>
                {
                    self.counter_moved = true;
                    Err(STANDS_STILL)
                }
                drain::RawReading::Counted { value: raw, enabled, running } => {
                    Ok(logged_value(Count { value: raw, enabled, running }.add_earlier(base)))
                }
                drain::RawReading::Failed(errno) => {
                    let per_cpu = self.counter_progress(id).is_some_and(|counter| counter.per_cpu);
                    // The errors of a counter that is on another CPU: `perf_event_read_local`,
                    // kernel/events/core.c, Linux 6.18.
                    self.counter_moved |= is_tick && !per_cpu && errno == libc::EINVAL;
                    Err(errno)
                }
            };
            let owner = owner.filter(|_| slot_index < at_switch);
            let observed = ObservedCount { trigger, value, owner };
            let progress = self.counter_progress(id);
            readings.extend(
                progress.and_then(|progress| {
                    progress.make_reading(sample.cpu, read_at, observed, limits)
                }),
            );
        }
        log.log_readings(&readings, &row);
    }

    /// Logs that a counter stops or starts; `row_trigger` is the trigger of the row.
    fn log_start_or_stop(
        &mut self,
        counter: u32,
        cpu: u32,
        read_at: TickTime,
        observed: ObservedCount,
        row_trigger: &'static str,
        log: &mut impl ReadingOutput,
    ) {
        let limits = EntryLimits { open_tick: log.open_tick(), is_sample: false };
        let progress = self.counter_progress(counter);
        let reading =
            progress.and_then(|progress| progress.make_reading(cpu, read_at, observed, limits));
        log.log_readings(
            reading.as_slice(),
            &ReadingColumns { trigger: row_trigger, ..ReadingColumns::default() },
        );
    }
}

#[cfg(test)]
mod tests;
