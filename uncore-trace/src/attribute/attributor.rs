//! Turns entries of the log into rows of `fabric`.
//!
//! State is kept for the windows that wait and for what the methods have learnt, so memory does not
//! depend on the length of the log.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use super::counter::{self, Close, TrackedCounter};
use super::credit::CgroupCredit;
use super::held::DeviceHolders;
use super::history::Histories;
use super::monitor::LinkMonitors;
use super::monitor::bounds::apply_bounds;
use super::names::OwnerNames;
use super::pool::Pools;
use super::ports::Ports;
use super::rows::{RowContext, WindowRows};
use super::series::WindowClock;
use super::small::LargeOwners;
use super::switches::Switches;
use super::turn::CounterTurn;
use super::usage::{self, CpuSet, CpuUsage, TickUse};
use super::waiting::{EndedWindow, LEARN_INTERVAL_NS, LearnSchedule, WaitingWindows, WindowState};
use super::witnesses::Witnesses;
use super::{Method, Methods, workers};
use crate::clock::Snapshot;
use crate::entries::{
    CounterReading, Disorder, LogConsumer, LogEntry, MissingCount, MovedSum, Owner, RAN_GUEST,
    ROWS_AT_ONCE, Relief,
};
use crate::plan::Plan;
use crate::schema::fabric;
use crate::schema::origin::RecordingOrigin;

/// The parameters of a recording.
#[derive(Clone, Copy, Debug)]
pub struct RecordingFacts<'a> {
    /// The planned counters.
    pub plan: &'a Plan,
    /// The counters that have rows in `fabric`, in the order of [`order_counters`].
    pub counters: &'a [u32],
    /// The methods of attribution.
    pub methods: Methods,
    /// The tick at which the recording begins.
    pub start_tick: u64,
    /// Converts times of `CLOCK_MONOTONIC` to wall-clock time.
    pub clock: Snapshot,
    /// Where the recording was made.
    pub origin: &'a RecordingOrigin,
    /// Threads that learn and divide: [`super::live_threads`] or [`super::available_threads`].
    pub threads: usize,
}

/// Largest number of owners that are known to run virtual machines.
const MAX_GUESTS: usize = 1 << 16;

/// The counters of a plan that could be opened, in the order of their rows: by CPU, and per CPU
/// those that are read at every context switch first.
pub fn order_counters(plan: &Plan, failed: impl Fn(u32) -> bool) -> Vec<u32> {
    let mut opened: Vec<_> = plan.counters.iter().filter(|counter| !failed(counter.id)).collect();
    opened.sort_by_key(|counter| (counter.cpu, !counter.at_switch));
    opened.into_iter().map(|counter| counter.id).collect()
}

/// Makes `fabric` from the entries of a log.
#[derive(Debug)]
pub struct Attributor {
    clock: WindowClock,
    wall: Snapshot,
    origin: RecordingOrigin,
    tracks: Vec<TrackedCounter>,
    /// Index in `tracks`, by counter id.
    index_of: Vec<Option<usize>>,
    /// The sets of CPUs that the counters see.
    sets: Vec<CpuSet>,
    usage: CpuUsage,
    switches: Switches,
    witnesses: Witnesses,
    /// Owners that run virtual machines whose misses are not counted.
    guests: HashSet<Owner>,
    pools: Pools,
    ports: Ports,
    moved: MovedSum,
    holders: DeviceHolders,
    monitors: LinkMonitors,
    credit: CgroupCredit,
    /// The use of each set of CPUs, if a counter that sees the set learns from it.
    histories: Vec<Option<Histories>>,
    schedule: LearnSchedule,
    waiting: WaitingWindows,
    /// Windows that every counter has divided, oldest first, with the shares of their rows.
    ready: VecDeque<EndedWindow>,
    making: Option<WindowRows>,
    names: OwnerNames,
    missing: Vec<MissingCount>,
    /// The last tick that has ended.
    ended_tick: u64,
    /// Number of threads that learn and divide.
    threads: usize,
    /// The smallest share of a process, as a fraction of a window's total.
    min_share: f64,
    /// Length of a window, ns, unless windows are longer.
    window_ns: u64,
    /// What is left out.
    relief: Relief,
}

