//! The limit of a link, and the ticks in which it is reached.
//!
//! A link that is full counts what it carries and not what its users ask for: the count stays the
//! same, whoever runs. Such a tick says that the demand was at least the count, and nothing of the
//! rates beyond that. So it counts as what is expected of it, if that is more. This is the step of
//! the EM algorithm for censored observations (Dempster, Laird and Rubin 1977, 4.3), without the
//! part of the noise beyond the limit. The count is divided in proportion to rate x use: by demand.

/// A tick is full within this part of the limit: readings are some microseconds late, and a link
/// refreshes and turns round between reads and writes.
const MARGIN: f64 = 0.05;

/// Time constant of the memory, in ticks: that of the rates.
const MEMORY: f64 = 60_000.0;

/// Part of the ticks that ask for more than the limit from which on a link is said to be at it.
const NOTED_FRACTION: f64 = 0.05;

/// The limit of one counter.
#[derive(Debug, Default)]
pub(super) struct LinkLimit {
    /// The largest count that two ticks in succession reached: a reading that is late has a part of
    /// the next tick's count, which that tick lacks.
    limit: f64,
    previous_count: f64,
    ticks: f64,
    /// Ticks that are full and are expected to count more than the limit.
    short_ticks: f64,
}

impl LinkLimit {
    /// Adds a tick: its count, and what is expected of it.
    pub(super) fn add_tick(&mut self, count: f64, expected: f64) {
        let forgetting_factor = 1.0 - 1.0 / MEMORY;
        self.limit = (self.limit * forgetting_factor).max(count.min(self.previous_count));
        self.previous_count = count;
        self.ticks = forgetting_factor * self.ticks + 1.0;
        self.short_ticks *= forgetting_factor;
        if self.is_full(count) && expected > (1.0 + MARGIN) * self.limit {
            self.short_ticks += 1.0;
        }
    }

    /// Whether a tick of this count may have been as long as the link was full.
    pub(super) fn is_full(&self, count: f64) -> bool {
        self.limit > 0.0 && count >= (1.0 - MARGIN) * self.limit
    }

    /// What a tick of this count, of which `expected` is expected, says of the demand.
    pub(super) fn demand(&self, count: f64, straightened: f64, expected: f64) -> f64 {
        if self.is_full(count) { straightened.max(expected) } else { straightened }
    }

    /// The part of the ticks in which more is asked for than the link carries.
    pub(super) fn short_fraction(&self) -> f64 {
        if self.ticks > 0.0 { self.short_ticks / self.ticks } else { 0.0 }
    }

    /// Whether the link is at its limit so often that it has to be said.
    pub(super) fn is_reached(&self) -> bool {
        self.short_fraction() >= NOTED_FRACTION
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::tests::split_mix::SplitMix;

    /// The limit after ticks with a demand of 50 to 150, of which `carried` is counted, and what is
    /// expected is the demand.
    fn limit_of(carried: impl Fn(f64) -> f64) -> LinkLimit {
        let mut random = SplitMix(3);
        let mut limit = LinkLimit::default();
        for _ in 0..10_000 {
            let demand = 50.0 + 100.0 * random.next_unit();
            limit.add_tick(carried(demand), demand);
        }
        limit
    }

    #[test]
    fn a_full_tick_says_only_that_the_demand_was_no_less() {
        let full = limit_of(|demand| demand.min(100.0));
        assert!((full.limit - 100.0).abs() < 1.0, "{}", full.limit);
        assert!(full.is_reached() && (full.short_fraction() - 0.45).abs() < 0.03);
        assert!((full.demand(100.0, 100.0, 130.0) - 130.0).abs() < 1e-9);
        assert!((full.demand(100.0, 100.0, 90.0) - 100.0).abs() < 1e-9);
        assert!((full.demand(80.0, 80.0, 130.0) - 80.0).abs() < 1e-9);
        let with_room = limit_of(|demand| demand);
        assert!(!with_room.is_reached(), "{}", with_room.short_fraction());
    }

    #[test]
    fn a_late_reading_is_no_limit() {
        let mut limit = LinkLimit::default();
        for tick in 0..1000 {
            // One reading in 50 is half a tick late.
            let count = [100.0, 150.0, 50.0][match tick % 50 {
                7 => 1,
                8 => 2,
                _ => 0,
            }];
            limit.add_tick(count, 100.0);
        }
        assert!((limit.limit - 100.0).abs() < 1.0, "{}", limit.limit);
    }
}
