//! `[[trigger]]` and `[kept]`: time spans of the ring that are saved.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Deserialize;

use super::value::{self, require_absolute};

/// `[[trigger]]`: a condition, and the time span that is saved when it comes true.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TriggerConfig {
    /// Name, used in names of directories.
    pub name: String,
    /// The condition; `None`: it serves requests by SIGUSR1 and `POST /trigger`.
    pub when: Option<String>,
    /// Time before the trigger that is saved.
    #[serde(rename = "before", default = "default_before")]
    #[serde(deserialize_with = "value::deserialize_time")]
    pub span_before: Duration,
    /// Time after the trigger that is saved.
    #[serde(rename = "after", default = "default_after")]
    #[serde(deserialize_with = "value::deserialize_time")]
    pub span_after: Duration,
}

/// Time around a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanAround {
    /// Before the moment.
    pub before: Duration,
    /// After it.
    pub after: Duration,
}

impl SpanAround {
    /// Both together.
    pub const fn length(self) -> Duration {
        self.before.saturating_add(self.after)
    }
}

const fn default_before() -> Duration {
    Duration::from_secs(30)
}

const fn default_after() -> Duration {
    Duration::from_secs(5)
}

impl TriggerConfig {
    /// How much time around the moment is saved.
    pub const fn span_around(&self) -> SpanAround {
        SpanAround { before: self.span_before, after: self.span_after }
    }

    pub(super) fn into_checked(self) -> Result<Self> {
        let name = &self.name;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        ensure!(
            !name.is_empty()
                && name.len() <= 64
                && name.chars().all(is_name)
                && !name.starts_with('.'),
            "trigger name {name:?} is not a file name: use letters, digits, - and _"
        );
        for (key, time) in [("before", self.span_before), ("after", self.span_after)] {
            ensure!(
                time <= Duration::from_hours(1),
                "trigger {name}: {key} is too long: choose at most 1h"
            );
        }
        Ok(self)
    }
}

/// `[kept]`: the recordings that triggers save.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct KeptConfig {
    /// Their directory; `None`: `kept/` in the directory of the ring.
    pub directory: Option<PathBuf>,
    /// Most bytes of the saved recordings of one trigger; the oldest is removed first.
    #[serde(deserialize_with = "value::deserialize_size")]
    pub quota: u64,
    /// Least time between two recordings of one trigger.
    #[serde(deserialize_with = "value::deserialize_time")]
    pub pause: Duration,
}

impl Default for KeptConfig {
    fn default() -> Self {
        Self { directory: None, quota: 5 << 30, pause: Duration::from_mins(10) }
    }
}

impl KeptConfig {
    pub(super) fn into_checked(self) -> Result<Self> {
        let directory =
            self.directory.map(|path| require_absolute("kept.directory", path)).transpose()?;
        Ok(Self { directory, ..self })
    }
}
