//! The limit of a link, and the ticks in which it is reached.
//!
//! A link that is full counts what it carries and not what its users ask for: the count stays the
//! same, whoever runs. Such a tick says only that the demand was at least the count. So it counts as
//! the mean of the demand beyond the limit, for a normal deviation from what is expected: the step
//! of the EM algorithm for censored observations (Dempster, Laird and Rubin 1977, 4.3; the model is
//! that of Tobin 1958). The count is divided in proportion to rate x use: by demand.
//!
//! Any count has a largest value. It is a limit only if two things are true:
//!
//! - Counts pile up there: more ticks are within the margin of it than in the range of the same
//!   width below. Counts of a link with room thin out towards the largest.
//! - What is expected of ticks within the margin varies more than twice as much from tick to tick as
//!   their counts. A load that is always the same piles up at its largest count, too, but what is
//!   expected of it does not vary.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use super::super::statistics::{ONE_IN_A_THOUSAND, sample_variance};
use super::super::sums::MEMORY;

/// A tick is full within this part of the limit: readings are some microseconds late, and a link
/// refreshes and turns round between reads and writes.
const MARGIN: f64 = 0.05;

/// Half of the memory, in ticks.
const HALF_MEMORY_TICKS: u64 = (MEMORY / 2.0) as u64;

/// A recording says that a link is at its limit if at least this fraction of the ticks is full.
const NOTED_FRACTION: f64 = 0.05;

/// Number of ticks that tell as much as an independent one, because a thread runs for some
/// milliseconds; and of full ticks that are compared with each other, because rates drift.
const DEPENDENT_TICKS: usize = 8;

/// Least ratio of the variance of what is expected of full ticks to that of their counts: the
/// standard deviation is twice as large.
const MIN_VARIANCE_RATIO: f64 = 4.0;

/// Least variance of what is expected of full ticks: that of a uniform distribution in the margin.
const MARGIN_VARIANCE: f64 = MARGIN * MARGIN / 3.0;

/// Ticks of which less is expected than this part of the limit do not tell how demand varies near
/// it.
const MIN_EXPECTED: f64 = 0.5;

/// A tick within the margin of the limit: its count, and what was expected of it.
#[derive(Clone, Copy, Debug)]
struct FullTick {
    count: f64,
    expected: f64,
}

/// The variance of full ticks within groups of [`DEPENDENT_TICKS`].
#[derive(Clone, Debug, Default)]
struct FullTicks {
    open_group: Vec<FullTick>,
    /// Number of groups, and sums of their variances.
    groups: f64,
    count_variances: f64,
    expected_variances: f64,
}

impl FullTicks {
    fn add_tick(&mut self, tick: FullTick) {
        self.open_group.push(tick);
        if self.open_group.len() < DEPENDENT_TICKS {
            return;
        }
        let count_variance = sample_variance(self.open_group.iter().map(|tick| tick.count));
        let expected_variance = sample_variance(self.open_group.iter().map(|tick| tick.expected));
        self.open_group.clear();
        let forgetting_factor = 1.0 - DEPENDENT_TICKS as f64 / MEMORY;
        self.groups = forgetting_factor * self.groups + 1.0;
        self.count_variances = forgetting_factor * self.count_variances + count_variance;
        self.expected_variances = forgetting_factor * self.expected_variances + expected_variance;
    }

    /// Whether more is asked for than is counted.
    fn vary_less_than_expected(&self) -> bool {
        self.expected_variances
            > (MIN_VARIANCE_RATIO * self.count_variances).max(MARGIN_VARIANCE * self.groups)
    }
}

/// The counts near the limit. All values are relative to it.
#[derive(Clone, Debug, Default)]
struct NearLimit {
    /// Ticks within the margin of the limit, and in the range of the same width below.
    full_ticks: f64,
    next_ticks: f64,
    variances: FullTicks,
    /// Ticks with much demand, and the squares of how it differs from what is expected.
    deviations: f64,
    deviation_squares: f64,
}

