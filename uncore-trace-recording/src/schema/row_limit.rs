//! How many rows `fabric` has at most.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, Result};

use super::metadata;

/// Rows of `fabric` in a second at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowLimit {
    /// No limit.
    #[default]
    All,
    /// This many.
    PerSecond(u64),
}

impl RowLimit {
    /// The default of recordings that have the table `sums`.
    pub const DEFAULT: Self = Self::PerSecond(20_000);

    /// The limit of a recording. Those of older programs have none.
    ///
    /// # Errors
    ///
    /// The metadata have something else.
    pub fn from_metadata(pairs: &BTreeMap<String, String>) -> Result<Self> {
        let Some(text) = pairs.get(metadata::ROWS_PER_S) else { return Ok(Self::All) };
        text.parse().ok().context("the metadata have a rows_per_s that is no number")
    }

    /// Most rows in a window of this length, ns; `None`: no limit.
    pub fn window_rows(self, window_ns: u64) -> Option<usize> {
        let Self::PerSecond(rows) = self else { return None };
        let in_window = u128::from(rows) * u128::from(window_ns) / 1_000_000_000;
        Some(usize::try_from(in_window).unwrap_or(usize::MAX))
    }
}

impl fmt::Display for RowLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::PerSecond(rows) => rows.fmt(f),
        }
    }
}

impl FromStr for RowLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        match text.parse() {
            Ok(rows) if rows > 0 => Ok(Self::PerSecond(rows)),
            _ => Err("write a number of rows above 0, or all".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_of_rows_or_all() {
        for text in ["all", "1", "20000"] {
            assert_eq!(text.parse::<RowLimit>().unwrap().to_string(), text);
        }
        for text in ["", "0", "-1", "1.5", "none"] {
            assert!(text.parse::<RowLimit>().is_err(), "{text}");
        }
        assert_eq!(RowLimit::DEFAULT.window_rows(10_000_000), Some(200));
        assert_eq!(RowLimit::All.window_rows(10_000_000), None);
    }
}
