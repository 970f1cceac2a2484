//! One counter: its count in each window, and how it is divided.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};

use super::adjustment::AdjustedWindow;
use super::attribution_settings::AttributionSettings;
use super::division_method::{DivisionInput, DivisionMethod};
use super::history::Histories;
use super::learner::DividedCount;
use super::method::Method;
use super::misfit::Misfit;
use super::near_rates::NearRates;
use super::owner_names::OwnerNames;
use super::predictor::Predictor;
use super::schedule::LearnSchedule;
use super::series::{ReadingSeries, SeriesCount, WindowClock};
use super::share::Share;
use super::sibling_cost::ContrastSums;
use super::waiting::WindowState;
use super::windows::{ClosingWindow, DividedWindow, UndividedWindow};
use crate::catalog::exact::ExactBy;
use crate::count::Count;
use crate::entries::{
    DeviceTransfer, MissingCount, MissingReason, Owner, RAN_GUEST, Relief, STANDS_STILL,
};
use crate::plan::{Counter, Plan};

/// One counter of a recording.
#[derive(Debug)]
pub(super) struct TrackedCounter {
    /// The counter in the plan.
    pub counter: Counter,
    /// Index of the set of CPUs that it sees.
    pub set: usize,
    /// Its readings.
    pub series: ReadingSeries,
    /// The method that divides it, if it can.
    pub planned_method: Method,
    /// Whether the method learns from ticks.
    pub learns: bool,
    /// Tick and count at the begin of its window.
    window_begin: (u64, Count),
    /// The count at the last tick that the method has learnt from.
    learnt_count: Option<Count>,
    /// Raw counts by owner since that tick.
    tick_counts: HashMap<Owner, u64>,
    /// The counts of the ticks that were asked for since entries were applied.
    known_counts: BTreeMap<u64, Option<f64>>,
    /// Time and raw counts by owner in the earlier intervals of a window that was extended.
    time: HashMap<Owner, u64>,
    counts: HashMap<Owner, u64>,
    /// Bytes by owner on its devices, in the same intervals.
    io: BTreeMap<Owner, u64>,
    /// The shares of its windows since they were last taken, if it is a port.
    port_shares: Vec<(u64, Vec<Share>)>,
    method: Box<dyn DivisionMethod>,
    schedule: LearnSchedule,
    /// The tick at which the window begins that is to be divided next, and the last tick of it that
    /// the method has divided.
    next_begin_tick: u64,
    divided_tick: u64,
    /// Whether the readings that were applied last restarted it.
    has_restarted: bool,
    /// Whether a failed read was reported and no read was successful since.
    is_failing: bool,
}

impl TrackedCounter {
    /// A counter that sees the set of CPUs with this index, before its first reading.
    ///
    /// It was enabled with a count of 0 within a tick before the start tick. That count is used
    /// until the reading of the start tick arrives, so no count is lost if it never does.
    pub(super) fn new(
        plan: &Plan,
        counter: Counter,
        set: usize,
        clock: WindowClock,
        settings: AttributionSettings,
    ) -> Self {
        let counter = Counter { io: counter.io.clone().filter(|_| settings.io), ..counter };
        let learns = settings.learns_from_ticks(plan, &counter);
        Self {
            set,
            planned_method: settings.planned_method(plan, &counter),
            method: settings.create_method(plan, &counter),
            learns,
            series: ReadingSeries::new(clock, learns),
            counter,
            window_begin: (clock.start_tick, Count::default()),
            learnt_count: None,
            tick_counts: HashMap::new(),
            known_counts: BTreeMap::new(),
            time: HashMap::new(),
            counts: HashMap::new(),
            io: BTreeMap::new(),
            port_shares: Vec::new(),
            schedule: LearnSchedule::new(clock.start_tick, clock.tick_ns, settings.lag_ns),
            next_begin_tick: clock.start_tick,
            divided_tick: clock.start_tick,
            has_restarted: false,
            is_failing: false,
        }
    }

