//! PCI functions and their position in the hierarchy, from the links of sysfs.
//!
//! Only the texts of links and small files below the root are read, and no link is followed, so
//! that a captured tree gives the same result as the machine.

use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::{fmt, fs};

use anyhow::{Context as _, Result};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::read::{Problems, read_array, read_bytes};
use super::speed::LinkSpeed;

/// Directory of the PCI functions, below the root.
pub(super) const FUNCTIONS: &str = "sys/bus/pci/devices";

/// NVIDIA's vendor id (`include/linux/pci_ids.h`).
const NVIDIA: u32 = 0x10de;

/// The address of a PCI function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// The segment; it has more than 16 bits for segments that Linux creates (`vmd`).
    pub domain: u32,
    /// 0 to 255.
    pub bus: u8,
    /// 0 to 31.
    pub device: u8,
    /// 0 to 7.
    pub function: u8,
}

impl PciAddress {
    /// bus << 8 | device << 3 | function: the requester id in a PCIe packet.
    pub fn requester_id(&self) -> u16 {
        u16::from(self.bus) << 8 | u16::from(self.device) << 3 | u16::from(self.function)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        f.pad(&format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
    }
}

impl Serialize for PciAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PciAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error| D::Error::custom(format!("{error:#}")))
    }
}

impl FromStr for PciAddress {
    type Err = anyhow::Error;

    /// Parses `DDDD:BB:DD.F`, or `BB:DD.F` for domain 0, as `lspci` prints them.
    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let (bus_device, function) = text.rsplit_once('.')?;
            let (domain_bus, device) = bus_device.rsplit_once(':')?;
            let (domain, bus) = domain_bus.split_once(':').unwrap_or(("0", domain_bus));
            let hex = |text: &str, max: u32| {
                let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
                let value = u32::from_str_radix(text, 16).ok()?;
                (digits && value <= max).then_some(value)
            };
            Some(Self {
                domain: hex(domain, u32::MAX)?,
                bus: hex(bus, 0xff)? as u8,
                device: hex(device, 0x1f)? as u8,
                function: hex(function, 7)? as u8,
            })
        };
        parse().with_context(|| format!("{text:?} is not a PCI address, expected DDDD:BB:DD.F"))
    }
}

/// The position of a Tegra410 root port, from its designated vendor-specific extended capability
/// (vendor 0x10de, id 0x4; `Documentation/admin-guide/perf/nvidia-tegra410-pmu.rst`, Linux 7.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TegraPort {
    /// Number of the port in its root complex.
    pub port: u8,
    /// Number of the root complex in its socket.
    pub root_complex: u8,
    /// Number of the socket.
    pub socket: u8,
}

/// A PCI function.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PciFunction {
    /// Its address.
    pub address: PciAddress,
    /// The function on the root bus above it: its root port, or itself.
    pub top: PciAddress,
    /// `class`: base class 23:16, subclass 15:8, programming interface.
    pub class: u32,
    /// `vendor`.
    pub vendor: u32,
    /// `numa_node`, if it has one.
    pub numa_node: Option<u32>,
    /// The position of the Tegra410 root port above it, or of itself; `None` if its configuration
    /// space cannot be read in full, which needs root.
    pub tegra: Option<TegraPort>,
    /// For a virtual function (SR-IOV), the physical function that it is of (`physfn`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub physical: Option<PciAddress>,
    /// Whether a driver of the kernel has it, and no program or virtual machine (`vfio`).
    #[serde(skip)]
    pub has_driver: bool,
    /// For a root port, the speed of its link; `None` if the link is down or sysfs does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<LinkSpeed>,
}

impl PciFunction {
    /// Whether it is a bridge (base class 0x06).
    pub fn is_bridge(&self) -> bool {
        self.class >> 16 == 0x06
    }

    /// Whether it is a root port: a PCI-to-PCI bridge on a root bus.
    pub fn is_root_port(&self) -> bool {
        self.class >> 8 == 0x0604 && self.top == self.address
    }
}

/// All functions of the machine below `root`, in ascending order.
pub(super) fn read_functions(root: &Path, problems: &mut Problems) -> Vec<PciFunction> {
    let dir = root.join(FUNCTIONS);
    let mut functions: Vec<PciFunction> = problems
        .read_names(&dir)
        .iter()
        .filter_map(|name| read_function(root, &dir.join(name), name.parse().ok()?, problems))
        .collect();
    functions.sort_by_key(|function| function.address);
    let ports: Vec<_> = functions.iter().filter_map(|f| Some((f.address, f.tegra?))).collect();
    for function in &mut functions {
        let matched = ports.iter().find(|(address, _)| *address == function.top);
        function.tegra = matched.map(|(_, port)| *port);
    }
    functions
}

fn read_function(
    root: &Path,
    link: &Path,
    address: PciAddress,
    problems: &mut Problems,
) -> Option<PciFunction> {
    let target = fs::read_link(link).ok()?;
    let top = addresses_in_path(&target).first().copied()?;
    let dir = sysfs_device_dir(root, &target)?;
    let parse = |text: &str| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let mut hex = |file| problems.read_as(&dir.join(file), "a hex number", parse);
    let (class, vendor) = (hex("class").unwrap_or_default(), hex("vendor").unwrap_or_default());
    // -1: the firmware does not say.
    let node: Option<i32> = problems.read_parsed(&dir.join("numa_node"));
    let mut function = PciFunction {
        address,
        top,
        class,
        vendor,
        numa_node: node.and_then(|node| u32::try_from(node).ok()),
        tegra: None,
        physical: linked_function(&dir.join("physfn")),
        has_driver: has_driver(&dir),
        speed: None,
    };
    if function.is_root_port() {
        function.speed = LinkSpeed::read(&dir, problems);
    }
    if function.is_root_port() && vendor == NVIDIA {
        function.tegra =
            read_bytes(&dir.join("config")).ok().and_then(|config| parse_tegra_port(&config));
    }
    Some(function)
}

