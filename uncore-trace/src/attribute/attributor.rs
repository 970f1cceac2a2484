//! Turns entries of the log into rows of `fabric`.
//!
//! State is kept for the windows that wait and for what the methods have learnt, so memory does not
//! depend on the length of the log.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use super::counter::{self, Close, Track};
use super::credit::Credit;
use super::held::Holders;
use super::history::Histories;
use super::monitor::Monitors;
use super::monitor::bounds::limit;
use super::names::Names;
use super::pool::Pools;
use super::ports::Ports;
use super::rows::{Making, Rows};
use super::series::Clock;
use super::small::Large;
use super::switches::Switches;
use super::turn::Turn;
use super::usage::{self, CpuSet, TickUse, Usage};
use super::waiting::{Ended, LEARN_INTERVAL_NS, Schedule, Slot, Waiting};
use super::witnesses::Witnesses;
use super::{Method, Methods, workers};
use crate::clock::Snapshot;
use crate::entries::{
    Consumer, Disorder, Entry, Missing, Owner, RAN_GUEST, ROWS_AT_ONCE, Reading, Relief, Sum,
};
use crate::plan::Plan;
use crate::schema::fabric;
use crate::schema::origin::Origin;

/// The parameters of a recording.
#[derive(Clone, Copy, Debug)]
pub struct RecordingFacts<'a> {
    /// The planned counters.
    pub plan: &'a Plan,
    /// The counters that have rows in `fabric`, in the order of [`order`].
    pub counters: &'a [u32],
    /// The methods of attribution.
    pub methods: Methods,
    /// The tick at which the recording begins.
    pub start_tick: u64,
    /// Converts times of `CLOCK_MONOTONIC` to wall-clock time.
    pub clock: Snapshot,
    /// Where the recording was made.
    pub origin: &'a Origin,
    /// Number of threads that learn and divide: [`super::live`] or [`super::available`].
    pub threads: usize,
}

/// Largest number of owners that are known to run virtual machines.
const MOST_GUESTS: usize = 1 << 16;

/// The counters of a plan that could be opened, in the order of their rows: by CPU, and per CPU
/// those that are read at every context switch first.
pub fn order(plan: &Plan, failed: impl Fn(u32) -> bool) -> Vec<u32> {
    let mut opened: Vec<_> = plan.counters.iter().filter(|counter| !failed(counter.id)).collect();
    opened.sort_by_key(|counter| (counter.cpu, !counter.at_switch));
    opened.into_iter().map(|counter| counter.id).collect()
}

/// Makes `fabric` from the entries of a log.
#[derive(Debug)]
pub struct Attributor {
    clock: Clock,
    wall: Snapshot,
    origin: Origin,
    tracks: Vec<Track>,
    /// Index in `tracks`, by counter id.
    index_of: Vec<Option<usize>>,
    /// The sets of CPUs that the counters see.
    sets: Vec<CpuSet>,
    usage: Usage,
    switches: Switches,
    witnesses: Witnesses,
    /// Owners that run virtual machines whose misses are not counted.
    guests: HashSet<Owner>,
    pools: Pools,
    ports: Ports,
    moved: Sum,
    holders: Holders,
    monitors: Monitors,
    credit: Credit,
    /// The use of each set of CPUs, if a counter that sees the set learns from it.
    histories: Vec<Option<Histories>>,
    schedule: Schedule,
    waiting: Waiting,
    /// Windows that every counter has divided, oldest first, with the shares of their rows.
    ready: VecDeque<Ended>,
    making: Option<Making>,
    names: Names,
    missing: Vec<Missing>,
    /// The last tick that has ended.
    ended: u64,
    /// Number of threads that learn and divide.
    threads: usize,
    /// The smallest share of a process, as a part of a window's total.
    min_share: f64,
    /// Length of a window, ns, unless windows are longer.
    window_ns: u64,
    /// What is left out.
    relief: Relief,
}

