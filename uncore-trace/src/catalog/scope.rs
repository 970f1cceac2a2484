//! What there is one instance of a PMU for.

use serde::{Deserialize, Serialize};

/// What there is one instance of a PMU for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// A processor package.
    Socket,
    /// A PCIe root complex.
    #[serde(rename = "root complex")]
    RootComplex,
    /// A PCIe root port.
    #[serde(rename = "root port")]
    RootPort,
    /// A mesh: a die.
    Mesh,
    /// A NUMA node.
    Node,
    /// A memory channel, or a part of one.
    Channel,
    /// A slice of the last-level cache.
    Slice,
    /// A last-level cache, where a socket has several.
    Cache,
    /// A link between sockets.
    Link,
    /// A CPU.
    Cpu,
}

impl Scope {
    /// Its name, as catalog files have it.
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
        }
    }
}
