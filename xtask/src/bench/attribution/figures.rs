//! What the comparison says of a mix, by method and window.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::Prepared;
use super::recordings::Arrangement;
use crate::lab::mixes::Mix;

/// By [`Cell::label`].
pub(super) type Figures = BTreeMap<String, Figure>;

/// Of one mix, method and window, over all seeds and counters.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Figure {
    /// Of the relative errors of (cgroup, window).
    pub median: f64,
    pub p95: f64,
    pub errors: usize,
    /// The median of each seed.
    pub medians: Vec<f64>,
    /// Of the relative errors of a cgroup's sum over the recording.
    pub whole_median: f64,
    pub whole_worst: f64,
    /// Part of the count that each method gave away, and what it gave to nobody.
    pub methods: BTreeMap<String, f64>,
    /// Rows by the tenth of confidence.
    pub bins: Vec<Bin>,
}

/// Rows that say about the same.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct Bin {
    pub rows: u64,
    /// Sum of what they say.
    pub said: f64,
    /// How many of them are within 10 % of the truth.
    pub right: f64,
}

/// A figure and what it is of.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cell {
    pub arrangement: Arrangement,
    pub mix: &'static str,
    pub method: String,
    pub window: String,
    #[serde(flatten)]
    pub figure: Figure,
}

impl Cell {
    /// What tells the cells of a mix apart.
    pub(super) fn label(method: &str, window: &str) -> String {
        format!("{method} {window}")
    }
}

impl Bin {
    /// Together with another.
    #[must_use]
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            said: self.said + other.said,
            right: self.right + other.right,
        }
    }

    /// What a row says, and the part that is right.
    pub(super) fn means(self) -> (f64, f64) {
        let rows = self.rows as f64;
        (self.said / rows, self.right / rows)
    }
}

/// The cells of a mix.
pub(super) fn of_mix(
    arrangement: Arrangement,
    mix: &Mix,
    python: &Path,
    made: &Prepared,
) -> Result<Vec<Cell>> {
    let figures = made.compared(python)?;
    Ok(figures
        .into_iter()
        .filter_map(|(label, figure)| {
            let (method, window) = label.split_once(' ')?;
            let (method, window) = (method.to_owned(), window.to_owned());
            Some(Cell { arrangement, mix: mix.name, method, window, figure })
        })
        .collect())
}