/// Windows are so many times as long while the recorder is late, but not longer than the limit, ns.
const LONGER: u64 = 10;
const LONGEST_NS: u64 = 1_000_000_000;

impl Consumer for Attributor {
    /// Takes an entry. At the end of a window, rows go to `fabric`.
    fn take(&mut self, entry: Entry<'_>, fabric: &mut fabric::Builder) -> Result<(), Disorder> {
        // Rows are made before the entry is applied: they have the names that were known when their
        // window was divided.
        if self.making.is_some() {
            self.append(fabric, usize::MAX);
        }
        match entry {
            Entry::Usage { cpu, parts } => self.usage.add(cpu, parts),
            Entry::Switches { cpu, parts } => self.switches.add(cpu, parts),
            Entry::Reading(reading) => self.reading(reading)?,
            Entry::Moved(moved) => self.moved.add(moved),
            Entry::Held(held) => self.holders.take(held),
            Entry::Monitored(monitored) => self.monitors.add(monitored),
            Entry::Account(accounted) => self.holders.account(accounted),
            Entry::Cgroup { id, names } => self.names.cgroup(id, names),
            Entry::Interrupt { number, name } => self.names.interrupt(number, name),
            Entry::EndOfTick { tick, is_last } => {
                if tick <= self.ended {
                    return Err(Disorder::Tick(tick));
                }
                self.end_tick(tick, is_last);
                self.append(fabric, ROWS_AT_ONCE);
            }
        }
        Ok(())
    }

    fn more(&mut self, fabric: &mut fabric::Builder) -> bool {
        self.append(fabric, ROWS_AT_ONCE)
    }

    fn finish(&mut self, fabric: &mut fabric::Builder) {
        if !self.waits() {
            return;
        }
        self.settle(self.ended, false);
        self.learn(self.ended, true);
        self.append(fabric, usize::MAX);
    }

    fn waits(&self) -> bool {
        self.learns() && self.schedule.waits()
    }

    fn needs_ticks(&self) -> bool {
        self.learns() || self.holders.are_needed()
    }

    fn needs_switches(&self) -> bool {
        self.switches.are_wanted()
    }

    /// Whether a window ends or entries are applied within one at the end of this tick.
    fn needs_readings(&self, tick: u64) -> bool {
        self.clock.ends_window(tick) || self.settles_at(tick)
    }

    fn open_tick(&self) -> u64 {
        // The reading of the start tick comes before the first tick ends.
        if self.ended == self.clock.start_tick { self.ended } else { self.ended + 1 }
    }

    fn take_missing(&mut self) -> Vec<Missing> {
        std::mem::take(&mut self.missing)
    }

    fn reliefs(&self) -> Vec<Relief> {
        let has_effect = |relief: &Relief| match relief {
            Relief::None => false,
            Relief::Seldom | Relief::LastRates | Relief::Residency => self.learns(),
            Relief::LongWindows => self.longer() > 1,
        };
        Relief::ALL.into_iter().filter(has_effect).collect()
    }

    fn relieve(&mut self, relief: Relief) {
        if self.relief != relief {
            self.relief = relief;
            self.tracks.iter_mut().for_each(|track| track.relieve(relief));
        }
    }

    fn largest(&mut self) -> Vec<Arc<str>> {
        let ids = self.credit.largest().into_iter();
        ids.filter_map(|id| Some(Arc::from(&*self.names.of_cgroup(id)?.path))).collect()
    }
}

