//! The counts that a learner gets.

/// A count of one or more ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    /// The tick after which it begins.
    pub after_tick: u64,
    /// Its last tick.
    pub last_tick: u64,
    /// The count.
    pub count: f64,
    /// Whether it covers time in which the counter did not count: nothing is learnt from it.
    pub restarts: bool,
}
