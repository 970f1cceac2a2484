//! The confidence of a share, from the variance of its error.

use std::f64::consts::PI;

use crate::schema::confidence::RIGHT_WITHIN;

/// Variance of the relative error of a sum over a longer time whose rates are known: the model is
/// not exact.
pub(super) const MODEL_VARIANCE: f64 = 0.005;

/// The probability that a relative error of this variance is within 10 %, for a logistic
/// distribution. It has more small and more large errors than the normal distribution, as expected
/// when the variance is an estimate and changes over time.
pub(super) fn within_tenth(variance: f64) -> f64 {
    // tanh(x / 2s) of a logistic distribution is its part within x; its variance is (s pi)^2 / 3.
    if variance.is_nan() {
        return 0.0;
    }
    if variance > 0.0 { libm::tanh(RIGHT_WITHIN * PI / (12.0 * variance).sqrt()) } else { 1.0 }
}

/// The variance of a relative error that is within 10 % with this probability: the inverse of
/// [`within_tenth`].
pub(super) fn variance_of(within: f64) -> f64 {
    let deviations = libm::atanh(within.clamp(0.0, 1.0));
    (RIGHT_WITHIN * PI / deviations).powi(2) / 12.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_logistic_distribution() {
        let within = |deviations: f64| within_tenth((RIGHT_WITHIN / deviations).powi(2));
        // 1 - 2 / (1 + exp(d pi / sqrt(3))), for d deviations.
        for (deviations, part) in [(0.5, 0.424_730_6), (1.0, 0.719_640_9), (2.0, 0.948_216_5)] {
            assert!(
                (within(deviations) - part).abs() < 1e-6,
                "{deviations}: {}",
                within(deviations)
            );
        }
        for variance in [0.001, 0.1, 3.0] {
            assert!((variance_of(within_tenth(variance)) / variance - 1.0).abs() < 1e-9);
        }
        assert!(within_tenth(0.0) >= 1.0 && within_tenth(f64::INFINITY) <= 0.0);
    }
}
