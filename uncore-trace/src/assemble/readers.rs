//! The reader CPUs: which counters each reads, which ticks arrived, and their samples as entries of
//! the log.
//!
//! A counter is not tied to a CPU: when its reader goes offline, another CPU reads it. The first
//! slot of a sample identifies its counters.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem;
use std::rc::Rc;

use super::loss::Ledger;
use crate::count::Count;
use crate::drain::{self, Sample, Task};
use crate::entries::{Owner, RAN_GUEST, CounterReading, STANDS_STILL, ReadingTrigger, CounterValue};
use crate::open::{CpuSetChange, Layout, Stopped, StopCause};
use crate::plan::{Counter, Plan};
use crate::schema::loss::Cause;
use crate::schema::readings;

/// The counters of a sample, and the count to add to each reading.
type Slots = Rc<[(u32, Count)]>;

/// A set of counters that a CPU reads or has read.
#[derive(Debug)]
struct CounterSet {
    /// The first slot.
    first: u32,
    slots: Slots,
    /// How many of the counters are read at every context switch; these come first.
    at_switch: usize,
    /// The place of the first counter that other CPUs read too.
    first_shared: usize,
    /// These CPUs.
    others: Vec<u32>,
}

/// One reader CPU.
#[derive(Debug, Default)]
struct Reader {
    cpu: u32,
    /// The current set of counters, and the set before the last change.
    sets: Vec<CounterSet>,
    /// Whether the CPU reads counters now.
    active: bool,
    /// The tick after its last reading.
    next_tick: Option<u64>,
    /// Sequence number of its last sample.
    sequence: Option<u64>,
    /// CPUs whose counters it took over, with the first tick that they did not read.
    inherited_from: Vec<(u32, u64)>,
}

/// A counter and its latest entry.
#[derive(Debug, Default)]
struct Progress {
    /// The CPU on which the plan reads it.
    cpu: u32,
    /// Whether it counts that CPU only.
    per_cpu: bool,
    /// Whether it is a witness that does not count virtual machines.
    is_blind: bool,
    /// Time and tick of its latest entry.
    newest: (u64, u64),
    /// CPU and trigger of that entry.
    last_from: Option<(u32, ReadingTrigger)>,
    /// Time, ns, at which it stopped and why, unless it has started again.
    stopped: Option<(u64, StopCause)>,
    /// Tick and time enabled of the timer's last successful reading.
    read: Option<(u64, u64)>,
}

/// All reader CPUs.
#[derive(Debug)]
pub(super) struct Readers {
    cpus: BTreeMap<u32, Reader>,
    /// By the counter's id; `None` if it could not be opened.
    counters: Vec<Option<Progress>>,
    tick_ns: u64,
    start_tick: u64,
    stop_tick: Option<u64>,
    is_astray: bool,
}

/// The destination of entries.
pub(super) trait Log {
    /// The first tick that has not ended.
    fn open_tick(&self) -> u64;
    /// Logs the readings of one sample. Those that have an owner have the same one.
    fn readings(&mut self, readings: &[CounterReading], row: &ReadingColumns<'_>);
}

/// Columns of `readings` that the entry does not have.
#[derive(Debug, Default)]
pub(super) struct ReadingColumns<'a> {
    /// Name of what triggered the reading.
    pub trigger: &'static str,
    /// Duration of the sample, ns.
    pub width_ns: u64,
    /// The task that was on the CPU.
    pub task: Option<&'a Task>,
}

