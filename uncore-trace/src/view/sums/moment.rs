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
pub enum Rate {
    /// No window ends.
    #[default]
    Absent,
    /// At least one of them has no value.
    Unknown,
    /// Per second.
    Known(f64),
}

impl Rate {
    /// Adds a window; `None`: its value is not known.
    #[inline]
    pub fn add(&mut self, part: Option<f64>) {
        *self = match (*self, part) {
            (Self::Unknown, _) | (_, None) => Self::Unknown,
            (Self::Absent, Some(part)) => Self::Known(part),
            (Self::Known(rate), Some(part)) => Self::Known(rate + part),
        }
    }

    /// The sum of two directions.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Absent, Self::Absent) => Self::Absent,
            (Self::Known(rate), Self::Known(other)) => Self::Known(rate + other),
            _ => Self::Unknown,
        }
    }
}

/// The highest rate of a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Highest {
    /// The highest so far, per second.
    pub rate: Option<f64>,
    /// Sum at the current moment, per second.
    now: f64,
}

impl Highest {
    /// Adds to the current moment.
    #[inline]
    pub fn add(&mut self, rate: f64) {
        self.now += rate;
    }

    /// Ends the moment; `is_known`: all windows that end there have a value.
    #[inline]
    pub fn end(&mut self, is_known: bool) {
        let now = mem::take(&mut self.now);
        if is_known {
            self.rate = Some(self.rate.map_or(now, |rate| rate.max(now)));
        }
    }
}

/// Bytes over a link in the windows that end at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Moved {
    /// Its rate, bytes per second.
    pub rate: Rate,
    /// Length of the longest window of the link, ns. Counters of other links may have longer ones
    /// that end at the same time.
    pub length_ns: i64,
    /// Sum of the values.
    pub value: f64,
    /// Value of each owner.
    pub parts: BTreeMap<usize, f64>,
}

impl Moved {
    /// The rate, if it is known.
    pub fn known(&self) -> Option<f64> {
        match self.rate {
            Rate::Known(rate) => Some(rate),
            Rate::Absent | Rate::Unknown => None,
        }
    }
}

/// Bytes over each link, moment by moment.
#[derive(Debug)]
pub struct Moments {
    links: Vec<Moved>,
    end_ns: i64,
}

impl Moments {
    /// No rows yet, for this number of links.
    pub fn new(links: usize) -> Self {
        Self { links: vec![Moved::default(); links], end_ns: i64::MIN }
    }

    /// Begins the moment of the next row. Returns the previous moment, if that is another one.
    pub fn at(&mut self, end_ns: i64) -> Option<Vec<Moved>> {
        let is_over = end_ns != self.end_ns && self.end_ns != i64::MIN;
        self.end_ns = end_ns;
        is_over.then(|| self.finish())
    }

    /// Adds a row; `who` is the number of the owner.
    pub fn add(&mut self, link: usize, window: Window, who: Option<usize>, value: Option<f64>) {
        let Some(moved) = self.links.get_mut(link) else { return };
        moved.length_ns = moved.length_ns.max(window.length_ns());
        moved.rate.add(value.map(|value| value * window.per_second()));
        let Some(value) = value else { return };
        moved.value += value;
        if let Some(who) = who {
            *moved.parts.entry(who).or_default() += value;
        }
    }

    /// Returns the last moment.
    pub fn finish(&mut self) -> Vec<Moved> {
        let none = vec![Moved::default(); self.links.len()];
        mem::replace(&mut self.links, none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_with_an_unknown_part_is_no_highest_one() {
        let mut highest = Highest::default();
        for (parts, is_known) in [([1.0, 2.0], true), ([5.0, 5.0], false), ([2.0, 2.0], true)] {
            for rate in parts {
                highest.add(rate);
            }
            highest.end(is_known);
        }
        assert_eq!(highest.rate, Some(4.0));
    }

    #[test]
    fn a_long_window_of_one_link_is_not_one_of_the_other() {
        let mut moments = Moments::new(2);
        assert_eq!(moments.at(20), None);
        moments.add(0, Window::new(20, 10, 10), Some(7), Some(5.0));
        moments.add(0, Window::new(20, 10, 10), None, Some(1.0));
        // A counter that failed at the begin has one row at the end.
        moments.add(1, Window::new(20, 20, 0), None, None);
        let moved = moments.at(30).unwrap();
        assert_eq!((moved[0].length_ns, moved[0].value), (10, 6.0));
        assert_eq!(moved[0].parts, BTreeMap::from([(7, 5.0)]));
        assert!((moved[0].known().unwrap() - 6e8).abs() < 1.0);
        assert_eq!((moved[1].length_ns, moved[1].rate), (20, Rate::Unknown));
        assert_eq!(moments.finish()[0].rate, Rate::Absent);
    }
}
