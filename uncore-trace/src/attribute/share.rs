//! The shares of a count.

use super::method::Method;
use crate::entries::Owner;

/// The share of one owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The owner.
    pub owner: Owner,
    /// Its part of the count, in the counter's unit.
    pub value: f64,
    /// The probability that the value is within 10 % of the truth, 0 to 1.
    pub confidence: f32,
    /// The probability that the sum of the shares of its cgroup, or of its owner if it has none,
    /// is within 10 % of the truth over a longer time, 0 to 1. Errors that cancel out between the
    /// processes of a cgroup, or from window to window, are not in it.
    pub lasting: f32,
    /// The method that made it, if it is not that of the window.
    pub method: Option<Method>,
    /// Number of processes whose small shares it sums up, if it does.
    pub processes: Option<u32>,
}

impl Share {
    /// A share whose errors all last.
    pub(super) const fn new(owner: Owner, value: f64, confidence: f32) -> Self {
        Self { owner, value, confidence, lasting: confidence, method: None, processes: None }
    }

    /// Adds another share of the same owner. Confidences are weighed by value.
    pub(super) fn add_share(&mut self, addend: &Self) {
        let sum = self.value + addend.value;
        if sum > 0.0 {
            let weight = (addend.value / sum) as f32;
            self.confidence += weight * (addend.confidence - self.confidence);
            self.lasting += weight * (addend.lasting - self.lasting);
        }
        self.value = sum;
    }
}

/// Adds the rest of `total` as an unattributed share, so that the shares sum to it.
pub(super) fn add_unattributed(shares: &mut Vec<Share>, total: f64) {
    let remainder = total - shares.iter().map(|share| share.value).sum::<f64>();
    // A smaller difference is a rounding error.
    if remainder > total * 1e-12 {
        shares.push(Share::new(Owner::Unattributed, remainder, 0.0));
    }
}

/// The sum of value x confidence.
pub(super) fn confident_value(shares: &[Share]) -> f64 {
    shares.iter().map(|share| share.value * f64::from(share.confidence)).sum()
}
