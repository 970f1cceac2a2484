//! The origin of a recording: the columns `host`, `boot_id` and `cluster`.
//!
//! The tables that are read for many machines together have them: `fabric`, `counters`, `cgroups`,
//! `marks`, `loss` and `run`. Ids of cgroups and times of `CLOCK_MONOTONIC` are comparable only
//! within one `boot_id`. Tables with a row per tick do not have these columns: they are the input
//! of one recording's `fabric`, and every column costs time on the measured machine.

use std::collections::BTreeMap;

use super::metadata;

/// The values of these columns in a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RecordingOrigin {
    /// Host name.
    pub host: String,
    /// Random id of the boot.
    pub boot_id: String,
    /// Cluster of the host, if given.
    pub cluster: Option<String>,
}

impl RecordingOrigin {
    /// The values in the metadata of a recording; empty if missing.
    pub fn from_metadata(pairs: &BTreeMap<String, String>) -> Self {
        let text = |key| pairs.get(key).cloned();
        Self {
            host: text(metadata::HOST).unwrap_or_default(),
            boot_id: text(metadata::BOOT_ID).unwrap_or_default(),
            cluster: text(metadata::CLUSTER),
        }
    }
}
