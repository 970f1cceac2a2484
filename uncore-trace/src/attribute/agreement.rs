//! How well the count of a window agrees with bytes that were measured elsewhere.
//!
//! Bytes may be measured in the window before or after that of their count, so most windows agree
//! and a few are far off; this is not a normal distribution, so the windows are counted.

use std::collections::VecDeque;

use crate::schema::fabric::RIGHT_WITHIN;

/// Number of windows in the memory.
const MEMORY: usize = 50;

/// The agreement of the last windows.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// Mean of `ln(Y / X)` over the windows with both a count `Y` and bytes `X`.
    mean: Option<f64>,
    /// Deviations of the last windows from the mean at that time.
    off: VecDeque<f64>,
}

impl Agreement {
    /// Adds the ratio `Y / X` of a window.
    pub(super) fn learn(&mut self, ratio: f64) {
        if ratio <= 0.0 {
            return;
        }
        let Some(mean) = &mut self.mean else {
            self.mean = Some(ratio.ln());
            return;
        };
        let off = ratio.ln() - *mean;
        if self.off.len() == MEMORY {
            self.off.pop_front();
        }
        self.off.push_back(off.abs());
        *mean += off / (self.off.len() + 1) as f64;
    }

    /// The probability that a share is correct despite the difference between count and bytes,
    /// scaled by `by`: the part of earlier windows for which it would be. A prior of one half
    /// counts as one window.
    pub(super) fn agree(&self, by: f64) -> f64 {
        if by <= 0.0 {
            return 1.0;
        }
        let right = self.off.iter().filter(|off| **off * by < RIGHT_WITHIN).count();
        (right as f64 + 0.5) / (self.off.len() + 1) as f64
    }
}

/// The probability that a share is correct if an unknown part of `rest`, relative to it, belongs to
/// it.
pub(super) fn within_rest(rest: f64) -> f64 {
    if rest > RIGHT_WITHIN { RIGHT_WITHIN / rest } else { 1.0 }
}
