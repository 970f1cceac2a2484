//! Turns entries of the log into rows of `fabric`.
//!
//! State is kept for the windows that wait and for what the methods have learnt, so memory does not
//! depend on the length of the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cgroup_credit::CgroupCredit;
use super::closing::WindowCloser;
use super::counter::TrackedCounter;
use super::facts::RecordingFacts;
use super::learning::{LearnMoment, Learning, LearningSetup};
use super::memory_links::find_memory_links;
use super::misfit::Misfit;
use super::owner_names::OwnerNames;
use super::row_queue::{RowQueue, RowSource};
use super::schedule::{LEARN_INTERVAL_NS, LearnSchedule};
use super::series::WindowClock;
use super::stage::{DivisionStage, StageSetup};
use super::stages::create_stages;
use super::switches::Switches;
use super::usage::{self, CpuUsage};
use super::waiting::WaitingWindows;
use super::windows::ClosingWindow;
use crate::entries::{
    CounterReading, Disorder, EntryConsumer, LogEntry, MissingCount, MovedSum, Owner, RAN_GUEST,
    ROWS_AT_ONCE, Relief,
};
use crate::plan::Counter;
use crate::schema::Builders;

/// Makes `fabric` from the entries of a log.
#[derive(Debug)]
pub struct Attributor {
    clock: WindowClock,
    tracks: Vec<TrackedCounter>,
    /// Index in `tracks`, by counter id.
    index_of: Vec<Option<usize>>,
    usage: CpuUsage,
    switches: Switches,
    moved: MovedSum,
    learning: Learning,
    /// The stages around the division, in their order.
    stages: Vec<Box<dyn DivisionStage>>,
    waiting: WaitingWindows,
    rows: RowQueue,
    names: OwnerNames,
    credit: CgroupCredit,
    missing: Vec<MissingCount>,
    /// The last tick that has ended.
    ended_tick: u64,
    /// Length of a window, ns, unless windows are longer.
    window_ns: u64,
    /// What is left out.
    relief: Relief,
}

/// Most counters that a note names.
const NAMED_COUNTERS: usize = 4;

/// Windows are so many times as long while the recorder is late, but not longer than the limit, ns.
const LONGER: u64 = 10;
const LONGEST_NS: u64 = 1_000_000_000;

impl EntryConsumer for Attributor {
    /// Takes an entry. At the end of a window, rows go to `tables`.
    fn take_entry(&mut self, entry: LogEntry<'_>, tables: &mut Builders) -> Result<(), Disorder> {
        // Rows are made before the entry is applied: they have the names that were known when their
        // window was divided.
        if self.rows.is_within_window() {
            self.append_rows(tables, usize::MAX);
        }
        for stage in &mut self.stages {
            stage.take_entry(entry);
        }
        match entry {
            LogEntry::Usage { cpu, usage: use_by_owner } => self.usage.add_use(cpu, use_by_owner),
            LogEntry::Switches { cpu, switches: switches_by_owner } => {
                self.switches.add_switches(cpu, switches_by_owner);
            }
            LogEntry::Reading(reading) => self.queue_reading(reading)?,
            LogEntry::Moved(moved) => {
                self.moved.add_moved(moved);
                self.learning.take_transfer(moved);
            }
            // For the stages.
            LogEntry::Held(_) | LogEntry::Monitored(_) | LogEntry::Account(_) => {}
            LogEntry::Cgroup { id, names } => self.names.set_cgroup(id, names),
            LogEntry::Interrupt { number, name } => self.names.set_interrupt(number, name),
            LogEntry::EndOfTick { tick, is_last } => {
                if tick <= self.ended_tick {
                    return Err(Disorder::Tick(tick));
                }
                self.end_tick(tick, is_last);
                self.append_rows(tables, ROWS_AT_ONCE);
            }
        }
        Ok(())
    }

    fn make_rows(&mut self, tables: &mut Builders) -> bool {
        self.append_rows(tables, ROWS_AT_ONCE)
    }