/// Limits on the time and tick of the next entry.
#[derive(Clone, Copy, Debug)]
struct Next {
    /// The first tick that has not ended.
    open_tick: u64,
    /// Whether its time is that of a sample. Other entries are moved behind the latest entry.
    is_sample: bool,
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
            let start = Progress { cpu, per_cpu, is_blind, ..Progress::default() };
            opened.contains(&id).then_some(start)
        });
        let mut readers = Self {
            cpus: BTreeMap::new(),
            counters: counters.collect(),
            tick_ns: plan.tick_ns,
            start_tick,
            stop_tick: None,
            is_astray: false,
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
            let old = reader.sets.len().saturating_sub(1);
            reader.sets.drain(..old);
            reader.active = layouts.contains_key(&reader.cpu);
        }
        for (&cpu, layout) in layouts {
            let slots = layout.counters.iter().map(|placed| (placed.id, placed.base));
            let reader = self.cpus.entry(cpu).or_default();
            (reader.cpu, reader.active) = (cpu, true);
            reader.sets.push(CounterSet {
                first: layout.first_slot,
                slots: slots.collect(),
                at_switch: layout.at_switch as usize,
                first_shared: layout.first_shared(),
                others: layout.other_cpus.clone(),
            });
        }
    }

    /// Ends the recording with this tick.
    pub(super) const fn stop_at(&mut self, tick: u64) {
        self.stop_tick = Some(tick);
    }

    /// Whether every reader CPU has read this tick or a later one.
    pub(super) fn have(&self, tick: u64) -> bool {
        let mut active = self.cpus.values().filter(|reader| reader.active);
        active.all(|reader| reader.next_tick.is_some_and(|next| next > tick))
    }

    /// Whether a counter did not count where it was expected to, since the last call.
    pub(super) const fn take_is_astray(&mut self) -> bool {
        mem::replace(&mut self.is_astray, false)
    }

    /// Logs the final counts of all counters, which the recording stopped at `now`. All samples
    /// have been fed.
    pub(super) fn last_counts(&mut self, counts: &[(u32, Count)], now: u64, log: &mut impl Log) {
        let tick = self.stop_tick.unwrap_or(now / self.tick_ns);
        let readers: HashMap<u32, u32> = self.placed().collect();
        for &(id, count) in counts {
            let planned = self.counter(id).map(|counter| counter.cpu);
            if let Some(cpu) = readers.get(&id).copied().or(planned) {
                self.stop((id, count, StopCause::Purpose), cpu, (tick, now), log);
            }
        }
    }

    /// Applies a change of who reads what, at `now`. All samples from before the change have been
    /// fed.
    pub(super) fn follow(
        &mut self,
        change: &CpuSetChange,
        now: u64,
        ledger: &mut Ledger,
        log: &mut impl Log,
    ) {
        let before: HashMap<u32, u32> = self.placed().collect();
        for stopped in &change.stopped {
            let reader = before.get(&stopped.id).copied();
            if stopped.why == StopCause::Purpose {
                self.retired(stopped, reader, now, log);
            } else {
                self.stopped(stopped, reader, now, ledger, log);
            }
        }
        let Some(layouts) = &change.layouts else {
            return;
        };
        self.lay_out(layouts);
        let after: Vec<(u32, u32)> = self.placed().collect();
        for (id, cpu) in after {
            self.place(id, before.get(&id).copied(), cpu, now, ledger, log);
        }
        for reader in self.cpus.values_mut().filter(|reader| !reader.active) {
            // The CPU's ticks count anew when it comes back.
            reader.next_tick = None;
        }
    }

    /// Logs that a counter stopped with its CPU or its PMU; `reader` is the CPU that read it, if
    /// any.
    fn stopped(
        &mut self,
        &Stopped { id, count, why }: &Stopped,
        reader: Option<u32>,
        now: u64,
        ledger: &mut Ledger,
        log: &mut impl Log,
    ) {
        let Some(planned) = self.counter(id).map(|counter| counter.cpu) else {
            return;
        };
        let next_tick = reader.and_then(|cpu| self.cpus.get(&cpu)?.next_tick);
        let cpu = reader.unwrap_or(planned);
        let tick = next_tick.unwrap_or(now / self.tick_ns);
        self.stop((id, count, why), cpu, (tick, now), log);
        // A counter that was read at the end of the recording has no missing time.
        let is_over = next_tick.zip(self.stop_tick).is_some_and(|(next, stop)| next > stop);
        if !is_over {
            ledger.stopped(now, cpu, id, why, None);
        }
    }

    /// Logs that a counter was stopped on purpose; `reader` is the CPU that read it, if any.
    fn retired(
        &mut self,
        &Stopped { id, count, why }: &Stopped,
        reader: Option<u32>,
        now: u64,
        log: &mut impl Log,
    ) {
        if let Some(planned) = self.counter(id).map(|counter| counter.cpu) {
            let tick = now / self.tick_ns;
            self.stop((id, count, why), reader.unwrap_or(planned), (tick, now), log);
        }
    }

    fn stop(
        &mut self,
        (id, count, why): (u32, Count, StopCause),
        cpu: u32,
        (tick, now): (u64, u64),
        log: &mut impl Log,
    ) {
        let value = Ok(value(count));
        self.mark(id, cpu, (tick, now), (ReadingTrigger::Stop, value, readings::STOP), log);
        if let Some(counter) = self.counter(id) {
            counter.stopped = Some((now, why));
        }
    }

    /// Logs that `cpu` reads a counter from now on; `old` is the CPU that read it before, if any.
    fn place(
        &mut self,
        id: u32,
        old: Option<u32>,
        cpu: u32,
        now: u64,
        ledger: &mut Ledger,
        log: &mut impl Log,
    ) {
        let Some(counter) = self.counter(id) else {
            return;
        };
        let (planned, stopped) = (counter.cpu, counter.stopped.take());
        if stopped.is_none() && old == Some(cpu) {
            return;
        }
        let tick = now / self.tick_ns;
        self.mark(id, cpu, (tick, now), (ReadingTrigger::Start, Err(0), readings::START), log);
        if let Some((since, why)) = stopped {
            if let Some(counter) = self.counter(id) {
                counter.read = None;
            }
            ledger.stopped(now, cpu, id, why, Some(now.saturating_sub(since)));
            return;
        }
        // A counter that had no reader for a while continues from the CPU of its plan.
        let old = old.unwrap_or(planned);
        let next_tick = self.cpus.get(&old).and_then(|old| old.next_tick);
        let since = next_tick.unwrap_or(tick);
        if let Some(reader) = self.cpus.get_mut(&cpu)
            && !reader.inherited_from.contains(&(old, since))
        {
            reader.inherited_from.push((old, since));
        }
    }

    /// The counters and the CPUs that read them.
    fn placed(&self) -> impl Iterator<Item = (u32, u32)> {
        let active = self.cpus.values().filter(|reader| reader.active);
        active.flat_map(|reader| {
            let slots = reader.sets.last().map(|known| Rc::clone(&known.slots));
            let ids: Vec<u32> =
                slots.iter().flat_map(|slots| slots.iter().map(|slot| slot.0)).collect();
            ids.into_iter().map(move |id| (id, reader.cpu))
        })
    }

    fn counter(&mut self, id: u32) -> Option<&mut Progress> {
        self.counters.get_mut(id as usize)?.as_mut()
    }

    fn known(&self, sample: &Sample) -> Option<&CounterSet> {
        let sets = &self.cpus.get(&sample.cpu)?.sets;
        let known = sets.iter().rev().find(|known| known.first == sample.first)?;
        let len = sample.readings.len();
        let part = sample.trigger == drain::Trigger::Sched && len == known.at_switch;
        (len == known.slots.len() || part).then_some(known)
    }

    /// The counters of a sample, and how many of them are read at every context switch. A sample at
    /// a switch may be of counters that another CPU reads at each tick.
    fn slots(&self, sample: &Sample) -> Option<(Slots, usize)> {
        if let Some(known) = self.known(sample) {
            return Some((Rc::clone(&known.slots), known.at_switch));
        }
        let is_its = |set: &&CounterSet| {
            let first = set.first as usize + set.first_shared;
            let len = set.slots.len().saturating_sub(set.first_shared);
            first == sample.first as usize
                && len == sample.readings.len()
                && set.others.contains(&sample.cpu)
        };
        let mut sets = self.cpus.values().flat_map(|reader| reader.sets.iter().rev());
        let set = sets.find(is_its).filter(|_| sample.trigger == drain::Trigger::Sched)?;
        Some((set.slots.iter().skip(set.first_shared).copied().collect(), 0))
    }

    /// Whether the owner of the counts before this sample is needed; `None` if the sample's
    /// counters are unknown.
    pub(super) fn wants_owner(&self, sample: &Sample) -> Option<bool> {
        self.slots(sample).map(|(_, at_switch)| at_switch > 0)
    }

    /// Logs a sample. Counts of counters that are read at every context switch, since the previous
    /// sample, belong to `owner`, which runs a virtual machine if `ran_guest`.
    pub(super) fn sample(
        &mut self,
        sample: &Sample,
        (owner, ran_guest): (Option<Owner>, bool),
        ledger: &mut Ledger,
        log: &mut impl Log,
    ) {
        let tick = sample.begin / self.tick_ns;
        let Some((slots, at_switch)) = self.slots(sample).filter(|_| tick >= self.start_tick)
        else {
            return;
        };
        // A CPU that reads only counters of others is not active: no tick is expected of it.
        let new = || Reader { cpu: sample.cpu, ..Reader::default() };
        let reader = self.cpus.entry(sample.cpu).or_insert_with(new);
        let has_read = |stop| reader.next_tick.map_or(!reader.active, |next| next > stop);
        if self.stop_tick.is_some_and(|stop| tick > stop && has_read(stop)) {
            // This reader has read the last tick.
            return;
        }
        let after = |last: u64| sample.sequence.saturating_sub(last).saturating_sub(1);
        let lost = reader.sequence.map_or(0, after);
        reader.sequence = Some(sample.sequence);
        if lost > 0 {
            ledger.add(Cause::LostSample, sample.begin, 0, Some(sample.cpu), None, lost);
        }
        let owner = owner.map(|owner| if lost > 0 { Owner::Unattributed } else { owner });
        let is_tick = sample.trigger == drain::Trigger::Timer;
        if is_tick {
            reader.tick(tick, self.tick_ns, self.stop_tick, sample.begin, ledger);
        }
        let row = ReadingColumns {
            trigger: sample.trigger.name(),
            width_ns: sample.end.saturating_sub(sample.begin),
            task: Some(&sample.task),
        };
        let trigger = if is_tick { ReadingTrigger::Timer } else { ReadingTrigger::Event };
        let next = Next { open_tick: log.open_tick(), is_sample: true };
        let mut readings = Vec::with_capacity(slots.len());
        for (place, (&(id, base), reading)) in slots.iter().zip(&sample.readings).enumerate() {
            let is_blind = ran_guest && self.counter(id).is_some_and(|its| its.is_blind);
            let value = match *reading {
                drain::Reading::Counted { .. } if is_blind => Err(RAN_GUEST),
                drain::Reading::Counted { enabled, .. }
                    if is_tick && self.stands_still(id, tick, enabled) =>
                {
                    self.is_astray = true;
                    Err(STANDS_STILL)
                }
                drain::Reading::Counted { value: raw, enabled, running } => {
                    Ok(value(Count { value: raw, enabled, running }.add_earlier(base)))
                }
                drain::Reading::Failed(errno) => {
                    let per_cpu = self.counter(id).is_some_and(|counter| counter.per_cpu);
                    // The errors of a counter that is on another CPU: `perf_event_read_local`,
                    // kernel/events/core.c, Linux 6.18.
                    self.is_astray |= is_tick && !per_cpu && errno == libc::EINVAL;
                    Err(errno)
                }
            };
            let owner = owner.filter(|_| place < at_switch);
            let when = (tick, sample.begin);
            readings.extend(self.reading(id, sample.cpu, when, (trigger, value, owner), next));
        }
        log.readings(&readings, &row);
    }

    /// Whether the counter did not count since the tick before. The time enabled of a counter that
    /// counts increases, also while the counter is multiplexed out.
    fn stands_still(&mut self, id: u32, tick: u64, enabled: u64) -> bool {
        let Some(counter) = self.counter(id).filter(|counter| !counter.per_cpu) else {
            return false;
        };
        let before = counter.read.replace((tick, enabled));
        enabled > 0 && before.is_some_and(|(last, before)| last < tick && before == enabled)
    }

    /// Logs that a counter stops or starts; `word` is the trigger of the row.
    fn mark(
        &mut self,
        counter: u32,
        cpu: u32,
        when: (u64, u64),
        (trigger, value, word): (ReadingTrigger, Result<CounterValue, i32>, &'static str),
        log: &mut impl Log,
    ) {
        let next = Next { open_tick: log.open_tick(), is_sample: false };
        let reading = self.reading(counter, cpu, when, (trigger, value, None), next);
        log.readings(
            reading.as_slice(),
            &ReadingColumns { trigger: word, ..ReadingColumns::default() },
        );
    }

    /// The entry of a reading, in a tick that has not ended; `None` if a newer entry includes all
    /// of its count.
    fn reading(
        &mut self,
        counter: u32,
        cpu: u32,
        (tick, time): (u64, u64),
        (trigger, value, owner): (ReadingTrigger, Result<CounterValue, i32>, Option<Owner>),
        next: Next,
    ) -> Option<CounterReading> {
        let progress = self.counter(counter)?;
        let ((last_time, last_tick), last_from) = (progress.newest, progress.last_from);
        // `readings` is sorted by time, so two entries of a counter need different times. A tick's
        // reading may arrive after that of another CPU, from another ring.
        let after_another = last_from.is_some_and(|(last, by)| last != cpu && by == ReadingTrigger::Event);
        let moves = !next.is_sample || trigger == ReadingTrigger::Timer && after_another;
        let time = if moves { time.max(last_time + 1) } else { time };
        if time <= last_time || progress.stopped.is_some() {
            return None;
        }
        let tick = tick.max(next.open_tick).max(last_tick);
        (progress.newest, progress.last_from) = ((time, tick), Some((cpu, trigger)));
        Some(CounterReading { tick, time, counter, cpu, trigger, value, owner })
    }
}

/// A count as it is logged. Where enabled and running are almost equal they are made equal: the low
/// bits are noise of the kernel's clock.
fn value(count: Count) -> CounterValue {
    let times = readings::stored_times(count.enabled, count.running);
    CounterValue { value: count.value, times: times.0.zip(times.1) }
}

impl Reader {
    /// Notes that a tick arrived, and enters the missing ticks before it.
    fn tick(
        &mut self,
        tick: u64,
        tick_ns: u64,
        stop_tick: Option<u64>,
        time: u64,
        ledger: &mut Ledger,
    ) {
        for (cpu, since) in self.inherited_from.drain(..) {
            let missing = tick.saturating_sub(since);
            ledger.moved(time, cpu, self.cpu, missing, tick_ns);
        }
        let expected = self.next_tick.unwrap_or(tick);
        if tick > expected && stop_tick.is_none_or(|stop| expected <= stop) {
            let missing = tick - expected;
            let span = missing * tick_ns;
            ledger.add(Cause::LateTick, time, span, Some(self.cpu), None, missing);
        }
        self.next_tick = Some(expected.max(tick + 1));
    }
}

#[cfg(test)]
mod tests;
