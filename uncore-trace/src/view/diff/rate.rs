//! Compares two rates, and decides whether they differ by more than their error.
//!
//! # The error of a rate
//!
//! It has two parts, each a 90 % interval:
//!
//! - how the counts were divided: [`super::super::interval`]. It is 0 for the total of an event or
//!   a link, which is counted and not divided.
//! - how much the rate varies: [`super::variation`].
//!
//! The two are independent, so they are added in squares. No rate is below 0.
//!
//! # The rule
//!
//! Two rates differ by more than their error if their intervals do not overlap: the lower end of
//! one is above the higher end of the other. That is the same as: 0 is not within
//!
//! ```text
//! after.low - before.high .. after.high - before.low
//! ```
//!
//! which is the interval that is shown for the difference.
//!
//! Widths of independent errors would add in squares, which is narrower by a factor of up to 1.4.
//! But the errors of two shares of one tenant may depend on each other: the attribution may
//! estimate the rate of a tenant too high in one recording and too low in the other, because other
//! tenants ran beside it. With added widths, the true difference is within the interval in at least
//! nine of ten cases, whatever the dependence. If both errors are independent and of equal size, it
//! is in 98 of 100: two times 1.645 standard deviations, of 1.414. This is desired, because many
//! tenants are compared at once: a rule that is wrong in one of ten cases would report five of 50
//! unchanged tenants as changed, and this rule reports one.
//!
//! # Limits
//!
//! - It is as accurate as the confidences (`docs/accuracy.md`). An error that all recordings share,
//!   such as traffic that a method always gives to the wrong owner, cancels in the difference if
//!   the load is the same, but not if the load differs.
//! - A small and steady change of a tenant whose share has a low confidence stays `within error`,
//!   however long the recordings are: errors of shares do not decrease with time.
//! - `more` says that the rate has changed, not that the change matters, and not why.

use super::super::interval::Interval;

/// Relative difference below which numbers are equal: sums are rounded.
const ROUNDING: f64 = 1e-9;

/// A rate in one of the two, in a unit per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanRate {
    /// Count in the time that is known, in the unit.
    pub total: f64,
    /// Length of that time, seconds.
    pub seconds: f64,
    /// Total / seconds.
    pub per_s: f64,
    /// The 90 % interval of the share; `None` if no row has a confidence.
    pub interval: Option<Interval>,
    /// Half the width of the rate's 90 % interval from its variation over time; `None` if there are
    /// too few windows.
    pub variation: Option<f64>,
    /// Fraction of the total of the event or link, 0 to 1; `None` if that is 0.
    pub share: Option<f64>,
}

impl MeanRate {
    /// The 90 % interval from both errors: see the module.
    pub fn combined_interval(&self) -> Option<Interval> {
        let (interval, variation) = (self.interval?, self.variation?);
        let half_width = |end: f64| (end - self.per_s).hypot(variation);
        let low = (self.per_s - half_width(interval.low)).max(0.0);
        Some(Interval { low, high: self.per_s + half_width(interval.high) })
    }
}

/// The rate of a tenant or total in one of the two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SideRate {
    /// A known rate.
    Known(MeanRate),
    /// The event was counted, and the tenant has no rows.
    Absent,
    /// The event was not counted, or has no value.
    Unknown,
}

impl SideRate {
    /// The rate, if known; 0 for an absent tenant.
    pub fn per_s(&self) -> Option<f64> {
        match self {
            Self::Known(rate) => Some(rate.per_s),
            Self::Absent => Some(0.0),
            Self::Unknown => None,
        }
    }

    /// The rate, if there is one.
    pub fn known_rate(&self) -> Option<&MeanRate> {
        match self {
            Self::Known(rate) => Some(rate),
            Self::Absent | Self::Unknown => None,
        }
    }

    /// The 90 % interval from both errors; `None` if not known.
    pub fn combined_interval(&self) -> Option<Interval> {
        match self {
            Self::Known(rate) => rate.combined_interval(),
            Self::Absent => Some(Interval { low: 0.0, high: 0.0 }),
            Self::Unknown => None,
        }
    }
}