    fn finish_windows(&mut self, tables: &mut Builders) {
        self.rows.end_recording();
        if self.has_waiting_windows() {
            self.apply_readings(self.ended_tick, false);
            self.learn_and_divide(LearnMoment { tick: self.ended_tick, is_last: true });
        }
        self.append_rows(tables, usize::MAX);
    }

    fn has_waiting_windows(&self) -> bool {
        self.learning.has_learners() && self.learning.has_lag()
    }

    fn needs_ticks(&self) -> bool {
        self.learning.has_learners() || self.stages.iter().any(|stage| stage.needs_ticks())
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
            Relief::Seldom | Relief::LastRates | Relief::Residency => self.learning.has_learners(),
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

    fn misfits(&self) -> Vec<String> {
        let mut links_by_misfit: BTreeMap<Misfit, BTreeSet<String>> = BTreeMap::new();
        for track in self.tracks.iter().filter(|track| !track.counter.is_port()) {
            for misfit in track.misfits() {
                let Counter { pmu, event, .. } = &track.counter;
                links_by_misfit.entry(misfit).or_default().insert(format!("{pmu}/{event}/"));
            }
        }
        let note = |(misfit, names): (Misfit, BTreeSet<String>)| {
            let more = names.len().saturating_sub(NAMED_COUNTERS);
            let mut list = names.into_iter().take(NAMED_COUNTERS).collect::<Vec<_>>().join(", ");
            if more > 0 {
                list.extend([" and ", &more.to_string(), " more"]);
            }
            format!("{list}: {}; confidences are lower", misfit.text())
        };
        links_by_misfit.into_iter().map(note).collect()
    }

    fn limited_windows(&self) -> u64 {
        self.rows.limited_windows()
    }

    fn largest_cgroups(&mut self) -> Vec<Arc<str>> {
        let ids = self.credit.largest_cgroups().into_iter();
        ids.filter_map(|id| Some(Arc::from(&*self.names.cgroup_names(id)?.path))).collect()
    }
}

impl Attributor {
    /// The state before the first entry.
    pub fn new(facts: &RecordingFacts<'_>) -> Self {
        let &RecordingFacts { plan, counters, settings, start_tick, siblings, threads, .. } = facts;
        let tick_ns = plan.tick_ns;
        let clock = WindowClock { tick_ns, window_ns: plan.window_ns, start_tick };
        let (sets, set_of) = usage::distinct_cpu_sets(plan);
        let track = |id: &u32| {
            let counter = plan.counters.get(*id as usize)?.clone();
            Some(TrackedCounter::new(plan, counter, *set_of.get(*id as usize)?, clock, settings))
        };
        let mut tracks: Vec<TrackedCounter> = counters.iter().filter_map(track).collect();
        let mut index_of = vec![None; plan.counters.len()];
        for (position, track) in tracks.iter().enumerate() {
            if let Some(index) = index_of.get_mut(track.counter.id as usize) {
                *index = Some(position);
            }
        }
        let has_learners = usage::sets_with_learners(sets.len(), &set_of, plan, settings);
        let learning = LearningSetup {
            plan,
            sets: sets.clone(),
            has_learners: &has_learners,
            schedule: LearnSchedule::new(start_tick, tick_ns, settings.lag_ns),
            start_tick,
            threads,
        };
        Self {
            clock,
            index_of,
            usage: CpuUsage::new(sets, &has_learners, siblings),
            switches: Switches::new(plan),
            moved: MovedSum::default(),
            learning: Learning::new(learning, &mut tracks),
            stages: create_stages(&mut StageSetup { plan, tracks: &mut tracks, start_tick }),
            waiting: WaitingWindows::default(),
            rows: RowQueue::new(facts, tracks.len()),
            names: OwnerNames::default(),
            credit: CgroupCredit::new(&find_memory_links(plan, &tracks)),
            tracks,
            missing: Vec::new(),
            ended_tick: start_tick,
            window_ns: plan.window_ns,
            relief: Relief::None,
        }
    }