    /// Applies the readings up to the end of `tick`.
    pub(super) fn apply_readings(&mut self, tick: u64, is_last: bool) {
        self.known_counts.clear();
        self.series.apply_readings(tick, is_last);
        if let Some(begin) = self.series.take_first_reading() {
            // Readings count from before a part of a rotated recording, which no tick of it has.
            self.learnt_count.get_or_insert(begin.1);
            self.window_begin = begin;
        }
        self.has_restarted = self.series.take_restarted();
        if self.has_restarted {
            self.time.clear();
            self.io.clear();
            // Counts from readings are only those since the restart; switches are seen all the
            // time.
            if self.counter.exact_by.is_some() {
                self.counts.clear();
            }
            self.method.note_restart();
        }
    }

    /// Whether the readings that were applied last restarted it: what it counted before in its
    /// window is lost.
    pub(super) const fn has_restarted(&self) -> bool {
        self.has_restarted
    }

    /// Ends its window, or extends it if there is no reading: then it has no rows.
    pub(super) fn close_window(
        &mut self,
        window: &ClosingWindow<'_>,
        time: &Arc<[(Owner, u64)]>,
        missing: &mut Vec<MissingCount>,
    ) -> WindowState {
        self.add_io(window.moved);
        self.add_switches(window.switches);
        let read_count = match self.series.end_window(window.tick, self.window_begin.1) {
            SeriesCount::Counted(count, counts) => {
                add_counts(&mut self.counts, counts);
                self.is_failing = false;
                count
            }
            SeriesCount::Missing { expected, errno } => {
                add_counts(&mut self.time, time.iter().copied());
                self.report_missing(window, expected, errno, missing);
                return if window.is_last && self.counter.role.is_divided() {
                    WindowState::Divided(self.unread_window(window))
                } else {
                    WindowState::Nothing
                };
            }
        };
        let end_count = read_count.not_below(self.window_begin.1);
        let (begin_tick, begin_count) =
            mem::replace(&mut self.window_begin, (window.tick, end_count));
        let delta = end_count.count_since(begin_count);
        if delta.scale_factor().is_none() {
            let span_ns = (window.tick - begin_tick) * window.tick_ns;
            missing.push(self.make_missing(MissingReason::NotScheduled, window, span_ns));
        }
        let sorted = |map: &mut HashMap<Owner, u64>| {
            let mut entries: Vec<_> = map.drain().collect();
            entries.sort_unstable();
            entries
        };
        let time = if self.time.is_empty() {
            Arc::clone(time)
        } else {
            add_counts(&mut self.time, time.iter().copied());
            sorted(&mut self.time).into()
        };
        let counts = sorted(&mut self.counts);
        let io = mem::take(&mut self.io).into_iter();
        let io = io.map(|(owner, bytes)| (owner, bytes as f64)).collect();
        let adjustments = Vec::new();
        let undivided = UndividedWindow { begin_tick, delta, time, counts, io, adjustments };
        WindowState::Undivided(Box::new(undivided))
    }

    fn report_missing(
        &mut self,
        window: &ClosingWindow<'_>,
        expected: bool,
        errno: Option<i32>,
        missing: &mut Vec<MissingCount>,
    ) {
        if errno == Some(RAN_GUEST) {
            return;
        }
        // While the driver moves the counter to another CPU, no loss is entered: the next reading
        // includes the count. For a counter that has stopped, the loss is entered with its stop.
        let moves = !self.counter.per_cpu
            && errno.is_some_and(|errno| [libc::EINVAL, STANDS_STILL].contains(&errno));
        if let Some(errno) = errno
            && !self.is_failing
            && !moves
        {
            self.is_failing = true;
            missing.push(self.make_missing(MissingReason::ReadFailed(errno), window, 0));
        }
        if (errno.is_none() || moves) && expected {
            missing.push(self.make_missing(MissingReason::NoBoundary, window, window.tick_ns));
        }
        if window.is_last && moves {
            missing.push(self.make_missing(MissingReason::NoReader, window, 0));
        }
    }

    const fn make_missing(
        &self,
        lack: MissingReason,
        window: &ClosingWindow<'_>,
        span_ns: u64,
    ) -> MissingCount {
        let Counter { id, cpu, .. } = self.counter;
        MissingCount { reason: lack, counter: id, cpu, time: window.tick * window.tick_ns, span_ns }
    }

    /// Its count in a window, in its unit; `None` if it never ran.
    pub(super) fn total_count(&self, window: &UndividedWindow) -> Option<f64> {
        Some(window.delta.value as f64 * self.counter.scale * window.delta.scale_factor()?)
    }