/// Windows are so many times as long while the recorder is late, but not longer than the limit, ns.
const LONGER: u64 = 10;
const LONGEST_NS: u64 = 1_000_000_000;

impl LogConsumer for Attributor {
    /// Takes an entry. At the end of a window, rows go to `fabric`.
    fn take_entry(
        &mut self,
        entry: LogEntry<'_>,
        fabric: &mut fabric::Builder,
    ) -> Result<(), Disorder> {
        // Rows are made before the entry is applied: they have the names that were known when their
        // window was divided.
        if self.making.is_some() {
            self.append_rows(fabric, usize::MAX);
        }
        match entry {
            LogEntry::Usage { cpu, usage: use_by_owner } => self.usage.add_use(cpu, use_by_owner),
            LogEntry::Switches { cpu, switches: switches_by_owner } => {
                self.switches.add_switches(cpu, switches_by_owner);
            }
            LogEntry::Reading(reading) => self.apply_reading(reading)?,
            LogEntry::Moved(moved) => self.moved.add_moved(moved),
            LogEntry::Held(held) => self.holders.apply_change(held),
            LogEntry::Monitored(monitored) => self.monitors.add_bytes(monitored),
            LogEntry::Account(accounted) => self.holders.add_account(accounted),
            LogEntry::Cgroup { id, names } => self.names.set_cgroup(id, names),
            LogEntry::Interrupt { number, name } => self.names.set_interrupt(number, name),
            LogEntry::EndOfTick { tick, is_last } => {
                if tick <= self.ended_tick {
                    return Err(Disorder::Tick(tick));
                }
                self.end_tick(tick, is_last);
                self.append_rows(fabric, ROWS_AT_ONCE);
            }
        }
        Ok(())
    }

    fn make_rows(&mut self, fabric: &mut fabric::Builder) -> bool {
        self.append_rows(fabric, ROWS_AT_ONCE)
    }

    fn finish_windows(&mut self, fabric: &mut fabric::Builder) {
        if !self.has_waiting_windows() {
            return;
        }
        self.apply_entries(self.ended_tick, false);
        self.learn_and_divide(self.ended_tick, true);
        self.append_rows(fabric, usize::MAX);
    }

    fn has_waiting_windows(&self) -> bool {
        self.has_learners() && self.schedule.has_lag()
    }

    fn needs_ticks(&self) -> bool {
        self.has_learners() || self.holders.are_needed()
    }

    fn needs_switches(&self) -> bool {
        self.switches.are_wanted()
    }

    /// Whether a window ends or entries are applied within one at the end of this tick.
    fn needs_readings(&self, tick: u64) -> bool {
        self.clock.ends_window(tick) || self.applies_entries_at(tick)
    }

    fn open_tick(&self) -> u64 {
        // The reading of the start tick comes before the first tick ends.
        if self.ended_tick == self.clock.start_tick { self.ended_tick } else { self.ended_tick + 1 }
    }

    fn take_missing(&mut self) -> Vec<MissingCount> {
        std::mem::take(&mut self.missing)
    }

    fn relief_steps(&self) -> Vec<Relief> {
        let has_effect = |relief: &Relief| match relief {
            Relief::None => false,
            Relief::Seldom | Relief::LastRates | Relief::Residency => self.has_learners(),
            Relief::LongWindows => self.long_window_factor() > 1,
        };
        Relief::ALL.into_iter().filter(has_effect).collect()
    }

    fn set_relief(&mut self, relief: Relief) {
        if self.relief != relief {
            self.relief = relief;
            self.tracks.iter_mut().for_each(|track| track.set_relief(relief));
        }
    }

    fn largest_cgroups(&mut self) -> Vec<Arc<str>> {
        let ids = self.credit.largest_cgroups().into_iter();
        ids.filter_map(|id| Some(Arc::from(&*self.names.cgroup_names(id)?.path))).collect()
    }
}

