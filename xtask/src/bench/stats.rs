//! Medians and spread of interleaved rounds.
//!
//! Shared machines drift, so a figure is compared with its neighbour of the same round and the
//! median is taken over the differences, not the difference over the medians.

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
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted[sorted.len() / 2];
        let lower = sorted[(sorted.len() - 1) / 2];
        Some(Self { median: f64::midpoint(lower, upper), min, max })
    }
}

/// What the series costs over the base, round by round, in its unit.
pub(super) fn cost(series: &[f64], base: &[f64]) -> Option<f64> {
    let summary = Summary::of(series.iter().zip(base).map(|(value, base)| value - base))?;
    Some(summary.median)
}

/// How many times the base the series is, round by round.
pub(super) fn ratio(series: &[f64], base: &[f64]) -> Option<f64> {
    Some(Summary::of(series.iter().zip(base).map(|(value, base)| value / base))?.median)
}

/// What the series costs over the base, in percent of the base.
pub(super) fn percent(series: &[f64], base: &[f64]) -> Option<f64> {
    Some((ratio(series, base)? - 1.0) * 100.0)
}

/// How many times the floor's cost the series costs; `None` where one of both is lost in noise.
pub(super) fn over_floor(series: &[f64], floor: &[f64], base: &[f64]) -> Option<f64> {
    let floor = cost(floor, base).filter(|floor| *floor > 0.0)?;
    Some(cost(series, base).filter(|cost| *cost > 0.0)? / floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_even_and_empty() {
        let odd = Summary::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!(odd, Summary { median: 2.0, min: 1.0, max: 3.0 });
        assert!((Summary::of([1.0, 2.0, 3.0, 10.0]).unwrap().median - 2.5).abs() < 1e-12);
        assert_eq!(Summary::of([]), None);
    }

    /// A machine that becomes twice as slow halfway: the differences are unmoved.
    #[test]
    fn drift_cancels_within_a_round() {
        let base = [1.0, 1.0, 2.0, 2.0];
        let floor = [1.1, 1.1, 2.2, 2.2];
        let record = [1.2, 1.2, 2.4, 2.4];
        assert!((percent(&record, &base).unwrap() - 20.0).abs() < 1e-9);
        assert!((over_floor(&record, &floor, &base).unwrap() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_floor_within_noise_has_no_ratio() {
        assert_eq!(over_floor(&[2.0], &[0.9], &[1.0]), None);
        assert_eq!(over_floor(&[0.9], &[2.0], &[1.0]), None);
    }
}
