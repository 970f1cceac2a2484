//! Two rates, and whether they differ by more than their error.
//!
//! # The error of a rate
//!
//! It has two parts, each a 90 % interval:
//!
//! - how the counts were divided: [`super::super::interval`]. It is nothing for the total of an event or of
//!   a link, which is counted and not divided.
//! - how much the rate goes up and down: [`super::variation`].
//!
//! They have nothing to do with each other, so they add in squares. No rate is below 0.
//!
//! # The rule
//!
//! Two rates differ by more than their error if these two intervals do not overlap: the lower end of one is
//! above the higher end of the other. That is the same as: nothing is not within
//!
//! ```text
//! after.low - before.high .. after.high - before.low
//! ```
//!
//! which is the interval that is shown of the difference.
//!
//! Widths of independent errors would add in squares, which is narrower by a factor of up to 1.4. But the
//! errors of two shares of one tenant are not known to be independent: a rate that the attribution learns
//! too high from one recording it may learn too low from the other, because others ran beside the tenant.
//! With added widths, the truth of the difference is within the interval in nine cases of ten whatever the
//! dependence. Where both errors are independent and of one size, it is so in 98 of 100: two times 1.645
//! standard deviations, of 1.414. That is wanted too, since many tenants are compared at once. With a rule that
//! is wrong in one case of ten, five of 50 tenants that did not change would be reported as changed. With
//! this rule it is one of 50.
//!
//! # Limits
//!
//! - It is as right as the confidences (`docs/accuracy.md`). An error that all recordings share, such as
//!   traffic that a method always gives to the wrong owner, cancels in the difference if the load is the
//!   same, and does not if it is another.
//! - A change that is small and steady is `within error` for a tenant whose share is not sure, however
//!   long the recordings are: errors of shares do not become less with time.
//! - `more` says that the rate is another one, not that it matters, and not why.

use super::super::interval::Interval;

/// Numbers that differ by less than this part are the same: sums are rounded.
const ROUNDING: f64 = 1e-9;

/// A rate of one of the two, in a unit per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// What was counted in the time that is known, in the unit.
    pub total: f64,
    /// Length of that time, seconds.
    pub seconds: f64,
    /// The rate: the total by the length of that time.
    pub per_s: f64,
    /// From where to where the truth of the share lies; none where nothing is claimed.
    pub interval: Option<Interval>,
    /// Half the width of the rate's 90 % interval by its variation over time; none where there are too few
    /// windows.
    pub variation: Option<f64>,
    /// Part of the total of the event or the link, 0 to 1; none where that is 0.
    pub share: Option<f64>,
}

impl Rate {
    /// Both errors together: see the module.
    pub fn reach(&self) -> Option<Interval> {
        let (interval, variation) = (self.interval?, self.variation?);
        let far = |end: f64| (end - self.per_s).hypot(variation);
        let low = (self.per_s - far(interval.low)).max(0.0);
        Some(Interval { low, high: self.per_s + far(interval.high) })
    }
}

/// What one of the two says of a tenant, or of a total.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Found {
    /// This much.
    Rate(Rate),
    /// It was counted, and the tenant had nothing of it.
    Absent,
    /// It was not counted, or has no value.
    Unknown,
}

impl Found {
    /// The rate, if it is known; nothing is 0.
    pub fn per_s(&self) -> Option<f64> {
        match self {
            Self::Rate(rate) => Some(rate.per_s),
            Self::Absent => Some(0.0),
            Self::Unknown => None,
        }
    }

    /// The rate, if there is one.
    pub fn rate(&self) -> Option<&Rate> {
        match self {
            Self::Rate(rate) => Some(rate),
            Self::Absent | Self::Unknown => None,
        }
    }

    /// From where to where the truth lies, with both errors; `None` where that is not known.
    pub fn reach(&self) -> Option<Interval> {
        match self {
            Self::Rate(rate) => rate.reach(),
            Self::Absent => Some(Interval { low: 0.0, high: 0.0 }),
            Self::Unknown => None,
        }
    }
}

/// What became of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is higher, by more than its error.
    More,
    /// It is lower, by more than its error.
    Less,
    /// The error is larger than the difference.
    Within,
    /// The tenant was not there before.
    New,
    /// The tenant is not there any more.
    Gone,
}

impl Verdict {
    /// The word that tables use for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::More => "more",
            Self::Less => "less",
            Self::Within => "within error",
            Self::New => "new",
            Self::Gone => "gone",
        }
    }
}

/// A rate before and after.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// In the first.
    pub before: Found,
    /// In the second.
    pub after: Found,
    /// Whether both count the same. Else the numbers are of two things, and no verdict is given.
    pub is_same: bool,
}

impl Change {
    /// How much the rate grew; `None` where one of them is not known.
    pub fn difference(&self) -> Option<f64> {
        Some(self.after.per_s()? - self.before.per_s()?)
    }

    /// After by before; `None` where the tenant is in one only, or had nothing.
    pub fn ratio(&self) -> Option<f64> {
        let (before, after) = (self.before.rate()?.per_s, self.after.rate()?.per_s);
        Some(after / before).filter(|ratio| ratio.is_finite())
    }

    /// From where to where the truth of the difference lies: see the module.
    pub fn reach(&self) -> Option<Interval> {
        let (before, after) = (self.before.reach()?, self.after.reach()?);
        Some(Interval { low: after.low - before.high, high: after.high - before.low })
    }