impl Attributor {
    /// The state before the first entry.
    pub fn new(facts: &RecordingFacts<'_>) -> Self {
        let &RecordingFacts { plan, counters, methods, start_tick, clock: wall, origin, threads } =
            facts;
        let clock = WindowClock { tick_ns: plan.tick_ns, window_ns: plan.window_ns, start_tick };
        let (sets, set_of) = usage::distinct_cpu_sets(plan);
        let track = |id: &u32| {
            let counter = plan.counters.get(*id as usize)?.clone();
            let set = *set_of.get(*id as usize)?;
            Some(TrackedCounter::new(plan, counter, set, clock, methods))
        };
        let mut tracks: Vec<TrackedCounter> = counters.iter().filter_map(track).collect();
        let learnt = usage::sets_with_learners(sets.len(), &set_of, plan, methods);
        let mut has_misses = vec![false; sets.len()];
        for track in tracks.iter().filter(|track| track.planned_method == Method::Misses) {
            has_misses[track.set] = true;
        }
        let mut index_of = vec![None; plan.counters.len()];
        for (position, track) in tracks.iter().enumerate() {
            if let Some(index) = index_of.get_mut(track.counter.id as usize) {
                *index = Some(position);
            }
        }
        let ports = Ports::new(&tracks, &sets, start_tick);
        let history = |(set, (learnt, has_witness)): (usize, (bool, bool))| {
            let empty = || Histories::new(plan.tick_ns, has_witness);
            let divided =
                |base: Histories| if ports.divides_set(set) { base.with_ports() } else { base };
            learnt.then(|| divided(empty()))
        };
        let histories = learnt.iter().copied().zip(has_misses.iter().copied()).enumerate();
        let histories = histories.map(history).collect();
        Self {
            clock,
            wall,
            origin: origin.clone(),
            holders: DeviceHolders::new(&mut tracks, plan.tick_ns),
            monitors: LinkMonitors::new(plan, &tracks, start_tick),
            index_of,
            pools: Pools::new(&tracks),
            usage: CpuUsage::new(sets.clone(), &learnt),
            switches: Switches::new(plan),
            guests: HashSet::new(),
            witnesses: Witnesses::find_witnesses(&mut tracks, has_misses.contains(&true)),
            tracks,
            moved: MovedSum::default(),
            credit: CgroupCredit::default(),
            ports,
            histories,
            schedule: LearnSchedule::new(start_tick, plan.tick_ns, methods.lag_ns),
            waiting: WaitingWindows::default(),
            ready: VecDeque::new(),
            making: None,
            sets,
            names: OwnerNames::default(),
            missing: Vec::new(),
            ended_tick: start_tick,
            threads,
            min_share: methods.min_share,
            window_ns: plan.window_ns,
            relief: Relief::None,
        }
    }

    fn apply_reading(&mut self, reading: CounterReading) -> Result<(), Disorder> {
        let open_tick = self.open_tick();
        let index = self.index_of.get(reading.counter as usize).copied().flatten();
        let track = index.and_then(|index| self.tracks.get_mut(index));
        let track = track.ok_or(Disorder::Counter(reading.counter))?;
        track.series.push(reading, open_tick)?;
        if let Some(owner @ (Owner::Task { .. } | Owner::OtherTasks)) = reading.owner
            && reading.value == Err(RAN_GUEST)
        {
            if self.guests.len() >= MAX_GUESTS {
                self.guests.clear();
            }
            self.guests.insert(owner);
        }
        Ok(())
    }

    /// Whether any method learns from ticks.
    fn has_learners(&self) -> bool {
        self.histories.iter().any(Option::is_some)
    }

    /// Whether entries are applied at this tick also if no window ends. What waits does not grow
    /// with the length of a window.
    fn applies_entries_at(&self, tick: u64) -> bool {
        let is_long = self.window_ns > LEARN_INTERVAL_NS;
        (is_long || self.has_learners()) && self.schedule.is_learn_tick(tick)
    }

    fn end_tick(&mut self, tick: u64, is_last: bool) {
        self.ended_tick = tick;
        self.usage.end_tick(tick);
        self.holders.end_tick(tick, &self.tracks);
        let ends_window = is_last || self.clock.ends_window(tick);
        let learns = self.has_learners() && (is_last || self.schedule.is_learn_tick(tick));
        if ends_window || learns || self.applies_entries_at(tick) {
            self.apply_entries(tick, is_last);
        }
        if ends_window {
            self.close_window(tick, is_last);
            self.set_window();
        }
        if learns {
            self.learn_and_divide(tick, is_last);
        }
    }

    /// How many windows a longer one has.
    fn long_window_factor(&self) -> u64 {
        (LONGEST_NS / self.window_ns).clamp(1, LONGER)
    }

