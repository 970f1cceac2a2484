//! Where a recording was made: the columns `host`, `boot_id` and `cluster`.
//!
//! They are in the tables that are read for many machines at once: `fabric`, `counters`, `cgroups`,
//! `marks`, `loss` and `run`. Ids of cgroups and times of `CLOCK_MONOTONIC` compare within one `boot_id` only.
//! The tables with a row for each tick do not have them: they are what the `fabric` of one recording
//! is made from, and every column of theirs costs time on the machine that is measured.

use std::collections::BTreeMap;

use super::metadata;

/// What these columns say in every row of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// Host name.
    pub host: String,
    /// Random id of the boot.
    pub boot_id: String,
    /// Cluster the host is in, if it was named.
    pub cluster: Option<String>,
}

impl Origin {
    /// What the metadata of a recording say; empty where they do not.
    pub fn of(pairs: &BTreeMap<String, String>) -> Self {
        let text = |key| pairs.get(key).cloned();
        Self {
            host: text(metadata::HOST).unwrap_or_default(),
            boot_id: text(metadata::BOOT_ID).unwrap_or_default(),
            cluster: text(metadata::CLUSTER),
        }
    }
}
