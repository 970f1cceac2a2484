//! Rates of moments: of all windows that end at the same time.
//!
//! Rows come in the order of their windows' ends. Windows of different length that end together are
//! added as rates. If one of them has no value, the rate of the moment is unknown. The highest rate
//! of a total or an owner is taken over moments with known rates, so that no owner's is above the
//! total's.

use std::collections::BTreeMap;
use std::mem;

use super::Window;

/// Rate of the windows that end at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum MomentRate {
    /// No window ends.
    #[default]
    Absent,
    /// At least one of them has no value.
    Unknown,
    /// Per second.
    Known(f64),
}

impl MomentRate {
    /// Adds a window; `None`: its value is not known.
    #[inline]
    pub fn add_window(&mut self, rate_per_s: Option<f64>) {
        *self = match (*self, rate_per_s) {
            (Self::Unknown, _) | (_, None) => Self::Unknown,
            (Self::Absent, Some(window_rate)) => Self::Known(window_rate),
            (Self::Known(rate), Some(window_rate)) => Self::Known(rate + window_rate),
        }
    }

    /// The sum of two directions.
    #[must_use]
    pub fn sum_directions(self, other_direction: Self) -> Self {
        match (self, other_direction) {
            (Self::Absent, Self::Absent) => Self::Absent,
            (Self::Known(rate), Self::Known(other_rate)) => Self::Known(rate + other_rate),
            _ => Self::Unknown,
        }
    }
}

/// The highest rate of a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HighestRate {
    /// The highest so far, per second.
    pub rate: Option<f64>,
    /// Sum at the current moment, per second.
    moment_sum: f64,
}

impl HighestRate {
    /// Adds to the current moment.
    #[inline]
    pub fn add_rate(&mut self, rate: f64) {
        self.moment_sum += rate;
    }

    /// Ends the moment; `is_known`: all windows that end there have a value.
    #[inline]
    pub fn end_moment(&mut self, is_known: bool) {
        let moment_rate = mem::take(&mut self.moment_sum);
        if is_known {
            self.rate = Some(self.rate.map_or(moment_rate, |rate| rate.max(moment_rate)));
        }
    }
}

/// Bytes over a link in the windows that end at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MomentBytes {
    /// Rate over the link, bytes per second.
    pub rate: MomentRate,
    /// Length of the longest window of the link, ns. Counters of other links may have longer ones
    /// that end at the same time.
    pub length_ns: i64,
    /// Sum of the values.
    pub value: f64,
    /// Value of each owner.
    pub value_by_owner: BTreeMap<usize, f64>,
}

impl MomentBytes {
    /// The rate, if it is known.
    pub fn known_rate(&self) -> Option<f64> {
        match self.rate {
            MomentRate::Known(rate) => Some(rate),
            MomentRate::Absent | MomentRate::Unknown => None,
        }
    }
}

/// Bytes over each link, moment by moment.
#[derive(Debug)]
pub struct Moments {
    links: Vec<MomentBytes>,
    end_ns: i64,
}

impl Moments {
    /// No rows yet, for this number of links.
    pub fn new(links: usize) -> Self {
        Self { links: vec![MomentBytes::default(); links], end_ns: i64::MIN }
    }

    /// Begins the moment of the next row. Returns the previous moment, if that is another one.
    pub fn begin_moment(&mut self, end_ns: i64) -> Option<Vec<MomentBytes>> {
        let is_over = end_ns != self.end_ns && self.end_ns != i64::MIN;
        self.end_ns = end_ns;
        is_over.then(|| self.finish_moment())
    }

    /// Adds a row; `owner` is the number of the owner.
    pub fn add_row(
        &mut self,
        link: usize,
        window: Window,
        owner: Option<usize>,
        value: Option<f64>,
    ) {
        let Some(moved) = self.links.get_mut(link) else { return };
        moved.length_ns = moved.length_ns.max(window.length_ns());
        moved.rate.add_window(value.map(|value| value * window.per_second()));
        let Some(value) = value else { return };
        moved.value += value;
        if let Some(owner_number) = owner {
            *moved.value_by_owner.entry(owner_number).or_default() += value;
        }
    }

    /// Returns the last moment.
    pub fn finish_moment(&mut self) -> Vec<MomentBytes> {
        let none = vec![MomentBytes::default(); self.links.len()];
        mem::replace(&mut self.links, none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_with_an_unknown_part_is_no_highest_one() {
        let mut highest = HighestRate::default();
        for (parts, is_known) in [([1.0, 2.0], true), ([5.0, 5.0], false), ([2.0, 2.0], true)] {
            for rate in parts {
                highest.add_rate(rate);
            }
            highest.end_moment(is_known);
        }
        assert_eq!(highest.rate, Some(4.0));
    }

    #[test]
    fn a_long_window_of_one_link_leaves_the_other_as_it_is() {
        let mut moments = Moments::new(2);
        assert_eq!(moments.begin_moment(20), None);
        moments.add_row(0, Window::new(20, 10, 10), Some(7), Some(5.0));
        moments.add_row(0, Window::new(20, 10, 10), None, Some(1.0));
        // A counter that failed at the begin has one row at the end.
        moments.add_row(1, Window::new(20, 20, 0), None, None);
        let moved = moments.begin_moment(30).unwrap();
        assert_eq!((moved[0].length_ns, moved[0].value), (10, 6.0));
        assert_eq!(moved[0].value_by_owner, BTreeMap::from([(7, 5.0)]));
        assert!((moved[0].known_rate().unwrap() - 6e8).abs() < 1.0);
        assert_eq!((moved[1].length_ns, moved[1].rate), (20, MomentRate::Unknown));
        assert_eq!(moments.finish_moment()[0].rate, MomentRate::Absent);
    }
}
