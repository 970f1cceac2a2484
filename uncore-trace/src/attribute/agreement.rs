//! How well the count of a window agrees with bytes that were measured elsewhere.
//!
//! Bytes may be measured in the window before or after that of their count, so most windows agree
//! and a few are far off; this is not a normal distribution, so the windows are counted.

use std::collections::VecDeque;

use crate::schema::confidence::RIGHT_WITHIN;

/// Number of windows in the memory.
const MEMORY: usize = 50;

/// The agreement of the last windows.
#[derive(Debug, Default)]
pub(super) struct ByteAgreement {
    /// Mean of `ln(Y / X)` over the windows with both a count `Y` and bytes `X`.
    mean: Option<f64>,
    /// Deviations of the last windows from the mean at that time.
    deviations: VecDeque<f64>,
}

impl ByteAgreement {
    /// Adds the ratio `Y / X` of a window.
    pub(super) fn add_ratio(&mut self, ratio: f64) {
        if ratio <= 0.0 {
            return;
        }
        let Some(mean) = &mut self.mean else {
            self.mean = Some(libm::log(ratio));
            return;
        };
        let deviation = libm::log(ratio) - *mean;
        if self.deviations.len() == MEMORY {
            self.deviations.pop_front();
        }
        self.deviations.push_back(deviation.abs());
        *mean += deviation / (self.deviations.len() + 1) as f64;
    }

    /// The probability that a share is correct despite the difference between count and bytes,
    /// scaled by `scale`: the part of earlier windows for which it would be. A prior of one half
    /// counts as one window.
    pub(super) fn probability(&self, scale: f64) -> f64 {
        if scale <= 0.0 {
            return 1.0;
        }
        let agreeing = self.deviations.iter().filter(|off| **off * scale < RIGHT_WITHIN).count();
        (agreeing as f64 + 0.5) / (self.deviations.len() + 1) as f64
    }
}

/// The probability that a share is correct if an unknown part of `relative_rest` belongs to
/// it.
pub(super) fn probability_within(relative_rest: f64) -> f64 {
    if relative_rest > RIGHT_WITHIN { RIGHT_WITHIN / relative_rest } else { 1.0 }
}
