//! `[record]` and `[identity]`: what is counted, and whose names are believed.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Deserialize;

use super::value;
use crate::choice::{DeclaredCause, MethodChoice, default_tick};

/// `[record]`: the same as options of `uncore-trace record`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct RecordConfig {
    /// Groups of events, as with `-p`. If `events` and `metrics` are empty too: all traffic, or
    /// `host` on a machine without counters of traffic.
    pub groups: Vec<String>,
    /// Events in perf's grammar, as with `-e`.
    pub events: Vec<String>,
    /// Metrics, as with `-M`.
    pub metrics: Vec<String>,
    /// Time between readings; 0: 1 ms, or the interval if that is shorter.
    #[serde(deserialize_with = "value::deserialize_time")]
    tick: Duration,
    /// Length of a window of `fabric`.
    #[serde(deserialize_with = "value::deserialize_time")]
    pub interval: Duration,
    /// Method of attribution, as with `--method`.
    #[serde(deserialize_with = "value::deserialize_choice")]
    pub method: MethodChoice,
    /// Who causes what counters of unknown cause count, as with `--cause`.
    pub cause: Option<DeclaredCause>,
    /// Deeper cgroups count towards their ancestor at this depth, as with `--cgroup-depth`.
    pub cgroup_depth: Option<usize>,
    /// Whether a canary runs, as with `--canary`.
    pub canary: bool,
}

impl Default for RecordConfig {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            events: Vec::new(),
            metrics: Vec::new(),
            tick: Duration::ZERO,
            interval: Duration::from_millis(10),
            method: MethodChoice::Auto,
            cause: None,
            cgroup_depth: None,
            canary: false,
        }
    }
}

impl RecordConfig {
    /// Time between readings.
    pub fn tick_duration(&self) -> Duration {
        if self.tick.is_zero() { default_tick(self.interval) } else { self.tick }
    }
}

/// `[identity]`: whose names of containers, pods, virtual machines and jobs are believed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct IdentityConfig {
    /// Cgroups at and below which all names are believed, as with `--trust-cgroup`.
    pub trusted: Vec<String>,
}

impl IdentityConfig {
    pub(super) fn into_checked(self) -> Result<Self> {
        for path in &self.trusted {
            ensure!(
                path.starts_with('/') && !path.starts_with("/sys/fs/"),
                "identity.trusted has {path:?}: write the path of a cgroup from the root of the \
                 hierarchy, such as /system.slice/ci.service"
            );
        }
        Ok(self)
    }
}