impl Attributor {
    /// The state before the first entry.
    pub fn new(facts: &RecordingFacts<'_>) -> Self {
        let &RecordingFacts { plan, counters, methods, start_tick, clock: wall, origin, threads } =
            facts;
        let clock = Clock { tick_ns: plan.tick_ns, window_ns: plan.window_ns, start_tick };
        let (sets, set_of) = usage::sets(plan);
        let track = |id: &u32| {
            let counter = plan.counters.get(*id as usize)?.clone();
            let set = *set_of.get(*id as usize)?;
            Some(Track::new(plan, counter, set, clock, methods))
        };
        let mut tracks: Vec<Track> = counters.iter().filter_map(track).collect();
        let learnt = usage::learnt(sets.len(), &set_of, plan, methods);
        let mut has_misses = vec![false; sets.len()];
        for track in tracks.iter().filter(|track| track.kind == Method::Misses) {
            has_misses[track.set] = true;
        }
        let mut index_of = vec![None; plan.counters.len()];
        for (at, track) in tracks.iter().enumerate() {
            if let Some(index) = index_of.get_mut(track.counter.id as usize) {
                *index = Some(at);
            }
        }
        let ports = Ports::new(&tracks, &sets, start_tick);
        let history = |(set, (learnt, has)): (usize, (bool, bool))| {
            let empty = || Histories::new(plan.tick_ns, has);
            let divided = |its: Histories| if ports.divide(set) { its.with_ports() } else { its };
            learnt.then(|| divided(empty()))
        };
        let histories = learnt.iter().copied().zip(has_misses.iter().copied()).enumerate();
        let histories = histories.map(history).collect();
        Self {
            clock,
            wall,
            origin: origin.clone(),
            holders: Holders::new(&mut tracks, plan.tick_ns),
            monitors: Monitors::new(plan, &tracks, start_tick),
            index_of,
            pools: Pools::new(&tracks),
            usage: Usage::new(sets.clone(), &learnt),
            switches: Switches::new(plan),
            guests: HashSet::new(),
            witnesses: Witnesses::of(&mut tracks, has_misses.contains(&true)),
            tracks,
            moved: Sum::default(),
            credit: Credit::default(),
            ports,
            histories,
            schedule: Schedule::new(start_tick, plan.tick_ns, methods.lag_ns),
            waiting: Waiting::default(),
            ready: VecDeque::new(),
            making: None,
            sets,
            names: Names::default(),
            missing: Vec::new(),
            ended: start_tick,
            threads,
            min_share: methods.min_share,
            window_ns: plan.window_ns,
            relief: Relief::None,
        }
    }

    fn reading(&mut self, reading: Reading) -> Result<(), Disorder> {
        let open_tick = self.open_tick();
        let index = self.index_of.get(reading.counter as usize).copied().flatten();
        let track = index.and_then(|index| self.tracks.get_mut(index));
        let track = track.ok_or(Disorder::Counter(reading.counter))?;
        track.series.push(reading, open_tick)?;
        if let Some(owner @ (Owner::Task { .. } | Owner::OtherTasks)) = reading.owner
            && reading.value == Err(RAN_GUEST)
        {
            if self.guests.len() >= MOST_GUESTS {
                self.guests.clear();
            }
            self.guests.insert(owner);
        }
        Ok(())
    }

    /// Whether any method learns from ticks.
    fn learns(&self) -> bool {
        self.histories.iter().any(Option::is_some)
    }

    /// Whether entries are applied at this tick also if no window ends. What waits does not grow with
    /// the length of a window.
    fn settles_at(&self, tick: u64) -> bool {
        let is_long = self.window_ns > LEARN_INTERVAL_NS;
        (is_long || self.learns()) && self.schedule.learns(tick)
    }

    fn end_tick(&mut self, tick: u64, is_last: bool) {
        self.ended = tick;
        self.usage.end_tick(tick);
        self.holders.end_tick(tick, &self.tracks);
        let ends_window = is_last || self.clock.ends_window(tick);
        let learns = self.learns() && (is_last || self.schedule.learns(tick));
        if ends_window || learns || self.settles_at(tick) {
            self.settle(tick, is_last);
        }
        if ends_window {
            self.close(tick, is_last);
            self.set_window();
        }
        if learns {
            self.learn(tick, is_last);
        }
    }

