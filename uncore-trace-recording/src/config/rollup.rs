//! `[rollup]`: `fabric` in longer windows.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Deserialize;

use super::record::RecordConfig;
use super::value::{self, parse_mode, require_absolute};
use crate::schema::rollup::LONGEST_WINDOW_NS;
use crate::tables::mode::FileMode;

/// The shortest window of a roll-up.
pub const SHORTEST_WINDOW: Duration = Duration::from_secs(1);

/// The longest window of a roll-up.
pub const LONGEST_WINDOW: Duration = Duration::from_nanos(LONGEST_WINDOW_NS as u64);

/// `[rollup]`: `fabric` in longer windows, one file per hour.
#[derive(Debug, Clone, PartialEq)]
pub struct RollupConfig {
    /// Directory above the partitions.
    pub directory: PathBuf,
    /// Length of a window.
    pub window: Duration,
    /// Cgroups with rows of their own, for each counter and window.
    pub owners: usize,
    /// Age at which the files of an hour are removed; `None`: never.
    pub keep: Option<Duration>,
    /// Permissions of its files.
    pub mode: FileMode,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct RollupFile {
    directory: PathBuf,
    #[serde(deserialize_with = "value::deserialize_time")]
    window: Duration,
    owners: usize,
    #[serde(deserialize_with = "value::deserialize_some_time")]
    keep: Option<Duration>,
    mode: String,
}

impl Default for RollupFile {
    fn default() -> Self {
        Self {
            directory: "/var/lib/uncore-trace/rollup".into(),
            window: Duration::from_secs(10),
            owners: 100,
            keep: Some(Duration::from_hours(7 * 24)),
            mode: FileMode::default().to_string(),
        }
    }
}

impl RollupFile {
    pub(super) fn into_checked(self, record: &RecordConfig) -> Result<RollupConfig> {
        let window = self.window;
        ensure!(
            (SHORTEST_WINDOW..=LONGEST_WINDOW).contains(&window),
            "rollup.window is out of range: choose 1s to 5min"
        );
        ensure!(
            window.as_nanos().is_multiple_of(record.interval.as_nanos().max(1)),
            "rollup.window is not a multiple of record.interval: choose a multiple"
        );
        ensure!(
            (1..=10_000).contains(&self.owners),
            "rollup.owners is out of range: choose 1 to 10000"
        );
        Ok(RollupConfig {
            directory: require_absolute("rollup.directory", self.directory)?,
            window,
            owners: self.owners,
            keep: self.keep,
            mode: parse_mode("rollup.mode", &self.mode)?,
        })
    }
}
