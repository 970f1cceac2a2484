//! The groups of `-p`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A group of `-p`: the same names for all vendors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Memory traffic.
    Mem,
    /// Last-level and system caches.
    Cache,
    /// Traffic of PCIe devices.
    Pcie,
    /// Links between chips and sockets.
    C2c,
    /// The on-chip network.
    Mesh,
    /// Requests in flight, for latencies.
    Latency,
    /// Energy of processors and memory.
    Energy,
    /// Core PMUs.
    Core,
    /// Kernel counters, which every machine has.
    Host,
    /// Bytes of disks and network interfaces.
    Io,
}

impl Group {
    /// Every group with its name.
    pub const ALL: [(Self, &str); 10] = [
        (Self::Mem, "mem"),
        (Self::Cache, "cache"),
        (Self::Pcie, "pcie"),
        (Self::C2c, "c2c"),
        (Self::Mesh, "mesh"),
        (Self::Latency, "latency"),
        (Self::Energy, "energy"),
        (Self::Core, "core"),
        (Self::Host, "host"),
        (Self::Io, "io"),
    ];

    /// The group of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(group, _)| *group)
    }

    /// Its name, as typed after `-p`.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(group, _)| *group == self).map_or("", |(_, name)| *name)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
