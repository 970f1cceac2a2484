//! The limit of a link, and the ticks in which it is reached.
//!
//! A link that is full counts what it carries and not what its users ask for: the count stays the
//! same, whoever runs. Such a tick says that the demand was at least the count, and nothing of the
//! rates beyond that. So it counts as what is expected of it, if that is more. This is the step of
//! the EM algorithm for censored observations (Dempster, Laird and Rubin 1977, 4.3), without the
//! part of the noise beyond the limit. The count is divided in proportion to rate x use: by demand.
//!
//! Any count has a largest value. It is a limit only if the ticks that should count more than it
//! count as much: as long as most of them count less, the rates are wrong and not the link full.
//! That most of them do must not be by chance (a sign test).

/// A tick is full within this part of the limit: readings are some microseconds late, and a link
/// refreshes and turns round between reads and writes.
const MARGIN: f64 = 0.05;

/// Time constant of the memory, in ticks: that of the rates.
const MEMORY: f64 = 60_000.0;

/// Part of the ticks that ask for more than the limit from which on a link is said to be at it.
const NOTED_FRACTION: f64 = 0.05;

/// Standard normal deviate that one draw in a thousand exceeds.
const MIN_DEVIATE: f64 = 3.09;

/// The limit of one counter.
#[derive(Debug, Default)]
pub(super) struct LinkLimit {
    /// The largest count that two ticks in succession reached: a reading that is late has a part of
    /// the next tick's count, which that tick lacks.
    limit: f64,
    previous_count: f64,
    ticks: f64,
    /// Ticks that are expected to count more than the limit, and those of them that are full.
    over_ticks: f64,
    short_ticks: f64,
}

impl LinkLimit {
    /// Adds a tick: its count, and what is expected of it.
    pub(super) fn add_tick(&mut self, count: f64, expected: f64) {
        let forgetting_factor = 1.0 - 1.0 / MEMORY;
        self.limit = (self.limit * forgetting_factor).max(count.min(self.previous_count));
        self.previous_count = count;
        self.ticks = forgetting_factor * self.ticks + 1.0;
        self.over_ticks *= forgetting_factor;
        self.short_ticks *= forgetting_factor;
        if expected > (1.0 + MARGIN) * self.limit {
            self.over_ticks += 1.0;
            self.short_ticks += if self.is_full(count) { 1.0 } else { 0.0 };
        }
    }

    /// Whether a count is the limit, within the margin. A link that carried more was not full.
    fn is_full(&self, count: f64) -> bool {
        self.limit > 0.0 && (count - self.limit).abs() <= MARGIN * self.limit
    }

    /// Whether the largest count is that of a full link.
    fn is_limiting(&self) -> bool {
        self.short_ticks - 0.5 * self.over_ticks > MIN_DEVIATE * 0.5 * self.over_ticks.sqrt()
    }

    /// Whether the count of a tick of which so much is expected tells nothing of the bend. What is
    /// counted must not decide: the ticks that remain would count less than is expected.
    pub(super) fn hides_demand(&self, expected: f64) -> bool {
        self.is_limiting() && expected >= (1.0 - MARGIN) * self.limit
    }

    /// What a tick of this count, of which `expected` is expected, says of the demand.
    pub(super) fn demand(&self, count: f64, straightened: f64, expected: f64) -> f64 {
        if self.is_limiting() && self.is_full(count) {
            straightened.max(expected)
        } else {
            straightened
        }
    }

    /// The part of the ticks in which more is asked for than the link carries.
    pub(super) fn short_fraction(&self) -> f64 {
        if self.ticks > 0.0 && self.is_limiting() { self.short_ticks / self.ticks } else { 0.0 }
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
    fn a_largest_count_is_no_limit_while_most_count_less_than_is_expected() {
        let mut random = SplitMix(3);
        let mut limit = LinkLimit::default();
        for _ in 0..10_000 {
            // Rates have become a third, but are learnt slowly. One tick in three counts the most.
            let count = if random.next_below(3) == 0 { 100.0 } else { 50.0 };
            limit.add_tick(count, 150.0);
        }
        assert!((limit.demand(100.0, 100.0, 150.0) - 100.0).abs() < 1e-9);
        assert!(!limit.hides_demand(150.0) && !limit.is_reached());
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