/// Whether it is bound to a driver of the kernel: those of vfio leave it to others.
fn has_driver(dir: &Path) -> bool {
    let driver = fs::read_link(dir.join("driver")).ok();
    let name = driver.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    name.is_some_and(|name| !name.contains("vfio"))
}

/// The function to which a link leads.
pub(super) fn linked_function(link: &Path) -> Option<PciAddress> {
    fs::read_link(link).ok()?.file_name()?.to_str()?.parse().ok()
}

/// The directory in `sys/devices` that a link of `sys/bus` or `sys/class` names, below `root`;
/// `None` for other links.
pub(super) fn sysfs_device_dir(root: &Path, link: &Path) -> Option<PathBuf> {
    let mut components =
        link.components().skip_while(|component| *component == Component::ParentDir);
    components.next().filter(|component| component.as_os_str() == "devices")?;
    let mut dir = root.join("sys/devices");
    for component in components {
        let Component::Normal(name) = component else { return None };
        dir.push(name);
    }
    Some(dir)
}

/// Addresses with commas, as tables have them; `None` if there is none.
pub fn join_addresses(addresses: impl IntoIterator<Item: fmt::Display>) -> Option<String> {
    let texts: Vec<String> = addresses.into_iter().map(|address| address.to_string()).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

/// The function on the root bus above a function: its root port, or itself.
pub fn top(root: &Path, address: PciAddress) -> Option<PciAddress> {
    let link = fs::read_link(root.join(FUNCTIONS).join(address.to_string())).ok()?;
    addresses_in_path(&link).first().copied()
}

/// The addresses in a path, from the root bus down.
pub(super) fn addresses_in_path(path: &Path) -> Vec<PciAddress> {
    let names = path.iter().filter_map(|name| name.to_str());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// Finds the capability in 4096 bytes of configuration space (PCI Express Base 6.0, 7.6.3 and
/// 7.9.6).
fn parse_tegra_port(config: &[u8]) -> Option<TegraPort> {
    let word = |word_offset| read_array(config, word_offset).map(u32::from_le_bytes);
    let mut header_offset = 0x100;
    // A cyclic list ends after as many headers of two words as fit into the space.
    for _ in 0..(4096 - 256) / 8 {
        let header = word(header_offset)?;
        let is_ours = header & 0xffff == 0x23
            && word(header_offset + 4)? & 0xffff == NVIDIA
            && word(header_offset + 8)? & 0xffff == 0x4;
        if is_ours {
            let [port, root_complex, socket] = read_array(config, header_offset + 0xe)?;
            return Some(TegraPort { port, root_complex, socket });
        }
        header_offset = (header >> 20) as usize & 0xffc;
        if header_offset < 0x100 {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pci_addresses_are_parsed_as_lspci_writes_them() {
        let parsed = |text: &str| text.parse::<PciAddress>().unwrap();
        assert_eq!(parsed("0001:30:03.0").to_string(), "0001:30:03.0");
        assert_eq!(parsed("98:1f.7").to_string(), "0000:98:1f.7");
        assert_eq!(parsed("10000:e1:00.0").domain, 0x10000);
        assert_eq!(parsed("27:01.1").requester_id(), 0x2709);
        for text in ["", "nvme0n1", "00:20.0", "00:00.8", "100:00.0", "0:+1:00.0", "00.0"] {
            assert!(text.parse::<PciAddress>().is_err(), "{text:?} was accepted");
        }
    }

    /// A port with an advanced error capability before the one searched for.
    fn config() -> Vec<u8> {
        let mut config = vec![0; 4096];
        config[0x100..0x104].copy_from_slice(&0x1501_0001_u32.to_le_bytes());
        config[0x150..0x154].copy_from_slice(&0x0001_0023_u32.to_le_bytes());
        config[0x154..0x158].copy_from_slice(&0x0181_10de_u32.to_le_bytes());
        config[0x158..0x15a].copy_from_slice(&0x4_u16.to_le_bytes());
        config[0x15c..0x161].copy_from_slice(&[0x30, 0x2, 0x3, 0x9, 0x1]);
        config
    }

    #[test]
    fn links_lead_into_the_tree_or_nowhere() {
        let at = |link: &str| sysfs_device_dir(Path::new("/root"), Path::new(link));
        let inside = Path::new("/root/sys/devices/pci0000:00/0000:00:01.0").to_owned();
        assert_eq!(at("../../../devices/pci0000:00/0000:00:01.0"), Some(inside));
        for link in ["/devices/x", "../../etc", "../devices/../../../x", "devices/./../x", ""] {
            assert_eq!(at(link), None, "{link}");
        }
    }

    #[test]
    fn a_tegra_port_names_itself() {
        let config = config();
        assert_eq!(
            parse_tegra_port(&config),
            Some(TegraPort { port: 3, root_complex: 9, socket: 1 })
        );
        // The part that only root can read is missing.
        assert_eq!(parse_tegra_port(&config[..64]), None);
        let mut other = config;
        other[0x158] = 5;
        assert_eq!(parse_tegra_port(&other), None);
        // A cyclic list.
        other[0x150..0x154].copy_from_slice(&0x1501_0001_u32.to_le_bytes());
        assert_eq!(parse_tegra_port(&other), None);
    }

    proptest! {
        #[test]
        fn no_configuration_space_of_a_port_panics(config in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _port = parse_tegra_port(&config);
        }
    }
}
