//! `[ring]`: the newest raw tables on the local disk.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use serde::Deserialize;

use super::value::{self, parse_mode, require_absolute};
use crate::tables::mode::FileMode;
use crate::tables::series::{Keep, Rotate};

/// `[ring]`: the newest raw tables, in parts, as with `record --rotate --keep`.
#[derive(Debug, Clone, PartialEq)]
pub struct RingConfig {
    /// Directory of the parts.
    pub directory: PathBuf,
    /// Length or size of a part.
    pub part_limit: Rotate,
    /// Number or total size of the parts that are kept.
    pub keep: Keep,
    /// Bytes that stay free on its disk; `None`: a part of the disk.
    pub reserve: Option<u64>,
    /// Permissions of its files.
    pub mode: FileMode,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct RingFile {
    directory: PathBuf,
    part: String,
    #[serde(deserialize_with = "value::deserialize_word")]
    keep: String,
    #[serde(deserialize_with = "value::deserialize_some_size")]
    reserve: Option<u64>,
    mode: String,
}

impl Default for RingFile {
    fn default() -> Self {
        Self {
            directory: "/var/lib/uncore-trace/ring".into(),
            part: "5min".to_owned(),
            keep: "20GiB".to_owned(),
            reserve: None,
            mode: FileMode::default().to_string(),
        }
    }
}

impl RingConfig {
    /// The longest time that the ring can cover; `None` if a part or the ring has a limit in bytes.
    pub(super) fn longest_span(&self) -> Option<Duration> {
        self.span_of_parts(|part_count| part_count)
    }

    /// The time that the ring always covers: a trigger ends the newest part, which may have begun
    /// just before. `None` as for [`Self::longest_span`].
    pub(super) fn guaranteed_span(&self) -> Option<Duration> {
        self.span_of_parts(|part_count| part_count - 1)
    }

    /// The time of as many parts as `counted` returns for the number of those that are kept.
    fn span_of_parts(&self, counted: impl Fn(u32) -> u32) -> Option<Duration> {
        match (self.part_limit, self.keep) {
            (Rotate::After(part_length), Keep::Parts(part_count)) => {
                Some(part_length.saturating_mul(counted(part_count)))
            }
            _ => None,
        }
    }
}

impl RingFile {
    pub(super) fn into_checked(self) -> Result<RingConfig> {
        let keep: Keep = self.keep.parse().map_err(|error| anyhow!("ring.keep: {error}"))?;
        let part_limit: Rotate =
            self.part.parse().map_err(|error| anyhow!("ring.part: {error}"))?;
        if let (Rotate::Bytes(part_bytes), Keep::Bytes(total_bytes)) = (part_limit, keep) {
            ensure!(
                total_bytes >= 4 * part_bytes,
                "ring.keep is smaller than four parts: choose at least four times ring.part"
            );
        }
        Ok(RingConfig {
            directory: require_absolute("ring.directory", self.directory)?,
            part_limit,
            keep,
            reserve: self.reserve,
            mode: parse_mode("ring.mode", &self.mode)?,
        })
    }
}
