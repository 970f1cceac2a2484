//! Links, in the form of the plan in the metadata of a recording.

use serde::{Deserialize, Serialize};

use super::metric::PlannedMetric;
use crate::named_values::named_values;

/// [`Link::kind`] of the memory of a socket.
pub const MEMORY: &str = "memory";

named_values! {
    /// The direction of bytes, as seen from the CPUs of the socket.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Direction;
    /// The value in the tables.
    pub fn direction_name;
    /// Towards the CPUs: memory is read, a device writes to memory, another chip sends.
    In = "in",
    /// Away from the CPUs: memory is written, a device reads from memory, another chip receives.
    Out = "out",
    /// The sum of both directions.
    Both = "both",
}

/// A link: counters whose bytes share one limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Unique name in the plan: `memory 0`, `PCIe nvme0n1`.
    pub name: String,
    /// Kind of link in the catalog: `memory`, `PCIe`.
    pub kind: String,
    /// Group of its counters: mem, pcie, c2c, mesh.
    pub subsystem: String,
    /// Socket of its PMUs; `None` if they belong to none.
    pub socket: Option<i16>,
    /// Devices below its root ports, as text; `None` if there are none, or none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<String>,
    /// The counters of its bytes.
    pub counters: Vec<LinkCounter>,
    /// Its peak rates, one per source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peaks: Vec<PeakRate>,
    /// Its latencies: metrics in ns whose inputs are all counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<PlannedMetric>,
}

/// A counter of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCounter {
    /// Its id.
    pub counter: u32,
    /// Direction of the bytes that it counts.
    pub direction: Direction,
}

named_values! {
    /// Source of a peak.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum PeakSource;
    /// The value in the tables.
    pub fn source_name;
    /// Measured on this machine by `uncore-trace calibrate`.
    Calibrated = "calibrated",
    /// From sysfs, for a PCIe link.
    Sysfs = "sysfs",
    /// From the data sheet that the catalog cites.
    Catalog = "catalog",
    /// A roll-up, which does not say where it had the peak from.
    #[serde(rename = "roll-up")]
    Rollup = "roll-up",
}

/// The highest rate of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeakRate {
    /// Its direction; for both, the sum of the two.
    pub direction: Direction,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Where it is from.
    pub source: PeakSource,
    /// How it was computed, as text.
    pub detail: String,
}

impl Link {
    /// The peaks that limit this direction: its own, and those of the sum of both.
    pub fn peaks_of(&self, direction: Direction) -> impl Iterator<Item = &PeakRate> {
        let limits = move |peak: &&PeakRate| {
            peak.direction == direction || peak.direction == Direction::Both
        };
        self.peaks.iter().filter(limits)
    }
}
