//! When counters learn, and which windows they divide then.
//!
//! Each counter learns once every half lag, in turns, so that the work is spread. It then divides
//! the windows that ended at least half a lag ago. The first windows wait longer where many rates
//! are to be learnt.

/// Shortest interval at which methods learn from ticks, ns. Methods also learn within longer
/// windows, so memory does not grow with the length of a window.
pub(super) const LEARN_INTERVAL_NS: u64 = 100_000_000;

/// The first intervals, after which every counter learns: the first rates come from few ticks.
const FIRST: [u64; 5] = [1, 2, 3, 5, 7];

/// Those after which it learns as long as the first windows wait. Nothing is divided by these rates:
/// they weigh the ticks, and the next ones are found from them.
const FIRST_WAITING: [u64; 3] = [1, 4, 16];

/// Rates are hardly known before there is this number of ticks for each column.
const TICKS_PER_COLUMN: u64 = 10;

/// Longest time that the first windows wait, ns.
const LONGEST_FIRST_NS: u64 = 5_000_000_000;

/// When counters learn, and which windows they divide then. Times are in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct LearnSchedule {
    start_tick: u64,
    interval_ticks: u64,
    /// Number of intervals in which each counter learns once.
    period: u64,
    /// How long before a counter learns a window must have ended; `None`: windows do not wait.
    lead_ticks: Option<u64>,
    /// Longest time that the first windows wait.
    max_first_ticks: u64,
}

impl LearnSchedule {
    /// A schedule for a recording that begins at tick `start_tick`. A `lag_ns` below the learning
    /// interval means no lag.
    pub(super) fn new(start: u64, tick_ns: u64, lag_ns: u64) -> Self {
        let interval = LEARN_INTERVAL_NS.div_ceil(tick_ns);
        let lag = lag_ns / tick_ns;
        let period = (lag / 2 / interval).max(1);
        Self {
            start_tick: start,
            interval_ticks: interval,
            period,
            lead_ticks: lag.checked_sub(period * interval),
            max_first_ticks: LONGEST_FIRST_NS / tick_ns,
        }
    }

    /// Whether counters learn at the end of `tick`.
    pub(super) const fn is_learn_tick(&self, tick: u64) -> bool {
        tick > self.start_tick && (tick - self.start_tick).is_multiple_of(self.interval_ticks)
    }

    /// The first tick after `tick` at whose end counters learn.
    pub(super) const fn next_learn_tick(&self, tick: u64) -> u64 {
        tick + self.interval_ticks - tick.saturating_sub(self.start_tick) % self.interval_ticks
    }

    /// Whether counters learn more than once in so many ticks.
    pub(super) const fn spans_intervals(&self, ticks: u64) -> bool {
        ticks > self.interval_ticks
    }

    /// Whether the first windows still wait at the end of `tick`, for the rates of this number of
    /// columns.
    fn are_first_waiting(&self, tick: u64, columns: usize) -> bool {
        let first_ticks = (TICKS_PER_COLUMN * columns as u64).min(self.max_first_ticks);
        self.has_lag() && tick - self.start_tick < first_ticks
    }

    /// Whether the counter at this index learns at the end of `tick`, the rates of this number of
    /// columns.
    pub(super) fn is_solve_tick(&self, counter_index: usize, tick: u64, columns: usize) -> bool {
        let number = (tick - self.start_tick) / self.interval_ticks;
        if self.are_first_waiting(tick, columns) {
            return FIRST_WAITING.contains(&number);
        }
        FIRST.contains(&number) || (number + counter_index as u64).is_multiple_of(self.period)
    }

    /// The last tick that a counter divides after it has learnt at the end of `tick` the rates of
    /// this number of columns.
    pub(super) fn last_divisible_tick(&self, tick: u64, columns: usize) -> u64 {
        let Some(lead) = self.lead_ticks else { return tick };
        if self.are_first_waiting(tick, columns) {
            self.start_tick
        } else {
            tick.saturating_sub(lead)
        }
    }

    /// Whether windows wait.
    pub(super) const fn has_lag(&self) -> bool {
        self.lead_ticks.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The longest time from a tick to its division by this counter, in ticks of 1 ms.
    fn longest(lag_ms: u64, place: usize, columns: usize) -> u64 {
        let schedule = LearnSchedule::new(7, MS, lag_ms * MS);
        let mut longest = 0;
        let mut divided = 7;
        for tick in 8..20_000 {
            if schedule.is_learn_tick(tick) && schedule.is_solve_tick(place, tick, columns) {
                let to = schedule.last_divisible_tick(tick, columns);
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
        assert!(!LearnSchedule::new(0, MS, 50 * MS).has_lag());
        assert!(!LearnSchedule::new(0, MS, 0).has_lag());
    }

    #[test]
    fn counters_learn_seldom_while_the_first_windows_wait() {
        let schedule = LearnSchedule::new(0, MS, 1000 * MS);
        let learn_ticks = |columns| -> Vec<u64> {
            let ticks = (1..=2000).filter(|tick| schedule.is_learn_tick(*tick));
            ticks.filter(|tick| schedule.is_solve_tick(0, *tick, columns)).collect()
        };
        assert_eq!(learn_ticks(200), [100, 400, 1600, 2000]);
        assert_eq!(learn_ticks(10)[..5], [100, 200, 300, 500, 700]);
    }

    #[test]
    fn counters_learn_one_after_the_other() {
        let schedule = LearnSchedule::new(0, MS, 1000 * MS);
        for tick in (1000..2000).filter(|tick| schedule.is_learn_tick(*tick)) {
            let solves = (0..10).filter(|place| schedule.is_solve_tick(*place, tick, 5)).count();
            assert_eq!(solves, 2, "{tick}");
        }
    }
}
