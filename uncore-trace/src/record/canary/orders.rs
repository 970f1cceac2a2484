//! What the recorder and the canary tell each other: a line of JSON each, over pipes.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::discover::CgroupView;
use crate::schema::canary::{Burst, CanaryKind, Skipped};

/// What to move. A kind without orders is not moved.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    /// Mount point of the cgroup v2 hierarchy.
    pub mount: PathBuf,
    /// What is mounted there.
    pub view: CgroupView,
    /// CPUs to run on, for other kinds than memory.
    pub cpus: Vec<u32>,
    pub memory: Option<MemoryOrders>,
    pub disk: Option<DiskOrders>,
    /// Highest rate of packets over the loopback interface during a burst, bytes/s.
    pub network: Option<f64>,
    /// The kinds without orders.
    pub skipped: Vec<Skipped>,
}

/// Reads of memory.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MemoryOrders {
    /// The nodes that have an array, and whose CPUs read them.
    pub nodes: Vec<CanaryNode>,
    /// Size of each array, bytes.
    pub array_bytes: u64,
    /// Highest rate during a burst.
    pub bytes_per_s: f64,
}

/// A NUMA node; the whole machine if it has none.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CanaryNode {
    pub node: Option<u32>,
    pub cpus: Vec<u32>,
}

/// Reads of a file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DiskOrders {
    /// The directory of the file.
    pub directory: PathBuf,
    /// Highest rate during a burst.
    pub bytes_per_s: f64,
}

/// What the canary tells.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CanaryMessage {
    /// It is in its cgroup, and has its arrays and files.
    Ready { cgroup: String, skipped: Vec<Skipped> },
    /// It cannot begin.
    Failed { why: String },
    /// A burst has ended.
    Burst(Burst),
    /// A burst failed, and its kind is not moved again.
    GaveUp { kind: CanaryKind, why: String },
    /// All bursts have ended.
    Ended,
}