/// The limit of one counter.
#[derive(Debug, Default)]
pub(super) struct LinkLimit {
    /// The largest count that two ticks in succession reached in the last minute, or half of one: a
    /// reading that is late has a part of the next tick's count, which that tick lacks.
    limit: f64,
    /// The same of the current half minute, its ticks, and the same of the one before.
    half_limit: f64,
    half_ticks: u64,
    last_half_limit: f64,
    previous_count: f64,
    ticks: f64,
    /// The limit at which the sums began.
    first_limit: f64,
    near: NearLimit,
}

impl LinkLimit {
    /// Adds a tick: its count, and what is expected of it. Returns what it says of the demand, if
    /// that is not what was counted.
    pub(super) fn add_tick(&mut self, count: f64, expected: f64) -> Option<f64> {
        let forgetting_factor = 1.0 - 1.0 / MEMORY;
        self.half_ticks += 1;
        if self.half_ticks > HALF_MEMORY_TICKS {
            self.last_half_limit = std::mem::take(&mut self.half_limit);
            self.half_ticks = 1;
        }
        self.half_limit = self.half_limit.max(count.min(self.previous_count));
        self.limit = self.half_limit.max(self.last_half_limit);
        self.previous_count = count;
        self.ticks = forgetting_factor * self.ticks + 1.0;
        if self.limit <= 0.0 {
            return None;
        }
        // Sums around another limit say nothing of this one.
        if (self.limit / self.first_limit - 1.0).abs() > MARGIN {
            (self.first_limit, self.near) = (self.limit, NearLimit::default());
        }
        let (count, expected) = (count / self.limit, expected / self.limit);
        let near = &mut self.near;
        near.full_ticks *= forgetting_factor;
        near.next_ticks *= forgetting_factor;
        // A link that carried more was not full.
        let is_full = (count - 1.0).abs() <= MARGIN;
        if is_full {
            near.full_ticks += 1.0;
            near.variances.add_tick(FullTick { count, expected });
        } else if (count - 1.0 + 2.0 * MARGIN).abs() <= MARGIN {
            near.next_ticks += 1.0;
        }
        let deviation = near.deviation();
        let (demand, square) = if is_full {
            censored_moments(count, expected, deviation)
        } else {
            (count, (count - expected).powi(2))
        };
        if expected > MIN_EXPECTED {
            near.deviations = forgetting_factor * near.deviations + 1.0;
            near.deviation_squares = forgetting_factor * near.deviation_squares + square;
        }
        (is_full && self.is_limiting()).then_some(demand * self.limit)
    }

    /// Notes that rates are new: what was expected before cannot be compared with what will be.
    pub(super) fn note_new_rates(&mut self) {
        self.near.variances.open_group.clear();
    }

    /// Whether counts pile up at the limit by more than so many standard deviations.
    fn piles_up(&self, least_deviate: f64) -> bool {
        let NearLimit { full_ticks, next_ticks, variances, .. } = &self.near;
        let least_difference =
            least_deviate * (DEPENDENT_TICKS as f64 * (full_ticks + next_ticks)).sqrt();
        full_ticks - next_ticks > least_difference && variances.vary_less_than_expected()
    }

    /// Whether the largest count is that of a full link.
    fn is_limiting(&self) -> bool {
        self.piles_up(ONE_IN_A_THOUSAND)
    }

    /// The part of the ticks in which the link may be full. A share is less sure as soon as that is
    /// more likely than not.
    pub(super) fn full_fraction(&self) -> f64 {
        if self.ticks > 0.0 && self.piles_up(0.0) { self.near.full_ticks / self.ticks } else { 0.0 }
    }

    /// Whether the link is at its limit so often that it has to be said.
    pub(super) fn is_reached(&self) -> bool {
        self.is_limiting() && self.full_fraction() >= NOTED_FRACTION
    }
}

impl NearLimit {
    /// Standard deviation of the demand from what is expected.
    fn deviation(&self) -> f64 {
        if self.deviations > 0.0 { (self.deviation_squares / self.deviations).sqrt() } else { 0.0 }
    }
}