    /// Divides a window that ended with a reading in tick `end_tick`. Windows are divided in order.
    pub(super) fn divide_window(
        &mut self,
        end_tick: u64,
        tick_ns: u64,
        window: &UndividedWindow,
        histories: Option<&Histories>,
        names: &OwnerNames,
    ) -> DividedWindow {
        let (begin_tick, delta) = (window.begin_tick, window.delta);
        let running = delta.scale_factor().map_or(0.0, |_| delta.running_part());
        let factor = delta.scale_factor().map(|factor| self.counter.scale * factor);
        let total = factor.map(|factor| delta.value as f64 * factor);
        if let Some(histories) = histories
            && self.schedule.spans_intervals(end_tick - begin_tick)
        {
            self.divide_pieces(histories, end_tick);
        }
        self.next_begin_tick = end_tick;
        if self.learns && !window.adjustments.is_empty() {
            let total = total.unwrap_or_default();
            let adjustments = window.adjustments.iter();
            let parts =
                adjustments.flat_map(|change| change.measured_parts(total, &window.time, names));
            self.method.note_measured(parts.collect());
        }
        let (method, mut shares) = match total.zip(factor) {
            Some((total, factor)) if total > 0.0 => self.method.divide_window(&DivisionInput {
                total,
                factor,
                running,
                sees_one_cpu: self.counter.per_cpu,
                len_ns: (end_tick - begin_tick) * tick_ns,
                end_tick,
                time: &window.time,
                counts: &window.counts,
                io: self.counter.io.is_some().then_some(&*window.io),
                histories,
            }),
            _ => {
                self.method.skip_window(histories, end_tick);
                (Method::None, Vec::new())
            }
        };
        if self.counter.is_port() {
            self.port_shares.push((end_tick, shares.clone()));
        }
        let adjusted = AdjustedWindow { method, total: total.unwrap_or_default(), running, names };
        for adjustment in &window.adjustments {
            adjustment.adjust_shares(&adjusted, &mut shares);
        }
        DividedWindow { begin_tick, end_tick, total, running, method, shares }
    }

    /// The last window of a recording if its reading never arrived.
    const fn unread_window(&self, window: &ClosingWindow<'_>) -> DividedWindow {
        DividedWindow {
            begin_tick: self.window_begin.0,
            end_tick: window.tick,
            total: None,
            running: 0.0,
            method: Method::None,
            shares: Vec::new(),
        }
    }

    /// Adds bytes that were moved on its devices, in its direction.
    fn add_io(&mut self, moved: &[DeviceTransfer]) {
        let Some(io) = &self.counter.io else {
            return;
        };
        for moved in moved.iter().filter(|moved| moved.direction == io.direction) {
            if io.devices.iter().any(|device| **device == *moved.device) {
                *self.io.entry(moved.owner).or_default() += moved.bytes;
            }
        }
    }

    /// Adds the context switches of its CPU, if it counts these.
    fn add_switches(&mut self, switches: &BTreeMap<u32, HashMap<Owner, u64>>) {
        if self.counter.exact_by == Some(ExactBy::Switches)
            && let Some(owner_switches) = switches.get(&self.counter.cpu)
        {
            add_counts(
                &mut self.counts,
                owner_switches.iter().map(|(owner, count)| (*owner, *count)),
            );
        }
    }

    /// Gives the method the count of a tick.
    pub(super) fn observe_tick(&mut self, tick: u64, histories: &Histories) {
        let count = self
            .take_tick_delta(tick)
            .map(|(delta, factor)| delta as f64 * self.counter.scale * factor);
        self.method.observe_tick(tick, count, histories);
    }

    /// Its raw count since the last tick with a reading, scaled for multiplexing; `None` if there
    /// is no reading at the end of this tick, so that the next count covers both. Ticks come in
    /// order, but several readers may ask for one.
    pub(super) fn tick_count(&mut self, tick: u64) -> Option<f64> {
        if let Some(known) = self.known_counts.get(&tick) {
            return *known;
        }
        let count = self.take_tick_delta(tick).map(|(delta, factor)| delta as f64 * factor);
        self.known_counts.insert(tick, count);
        count
    }

