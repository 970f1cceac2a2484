//! The readings of one counter in the order of the log, and its count at the end of each window.
//!
//! A window of a counter ends with the timer's reading of its last tick. If that reading is
//! missing, the window extends to the next boundary that has one. Such a row covers more than one
//! interval, and `window_ns` says so. Nothing is interpolated.
//!
//! Guarantee: entries wait until the end of their tick, so they may be logged any time before it.

use std::collections::VecDeque;
use std::mem;

use foldhash::{HashMap, HashMapExt};

use crate::count::{Count, CounterTimes};
use crate::entries::{CounterReading, CounterValue, Disorder, Owner, RAN_GUEST, ReadingTrigger};

/// The times at which ticks and windows end.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowClock {
    /// Length of a tick, ns.
    pub tick_ns: u64,
    /// Length of a window, ns; a multiple of `tick_ns`.
    pub window_ns: u64,
    /// The tick at which the recording begins.
    pub start_tick: u64,
}

impl WindowClock {
    /// Whether a window ends at `tick`.
    pub(super) const fn ends_window(self, tick: u64) -> bool {
        (tick * self.tick_ns).is_multiple_of(self.window_ns)
    }
}

/// Whether a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountingState {
    Counting,
    /// It stopped with this count, which is in no window yet.
    Stopped(Count),
    /// It does not count, and its last count is in a window. Readings are expected again from this
    /// tick on.
    Silent {
        until: u64,
    },
}

/// The timer's reading of the last tick of a window.
#[derive(Debug)]
enum BoundaryReading {
    Missing,
    Failed(i32),
    /// The count, and raw counts by owner since the last boundary.
    Counted(Count, HashMap<Owner, u64>),
}

/// What the readings of a counter give a window that ends.
#[derive(Debug, PartialEq)]
pub(super) enum SeriesCount {
    /// A count, and raw counts by owner since the last one.
    Counted(Count, HashMap<Owner, u64>),
    /// No count. `expected` is `false` if the counter is known not to count.
    Missing {
        /// Whether a reading was expected.
        expected: bool,
        /// The errno of a failed read.
        errno: Option<i32>,
    },
}

/// The readings of one counter.
#[derive(Debug)]
pub(super) struct ReadingSeries {
    clock: WindowClock,
    /// Whether the readings of ticks are kept for a method that learns from them.
    keeps_ticks: bool,
    pending: VecDeque<CounterReading>,
    /// Time and tick of the newest entry.
    newest: (u64, u64),
    times: CounterTimes,
    state: CountingState,
    boundary: BoundaryReading,
    /// The last tick that the timer read, and whether the read was successful.
    timer_tick: Option<(u64, bool)>,
    /// Raw counts by owner since the last boundary.
    owner_counts: HashMap<Owner, u64>,
    /// Value of the last reading.
    previous: Option<u64>,
    /// The highest value so far. Counters only increase: a lower value would be counted twice when
    /// the counter catches up, so its owners would get more than the total.
    highest: u64,
    /// Whether readings are missing, so that the owner of the next count is unknown.
    has_gap: bool,
    /// Readings of ticks that no method has learnt from yet, and raw counts by owner since the
    /// previous reading.
    ticks: VecDeque<(u64, Option<Count>, HashMap<Owner, u64>)>,
    /// Raw counts by owner since the last of these readings.
    tick_counts: HashMap<Owner, u64>,
    /// The reading at which the first window begins.
    first_reading: Option<(u64, Count)>,
    /// Whether counts from before this tick belong to other owners than those of now.
    is_restarted: bool,
}

impl ReadingSeries {
    /// The state before the first entry.
    pub(super) fn new(clock: WindowClock, keeps_ticks: bool) -> Self {
        Self {
            clock,
            keeps_ticks,
            pending: VecDeque::new(),
            newest: (0, 0),
            times: CounterTimes::default(),
            state: CountingState::Counting,
            boundary: BoundaryReading::Missing,
            timer_tick: None,
            owner_counts: HashMap::new(),
            previous: None,
            highest: 0,
            has_gap: false,
            ticks: VecDeque::new(),
            tick_counts: HashMap::new(),
            first_reading: None,
            is_restarted: false,
        }
    }

