//! Windows that wait for later ticks.
//!
//! A method that learns knows more about a window after it has seen later ticks. So such a window
//! waits, for the lag at most. Its rows are made when all counters have divided it, in the order in
//! which windows end. Each counter learns once every half lag, in turns, so that the work is
//! spread. It then divides the windows that ended at least half a lag ago. The first windows wait
//! longer where many rates are to be learnt.

use std::collections::VecDeque;

use super::counter::{Divided, Span};

/// Shortest interval at which methods learn from ticks, ns. Methods also learn within longer
/// windows, so memory does not grow with the length of a window.
pub(super) const LEARN_INTERVAL_NS: u64 = 100_000_000;

/// The first intervals, after which every counter learns: the first rates come from few ticks.
const FIRST: [u64; 5] = [1, 2, 3, 5, 7];

/// Rates are hardly known before there is this number of ticks for each column.
const TICKS_PER_COLUMN: u64 = 10;

/// Longest time that the first windows wait, ns.
const LONGEST_FIRST_NS: u64 = 5_000_000_000;

/// When counters learn, and which windows they divide then. Times are in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    start: u64,
    interval: u64,
    /// Number of intervals in which each counter learns once.
    period: u64,
    /// How long before a counter learns a window must have ended; `None`: windows do not wait.
    lead: Option<u64>,
    /// Longest time that the first windows wait.
    first: u64,
}

impl Schedule {
    /// A schedule for a recording that begins at tick `start`. A `lag_ns` below the learning
    /// interval means no lag.
    pub(super) fn new(start: u64, tick_ns: u64, lag_ns: u64) -> Self {
        let interval = LEARN_INTERVAL_NS.div_ceil(tick_ns);
        let lag = lag_ns / tick_ns;
        let period = (lag / 2 / interval).max(1);
        let lead = lag.checked_sub(period * interval);
        Self { start, interval, period, lead, first: LONGEST_FIRST_NS / tick_ns }
    }

    /// Whether counters learn at the end of `tick`.
    pub(super) const fn learns(&self, tick: u64) -> bool {
        tick > self.start && (tick - self.start).is_multiple_of(self.interval)
    }

    /// The first tick after `tick` at whose end counters learn.
    pub(super) const fn next(&self, tick: u64) -> u64 {
        tick + self.interval - tick.saturating_sub(self.start) % self.interval
    }

    /// Whether counters learn more than once in so many ticks.
    pub(super) const fn is_long(&self, ticks: u64) -> bool {
        ticks > self.interval
    }

    /// Whether the counter at this index learns at the end of `tick`.
    pub(super) fn is_turn(&self, place: usize, tick: u64) -> bool {
        let number = (tick - self.start) / self.interval;
        FIRST.contains(&number) || (number + place as u64).is_multiple_of(self.period)
    }

    /// The last tick that a counter divides after it has learnt at the end of `tick` the rates of
    /// this number of columns.
    pub(super) fn divides(&self, tick: u64, columns: usize) -> u64 {
        let Some(lead) = self.lead else { return tick };
        let first = (TICKS_PER_COLUMN * columns as u64).min(self.first);
        if tick - self.start < first { self.start } else { tick.saturating_sub(lead) }
    }

    /// Whether windows wait.
    pub(super) const fn waits(&self) -> bool {
        self.lead.is_some()
    }
}

/// The state of a counter in a window.
#[derive(Debug)]
pub(super) enum Slot {
    /// It has no rows.
    Nothing,
    /// It is not divided yet.
    Waits(Box<Span>),
    /// It is divided.
    Divided(Divided),
}

impl Slot {
    /// What was divided.
    pub(super) const fn divided(&mut self) -> Option<&mut Divided> {
        match self {
            Self::Divided(divided) => Some(divided),
            _ => None,
        }
    }
}

/// A window that has ended, with the state of each counter.
#[derive(Debug)]
pub(super) struct Ended {
    /// The tick at which it ended.
    pub tick: u64,
    /// In the order of the counters.
    pub slots: Vec<Slot>,
}

/// The waiting windows, oldest first.
#[derive(Debug, Default)]
pub(super) struct Waiting(VecDeque<Ended>);

impl Waiting {
    /// Adds a window that has ended.
    pub(super) fn push(&mut self, window: Ended) {
        self.0.push_back(window);
    }

    /// The windows that end at `to` or earlier, oldest first.
    pub(super) fn up_to(&mut self, to: u64) -> impl Iterator<Item = &mut Ended> {
        self.0.iter_mut().take_while(move |window| window.tick <= to)
    }

    /// The oldest window, if every counter has divided it.
    pub(super) fn pop(&mut self) -> Option<Ended> {
        let is_divided =
            |window: &mut Ended| !window.slots.iter().any(|slot| matches!(slot, Slot::Waits(..)));
        self.0.pop_front_if(is_divided)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The longest time from a tick to its division by this counter, in ticks of 1 ms.
    fn longest(lag_ms: u64, place: usize, columns: usize) -> u64 {
        let schedule = Schedule::new(7, MS, lag_ms * MS);
        let mut longest = 0;
        let mut divided = 7;
        for tick in 8..20_000 {
            if schedule.learns(tick) && schedule.is_turn(place, tick) {
                let to = schedule.divides(tick, columns);
                if to > divided {
                    longest = longest.max(tick - divided - 1);
                    divided = to;
                }
            }
        }
        longest
    }

    #[test]
    fn no_window_waits_longer_than_the_lag() {
        for lag_ms in [100, 150, 200, 500, 1000, 1250, 5000] {
            for place in 0..12 {
                let longest = longest(lag_ms, place, 5);
                assert!(longest <= lag_ms, "{lag_ms} ms: {longest} ms at {place}");
            }
        }
        assert!(longest(1000, 3, 300) <= 3500 && longest(1000, 3, 5000) <= 5500);
        assert!(!Schedule::new(0, MS, 50 * MS).waits());
        assert!(!Schedule::new(0, MS, 0).waits());
    }

    #[test]
    fn counters_learn_one_after_the_other() {
        let schedule = Schedule::new(0, MS, 1000 * MS);
        for tick in (1000..2000).filter(|tick| schedule.learns(*tick)) {
            let turns = (0..10).filter(|place| schedule.is_turn(*place, tick)).count();
            assert_eq!(turns, 2, "{tick}");
        }
    }
}