/// The mean of a normal variable beyond `limit`, and of its squared deviation from its mean
/// `expected`: `m + s h` and `s^2 (1 + z h)`, with `z = (limit - m) / s` and `h` the hazard of `z`.
fn censored_moments(limit: f64, expected: f64, deviation: f64) -> (f64, f64) {
    if deviation <= 0.0 {
        let demand = limit.max(expected);
        return (demand, (demand - expected).powi(2));
    }
    let deviate = (limit - expected) / deviation;
    let hazard = normal_hazard(deviate);
    let square = deviation * deviation * (1.0 + deviate * hazard);
    (expected + deviation * hazard, square.max(0.0))
}

/// Density of the standard normal distribution over the probability beyond.
fn normal_hazard(deviate: f64) -> f64 {
    if deviate > 5.0 {
        // The asymptotic series: the probability is too small to divide by.
        return deviate + 1.0 / deviate - 2.0 / deviate.powi(3) + 10.0 / deviate.powi(5);
    }
    let density = libm::exp(-0.5 * deviate * deviate) / (2.0 * PI).sqrt();
    density / (0.5 * libm::erfc(deviate * FRAC_1_SQRT_2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::tests::split_mix::SplitMix;

    /// The limit after ticks with a demand of 50 to 150, of which `carried` is counted. What is
    /// expected is the demand without a deviation of 10.
    fn limit_of(carried: impl Fn(f64) -> f64) -> LinkLimit {
        let mut random = SplitMix(3);
        let mut limit = LinkLimit::default();
        for _ in 0..10_000 {
            let expected = 50.0 + 100.0 * random.next_unit();
            let count = carried(expected + 10.0 * random.next_normal());
            limit.add_tick(count * (1.0 + 0.003 * random.next_normal()), expected);
        }
        limit
    }

    #[test]
    fn a_full_tick_counts_as_the_mean_demand_beyond_the_limit() {
        let mut full = limit_of(|demand| demand.min(100.0));
        assert!((full.limit - 100.0).abs() < 2.0, "{}", full.limit);
        assert!(full.is_reached() && (full.full_fraction() - 0.52).abs() < 0.04);
        let deviation = full.near.deviation() * full.limit;
        assert!((deviation - 10.0).abs() < 1.5, "{deviation}");
        // Mean of what is beyond the mean of a normal variable: 0.8 standard deviations more.
        let demand = full.add_tick(100.0, 100.0);
        assert!(demand.is_some_and(|demand| (106.0..110.0).contains(&demand)), "{demand:?}");
        assert!(full.add_tick(100.0, 140.0).is_some_and(|demand| (demand - 140.0).abs() < 0.5));
        assert_eq!(full.add_tick(80.0, 130.0), None);
    }

    #[test]
    fn a_largest_count_is_no_limit_where_counts_thin_out() {
        let with_room = limit_of(|demand| demand);
        assert!(!with_room.is_limiting() && with_room.full_fraction() <= 0.0);
    }

    #[test]
    fn a_load_that_is_always_the_same_is_no_limit() {
        let mut random = SplitMix(5);
        let mut limit = LinkLimit::default();
        for _ in 0..10_000 {
            let expected = 100.0 * (1.0 + 0.005 * random.next_normal());
            assert_eq!(
                limit.add_tick(expected * (1.0 + 0.01 * random.next_normal()), expected),
                None
            );
        }
        assert!(limit.near.full_ticks > 10.0 * limit.near.next_ticks);
    }

    #[test]
    fn a_link_that_has_room_again_is_not_full() {
        let mut full = limit_of(|demand| demand.min(100.0));
        let mut random = SplitMix(7);
        for tick in 0..90_000 {
            let expected = 20.0 + 40.0 * random.next_unit();
            let demand = full.add_tick(expected + 5.0 * random.next_normal(), expected);
            assert_eq!(demand, None, "{tick}");
        }
        assert!(full.full_fraction() <= 0.0);
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

    #[test]
    fn the_hazard_is_that_of_the_normal_distribution() {
        // Density over the upper tail, from tables.
        for (deviate, hazard) in
            [(-3.0, 0.004_437), (0.0, 0.797_885), (2.0, 2.373_215), (6.0, 6.158_5)]
        {
            assert!((normal_hazard(deviate) - hazard).abs() < 1e-3, "{deviate}");
        }
    }
}