    /// Sets the length of the windows that follow.
    fn set_window(&mut self) {
        let factor = if self.relief >= Relief::LongWindows { self.long_window_factor() } else { 1 };
        let window_ns = factor * self.window_ns;
        if self.clock.window_ns != window_ns {
            self.clock.window_ns = window_ns;
            self.tracks.iter_mut().for_each(|track| track.series.set_window(window_ns));
        }
    }

    /// Applies all entries up to the end of `tick`.
    fn apply_entries(&mut self, tick: u64, is_last: bool) {
        for track in &mut self.tracks {
            track.apply_entries(tick, is_last);
        }
        self.holders.divide_ticks(&mut self.tracks);
        let ticks = self.usage.take_ticks();
        self.count_ticks(&ticks);
    }

    /// Gives the methods the use and the counts of the ticks since the last call.
    fn count_ticks(&mut self, ticks: &[TickUse]) {
        for TickUse { tick, times } in ticks {
            self.witnesses.take_tick(*tick, &mut self.tracks);
            let sets = self.histories.iter_mut().zip(times).zip(&self.sets);
            for ((histories, times), set) in sets {
                let Some(histories) = histories else { continue };
                if times.iter().any(|(source, _)| self.guests.contains(&source.owner)) {
                    histories.push_blind(*tick, times);
                } else {
                    histories.push(*tick, times, || self.witnesses.misses_of_set(set));
                }
            }
            for track in self.tracks.iter_mut().filter(|track| track.learns) {
                if let Some(Some(histories)) = self.histories.get(track.set) {
                    track.learn_tick(*tick, histories);
                }
            }
        }
    }

    /// Has the methods learn whose turn it is, and divides windows that need not wait any longer.
    /// Ports come first, because the others learn from what these have divided.
    fn learn_and_divide(&mut self, tick: u64, is_last: bool) {
        let port_indexes = self.ports.counter_indexes();
        let has_ports = |set: usize, tracks: &[TrackedCounter]| {
            port_indexes.iter().filter_map(|index| tracks.get(*index)).any(|track| track.set == set)
        };
        self.review_sets(|set, tracks| has_ports(set, tracks));
        if !port_indexes.is_empty() {
            let port_tick = port_indexes
                .iter()
                .filter_map(|index| self.last_divisible_tick(*index, tick, is_last))
                .min();
            let common_tick = port_tick.unwrap_or(tick);
            self.take_turns(tick, is_last, |index| {
                port_indexes.contains(&index).then_some(common_tick)
            });
            self.ports.gather_ticks(common_tick, &mut self.tracks, &mut self.histories);
        }
        self.review_sets(|set, tracks| !has_ports(set, tracks));
        let gathered_tick = self.ports.gathered_tick();
        self.take_turns(tick, is_last, |index| {
            (!port_indexes.contains(&index)).then_some(gathered_tick)
        });
        for (set, histories) in self.histories.iter_mut().enumerate() {
            let Some(histories) = histories else { continue };
            let tracks = self.tracks.iter().filter(|track| track.learns && track.set == set);
            histories.forget_before(
                tracks.map(TrackedCounter::oldest_needed_tick).min().unwrap_or(tick).min(tick),
            );
        }
    }

    /// The last tick that a counter may divide after it has learnt at the end of `tick`.
    fn last_divisible_tick(&self, index: usize, tick: u64, is_last: bool) -> Option<u64> {
        let histories = self.histories.get(self.tracks.get(index)?.set)?.as_ref()?;
        let columns = histories.time.columns().len();
        Some(if is_last { tick } else { self.schedule.last_divisible_tick(tick, columns) })
    }

    /// Sums up the ticks since the last call, for the selected sets of CPUs.
    fn review_sets(&mut self, is_selected: impl Fn(usize, &[TrackedCounter]) -> bool) {
        for (set, histories) in self.histories.iter_mut().enumerate() {
            let Some(histories) = histories.as_mut().filter(|_| is_selected(set, &self.tracks))
            else {
                continue;
            };
            histories.review_use();
            let tracks = self.tracks.iter_mut().filter(|track| track.learns && track.set == set);
            let histories_now = &*histories;
            workers::run_jobs(self.threads, &mut tracks.collect::<Vec<_>>(), |track| {
                track.learn_ticks(histories_now);
            });
            let tracks = self.tracks.iter().filter(|track| track.learns && track.set == set);
            histories.finish_review(|predictor| {
                tracks.clone().filter_map(|track| track.rate_profile(predictor)).collect()
            });
        }
    }