    /// Keeps the readings of ticks for a method that learns from each of them.
    pub(super) const fn keep_ticks(&mut self) {
        self.keeps_ticks = true;
    }

    /// Number of readings that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.pending.len() + self.ticks.len()
    }

    /// Sets the length of windows from here, ns.
    pub(super) const fn set_window(&mut self, window_ns: u64) {
        self.clock.window_ns = window_ns;
    }

    /// Keeps a reading until its tick ends. `open_tick` is the first tick that has not ended.
    pub(super) fn push(&mut self, reading: CounterReading, open_tick: u64) -> Result<(), Disorder> {
        let (time, tick) = self.newest;
        if reading.time < time || reading.tick < tick || reading.tick < open_tick {
            let CounterReading { counter, tick, .. } = reading;
            return Err(Disorder::Reading { counter, tick });
        }
        self.newest = (reading.time, reading.tick);
        self.pending.push_back(reading);
        Ok(())
    }

    /// Applies the entries up to the end of `tick`. `is_last` ends the recording.
    pub(super) fn apply_readings(&mut self, tick: u64, is_last: bool) {
        while let Some(reading) = self.pending.pop_front_if(|reading| reading.tick <= tick) {
            let ends = self.clock.ends_window(reading.tick) || (is_last && reading.tick == tick);
            self.apply_reading(&reading, ends);
        }
        if is_last && !matches!(self.boundary, BoundaryReading::Counted(..)) {
            // The final count replaces a missing reading of the last tick.
            for reading in mem::take(&mut self.pending) {
                self.apply_reading(&reading, false);
            }
        }
    }

    fn apply_reading(&mut self, reading: &CounterReading, ends_window: bool) {
        let count = reading.value.ok().map(|CounterValue { value, times }| {
            self.highest = self.highest.max(value);
            self.times.count_at(reading.time, self.highest, times)
        });
        if let (Some(owner), Some(count)) = (reading.owner, count) {
            self.give_count(count.value, owner);
        }
        // What a virtual machine's process did belongs to no owner.
        self.has_gap |= reading.value == Err(RAN_GUEST);
        match reading.trigger {
            ReadingTrigger::Timer if !reading.is_late(self.clock.tick_ns) => {
                self.apply_timer_reading(
                    reading.tick,
                    count.ok_or(reading.value.err().unwrap_or(0)),
                    ends_window,
                );
            }
            ReadingTrigger::Timer | ReadingTrigger::Event => {}
            ReadingTrigger::Stop => {
                if let Some(count) = count {
                    self.give_count(count.value, Owner::Unattributed);
                    self.state = CountingState::Stopped(count);
                }
            }
            ReadingTrigger::Start => self.restart_counting(reading.tick),
        }
    }

    /// Gives the count since the last reading to its owner.
    fn give_count(&mut self, value: u64, owner: Owner) {
        let owner = if mem::take(&mut self.has_gap) { Owner::Unattributed } else { owner };
        let (owner, count) = match self.previous.replace(value) {
            Some(previous_value) => (owner, value.saturating_sub(previous_value)),
            // The owner before the first reading is unknown.
            None => (Owner::Unattributed, value),
        };
        *self.owner_counts.entry(owner).or_default() += count;
        if self.keeps_ticks {
            *self.tick_counts.entry(owner).or_default() += count;
        }
    }

    fn apply_timer_reading(&mut self, tick: u64, count: Result<Count, i32>, ends_window: bool) {
        match self.timer_tick {
            // While a counter moves to another CPU, two CPUs may try to read it in one tick.
            Some((previous_tick, counted))
                if previous_tick == tick && (counted || count.is_err()) =>
            {
                return;
            }
            _ => {}
        }
        self.timer_tick = Some((tick, count.is_ok()));
        if tick == self.clock.start_tick {
            if let Ok(count) = count {
                self.first_reading = Some((tick, count));
                self.owner_counts.clear();
                self.tick_counts.clear();
            }
        } else if ends_window {
            self.boundary = match count {
                Ok(count) => BoundaryReading::Counted(count, mem::take(&mut self.owner_counts)),
                Err(errno) => BoundaryReading::Failed(errno),
            };
        }
        if self.keeps_ticks {
            let by_owner =
                if count.is_ok() { mem::take(&mut self.tick_counts) } else { HashMap::new() };
            self.ticks.push_back((tick, count.ok(), by_owner));
        }
    }

    fn restart_counting(&mut self, tick: u64) {
        self.has_gap = true;
        match &mut self.state {
            CountingState::Silent { until } => {
                *until = tick;
                self.is_restarted = true;
            }
            // No window ended meanwhile: the next reading includes the count from before the stop.
            CountingState::Stopped(_) => self.state = CountingState::Counting,
            CountingState::Counting => {}
        }
    }

    /// The reading at which the first window begins, once it is known.
    pub(super) const fn take_first_reading(&mut self) -> Option<(u64, Count)> {
        self.first_reading.take()
    }

    /// Whether the counter was restarted since the last call: later counts do not belong to the
    /// owners from before.
    pub(super) const fn take_restarted(&mut self) -> bool {
        mem::replace(&mut self.is_restarted, false)
    }

    /// The state of the counter at the end of a window at `tick`. `previous_count` is the last
    /// count that a window has.
    pub(super) fn end_window(&mut self, tick: u64, previous_count: Count) -> SeriesCount {
        let errno = match mem::replace(&mut self.boundary, BoundaryReading::Missing) {
            BoundaryReading::Counted(count, exact) => {
                if !matches!(self.state, CountingState::Stopped(_)) {
                    self.state = CountingState::Counting;
                }
                return SeriesCount::Counted(count, exact);
            }
            BoundaryReading::Failed(errno) => Some(errno),
            BoundaryReading::Missing => None,
        };
        match self.state {
            CountingState::Stopped(count) => {
                self.state = CountingState::Silent { until: u64::MAX };
                if count == previous_count {
                    // It stopped before its last reading.
                    return SeriesCount::Missing { expected: false, errno };
                }
                SeriesCount::Counted(count, mem::take(&mut self.owner_counts))
            }
            CountingState::Silent { until } => {
                SeriesCount::Missing { expected: tick >= until, errno }
            }
            CountingState::Counting => SeriesCount::Missing { expected: true, errno },
        }
    }

    /// The timer's reading of `tick`, for methods that learn from ticks, and raw counts by owner
    /// since the previous reading. Readings of earlier ticks are dropped.
    pub(super) fn take_tick_count(&mut self, tick: u64) -> Option<(Count, HashMap<Owner, u64>)> {
        while self.ticks.pop_front_if(|(read, ..)| *read < tick).is_some() {}
        let (_, count, by_owner) = self.ticks.pop_front_if(|(read, ..)| *read == tick)?;
        Some((count?, by_owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 1_000_000;
    const CLOCK: WindowClock = WindowClock { tick_ns: TICK, window_ns: 10 * TICK, start_tick: 0 };

    /// The reading of a tick: made at its end, with this value.
    fn reading(
        tick: u64,
        trigger: ReadingTrigger,
        value: u64,
        owner: Option<Owner>,
    ) -> CounterReading {
        let value = Ok(CounterValue { value, times: None });
        CounterReading { tick, time: tick * TICK, counter: 0, cpu: 0, trigger, value, owner }
    }

    fn timer(tick: u64, value: u64) -> CounterReading {
        reading(tick, ReadingTrigger::Timer, value, None)
    }

    fn series(readings: impl IntoIterator<Item = CounterReading>) -> ReadingSeries {
        let mut series = ReadingSeries::new(CLOCK, false);
        readings.into_iter().for_each(|reading| series.push(reading, 0).unwrap());
        series
    }

    #[test]
    fn what_a_witness_counts_in_a_virtual_machine_is_nobodys() {
        let (one, other) = (Owner::Irq(1), Owner::Irq(2));
        let guest = CounterReading {
            value: Err(RAN_GUEST),
            ..reading(3, ReadingTrigger::Event, 0, Some(other))
        };
        let mut series = series([
            reading(0, ReadingTrigger::Timer, 0, Some(one)),
            reading(2, ReadingTrigger::Event, 7, Some(one)),
            guest,
            reading(5, ReadingTrigger::Event, 12, Some(one)),
            reading(10, ReadingTrigger::Timer, 20, Some(one)),
        ]);
        let parts = vec![(one, 15), (Owner::Unattributed, 5)];
        let (count, mut exact) = end(&mut series, 10, false).unwrap();
        exact.sort_unstable_by_key(|part| part.1);
        let mut parts = parts;
        parts.sort_unstable_by_key(|part| part.1);
        assert_eq!((count, exact), (20, parts));
    }

    /// The value at the end of a window, by owner.
    fn end(
        series: &mut ReadingSeries,
        tick: u64,
        is_last: bool,
    ) -> Option<(u64, Vec<(Owner, u64)>)> {
        series.apply_readings(tick, is_last);
        match series.end_window(tick, Count::default()) {
            SeriesCount::Counted(count, exact) => {
                let mut exact: Vec<_> = exact.into_iter().collect();
                exact.sort_unstable();
                Some((count.value, exact))
            }
            SeriesCount::Missing { .. } => None,
        }
    }

    #[test]
    fn readings_may_come_before_or_after_the_end_of_other_ticks() {
        let all: Vec<_> = (0..40).map(|tick| timer(tick, tick * 7)).collect();
        let mut ahead = series(all.clone());
        let mut in_step = ReadingSeries::new(CLOCK, false);
        let mut rest = all.into_iter().peekable();
        for window in [10, 20, 30] {
            while let Some(reading) = rest.next_if(|reading| reading.tick <= window) {
                in_step.push(reading, 0).unwrap();
            }
            let found = end(&mut ahead, window, false);
            assert_eq!(found, Some((window * 7, Vec::new())));
            assert_eq!(found, end(&mut in_step, window, false));
        }
    }

    #[test]
    fn a_reading_within_a_window_does_not_end_it() {
        let mut one = series([timer(10, 100), timer(12, 120)]);
        assert_eq!(end(&mut one, 10, false), Some((100, Vec::new())));
        assert_eq!(end(&mut one, 20, false), None);
        let mut last = series([timer(10, 100), timer(12, 120)]);
        assert_eq!(end(&mut last, 10, false), Some((100, Vec::new())));
        assert_eq!(end(&mut last, 14, true), None);
    }

    /// This happens while a counter moves to another CPU.
    #[test]
    fn of_two_readings_of_a_tick_the_first_that_counted_is_taken() {
        let failed = |errno| CounterReading { value: Err(errno), ..timer(10, 0) };
        let value = |readings: &[CounterReading]| {
            let mut series = series(readings.iter().copied());
            end(&mut series, 10, false).map(|(value, _)| value)
        };
        assert_eq!(value(&[timer(10, 5), timer(10, 6)]), Some(5));
        assert_eq!(value(&[failed(22), timer(10, 6)]), Some(6));
        assert_eq!(value(&[timer(10, 5), failed(22)]), Some(5));
        let mut twice = series([failed(22), failed(5)]);
        twice.apply_readings(10, false);
        let first = SeriesCount::Missing { expected: true, errno: Some(22) };
        assert_eq!(twice.end_window(10, Count::default()), first);
    }

    #[test]
    fn the_first_window_begins_with_the_reading_of_the_start_tick() {
        let owner = Some(Owner::Idle);
        let mut series = series([
            reading(0, ReadingTrigger::Event, 30, owner),
            reading(0, ReadingTrigger::Timer, 40, owner),
            reading(10, ReadingTrigger::Timer, 100, owner),
        ]);
        series.apply_readings(0, false);
        let begin = Count { value: 40, enabled: 0, running: 0 };
        assert_eq!(
            (series.take_first_reading(), series.take_first_reading()),
            (Some((0, begin)), None)
        );
        assert!(!series.take_restarted());
        // What was counted before is in no window.
        assert_eq!(end(&mut series, 10, false), Some((100, vec![(Owner::Idle, 60)])));
    }

    #[test]
    fn each_tick_is_learnt_from_once() {
        let owner = Some(Owner::Idle);
        let event = |tick, value| reading(tick, ReadingTrigger::Event, value, owner);
        let timer = |tick, value| reading(tick, ReadingTrigger::Timer, value, owner);
        let failed = CounterReading { value: Err(5), ..timer(4, 0) };
        let begin = [timer(0, 0), timer(1, 10), event(2, 13), timer(2, 20)];
        let readings = begin.into_iter().chain([event(3, 25), failed, timer(5, 50)]);
        let mut with_ticks = ReadingSeries::new(CLOCK, false);
        with_ticks.keep_ticks();
        let mut without_ticks = series([]);
        for reading in readings.clone() {
            with_ticks.push(reading, 0).unwrap();
            without_ticks.push(reading, 0).unwrap();
        }
        with_ticks.apply_readings(5, false);
        without_ticks.apply_readings(5, false);
        let mut of = |tick| {
            let found = with_ticks.take_tick_count(tick);
            found.map(|(count, owners)| (count.value, owners.into_iter().collect::<Vec<_>>()))
        };
        assert_eq!(of(1), Some((10, vec![(Owner::Idle, 10)])));
        assert_eq!(of(1), None);
        assert_eq!(of(2), Some((20, vec![(Owner::Idle, 10)])));
        assert_eq!([of(3), of(4)], [None, None]);
        // The count since the last count.
        assert_eq!(of(5), Some((50, vec![(Owner::Idle, 30)])));
        assert_eq!(without_ticks.take_tick_count(2), None);
        let mut late = series([]);
        late.keep_ticks();
        readings.for_each(|reading| late.push(reading, 0).unwrap());
        late.apply_readings(5, false);
        // Ticks that were not asked for are dropped.
        assert_eq!(late.take_tick_count(2).map(|(count, _)| count.value), Some(20));
    }

    #[test]
    fn a_counter_that_stops_right_after_a_reading_has_one_more_count() {
        let stop =
            CounterReading { time: 10 * TICK + 5, ..reading(10, ReadingTrigger::Stop, 130, None) };
        let mut series = series([timer(10, 100), stop]);
        assert_eq!(end(&mut series, 10, false).map(|(value, _)| value), Some(100));
        assert_eq!(end(&mut series, 20, false).map(|(value, _)| value), Some(130));
    }

    #[test]
    fn a_counter_that_stopped_before_its_last_reading_is_silent() {
        let mut series = series([timer(10, 100), reading(12, ReadingTrigger::Stop, 100, None)]);
        assert_eq!(end(&mut series, 10, false).map(|(value, _)| value), Some(100));
        series.apply_readings(20, false);
        let before = Count { value: 100, enabled: 12 * TICK, running: 12 * TICK };
        let silent = SeriesCount::Missing { expected: false, errno: None };
        assert_eq!(series.end_window(20, before), silent);
    }

    #[test]
    fn a_late_reading_keeps_its_count_and_ends_no_window() {
        let owner = Some(Owner::Irq(1));
        let late = CounterReading { tick: 11, ..reading(10, ReadingTrigger::Timer, 100, owner) };
        let next = reading(20, ReadingTrigger::Timer, 150, Some(Owner::Irq(2)));
        let mut series = series([late, next]);
        assert_eq!(end(&mut series, 10, false), None);
        let owners = vec![(Owner::Irq(2), 50), (Owner::Unattributed, 100)];
        assert_eq!(end(&mut series, 20, false), Some((150, owners)));
    }

    #[test]
    fn a_late_reading_of_the_last_tick_of_a_window_does_not_end_it() {
        let mut series =
            series([CounterReading { time: 9 * TICK, ..timer(10, 100) }, timer(20, 150)]);
        assert_eq!(end(&mut series, 10, false), None);
        assert_eq!(end(&mut series, 20, false), Some((150, Vec::new())));
    }

    #[test]
    fn a_count_that_goes_back_is_counted_once() {
        let [a, b] = [1, 2].map(|number| Some(Owner::Irq(number)));
        let event = |tick, value, owner| reading(tick, ReadingTrigger::Event, value, owner);
        let mut series = series([
            reading(0, ReadingTrigger::Timer, 100, a),
            event(2, 150, a),
            event(3, 20, b),
            event(4, 140, a),
            reading(10, ReadingTrigger::Timer, 160, b),
        ]);
        let owners = vec![(Owner::Irq(1), 50), (Owner::Irq(2), 10)];
        assert_eq!(end(&mut series, 10, false), Some((160, owners)));
    }

    #[test]
    fn the_last_count_of_a_counter_is_in_one_window() {
        let mut series = series([timer(10, 100), reading(13, ReadingTrigger::Stop, 130, None)]);
        assert_eq!(end(&mut series, 10, false).map(|(value, _)| value), Some(100));
        assert_eq!(end(&mut series, 20, false).map(|(value, _)| value), Some(130));
        series.apply_readings(30, false);
        let silent = SeriesCount::Missing { expected: false, errno: None };
        assert_eq!(series.end_window(30, Count::default()), silent);
        // It counts again, and a reading is missing from then on.
        let start = CounterReading { value: Err(0), ..reading(35, ReadingTrigger::Start, 0, None) };
        series.push(start, 31).unwrap();
        series.apply_readings(40, false);
        assert!(series.take_restarted());
        let missed = SeriesCount::Missing { expected: true, errno: None };
        assert_eq!(series.end_window(40, Count::default()), missed);
        series.push(timer(50, 170), 41).unwrap();
        assert_eq!(end(&mut series, 50, false).map(|(value, _)| value), Some(170));
    }

    /// The stop is noticed when it is over, so both entries are in one window.
    #[test]
    fn a_counter_that_stopped_and_started_counts_on() {
        let switch = |tick, value| reading(tick, ReadingTrigger::Event, value, Some(Owner::Idle));
        let stop = reading(13, ReadingTrigger::Stop, 130, None);
        let start = CounterReading { value: Err(0), ..reading(14, ReadingTrigger::Start, 0, None) };
        let begin = [timer(10, 100), switch(12, 120), stop, start];
        // The count until the next known owner belongs to nobody.
        let mut unread = series(begin.into_iter().chain([switch(16, 150), switch(17, 160)]));
        assert_eq!(end(&mut unread, 10, false).map(|(value, _)| value), Some(100));
        unread.apply_readings(20, false);
        let missed = SeriesCount::Missing { expected: true, errno: None };
        assert_eq!(unread.end_window(20, Count::default()), missed);
        unread.push(switch(22, 170), 21).unwrap();
        unread.push(reading(30, ReadingTrigger::Timer, 180, Some(Owner::Idle)), 21).unwrap();
        let owners = vec![(Owner::Idle, 30), (Owner::Unattributed, 150)];
        assert_eq!(end(&mut unread, 30, false), Some((180, owners)));
        let mut read = series(begin.into_iter().chain([switch(16, 150), timer(20, 150)]));
        assert!(end(&mut read, 10, false).is_some());
        let owners = vec![(Owner::Unattributed, 150)];
        assert_eq!(end(&mut read, 20, false), Some((150, owners)));
        read.apply_readings(30, false);
        assert_eq!(read.end_window(30, Count::default()), missed);
    }

    #[test]
    fn the_count_at_the_end_stands_in_for_the_reading_of_the_last_tick() {
        let switch = |tick, value| reading(tick, ReadingTrigger::Event, value, Some(Owner::Idle));
        let stop = reading(17, ReadingTrigger::Stop, 60, None);
        let mut without =
            series([switch(8, 5), timer(10, 5), switch(11, 10), switch(15, 40), stop]);
        assert!(end(&mut without, 10, false).is_some());
        // Counts before the first known owner and after the last reading belong to nobody.
        let owners = vec![(Owner::Idle, 35), (Owner::Unattributed, 20)];
        assert_eq!(end(&mut without, 14, true), Some((60, owners)));
        let mut with = series([timer(10, 0), timer(14, 50), stop]);
        assert!(end(&mut with, 10, false).is_some());
        assert_eq!(end(&mut with, 14, true).map(|(value, _)| value), Some(50));
    }

    #[test]
    fn entries_out_of_order_are_refused() {
        let mut series = series([timer(10, 1)]);
        let disorder = |tick| Err(Disorder::Reading { counter: 0, tick });
        assert_eq!(series.push(timer(9, 2), 0), disorder(9));
        assert_eq!(series.push(timer(12, 2), 13), disorder(12));
        let earlier = CounterReading { time: 9 * TICK, ..timer(10, 2) };
        assert_eq!(series.push(earlier, 0), disorder(10));
        let of_before = CounterReading { time: 11 * TICK, ..timer(9, 2) };
        assert_eq!(series.push(of_before, 0), disorder(9));
        assert_eq!(series.push(timer(10, 2), 10), Ok(()));
        assert_eq!(series.push(timer(13, 2), 13), Ok(()));
    }
}