    /// How many windows a longer one has.
    fn longer(&self) -> u64 {
        (LONGEST_NS / self.window_ns).clamp(1, LONGER)
    }

    /// Sets the length of the windows that follow.
    fn set_window(&mut self) {
        let times = if self.relief >= Relief::LongWindows { self.longer() } else { 1 };
        let window_ns = times * self.window_ns;
        if self.clock.window_ns != window_ns {
            self.clock.window_ns = window_ns;
            self.tracks.iter_mut().for_each(|track| track.series.set_window(window_ns));
        }
    }

    /// Applies all entries up to the end of `tick`.
    fn settle(&mut self, tick: u64, is_last: bool) {
        for track in &mut self.tracks {
            track.settle(tick, is_last);
        }
        self.holders.settle(&mut self.tracks);
        let ticks = self.usage.take_ticks();
        self.count(&ticks);
    }

    /// Gives the methods the use and the counts of the ticks since the last call.
    fn count(&mut self, ticks: &[TickUse]) {
        for TickUse { tick, times } in ticks {
            self.witnesses.take(*tick, &mut self.tracks);
            let sets = self.histories.iter_mut().zip(times).zip(&self.sets);
            for ((histories, times), set) in sets {
                let Some(histories) = histories else { continue };
                if times.iter().any(|(source, _)| self.guests.contains(&source.owner)) {
                    histories.push_blind(*tick, times);
                } else {
                    histories.push(*tick, times, || self.witnesses.of_set(set));
                }
            }
            for track in self.tracks.iter_mut().filter(|track| track.learns) {
                if let Some(Some(histories)) = self.histories.get(track.set) {
                    track.learn(*tick, histories);
                }
            }
        }
    }

    /// Has the methods learn whose turn it is, and divides windows that need not wait any longer.
    /// Ports come first, because the others learn from what these have divided.
    fn learn(&mut self, tick: u64, is_last: bool) {
        let ports = self.ports.places();
        let of_ports = |set: usize, tracks: &[Track]| {
            ports.iter().filter_map(|at| tracks.get(*at)).any(|track| track.set == set)
        };
        self.review(|set, tracks| of_ports(set, tracks));
        if !ports.is_empty() {
            let to = ports.iter().filter_map(|at| self.divides(*at, tick, is_last)).min();
            let to = to.unwrap_or(tick);
            self.turns(tick, is_last, |at| ports.contains(&at).then_some(to));
            self.ports.gather(to, &mut self.tracks, &mut self.histories);
        }
        self.review(|set, tracks| !of_ports(set, tracks));
        let known = self.ports.to();
        self.turns(tick, is_last, |at| (!ports.contains(&at)).then_some(known));
        for (set, histories) in self.histories.iter_mut().enumerate() {
            let Some(histories) = histories else { continue };
            let tracks = self.tracks.iter().filter(|track| track.learns && track.set == set);
            histories.forget(tracks.map(Track::needs).min().unwrap_or(tick).min(tick));
        }
    }

    /// The last tick that a counter may divide after it has learnt at the end of `tick`.
    fn divides(&self, at: usize, tick: u64, is_last: bool) -> Option<u64> {
        let histories = self.histories.get(self.tracks.get(at)?.set)?.as_ref()?;
        let columns = histories.time.columns().len();
        Some(if is_last { tick } else { self.schedule.divides(tick, columns) })
    }

    /// Sums up the ticks since the last call, for some of the sets of CPUs.
    fn review(&mut self, is_one: impl Fn(usize, &[Track]) -> bool) {
        for (set, histories) in self.histories.iter_mut().enumerate() {
            let Some(histories) = histories.as_mut().filter(|_| is_one(set, &self.tracks)) else {
                continue;
            };
            histories.review();
            let tracks = self.tracks.iter_mut().filter(|track| track.learns && track.set == set);
            let histories_now = &*histories;
            workers::each(self.threads, &mut tracks.collect::<Vec<_>>(), |track| {
                track.review(histories_now);
            });
            let tracks = self.tracks.iter().filter(|track| track.learns && track.set == set);
            histories.told(|by| tracks.clone().filter_map(|track| track.profile(by)).collect());
        }
    }

