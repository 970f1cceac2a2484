//! The counts that a learner gets, until it has learnt from them and divided them.

use std::collections::VecDeque;

/// Nothing is learnt from a count over a longer time, ns: its use would have to be kept until it is
/// read.
const LONGEST_NS: u64 = 1_000_000_000;

/// Least of [`LONGEST_NS`], in ticks.
const LONGEST_TICKS: u64 = 10;

/// A count of one or more ticks.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Observation {
    /// The tick after which it begins.
    pub after_tick: u64,
    /// Its last tick.
    pub last_tick: u64,
    /// The count.
    pub count: f64,
    /// Whether it covers time in which the counter did not count: nothing is learnt from it.
    pub restarts: bool,
}

/// Counts that wait. Each waits twice: it is learnt from after the review of its ticks, and divided
/// a lag later.
#[derive(Debug)]
pub(super) struct ObservationQueue {
    /// Longest count that is learnt from, in ticks.
    max_count_ticks: u64,
    /// Counts that are not divided yet, oldest first.
    pub undivided: VecDeque<Observation>,
    /// Counts that nothing was learnt from yet, oldest first.
    unlearnt: VecDeque<Observation>,
    /// The tick at which the next count begins, if ticks before it were not read.
    pending_after_tick: Option<u64>,
    /// Whether the next count covers time that was not observed, so that nothing is learnt from it.
    skips_next_count: bool,
}

impl ObservationQueue {
    /// An empty queue for ticks of `tick_ns`.
    pub(super) fn new(tick_ns: u64) -> Self {
        Self {
            max_count_ticks: (LONGEST_NS / tick_ns).max(LONGEST_TICKS),
            undivided: VecDeque::new(),
            unlearnt: VecDeque::new(),
            pending_after_tick: None,
            skips_next_count: false,
        }
    }

    /// Adds the count since the last count; `tick` is the last tick of it. `None` if there is no
    /// reading at its end.
    pub(super) fn push_count(&mut self, tick: u64, count: Option<f64>) {
        let begin_tick = *self.pending_after_tick.get_or_insert(tick.saturating_sub(1));
        let Some(count) = count else {
            if tick - begin_tick >= self.max_count_ticks {
                (self.pending_after_tick, self.skips_next_count) = (None, true);
            }
            return;
        };
        self.pending_after_tick = None;
        let restarts = std::mem::take(&mut self.skips_next_count);
        let observation = Observation { after_tick: begin_tick, last_tick: tick, count, restarts };
        self.undivided.push_back(observation);
        self.unlearnt.push_back(observation);
    }

    /// Notes that the counter was restarted: its next count covers time in which it did not count.
    pub(super) const fn note_restart(&mut self) {
        self.skips_next_count = true;
    }

    /// The count that ends with a tick, to be learnt from. Those of earlier ticks are removed.
    pub(super) fn pop_unlearnt(&mut self, tick: u64) -> Option<Observation> {
        while self.unlearnt.pop_front_if(|oldest| oldest.last_tick < tick).is_some() {}
        self.unlearnt.pop_front_if(|oldest| oldest.last_tick == tick)
    }

    /// The oldest tick that is still needed.
    pub(super) fn oldest_needed_tick(&self) -> u64 {
        let oldest_tick = self.undivided.front().map(|observation| observation.after_tick);
        oldest_tick.or(self.pending_after_tick).unwrap_or(u64::MAX)
    }
}