    /// Whether the difference is larger than the error; `None` where that is not known, or not the same
    /// was counted.
    pub fn is_beyond_error(&self) -> Option<bool> {
        let Interval { low, high } = self.reach().filter(|_| self.is_same)?;
        let rounding = ROUNDING * self.after.per_s()?.max(self.before.per_s()?);
        Some(low > rounding || high < -rounding)
    }

    /// What became of it; `None` where that is not known.
    pub fn verdict(&self) -> Option<Verdict> {
        match (&self.before, &self.after) {
            _ if !self.is_same => None,
            (Found::Absent, Found::Rate(_)) => Some(Verdict::New),
            (Found::Rate(_), Found::Absent) => Some(Verdict::Gone),
            _ if self.is_beyond_error()? => {
                let grew = self.difference()? > 0.0;
                Some(if grew { Verdict::More } else { Verdict::Less })
            }
            _ => Some(Verdict::Within),
        }
    }

    /// Whether there is anything to show: one of them is not known, or not 0.
    pub fn says_something(&self) -> bool {
        [&self.before, &self.after].into_iter().any(|found| found.per_s() != Some(0.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(per_s: f64, down: f64, up: f64, variation: f64) -> Found {
        let interval = Some(Interval { low: (per_s - down).max(0.0), high: per_s + up });
        let variation = Some(variation);
        Found::Rate(Rate { total: per_s, seconds: 1.0, per_s, interval, variation, share: None })
    }

    fn change(before: Found, after: Found) -> Change {
        Change { before, after, is_same: true }
    }

    #[test]
    fn both_errors_add_in_squares() {
        let Found::Rate(rate) = rate(100.0, 3.0, 6.0, 4.0) else { panic!() };
        let reach = rate.reach().unwrap();
        assert!((reach.low - 95.0).abs() < 1e-9, "{reach:?}");
        assert!((reach.high - (100.0 + 52_f64.sqrt())).abs() < 1e-9, "{reach:?}");
        assert_eq!(Rate { variation: None, ..rate }.reach(), None);
        assert_eq!(Rate { interval: None, ..rate }.reach(), None);
    }

    #[test]
    fn intervals_that_overlap_are_within_error() {
        let before = rate(100.0, 5.0, 5.0, 0.0);
        for (after, verdict) in [
            (rate(109.9, 5.0, 9.0, 0.0), Verdict::Within),
            (rate(110.1, 5.0, 9.0, 0.0), Verdict::More),
            (rate(110.1, 5.0, 9.0, 3.0), Verdict::Within),
            (rate(90.1, 9.0, 5.0, 0.0), Verdict::Within),
            (rate(89.9, 9.0, 5.0, 0.0), Verdict::Less),
        ] {
            assert_eq!(change(before, after).verdict(), Some(verdict), "{after:?}");
        }
        // Counted without error, but summed in another order.
        let exact = |per_s| rate(per_s, 0.0, 0.0, 0.0);
        let change = change(exact(0.3), exact(0.1 + 0.2));
        assert_eq!(change.verdict(), Some(Verdict::Within));
    }

    #[test]
    fn what_is_not_known_has_no_verdict() {
        let known = rate(1.0, 0.1, 0.1, 0.1);
        let Found::Rate(rate) = known else { panic!() };
        let unsure = Found::Rate(Rate { interval: None, ..rate });
        for (before, after) in [
            (Found::Unknown, known),
            (known, Found::Unknown),
            (Found::Unknown, Found::Absent),
            (unsure, known),
            (known, unsure),
        ] {
            assert_eq!(change(before, after).verdict(), None);
            assert_eq!(change(before, after).is_beyond_error(), None);
        }
        let otherwise = Change { is_same: false, ..change(Found::Absent, known) };
        assert_eq!((otherwise.verdict(), otherwise.is_beyond_error()), (None, None));
        let unsure = change(Found::Absent, unsure);
        assert_eq!((unsure.verdict(), unsure.is_beyond_error()), (Some(Verdict::New), None));
    }

    fn found() -> impl Strategy<Value = Found> {
        let size = || prop_oneof![Just(0.0), 0.0..1e9];
        let known = (size(), size(), size(), size())
            .prop_map(|(per_s, down, up, variation)| rate(per_s, down, up, variation));
        prop_oneof![4 => known, 1 => Just(Found::Absent), 1 => Just(Found::Unknown)]
    }

    proptest! {
        #[test]
        fn the_difference_is_inside_and_the_other_way_round_it_is_the_opposite(
            before in found(),
            after in found(),
            more in 1.0..1e9,
        ) {
            let (one, other) = (change(before, after), change(after, before));
            prop_assert_eq!(one.is_beyond_error(), other.is_beyond_error());
            prop_assert_eq!(one.difference().map(|it| -it), other.difference());
            let opposite = one.verdict().map(|verdict| match verdict {
                Verdict::More => Verdict::Less,
                Verdict::Less => Verdict::More,
                Verdict::New => Verdict::Gone,
                Verdict::Gone => Verdict::New,
                Verdict::Within => Verdict::Within,
            });
            prop_assert_eq!(opposite, other.verdict());
            if let (Some(reach), Some(difference)) = (one.reach(), one.difference()) {
                prop_assert!(reach.low <= difference && difference <= reach.high);
            }
            // More error never makes a difference larger than the error.
            if let Found::Rate(rate) = after {
                let variation = rate.variation.map(|it| it + more);
                let wide = change(before, Found::Rate(Rate { variation, ..rate }));
                prop_assert!(wide.is_beyond_error() <= one.is_beyond_error());
            }
        }
    }
}