    /// Has some of the counters learn and divide what need not wait, if it is their turn. `most`
    /// has the last tick that is known at ports, or `None` for a counter that is left out. Ports
    /// divide the ticks up to it each time, because the others wait for them.
    fn turns(&mut self, tick: u64, is_last: bool, most: impl Fn(usize) -> Option<u64>) {
        let learners = (0..self.tracks.len()).filter(|at| self.tracks[*at].learns);
        let mut plans: Vec<Option<(bool, u64)>> = vec![None; self.tracks.len()];
        for (place, at) in learners.enumerate() {
            let (Some(known), Some(to)) = (most(at), self.divides(at, tick, is_last)) else {
                continue;
            };
            let track = &self.tracks[at];
            let is_turn = is_last || self.schedule.is_turn(place, tick);
            let to = match track.kind {
                _ if track.counter.is_port() => known,
                _ if !is_turn => continue,
                Method::Ports if self.ports.divide(track.set) => to.min(known),
                _ => to,
            };
            plans[at] = Some((is_turn, to));
        }
        let (tick_ns, names) = (self.clock.tick_ns, &self.names);
        let last = plans.iter().flatten().map(|(_, to)| *to).max().unwrap_or_default();
        let mut slots: Vec<Vec<(u64, &mut Slot)>> = plans.iter().map(|_| Vec::new()).collect();
        for window in self.waiting.up_to(last) {
            let its = window.slots.iter_mut().zip(&mut slots).zip(&plans);
            for ((slot, slots), plan) in its {
                if plan.is_some_and(|(_, to)| window.tick <= to) {
                    slots.push((window.tick, slot));
                }
            }
        }
        let turn = |((track, slots), plan): ((_, _), Option<(bool, u64)>)| {
            let track: &mut Track = track;
            let (learns, to) = plan?;
            let histories = self.histories.get(track.set)?.as_ref()?;
            Some(Turn { track, histories, learns, to, slots })
        };
        let turns = self.tracks.iter_mut().zip(slots).zip(plans);
        let mut turns: Vec<Turn<'_>> = turns.filter_map(turn).collect();
        workers::each(self.threads, &mut turns, |turn| turn.take(tick_ns, names));
        for at in self.ports.places() {
            self.ports.note(at, &mut self.tracks[at], &mut self.histories);
        }
    }

    /// Closes the window that ends at `tick`. Counters whose methods do not wait divide it now.
    fn close(&mut self, tick: u64, is_last: bool) {
        let times = self.usage.take();
        let moved = self.moved.take();
        let switches = self.switches.take();
        let tick_ns = self.clock.tick_ns;
        let window = Close { tick, tick_ns, is_last, moved: &moved, switches: &switches };
        let mut ended = Vec::with_capacity(self.tracks.len());
        for track in &mut self.tracks {
            let end = match times.get(track.set) {
                Some(time) => track.close(&window, time, &mut self.missing),
                None => counter::Ended::No,
            };
            ended.push(end);
        }
        for times in &times {
            self.credit.add_time(times);
        }
        self.pools.divide(&self.tracks, &mut ended);
        self.monitors.measure(tick, &self.tracks, &mut ended);
        let mut slots: Vec<Slot> = self.tracks.iter().map(|_| Slot::Nothing).collect();
        let (ports, others): (Vec<_>, Vec<_>) =
            ended.into_iter().enumerate().partition(|(at, _)| self.tracks[*at].counter.is_port());
        for (at, end) in ports {
            slots[at] = self.slot(at, end, &window);
        }
        if !self.schedule.waits() {
            self.gather(tick);
        }
        for (at, end) in others {
            slots[at] = self.slot(at, end, &window);
        }
        self.waiting.push(Ended { tick, slots });
    }