    fn queue_reading(&mut self, reading: CounterReading) -> Result<(), Disorder> {
        let open_tick = self.open_tick();
        let index = self.index_of.get(reading.counter as usize).copied().flatten();
        let track = index.and_then(|index| self.tracks.get_mut(index));
        track.ok_or(Disorder::Counter(reading.counter))?.series.push(reading, open_tick)?;
        if let Some(owner @ (Owner::Task { .. } | Owner::OtherTasks)) = reading.owner
            && reading.value == Err(RAN_GUEST)
        {
            self.learning.add_guest(owner);
        }
        Ok(())
    }

    /// Whether entries are applied at this tick also if no window ends. What waits does not grow
    /// with the length of a window.
    fn applies_entries_at(&self, tick: u64) -> bool {
        let is_long = self.window_ns > LEARN_INTERVAL_NS;
        (is_long || self.learning.has_learners()) && self.learning.is_learn_tick(tick)
    }

    /// Ends a tick, in this order: what owners used and held in it is kept; readings up to its end
    /// are applied, which gives the ticks their counts; a window that ends takes the counts and the
    /// use since the last one; and then counters learn, so that a window that ends at this tick can
    /// be divided with it.
    fn end_tick(&mut self, tick: u64, is_last: bool) {
        self.ended_tick = tick;
        self.usage.end_tick(tick);
        self.learning.end_tick(tick);
        for stage in &mut self.stages {
            stage.end_tick(tick, &self.tracks);
        }
        let ends_window = is_last || self.clock.ends_window(tick);
        let is_learn_tick = is_last || self.learning.is_learn_tick(tick);
        let learns = self.learning.has_learners() && is_learn_tick;
        if ends_window || learns || self.applies_entries_at(tick) {
            self.apply_readings(tick, is_last);
        }
        if ends_window {
            self.close_window(tick, is_last);
            self.set_window();
        }
        if learns {
            self.learn_and_divide(LearnMoment { tick, is_last });
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

    /// Applies all entries up to the end of `tick`. Only after that, the ticks have their counts.
    fn apply_readings(&mut self, tick: u64, is_last: bool) {
        for track in &mut self.tracks {
            track.apply_readings(tick, is_last);
        }
        for stage in &mut self.stages {
            stage.use_tick_counts(&mut self.tracks);
        }
        self.learning.count_ticks(&self.usage.take_ticks(), &mut self.tracks);
    }

    /// Closes the window that ends at `tick`.
    fn close_window(&mut self, tick: u64, is_last: bool) {
        let times = self.usage.take_window();
        for times in &times {
            self.credit.add_time(times);
        }
        let (moved, switches) = (self.moved.take_all(), self.switches.take_window());
        let tick_ns = self.clock.tick_ns;
        let length_ns = self.clock.window_ns;
        let window =
            ClosingWindow { tick, tick_ns, length_ns, is_last, moved: &moved, switches: &switches };
        let mut closing = WindowCloser {
            tracks: &mut self.tracks,
            stages: &mut self.stages,
            learning: &mut self.learning,
            names: &self.names,
            missing: &mut self.missing,
        };
        self.waiting.push(closing.close_window(&window, &times));
        if is_last {
            self.rows.end_recording();
        }
    }

    fn learn_and_divide(&mut self, moment: LearnMoment) {
        let Self { learning, tracks, waiting, names, .. } = self;
        learning.learn_and_divide(moment, tracks, waiting, names);
    }

    /// Appends rows of windows that all counters have divided, until a table has `max_rows`. `true`
    /// if no such row is left.
    fn append_rows(&mut self, tables: &mut Builders, max_rows: usize) -> bool {
        let Self { rows, waiting, tracks, names, credit, .. } = self;
        rows.append_rows(RowSource { waiting, tracks, names, credit }, tables, max_rows)
    }
}

#[cfg(test)]
mod tests;
