//! Statistics that several tests of residuals need.

/// Standard normal deviate that one draw in a thousand exceeds.
pub(super) const ONE_IN_A_THOUSAND: f64 = 3.09;

/// The variance of the population that these values are a sample of; not a number for fewer than
/// two.
pub(super) fn sample_variance(values: impl ExactSizeIterator<Item = f64> + Clone) -> f64 {
    let n = values.len() as f64;
    let mean = values.clone().sum::<f64>() / n;
    values.map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_one_degree_of_freedom_less() {
        assert!((sample_variance([1.0, 2.0, 6.0].into_iter()) - 7.0).abs() < 1e-12);
        assert!(sample_variance([4.0].into_iter()).is_nan());
    }
}
