//! Medians and spread of interleaved rounds.
//!
//! Shared machines drift, so a value is compared with that of another variant in the same round,
//! and the median of the differences is taken, not the difference of the medians.

use serde::Serialize;

/// Median and range of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Summary {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Summary {
    /// `None` of no values.
    pub(super) fn from_values(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted[sorted.len() / 2];
        let lower = sorted[(sorted.len() - 1) / 2];
        Some(Self { median: f64::midpoint(lower, upper), min, max })
    }
}

/// Median of the differences from the base, round by round, in the unit of the series.
pub(super) fn median_difference(series: &[f64], base: &[f64]) -> Option<f64> {
    let summary = Summary::from_values(series.iter().zip(base).map(|(value, base)| value - base))?;
    Some(summary.median)
}

/// Median of the ratios to the base, round by round.
pub(super) fn median_ratio(series: &[f64], base: &[f64]) -> Option<f64> {
    Some(Summary::from_values(series.iter().zip(base).map(|(value, base)| value / base))?.median)
}

/// Median of the differences from the base, in percent of the base.
pub(super) fn median_percent(series: &[f64], base: &[f64]) -> Option<f64> {
    Some((median_ratio(series, base)? - 1.0) * 100.0)
}

/// Ratio of the series' cost to the floor's cost; `None` if one of them is below the noise.
pub(super) fn floor_ratio(series: &[f64], floor: &[f64], base: &[f64]) -> Option<f64> {
    let floor = median_difference(floor, base).filter(|floor| *floor > 0.0)?;
    Some(median_difference(series, base).filter(|cost| *cost > 0.0)? / floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_even_and_empty() {
        let odd = Summary::from_values([3.0, 1.0, 2.0]).unwrap();
        assert_eq!(odd, Summary { median: 2.0, min: 1.0, max: 3.0 });
        assert!((Summary::from_values([1.0, 2.0, 3.0, 10.0]).unwrap().median - 2.5).abs() < 1e-12);
        assert_eq!(Summary::from_values([]), None);
    }

    /// The machine becomes twice as slow halfway; the differences do not change.
    #[test]
    fn drift_cancels_within_a_round() {
        let base = [1.0, 1.0, 2.0, 2.0];
        let floor = [1.1, 1.1, 2.2, 2.2];
        let record = [1.2, 1.2, 2.4, 2.4];
        assert!((median_percent(&record, &base).unwrap() - 20.0).abs() < 1e-9);
        assert!((floor_ratio(&record, &floor, &base).unwrap() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_floor_within_noise_has_no_ratio() {
        assert_eq!(floor_ratio(&[2.0], &[0.9], &[1.0]), None);
        assert_eq!(floor_ratio(&[0.9], &[2.0], &[1.0]), None);
    }
}