/// Verdict on a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeVerdict {
    /// It is higher, by more than its error.
    More,
    /// It is lower, by more than its error.
    Less,
    /// The difference is not larger than its error.
    WithinError,
    /// The tenant is only in the second.
    New,
    /// The tenant is only in the first.
    Gone,
}

impl ChangeVerdict {
    /// The word in tables.
    pub const fn table_word(self) -> &'static str {
        match self {
            Self::More => "more",
            Self::Less => "less",
            Self::WithinError => "within error",
            Self::New => "new",
            Self::Gone => "gone",
        }
    }
}

/// A rate before and after.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateChange {
    /// In the first recording or span.
    pub before_rate: SideRate,
    /// In the second.
    pub after_rate: SideRate,
    /// Whether both count in the same way. If not, the rates cannot be compared, and there is no
    /// verdict.
    pub is_comparable: bool,
}

impl RateChange {
    /// Rate after - rate before; `None` if one of them is not known.
    pub fn difference_per_s(&self) -> Option<f64> {
        Some(self.after_rate.per_s()? - self.before_rate.per_s()?)
    }

    /// Rate after / rate before; `None` if the tenant is only in one, or its rate before is 0.
    pub fn rate_ratio(&self) -> Option<f64> {
        let (before_per_s, after_per_s) =
            (self.before_rate.known_rate()?.per_s, self.after_rate.known_rate()?.per_s);
        Some(after_per_s / before_per_s).filter(|ratio| ratio.is_finite())
    }

    /// The 90 % interval of the difference: see the module.
    pub fn difference_interval(&self) -> Option<Interval> {
        let (before_interval, after_interval) =
            (self.before_rate.combined_interval()?, self.after_rate.combined_interval()?);
        Some(Interval {
            low: after_interval.low - before_interval.high,
            high: after_interval.high - before_interval.low,
        })
    }

    /// Whether the difference is larger than its error; `None` if not known, or if the two do not
    /// count in the same way.
    pub fn is_beyond_error(&self) -> Option<bool> {
        let Interval { low, high } = self.difference_interval().filter(|_| self.is_comparable)?;
        let rounding = ROUNDING * self.after_rate.per_s()?.max(self.before_rate.per_s()?);
        Some(low > rounding || high < -rounding)
    }

    /// The verdict; `None` if there is none.
    pub fn verdict(&self) -> Option<ChangeVerdict> {
        match (&self.before_rate, &self.after_rate) {
            _ if !self.is_comparable => None,
            (SideRate::Absent, SideRate::Known(_)) => Some(ChangeVerdict::New),
            (SideRate::Known(_), SideRate::Absent) => Some(ChangeVerdict::Gone),
            _ if self.is_beyond_error()? => {
                let grew = self.difference_per_s()? > 0.0;
                Some(if grew { ChangeVerdict::More } else { ChangeVerdict::Less })
            }
            _ => Some(ChangeVerdict::WithinError),
        }
    }

