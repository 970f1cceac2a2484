//! Which root port a PCIe counter is for: how a family splits its traffic and finds its devices.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// How the root ports of one PMU instance are told apart.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ports {
    /// How a device is found; what is known of where it sits decides.
    pub by: Locate,
    /// The term with one bit for each root port; none where an instance is one port or the ports
    /// are events of their own.
    pub term: Option<String>,
    /// How many bits are used, at most 64.
    #[serde(default, deserialize_with = "ports")]
    pub count: u32,
    /// The events it goes for, `*` for anything.
    #[serde(default = "super::pattern::any")]
    pub events: Vec<String>,
    /// The events that count the bytes devices read from memory (a disk is written to, a packet is
    /// sent).
    #[serde(default)]
    pub reads: Vec<String>,
    /// The events that count the bytes devices write to memory.
    #[serde(default)]
    pub writes: Vec<String>,
    /// What else can single out one device: its requester id.
    pub requester: Option<Requester>,
}

fn ports<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        count @ 0..=64 => Ok(count),
        count => Err(D::Error::custom(format!("{count} is more than the 64 bits of a term"))),
    }
}

/// A filter on the id of one device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requester {
    /// The term that takes bus << 8 | device << 3 | function.
    pub term: String,
    /// The term that enables it, where giving the id does not. It is of a family whose PMUs have one
    /// register for the id; without it each counter has its own.
    pub with: Option<String>,
}

/// How the PMU and the port above a device are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Locate {
    /// NVIDIA Grace: the PCI domain is socket << 4 | root port.
    #[serde(rename = "grace domain")]
    GraceDomain,
    /// NVIDIA Tegra410: a designated vendor-specific capability of the root port has socket, root
    /// complex and root port.
    #[serde(rename = "tegra410 dvsec")]
    Tegra410Dvsec,
    /// Linux' `dwc_rootport_<domain << 16 | bus << 8 | device << 3 | function>`.
    #[serde(rename = "dwc name")]
    DwcName,
    /// Alibaba's `pcie_bdf_<domain << 24 | bus << 16 | device << 8 | function>`.
    #[serde(rename = "pcie_bdf name")]
    PcieBdfName,
    /// Kunpeng: the root port is between `bdf_min` and `bdf_max`, which are beside the PMU.
    #[serde(rename = "hisi bdf range")]
    HisiBdfRange,
    /// Intel: `die<N>` files beside the PMU have `domain:bus` of the root bus.
    #[serde(rename = "intel die")]
    IntelDie,
}