    /// Has some counters learn and divide what need not wait, if it is their turn. `known_tick`
    /// has the last tick that is known at ports, or `None` for a counter that is left out. Ports
    /// divide the ticks up to it each time, because the others wait for them.
    fn take_turns(&mut self, tick: u64, is_last: bool, known_tick: impl Fn(usize) -> Option<u64>) {
        let learners = (0..self.tracks.len()).filter(|index| self.tracks[*index].learns);
        let mut plans: Vec<Option<(bool, u64)>> = vec![None; self.tracks.len()];
        for (position, index) in learners.enumerate() {
            let (Some(port_tick), Some(divisible_tick)) =
                (known_tick(index), self.last_divisible_tick(index, tick, is_last))
            else {
                continue;
            };
            let track = &self.tracks[index];
            let is_turn = is_last || self.schedule.is_turn(position, tick);
            let end_tick = match track.planned_method {
                _ if track.counter.is_port() => port_tick,
                _ if !is_turn => continue,
                Method::Ports if self.ports.divides_set(track.set) => divisible_tick.min(port_tick),
                _ => divisible_tick,
            };
            plans[index] = Some((is_turn, end_tick));
        }
        let (tick_ns, names) = (self.clock.tick_ns, &self.names);
        let latest_tick =
            plans.iter().flatten().map(|(_, end_tick)| *end_tick).max().unwrap_or_default();
        let mut windows_by_counter: Vec<Vec<(u64, &mut WindowState)>> =
            plans.iter().map(|_| Vec::new()).collect();
        for window in self.waiting.windows_up_to(latest_tick) {
            let states = window.states.iter_mut().zip(&mut windows_by_counter).zip(&plans);
            for ((state, windows), plan) in states {
                if plan.is_some_and(|(_, end_tick)| window.tick <= end_tick) {
                    windows.push((window.tick, state));
                }
            }
        }
        let turn = |((track, windows), plan): ((_, _), Option<(bool, u64)>)| {
            let track: &mut TrackedCounter = track;
            let (learns, last_tick) = plan?;
            let histories = self.histories.get(track.set)?.as_ref()?;
            Some(CounterTurn { track, histories, learns, last_tick, windows })
        };
        let turns = self.tracks.iter_mut().zip(windows_by_counter).zip(plans);
        let mut turns: Vec<CounterTurn<'_>> = turns.filter_map(turn).collect();
        workers::run_jobs(self.threads, &mut turns, |turn| turn.run_turn(tick_ns, names));
        for index in self.ports.counter_indexes() {
            self.ports.note_confidence(index, &mut self.tracks[index], &mut self.histories);
        }
    }

    /// Closes the window that ends at `tick`. Counters whose methods do not wait divide it now.
    fn close_window(&mut self, tick: u64, is_last: bool) {
        let times = self.usage.take_window();
        let moved = self.moved.take_all();
        let switches = self.switches.take_window();
        let tick_ns = self.clock.tick_ns;
        let window = Close { tick, tick_ns, is_last, moved: &moved, switches: &switches };
        let mut window_ends = Vec::with_capacity(self.tracks.len());
        for track in &mut self.tracks {
            let end = match times.get(track.set) {
                Some(time) => track.close_window(&window, time, &mut self.missing),
                None => counter::WindowEnd::No,
            };
            window_ends.push(end);
        }
        for times in &times {
            self.credit.add_time(times);
        }
        self.pools.divide_bytes(&self.tracks, &mut window_ends);
        self.monitors.measure_window(tick, &self.tracks, &mut window_ends);
        let mut window_states: Vec<WindowState> =
            self.tracks.iter().map(|_| WindowState::Nothing).collect();
        let (port_ends, other_ends): (Vec<_>, Vec<_>) = window_ends
            .into_iter()
            .enumerate()
            .partition(|(index, _)| self.tracks[*index].counter.is_port());
        for (index, end) in port_ends {
            window_states[index] = self.window_state(index, end, &window);
        }
        if !self.schedule.has_lag() {
            self.divide_ports(tick);
        }
        for (index, end) in other_ends {
            window_states[index] = self.window_state(index, end, &window);
        }
        self.waiting.push(EndedWindow { tick, states: window_states });
    }

