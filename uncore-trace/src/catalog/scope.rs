//! The hardware unit that has one instance of a PMU.

use serde::{Deserialize, Serialize};

/// The hardware unit that has one instance of a PMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PmuScope {
    /// A processor package.
    Socket,
    /// A PCIe root complex.
    #[serde(rename = "root complex")]
    RootComplex,
    /// A PCIe root port.
    #[serde(rename = "root port")]
    RootPort,
    /// A mesh, which is a die.
    Mesh,
    /// A NUMA node.
    Node,
    /// A memory channel, or a part of one.
    Channel,
    /// A slice of the last-level cache.
    Slice,
    /// A last-level cache, if a socket has several.
    Cache,
    /// A link between sockets.
    Link,
    /// A CPU.
    Cpu,
    /// A disk or a network interface.
    Device,
}

impl PmuScope {
    /// Its name in catalog files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::RootComplex => "root complex",
            Self::RootPort => "root port",
            Self::Mesh => "mesh",
            Self::Node => "node",
            Self::Channel => "channel",
            Self::Slice => "slice",
            Self::Cache => "cache",
            Self::Link => "link",
            Self::Cpu => "cpu",
            Self::Device => "device",
        }
    }
}
