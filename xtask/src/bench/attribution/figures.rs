//! Figures of a mix, by method and window, from the output of the comparison.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::PreparedComparison;
use super::recordings::Arrangement;
use crate::bench::stats::Summary;
use crate::lab::mixes::Mix;

/// Least number of rows of a bin for its calibration to be significant.
pub(super) const ENOUGH: u64 = 1000;

/// The method whose figures are the lower bound for any model of rates (`tests/lab/floor.py`).
pub(super) const FLOOR: &str = "floor";

/// The output of the comparison.
#[derive(Debug, Deserialize)]
pub(super) struct ComparisonOutput {
    /// By [`Cell::cell_label`].
    pub figures: BTreeMap<String, Figure>,
    /// Fraction of the time of the CPUs near a counter that the recorder used.
    pub recorder: f64,
    /// Of each pair of CPUs: the largest correlation of the CPU times of two tenants.
    pub correlations: Vec<f64>,
}

/// Figures of one mix, method and window, over all seeds and counters.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Figure {
    /// Median of the relative errors of (cgroup, window).
    pub median: f64,
    pub p95: f64,
    pub errors: usize,
    /// The median for each seed.
    pub medians: Vec<f64>,
    /// Fraction of a window's bytes that were given to another owner, mean over windows.
    pub misplaced: f64,
    /// Median of the relative errors of cgroups' sums over the recording.
    pub bill_median: Option<f64>,
    pub bill_worst: Option<f64>,
    /// The worst error of sums whose rows have a mean confidence above 0.5, weighted by bytes.
    pub bill_worst_relied_on: Option<f64>,
    pub bills_relied_on: usize,
    /// Number of intervals of a report, and how many of them contain the truth.
    pub intervals: usize,
    pub intervals_held: usize,
    /// Fraction of the count that each method divided, and that it left unattributed.
    pub methods: BTreeMap<String, f64>,
    /// Rows by tenth of confidence.
    pub bins: Vec<Bin>,
}

/// Rows with a similar confidence.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct Bin {
    pub rows: u64,
    /// Sum of their confidences.
    pub said: f64,
    /// Number of rows within 10 % of the truth.
    pub right: f64,
}

/// A figure, with its method and window.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cell {
    pub arrangement: Arrangement,
    pub mix: &'static str,
    pub method: String,
    pub window: String,
    pub recorder: f64,
    pub correlation: Option<Summary>,
    #[serde(flatten)]
    pub figure: Figure,
}

impl Cell {
    /// Identifies the cell of a method and window in a mix.
    pub(super) fn cell_label(method: &str, window: &str) -> String {
        format!("{method} {window}")
    }
}

impl Bin {
    /// The sum of two bins.
    #[must_use]
    pub(super) fn merged_with(self, bin: Self) -> Self {
        Self {
            rows: self.rows + bin.rows,
            said: self.said + bin.said,
            right: self.right + bin.right,
        }
    }

    /// Mean confidence, and fraction of rows that are right.
    pub(super) fn calibration_means(self) -> (f64, f64) {
        let rows = self.rows as f64;
        (self.said / rows, self.right / rows)
    }

    /// Difference between mean confidence and fraction that is right.
    fn calibration_error(self) -> f64 {
        let (mean_confidence, right_fraction) = self.calibration_means();
        (mean_confidence - right_fraction).abs()
    }
}

/// Root mean square of these differences, weighted by rows.
pub(super) fn rms_calibration_error(bins: &[Bin]) -> Option<f64> {
    let rows: u64 = bins.iter().map(|bin| bin.rows).sum();
    let filled_bins = bins.iter().filter(|bin| bin.rows > 0);
    let squares: f64 =
        filled_bins.map(|bin| bin.rows as f64 * bin.calibration_error().powi(2)).sum();
    (rows > 0).then(|| (squares / rows as f64).sqrt())
}

/// The largest difference of a bin with enough rows.
pub(super) fn largest_calibration_error(bins: &[Bin]) -> Option<f64> {
    let large_bins = bins.iter().filter(|bin| bin.rows >= ENOUGH);
    large_bins.map(|bin| bin.calibration_error()).max_by(f64::total_cmp)
}

/// The cells of a mix.
pub(super) fn of_mix(
    arrangement: Arrangement,
    mix: &Mix,
    python: &Path,
    prepared: &PreparedComparison,
) -> Result<Vec<Cell>> {
    let ComparisonOutput { figures, recorder, correlations } = prepared.run_comparison(python)?;
    let correlation = Summary::from_values(correlations);
    Ok(figures
        .into_iter()
        .filter_map(|(label, figure)| {
            let (method, window) = label.split_once(' ')?;
            let (method, window) = (method.to_owned(), window.to_owned());
            Some(Cell { arrangement, mix: mix.name, method, window, recorder, correlation, figure })
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calibration_is_weighed_by_rows() {
        let bin = |rows: u64, said, right| Bin {
            rows,
            said: said * rows as f64,
            right: right * rows as f64,
        };
        let bins = [bin(3000, 0.5, 0.7), bin(0, 0.0, 0.0), bin(1000, 0.9, 0.9), bin(10, 0.1, 0.9)];
        assert!((rms_calibration_error(&bins[..3]).unwrap() - 0.2 * 0.75_f64.sqrt()).abs() < 1e-9);
        assert!((largest_calibration_error(&bins).unwrap() - 0.2).abs() < 1e-9);
        assert_eq!(
            (rms_calibration_error(&[]), largest_calibration_error(&bins[3..])),
            (None, None)
        );
    }
}