    /// The state of a counter whose window has ended so: divided, unless it waits.
    fn window_state(
        &mut self,
        index: usize,
        end: counter::WindowEnd,
        window: &Close<'_>,
    ) -> WindowState {
        let track = &mut self.tracks[index];
        let (counts, is_port) = (track.counter.role.is_divided(), track.counter.is_port());
        match end {
            counter::WindowEnd::Unread if counts => {
                WindowState::Divided(track.unread_window(window))
            }
            counter::WindowEnd::No | counter::WindowEnd::Unread => WindowState::Nothing,
            counter::WindowEnd::Read(_) if !counts && !is_port => WindowState::Nothing,
            counter::WindowEnd::Read(span) if track.learns && self.schedule.has_lag() => {
                WindowState::Waits(Box::new(span))
            }
            counter::WindowEnd::Read(span) => {
                let histories = self.histories.get(track.set).and_then(Option::as_ref);
                let Close { tick, tick_ns, .. } = *window;
                let divided = track.divide_window(tick, tick_ns, &span, histories, &self.names);
                self.ports.note_confidence(index, track, &mut self.histories);
                if counts { WindowState::Divided(divided) } else { WindowState::Nothing }
            }
        }
    }

    /// Has the ports divide the ticks up to `tick`, if no window waits.
    fn divide_ports(&mut self, tick: u64) {
        for index in self.ports.counter_indexes() {
            let track = &mut self.tracks[index];
            if let Some(Some(histories)) = self.histories.get(track.set) {
                track.divide_ticks(histories, tick);
            }
        }
        self.ports.gather_ticks(tick, &mut self.tracks, &mut self.histories);
    }

    /// Appends rows of windows that all counters have divided, until `fabric` has `max_rows`.
    /// `true` if no such row is left.
    fn append_rows(&mut self, fabric: &mut fabric::Builder, max_rows: usize) -> bool {
        let (origin, names, tracks) = (&self.origin, &self.names, &self.tracks);
        let rows = RowContext { tick_ns: self.clock.tick_ns, wall: self.wall, origin, names };
        let (min_share, threads) = (self.min_share, self.threads);
        loop {
            let next_window = || {
                if self.ready.is_empty() {
                    self.ready.extend(std::iter::from_fn(|| self.waiting.pop()));
                    let windows = self.ready.make_contiguous();
                    let sets: Vec<usize> = tracks.iter().map(|track| track.set).collect();
                    workers::run_jobs(threads, windows, |window| {
                        let states = window.states.iter_mut();
                        apply_bounds(states.filter_map(WindowState::as_divided_mut), names);
                        make_rows(window, &sets, min_share);
                    });
                }
                let window = self.ready.pop_front()?;
                for (index, state) in window.states.iter().enumerate() {
                    if let WindowState::Divided(divided) = state
                        && self.monitors.measures_counter(index)
                    {
                        self.credit.add_shares(&divided.shares);
                    }
                }
                Some(WindowRows::new(window, tracks))
            };
            let Some(mut making) = self.making.take().or_else(next_window) else { return true };
            if !rows.append_rows(&mut making, tracks, fabric, max_rows) {
                self.making = Some(making);
                return false;
            }
        }
    }
}

/// Makes the shares of a window those of its rows: shares below `min_share` of the total are
/// united. `sets` has the set of CPUs of each counter.
fn make_rows(window: &mut EndedWindow, sets: &[usize], min_share: f64) {
    let mut large: BTreeMap<usize, LargeOwners> = BTreeMap::new();
    for (set, state) in sets.iter().zip(&window.states) {
        if let WindowState::Divided(divided) = state
            && min_share > 0.0
            && divided.is_estimate()
        {
            let total = divided.total.unwrap_or_default();
            large.entry(*set).or_default().add_counter(total, min_share, &divided.shares);
        }
    }
    for (set, state) in sets.iter().zip(&mut window.states) {
        if let WindowState::Divided(divided) = state {
            divided.make_rows(large.get(set));
        }
    }
}

#[cfg(test)]
mod tests;