    /// The state of a counter whose window has ended so: divided, unless it waits.
    fn slot(&mut self, at: usize, end: counter::Ended, window: &Close<'_>) -> Slot {
        let track = &mut self.tracks[at];
        let (counts, is_port) = (track.counter.role.counts(), track.counter.is_port());
        match end {
            counter::Ended::Unread if counts => Slot::Divided(track.unread(window)),
            counter::Ended::No | counter::Ended::Unread => Slot::Nothing,
            counter::Ended::Read(_) if !counts && !is_port => Slot::Nothing,
            counter::Ended::Read(span) if track.learns && self.schedule.waits() => {
                Slot::Waits(Box::new(span))
            }
            counter::Ended::Read(span) => {
                let histories = self.histories.get(track.set).and_then(Option::as_ref);
                let Close { tick, tick_ns, .. } = *window;
                let divided = track.divide(tick, tick_ns, &span, histories, &self.names);
                self.ports.note(at, track, &mut self.histories);
                if counts { Slot::Divided(divided) } else { Slot::Nothing }
            }
        }
    }

    /// Has the ports divide the ticks up to `tick`, if no window waits.
    fn gather(&mut self, tick: u64) {
        for at in self.ports.places() {
            let track = &mut self.tracks[at];
            if let Some(Some(histories)) = self.histories.get(track.set) {
                track.advance(histories, tick);
            }
        }
        self.ports.gather(tick, &mut self.tracks, &mut self.histories);
    }

    /// Appends rows of the windows that all counters have divided, until `fabric` has `most` rows.
    /// `true` if no such row is left.
    fn append(&mut self, fabric: &mut fabric::Builder, most: usize) -> bool {
        let (origin, names, tracks) = (&self.origin, &self.names, &self.tracks);
        let rows = Rows { tick_ns: self.clock.tick_ns, wall: self.wall, origin, names };
        let (least, threads) = (self.min_share, self.threads);
        loop {
            let next = || {
                if self.ready.is_empty() {
                    self.ready.extend(std::iter::from_fn(|| self.waiting.pop()));
                    let windows = self.ready.make_contiguous();
                    let sets: Vec<usize> = tracks.iter().map(|track| track.set).collect();
                    workers::each(threads, windows, |window| {
                        limit(window.slots.iter_mut().filter_map(Slot::divided), names);
                        make_rows(window, &sets, least);
                    });
                }
                let window = self.ready.pop_front()?;
                for (at, slot) in window.slots.iter().enumerate() {
                    if let Slot::Divided(divided) = slot
                        && self.monitors.sees(at)
                    {
                        self.credit.add(&divided.shares);
                    }
                }
                Some(Making::new(window, tracks))
            };
            let Some(mut making) = self.making.take().or_else(next) else { return true };
            if !rows.append(&mut making, tracks, fabric, most) {
                self.making = Some(making);
                return false;
            }
        }
    }
}

/// Makes the shares of a window those of its rows: shares below `least`, a part of the total, are united.
/// `sets` has the set of CPUs of each counter.
fn make_rows(window: &mut Ended, sets: &[usize], least: f64) {
    let mut large: BTreeMap<usize, Large> = BTreeMap::new();
    for (set, slot) in sets.iter().zip(&window.slots) {
        if let Slot::Divided(its) = slot
            && least > 0.0
            && its.is_estimate()
        {
            let total = its.total.unwrap_or_default();
            large.entry(*set).or_default().add(total, least, &its.shares);
        }
    }
    for (set, slot) in sets.iter().zip(&mut window.slots) {
        if let Slot::Divided(its) = slot {
            its.make_rows(large.get(set));
        }
    }
}

#[cfg(test)]
mod tests;