    /// Raw counts by owner since the last tick with a reading, and the factor for multiplexing;
    /// `None` if there is no reading at the end of this tick.
    pub(super) fn take_owner_counts(&mut self, tick: u64) -> Option<(HashMap<Owner, u64>, f64)> {
        let (count, by_owner) = self.series.take_tick_count(tick)?;
        add_counts(&mut self.tick_counts, by_owner);
        let (_, factor) = self.count_since_tick(count)?;
        Some((mem::take(&mut self.tick_counts), factor))
    }

    /// The raw count of a tick since the last one with a reading, and the factor for multiplexing.
    fn take_tick_delta(&mut self, tick: u64) -> Option<(u64, f64)> {
        let (count, _) = self.series.take_tick_count(tick)?;
        self.count_since_tick(count)
    }

    /// The count since the last tick with a reading, and the factor for multiplexing; `None` if the
    /// counter did not run since.
    fn count_since_tick(&mut self, count: Count) -> Option<(u64, f64)> {
        let previous_count = self.learnt_count.unwrap_or_default();
        let current_count = count.not_below(previous_count);
        let delta = current_count.count_since(previous_count);
        let factor = delta.scale_factor()?;
        self.learnt_count = Some(current_count);
        Some((delta.value, factor))
    }

    /// Gives the method the ticks that were reviewed.
    pub(super) fn learn_ticks(&mut self, histories: &Histories) {
        self.method.learn_ticks(histories);
    }

    /// The method's rates for a predictor.
    pub(super) fn rate_profile(&self, predictor: Predictor) -> Option<Vec<f64>> {
        self.method.rate_profile(predictor)
    }

    /// What its ticks say against the model of its method.
    pub(super) fn misfits(&self) -> Vec<Misfit> {
        self.method.misfits()
    }

    /// The method's residuals and contrasts since the last call.
    pub(super) fn take_contrasts(&mut self) -> Option<ContrastSums> {
        self.method.take_contrasts()
    }

    /// Has the method solve its rates from the ticks so far.
    pub(super) fn solve_rates(&mut self, histories: &Histories, peer_rates: &[&NearRates]) {
        self.method.solve_rates(histories, peer_rates);
    }

    /// The method's rates of time on near CPUs.
    pub(super) fn near_rates(&self, histories: &Histories) -> NearRates {
        self.method.near_rates(histories)
    }

    /// Sets what the method leaves out from now on.
    pub(super) fn set_relief(&mut self, relief: Relief) {
        self.method.set_relief(relief);
    }

    /// Has the method divide the ticks up to `last_tick` of the next window.
    pub(super) fn divide_ticks(&mut self, histories: &Histories, last_tick: u64) {
        self.divide_pieces(histories, last_tick);
        self.method.divide_ticks(histories, self.next_begin_tick, last_tick);
    }

    /// Has the method divide the ticks of the next window before `last_tick`, in pieces that are
    /// the same for all counters, which so share the sums of their use.
    fn divide_pieces(&mut self, histories: &Histories, last_tick: u64) {
        let mut end = self.schedule.next_learn_tick(self.next_begin_tick.max(self.divided_tick));
        while end < last_tick {
            self.method.divide_ticks(histories, self.next_begin_tick, end);
            end = self.schedule.next_learn_tick(end);
        }
        self.divided_tick = self.divided_tick.max(last_tick);
    }

    /// The counts of ticks that were divided since the last call, if it is a port.
    pub(super) fn take_divided_counts(&mut self) -> Vec<DividedCount> {
        self.method.take_divided_counts()
    }

    /// The shares of the windows that were divided since the last call, if it is a port.
    pub(super) fn take_port_shares(&mut self) -> Vec<(u64, Vec<Share>)> {
        mem::take(&mut self.port_shares)
    }

    /// The oldest tick whose history the method still needs.
    pub(super) fn oldest_needed_tick(&self) -> u64 {
        self.method.oldest_needed_tick()
    }
}

/// Adds counts to the sums of their owners.
fn add_counts(sum: &mut HashMap<Owner, u64>, counts: impl IntoIterator<Item = (Owner, u64)>) {
    for (owner, count) in counts {
        *sum.entry(owner).or_default() += count;
    }
}
