//! Links, as the plan in the metadata of a recording has them.

use serde::{Deserialize, Serialize};

use super::metric::Planned;

/// Which way bytes go, as the CPUs of the socket see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Towards them: memory is read, a device writes to memory, another chip sends.
    In,
    /// From them: memory is written, a device reads from memory, another chip receives.
    Out,
    /// Both ways together.
    Both,
}

impl Direction {
    /// The word that tables use for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
            Self::Both => "both",
        }
    }
}

/// What shares one limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// What it is called, no other link of the plan so: `memory 0`, `PCIe nvme0n1`.
    pub name: String,
    /// What the catalog calls links of its kind: `memory`, `PCIe`.
    pub kind: String,
    /// The group its counters are of: mem, pcie, c2c, mesh.
    pub subsystem: String,
    /// Socket of the counters; `None` where their PMUs belong to none.
    pub socket: Option<i16>,
    /// What is below its root ports, for people; `None` where it has none, or none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<String>,
    /// What counts its bytes.
    pub counters: Vec<Counted>,
    /// The most that goes over it, as each source has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peaks: Vec<Peak>,
    /// How long what goes over it takes: metrics in ns whose inputs are all counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<Planned>,
}

/// A counter of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Its id.
    pub counter: u32,
    /// Which way the bytes go that it counts.
    pub direction: Direction,
}

/// Where a peak is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Measured on this machine by `uncore-trace calibrate`.
    Calibrated,
    /// What sysfs says of a PCIe link.
    Sysfs,
    /// The data sheet that the catalog names.
    Catalog,
    /// A roll-up, which does not say where it had the peak from.
    #[serde(rename = "roll-up")]
    Rollup,
}

impl Source {
    /// The word that tables use for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calibrated => "calibrated",
            Self::Sysfs => "sysfs",
            Self::Catalog => "catalog",
            Self::Rollup => "roll-up",
        }
    }
}

/// The most that goes over a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// Of which direction; of both: for their sum.
    pub direction: Direction,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Where it is from.
    pub source: Source,
    /// How it was worked out, for people.
    pub detail: String,
}

impl Link {
    /// The peaks that limit bytes of this direction: its own, and those of both directions together.
    pub fn peaks_of(&self, direction: Direction) -> impl Iterator<Item = &Peak> {
        let limits =
            move |peak: &&Peak| peak.direction == direction || peak.direction == Direction::Both;
        self.peaks.iter().filter(limits)
    }
}
