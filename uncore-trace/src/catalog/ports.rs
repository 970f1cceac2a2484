//! How a family of PCIe counters divides its traffic by root port, and how its devices are found.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::discover::event::EventAlias;

/// How the root ports of a PMU instance are distinguished.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortsRule {
    /// How the location of a device is found.
    pub by: Locate,
    /// The term with one bit per root port; `None` if an instance is one port, or if ports have
    /// separate events.
    pub term: Option<String>,
    /// Number of bits in use, at most 64.
    #[serde(default, deserialize_with = "port_count")]
    pub count: u32,
    /// The events that it applies to; `*` matches anything.
    #[serde(default = "super::pattern::match_any_name")]
    pub events: Vec<String>,
    /// The events that count the bytes that devices read from memory (disk writes, sent packets).
    #[serde(default)]
    pub reads: Vec<String>,
    /// The events that count the bytes that devices write to memory.
    #[serde(default)]
    pub writes: Vec<String>,
    /// A filter by requester id, which can select a single device.
    pub requester: Option<RequesterFilter>,
}

fn port_count<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        count @ 0..=64 => Ok(count),
        count => Err(D::Error::custom(format!("{count} is more than the 64 bits of a term"))),
    }
}

/// A filter by the id of a device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequesterFilter {
    /// The term that takes bus << 8 | device << 3 | function, or with [`Locate::Iort`] the
    /// `StreamID`.
    pub term: String,
    /// The terms that it needs, with their values.
    #[serde(default, deserialize_with = "super::family::deserialize_optional_values")]
    pub with: Option<EventAlias>,
}

impl RequesterFilter {
    /// The terms that select the device with this id.
    pub fn selecting_terms(&self, id: u64) -> Vec<(String, u64)> {
        let with = self.with.iter().flat_map(EventAlias::owned_numbers);
        std::iter::once((self.term.clone(), id)).chain(with).collect()
    }
}

impl PortsRule {
    /// Whether these terms select a single device by its id.
    pub fn picks_device(&self, terms: &[(String, u64)]) -> bool {
        self.requester.as_ref().is_some_and(|rule| terms.iter().any(|(term, _)| *term == rule.term))
    }
}

/// How the PMU and the port above a device are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Locate {
    /// NVIDIA Grace: the PCI domain is socket << 4 | root port.
    #[serde(rename = "grace domain")]
    GraceDomain,
    /// NVIDIA Tegra410: a designated vendor-specific capability of the root port has the socket,
    /// root complex and root port.
    #[serde(rename = "tegra410 dvsec")]
    Tegra410Dvsec,
    /// Linux' `dwc_rootport_<domain << 16 | bus << 8 | device << 3 | function>`.
    #[serde(rename = "dwc name")]
    DwcName,
    /// Alibaba's `pcie_bdf_<domain << 24 | bus << 16 | device << 8 | function>`.
    #[serde(rename = "pcie_bdf name")]
    PcieBdfName,
    /// Kunpeng: the root port is between `bdf_min` and `bdf_max` in the PMU's directory.
    #[serde(rename = "hisi bdf range")]
    HisiBdfRange,
    /// Kunpeng: the device itself is between `bdf_min` and `bdf_max` in the PMU's directory.
    #[serde(rename = "hns3 bdf range")]
    HnsBdfRange,
    /// Arm: the firmware's table IORT has the `StreamID` of the device at the SMMU of the PMU.
    #[serde(rename = "iort")]
    Iort,
    /// Intel: `die<N>` files in the PMU's directory have the `domain:bus` of the root bus.
    #[serde(rename = "intel die")]
    IntelDie,
}
