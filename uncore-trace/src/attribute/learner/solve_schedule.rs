//! When the rates of a counter are solved anew, and their covariance is computed anew.

use crate::entries::Relief;

/// Number of ticks that are learnt from before rates are used.
const MIN_LEARNT_TICKS: u64 = 100;

/// Rates are solved anew when one in so many ticks is new, and after this time. In the benches,
/// 2 s instead of 5 s place 0.3 % of the bytes of two minutes better; with a divisor of 2 and 10 s,
/// 0.3 to 1.0 % more of the bytes of 30 s are misplaced (16 and 72 CPUs, two seeds).
const YOUNG_DIVISOR: u64 = 4;
const SOLVE_INTERVAL_NS: u64 = 5_000_000_000;

/// While a recorder is late, rates are solved so many times less often.
const RELIEF_FACTOR: u64 = 8;

/// The covariance is computed anew after this number of such intervals. Until then, nothing is
/// known of how sure the rates of new tenants are.
const COVARIANCE_INTERVALS: u64 = 2;

/// The ticks that were learnt from, and after how many of them something was solved.
#[derive(Debug)]
pub(super) struct SolveSchedule {
    /// [`SOLVE_INTERVAL_NS`] in ticks.
    solve_interval: u64,
    /// Number of ticks learnt from.
    pub learnt_ticks: u64,
    /// The number of ticks at which the rates were solved.
    last_solve: u64,
    /// The number of ticks at which their covariance was computed.
    last_covariance: u64,
}

impl SolveSchedule {
    /// A schedule for ticks of `tick_ns`.
    pub(super) fn new(tick_ns: u64) -> Self {
        Self {
            solve_interval: (SOLVE_INTERVAL_NS / tick_ns).max(1),
            learnt_ticks: 0,
            last_solve: 0,
            last_covariance: 0,
        }
    }

    /// Whether enough ticks were learnt from to use rates.
    pub(super) const fn has_enough_ticks(&self) -> bool {
        self.learnt_ticks >= MIN_LEARNT_TICKS
    }

    /// Whether so many ticks were learnt from that the rates are well known.
    pub(super) const fn is_settled(&self) -> bool {
        self.learnt_ticks >= COVARIANCE_INTERVALS * self.solve_interval
    }

    /// Ticks after which something is solved anew: `wanted_ticks`, at most `max_ticks`.
    fn interval_ticks(&self, wanted_ticks: u64, max_ticks: u64, is_seldom: bool) -> u64 {
        if is_seldom {
            (self.learnt_ticks - self.learnt_ticks / RELIEF_FACTOR).min(RELIEF_FACTOR * max_ticks)
        } else {
            wanted_ticks.min(max_ticks)
        }
    }

    /// Whether rates are solved now; `is_known` if there are rates already. While the recorder is
    /// late, these are solved less often, or kept.
    pub(super) fn is_solve_due(&self, is_known: bool, relief: Relief) -> bool {
        let is_kept = is_known && relief >= Relief::LastRates;
        let is_seldom = is_known && relief >= Relief::Seldom;
        let wanted_ticks = self.learnt_ticks / YOUNG_DIVISOR;
        !is_kept
            && self.has_enough_ticks()
            && self.learnt_ticks - self.last_solve
                >= self.interval_ticks(wanted_ticks, self.solve_interval, is_seldom)
    }

    /// Whether the covariance is computed now, with the rates: these change sooner than how well
    /// they are known.
    pub(super) fn is_covariance_due(&self, is_known: bool, relief: Relief) -> bool {
        let is_seldom = is_known && relief >= Relief::Seldom;
        let max_ticks = COVARIANCE_INTERVALS * self.solve_interval;
        self.learnt_ticks - self.last_covariance
            >= self.interval_ticks(self.learnt_ticks / 2, max_ticks, is_seldom)
    }

    /// Notes that the rates were solved, if they could be.
    pub(super) const fn note_solve(&mut self) {
        self.last_solve = self.learnt_ticks;
    }

    /// Notes that the covariance was computed.
    pub(super) const fn note_covariance(&mut self) {
        self.last_covariance = self.learnt_ticks;
    }
}