    /// Whether there is anything to show: a rate is unknown, or not 0.
    pub fn says_something(&self) -> bool {
        [&self.before_rate, &self.after_rate]
            .into_iter()
            .any(|side_rate| side_rate.per_s() != Some(0.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn known_rate(per_s: f64, down: f64, up: f64, variation: f64) -> SideRate {
        let interval = Some(Interval { low: (per_s - down).max(0.0), high: per_s + up });
        let variation = Some(variation);
        SideRate::Known(MeanRate {
            total: per_s,
            seconds: 1.0,
            per_s,
            interval,
            variation,
            share: None,
        })
    }

    fn rate_change(before: SideRate, after: SideRate) -> RateChange {
        RateChange { before_rate: before, after_rate: after, is_comparable: true }
    }

    #[test]
    fn the_two_errors_of_a_rate_add_in_squares() {
        let SideRate::Known(rate) = known_rate(100.0, 3.0, 6.0, 4.0) else { panic!() };
        let reach = rate.combined_interval().unwrap();
        assert!((reach.low - 95.0).abs() < 1e-9, "{reach:?}");
        assert!((reach.high - (100.0 + 52_f64.sqrt())).abs() < 1e-9, "{reach:?}");
        assert_eq!(MeanRate { variation: None, ..rate }.combined_interval(), None);
        assert_eq!(MeanRate { interval: None, ..rate }.combined_interval(), None);
    }

    #[test]
    fn intervals_that_overlap_are_within_error() {
        let before = known_rate(100.0, 5.0, 5.0, 0.0);
        for (after, verdict) in [
            (known_rate(109.9, 5.0, 9.0, 0.0), ChangeVerdict::WithinError),
            (known_rate(110.1, 5.0, 9.0, 0.0), ChangeVerdict::More),
            (known_rate(110.1, 5.0, 9.0, 3.0), ChangeVerdict::WithinError),
            (known_rate(90.1, 9.0, 5.0, 0.0), ChangeVerdict::WithinError),
            (known_rate(89.9, 9.0, 5.0, 0.0), ChangeVerdict::Less),
        ] {
            assert_eq!(rate_change(before, after).verdict(), Some(verdict), "{after:?}");
        }
        // Exact counts, but summed in another order.
        let exact = |per_s| known_rate(per_s, 0.0, 0.0, 0.0);
        let change = rate_change(exact(0.3), exact(0.1 + 0.2));
        assert_eq!(change.verdict(), Some(ChangeVerdict::WithinError));
    }

    #[test]
    fn rates_that_are_not_known_have_no_verdict() {
        let known = known_rate(1.0, 0.1, 0.1, 0.1);
        let SideRate::Known(rate) = known else { panic!() };
        let unsure = SideRate::Known(MeanRate { interval: None, ..rate });
        for (before, after) in [
            (SideRate::Unknown, known),
            (known, SideRate::Unknown),
            (SideRate::Unknown, SideRate::Absent),
            (unsure, known),
            (known, unsure),
        ] {
            assert_eq!(rate_change(before, after).verdict(), None);
            assert_eq!(rate_change(before, after).is_beyond_error(), None);
        }
        let otherwise = RateChange { is_comparable: false, ..rate_change(SideRate::Absent, known) };
        assert_eq!((otherwise.verdict(), otherwise.is_beyond_error()), (None, None));
        let unsure = rate_change(SideRate::Absent, unsure);
        assert_eq!((unsure.verdict(), unsure.is_beyond_error()), (Some(ChangeVerdict::New), None));
    }

    fn any_rate() -> impl Strategy<Value = SideRate> {
        let size = || prop_oneof![Just(0.0), 0.0..1e9];
        let known_rates = (size(), size(), size(), size())
            .prop_map(|(per_s, down, up, variation)| known_rate(per_s, down, up, variation));
        prop_oneof![4 => known_rates, 1 => Just(SideRate::Absent), 1 => Just(SideRate::Unknown)]
    }

    proptest! {
        #[test]
        fn the_difference_is_inside_and_the_other_way_round_it_is_the_opposite(
            before in any_rate(),
            after in any_rate(),
            more in 1.0..1e9,
        ) {
            let (forward, backward) = (rate_change(before, after), rate_change(after, before));
            prop_assert_eq!(forward.is_beyond_error(), backward.is_beyond_error());
            prop_assert_eq!(forward.difference_per_s().map(|signed_rate| -signed_rate), backward.difference_per_s());
            let opposite = forward.verdict().map(|verdict| match verdict {
                ChangeVerdict::More => ChangeVerdict::Less,
                ChangeVerdict::Less => ChangeVerdict::More,
                ChangeVerdict::New => ChangeVerdict::Gone,
                ChangeVerdict::Gone => ChangeVerdict::New,
                ChangeVerdict::WithinError => ChangeVerdict::WithinError,
            });
            prop_assert_eq!(opposite, backward.verdict());
            if let (Some(reach), Some(difference)) = (forward.difference_interval(), forward.difference_per_s()) {
                prop_assert!(reach.low <= difference && difference <= reach.high);
            }
            // A larger error never makes a difference significant.
            if let SideRate::Known(rate) = after {
                let variation = rate.variation.map(|known_variation| known_variation + more);
                let wide = rate_change(before, SideRate::Known(MeanRate { variation, ..rate }));
                prop_assert!(wide.is_beyond_error() <= forward.is_beyond_error());
            }
        }
    }
}
