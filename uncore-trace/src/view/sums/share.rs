//! Sum of the rows of one line.
//!
//! The confidence of a sum is the mean of the rows' confidences, weighted by value: the part of the
//! sum that is expected in shares that are right. If all values are 0 it is the plain mean. The
//! interval of a sum is computed from the half widths of its rows ([`super::super::interval`]).

use super::super::interval::{Interval, LineUncertainty, UncertainShare};

/// The confidence of a sum.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Confidence {
    /// Number of rows with a confidence.
    pub claims: u64,
    /// The lowest; `None` without a confidence.
    pub lowest: Option<f32>,
    /// Sum of confidence x value, and sum of the values with a confidence.
    by_value: (f64, f64),
    /// Sum of the confidences.
    plain: f64,
}

impl Confidence {
    /// Adds a row.
    #[inline]
    pub fn add_row(&mut self, value: f64, confidence: Option<f32>) {
        let Some(confidence) = confidence else { return };
        let (value, plain) = (value.max(0.0), f64::from(confidence));
        let (lowest, by_value) = (Some(confidence), (plain * value, value));
        self.add_sum(&Self { claims: 1, lowest, by_value, plain });
    }

    /// Adds the rows of another sum.
    #[inline]
    pub fn add_sum(&mut self, added: &Self) {
        self.claims += added.claims;
        self.lowest = match (self.lowest, added.lowest) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.by_value.0 += added.by_value.0;
        self.by_value.1 += added.by_value.1;
        self.plain += added.plain;
    }

    /// The confidence of the same rows with each value multiplied by `factor`.
    #[must_use]
    pub fn scaled_by(self, factor: f64) -> Self {
        Self { by_value: (self.by_value.0 * factor, self.by_value.1 * factor), ..self }
    }

    /// The confidence of the sum; `None` without any.
    pub fn mean_confidence(&self) -> Option<f64> {
        if self.by_value.1 > 0.0 {
            return Some(self.by_value.0 / self.by_value.1);
        }
        (self.claims > 0).then(|| self.plain / self.claims as f64)
    }
}

/// The sum of the shares of one owner, or of all of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShareSum {
    /// Sum of the values.
    pub value: f64,
    /// Rows with a value.
    pub rows: u64,
    /// Rows without one.
    pub missing: u64,
    /// Confidence of the sum.
    pub confidence: Confidence,
    width: LineUncertainty,
}

impl ShareSum {
    /// Number of a cause of error: a cgroup or a program on a socket.
    pub(in super::super) fn cause_number(&mut self, socket: Option<i16>, name: &str) -> usize {
        self.width.cause_number(socket, name)
    }

    /// Adds a row with a value; `cause` is a number from [`Self::cause_number`].
    #[inline]
    pub(in super::super) fn add_claim(&mut self, cause: usize, claim: UncertainShare) {
        self.value += claim.value;
        self.rows += 1;
        self.confidence.add_row(claim.value, claim.confidence);
        self.width.add_row(cause, claim);
    }

    /// Adds a row of a count that was not divided: it has no interval.
    #[inline]
    pub(in super::super) fn add_whole(&mut self, value: f64, confidence: Option<f32>) {
        self.value += value;
        self.rows += 1;
        self.confidence.add_row(value, confidence);
    }

    /// The 90 % interval of the sum; `total` is the total of the event. `None` if no row has a
    /// value or a confidence.
    pub fn interval_if_sure(&self, total: f64) -> Option<Interval> {
        (self.rows > 0 && self.confidence.claims > 0).then(|| self.sum_interval(total))
    }

    /// The 90 % interval of the sum, also if no row has a confidence.
    pub(in super::super) fn sum_interval(&self, total: f64) -> Interval {
        self.width.sum_interval(self.value, total)
    }

    /// Adds the sum of another owner.
    pub(in super::super) fn add_other_owner(&mut self, added: &Self) {
        self.add_up(added);
        self.width.join_line(&added.width);
    }

    /// Adds the sum of another line of the same owner, with the same causes.
    pub(in super::super) fn add_same_owner(&mut self, added: &Self) {
        self.add_up(added);
        self.width.unite_line(&added.width);
    }

    fn add_up(&mut self, added: &Self) {
        self.value += added.value;
        self.rows += added.rows;
        self.missing += added.missing;
        self.confidence.add_sum(&added.confidence);
    }

    /// Removes all rows, but keeps the numbers of the causes.
    pub(in super::super) fn remove_rows(&mut self) {
        let mut width = std::mem::take(&mut self.width);
        width.clear_rows();
        *self = Self { width, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(rows: &[(f64, Option<f32>)]) -> ShareSum {
        let mut share = ShareSum::default();
        let cause = share.cause_number(None, "a");
        for (window, (value, confidence)) in rows.iter().enumerate() {
            let of = (0, window as i64, 1);
            share.add_claim(cause, UncertainShare::new(of, *value, 100.0, *confidence));
        }
        share
    }

    #[test]
    fn confidence_is_weighted_by_value() {
        let near = |share: &ShareSum, expected: f64| {
            assert!(
                (share.confidence.mean_confidence().unwrap() - expected).abs() < 1e-6,
                "{share:?}"
            );
        };
        let some = share(&[(90.0, Some(1.0)), (10.0, Some(0.0)), (50.0, None)]);
        near(&some, 0.9);
        assert_eq!((some.confidence.lowest, some.confidence.claims, some.rows), (Some(0.0), 2, 3));
        near(&share(&[(0.0, Some(1.0)), (0.0, Some(0.5))]), 0.75);
        assert_eq!(share(&[(1.0, None)]).confidence.mean_confidence(), None);
        let mut joined = share(&[(30.0, Some(1.0))]);
        joined.add_other_owner(&share(&[(10.0, Some(0.2))]));
        near(&joined, 0.8);
    }

    #[test]
    fn a_cleared_share_has_nothing() {
        let mut some = share(&[(90.0, Some(0.5))]);
        some.remove_rows();
        assert_eq!((some.value, some.rows, some.confidence.mean_confidence()), (0.0, 0, None));
        assert_eq!(some.interval_if_sure(1.0), None);
    }
}
