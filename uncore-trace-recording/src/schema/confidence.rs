//! The 90 % interval that a confidence stands for.
//!
//! A confidence is the probability that a share is within [`RIGHT_WITHIN`] of the truth. Relative
//! errors are assumed to have a logistic distribution, where the fraction `tanh(x / 2s)` is within
//! `x`. So the confidence `p` gives the scale `s`, and the scale gives the half width for [`LEVEL`]
//! of the errors, as a fraction of the value:
//!
//! ```text
//! RIGHT_WITHIN x atanh(LEVEL) / atanh(p)
//! ```
//!
//! That is 8 % at a confidence of 0.94, 10 % at 0.9, 27 % at 0.5, and 0 at 1.

use std::sync::LazyLock;

/// `confidence` is the chance that a share is within this relative error of the truth.
pub const RIGHT_WITHIN: f64 = 0.1;

/// Probability that the true value is in the interval.
pub const LEVEL: f64 = 0.9;

/// Half width for [`LEVEL`] of the errors, as a fraction of the value; `None` without a confidence.
#[inline]
pub fn relative_half_width(confidence: Option<f32>) -> Option<f64> {
    // The comparison also refuses NaN. `atanh(1)` is infinite: the half width is 0.
    let confidence = confidence.filter(|value| *value > 0.0)?.min(1.0);
    let hundredths = (confidence * 100.0).round();
    // Recorded confidences are in hundredths, and `atanh` is slow.
    if (hundredths / 100.0).to_bits() == confidence.to_bits() {
        return RELATIVE_HALF_WIDTHS.get(hundredths as usize).copied();
    }
    Some(compute_relative_half_width(confidence))
}

/// The 90 % interval of a share of `total`, which is within 0 and `total`: all of it where nothing
/// is known.
pub(crate) fn share_interval(value: f64, total: f64, confidence: f32) -> (f64, f64) {
    let highest = total.max(value);
    let Some(relative_width) = relative_half_width(Some(confidence)) else {
        return (value.min(0.0), highest);
    };
    let half_width = value.abs() * relative_width;
    ((value - half_width).max(value.min(0.0)), (value + half_width).min(highest))
}

/// [`relative_half_width`] for each hundredth.
static RELATIVE_HALF_WIDTHS: LazyLock<[f64; 101]> = LazyLock::new(|| {
    std::array::from_fn(|hundredths| compute_relative_half_width(hundredths as f32 / 100.0))
});

fn compute_relative_half_width(confidence: f32) -> f64 {
    RIGHT_WITHIN * libm::atanh(LEVEL) / libm::atanh(f64::from(confidence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_within_the_total() {
        let rounded = |value, confidence| {
            let (low, high) = share_interval(value, 100.0, confidence);
            [low, high].map(|end| end.round() as i64)
        };
        assert_eq!(rounded(40.0, 0.9), [36, 44]);
        assert_eq!(rounded(40.0, 1.0), [40, 40]);
        assert_eq!(rounded(40.0, 0.0), [0, 100]);
        assert_eq!(rounded(99.0, 0.5), [72, 100]);
    }
}
