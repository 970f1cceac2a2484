//! Block and network devices: the PCI functions behind each device name.
//!
//! Like [`super::pci`], this uses the texts of links. Partitions are below their disk, a namespace
//! of an `NVMe` subsystem has the subsystem's controllers, and a stacked device (dm, md, bond,
//! VLAN, bridge) has those of the devices below it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::Serialize;

use super::pci::{self, PciAddress, PciFunction};
use super::read::{Problems, dir_names};

/// Largest depth of stacked devices; real ones have three or four layers.
const DEPTH: usize = 8;

/// A device with a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlockOrNetDevice {
    /// As in `/dev`, or as `ip link` shows it.
    pub name: String,
    /// The functions behind it, in ascending order; empty if it is not on PCI.
    pub functions: Vec<PciAddress>,
}

/// The devices of a machine.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Devices {
    /// Every PCI function.
    pub pci: Vec<PciFunction>,
    /// Every disk, partition and stacked device, in ascending order.
    pub block: Vec<BlockOrNetDevice>,
    /// Every network interface, in ascending order.
    pub net: Vec<BlockOrNetDevice>,
}

impl Devices {
    /// Reads `sys/bus/pci` and `sys/class/{block,net,nvme}` below `root`.
    pub(super) fn read(root: &Path, problems: &mut Problems) -> Self {
        let mut named = |class: &str| {
            let dir = root.join("sys/class").join(class);
            let names = problems.read_names(&dir);
            let links = names.into_iter().filter(|name| dir.join(name).is_symlink());
            links
                .map(|name| {
                    let mut functions = BTreeSet::new();
                    add_functions_behind(root, class, &name, DEPTH, &mut functions);
                    BlockOrNetDevice { name, functions: functions.into_iter().collect() }
                })
                .collect()
        };
        let (block, net) = (named("block"), named("net"));
        Self { pci: pci::read_functions(root, problems), block, net }
    }

    /// The function at this address.
    pub fn find_function(&self, address: PciAddress) -> Option<&PciFunction> {
        self.pci.iter().find(|function| function.address == address)
    }

    /// The block or network device with this name; a leading `/dev/` is ignored.
    pub fn find_named(&self, name: &str) -> Option<&BlockOrNetDevice> {
        let name = name.strip_prefix("/dev/").unwrap_or(name);
        self.block.iter().chain(&self.net).find(|device| device.name == name)
    }

    /// The names of the devices behind a function.
    pub fn names_of(&self, address: PciAddress) -> impl Iterator<Item = &str> {
        let named_devices = self.block.iter().chain(&self.net);
        let behind_function =
            named_devices.filter(move |device| device.functions.contains(&address));
        behind_function.map(|device| device.name.as_str())
    }
}

/// The current functions behind the disk or interface with this name below `root`, in ascending
/// order; empty if it is not on PCI or does not exist.
pub fn functions(root: &Path, name: &str) -> Vec<PciAddress> {
    let mut functions = BTreeSet::new();
    for class in ["block", "net"] {
        add_functions_behind(root, class, name, DEPTH, &mut functions);
    }
    functions.into_iter().collect()
}

/// Adds the functions behind one device of a class.
fn add_functions_behind(
    root: &Path,
    class: &str,
    name: &str,
    depth: usize,
    functions: &mut BTreeSet<PciAddress>,
) {
    let Some(depth) = depth.checked_sub(1) else { return };
    // A name becomes part of a path.
    if name.contains('/') || name.starts_with('.') {
        return;
    }
    let Ok(link) = fs::read_link(root.join("sys/class").join(class).join(name)) else { return };
    if let Some(address) = pci::addresses_in_path(&link).last() {
        functions.insert(*address);
        return;
    }
    let Some(dir) = pci::sysfs_device_dir(root, &link) else { return };
    for lower in dir_names(&dir.join("slaves"), usize::MAX) {
        add_functions_behind(root, class, &lower, depth, functions);
    }
    for lower in dir_names(&dir, usize::MAX) {
        if let Some(lower) = lower.strip_prefix("lower_") {
            add_functions_behind(root, class, lower, depth, functions);
        }
    }
    add_controller_functions(root, &dir, depth, functions);
}

/// Adds the functions of the controllers, if `dir` is that of a namespace of an `NVMe` subsystem
/// with several of them.
fn add_controller_functions(
    root: &Path,
    dir: &Path,
    depth: usize,
    functions: &mut BTreeSet<PciAddress>,
) {
    let subsystem = dir.ancestors().find(|dir| {
        let parent = dir.parent().and_then(Path::file_name);
        parent.is_some_and(|parent| parent == "nvme-subsystem")
    });
    let names = subsystem.map(|dir| dir_names(dir, usize::MAX));
    for controller in names.unwrap_or_default() {
        let number = controller.strip_prefix("nvme").unwrap_or_default();
        if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
            add_functions_behind(root, "nvme", &controller, depth, functions);
        }
    }
}

/// The functions of the controllers behind a file of an `NVMe` subsystem, to which a link of sysfs
/// leads.
pub(super) fn controller_functions(root: &Path, link: &Path) -> BTreeSet<PciAddress> {
    let mut functions = BTreeSet::new();
    if let Some(dir) = pci::sysfs_device_dir(root, link) {
        add_controller_functions(root, &dir, DEPTH, &mut functions);
    }
    functions
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn link(root: &Path, path: &str, target: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let port = "pci0002:00/0002:00:00.0";
        for (name, target) in [
            ("block/nvme0n1", format!("{port}/0002:01:00.0/nvme/nvme0/nvme0n1")),
            ("block/nvme0n1p1", format!("{port}/0002:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p1")),
            (
                "block/sda",
                "pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda".into(),
            ),
            ("block/dm-0", "virtual/block/dm-0".into()),
            ("block/dm-1", "virtual/block/dm-1".into()),
            ("block/nvme1n1", "virtual/nvme-subsystem/nvme-subsys1/nvme1n1".into()),
            ("block/loop0", "virtual/block/loop0".into()),
            ("nvme/nvme1", format!("{port}/0002:02:00.0/nvme/nvme1")),
            ("nvme/nvme2", "pci0003:00/0003:00:00.0/0003:01:00.0/nvme/nvme2".into()),
            ("net/eth0", format!("{port}/0002:03:00.1/net/eth0")),
            ("net/eth1", format!("{port}/0002:03:00.2/net/eth1")),
            ("net/bond0", "virtual/net/bond0".into()),
            ("net/vlan7", "virtual/net/vlan7".into()),
            ("net/lo", "virtual/net/lo".into()),
        ] {
            link(root, &format!("sys/class/{name}"), &format!("../../devices/{target}"));
        }
        let device = |path: &str| format!("sys/devices/virtual/{path}");
        link(root, &device("block/dm-0/slaves/nvme0n1p1"), "x");
        link(root, &device("block/dm-0/slaves/sda"), "x");
        link(root, &device("block/dm-1/slaves/dm-0"), "x");
        // A device that is stacked on itself, which no kernel shows.
        link(root, &device("block/dm-1/slaves/dm-1"), "x");
        for name in ["nvme1", "nvme2", "nvme1n1", "power"] {
            let at = format!("nvme-subsystem/nvme-subsys1/{name}/x");
            link(root, &device(&at), "x");
        }
        link(root, &device("net/bond0/lower_eth0"), "x");
        link(root, &device("net/bond0/lower_eth1"), "x");
        link(root, &device("net/vlan7/lower_bond0"), "x");
        dir
    }

    #[test]
    fn names_of_devices_lead_to_pci_functions() {
        let dir = tree();
        let devices = Devices::read(dir.path(), &mut Problems::default());
        for (name, expected) in [
            ("nvme0n1", "0002:01:00.0"),
            ("/dev/nvme0n1p1", "0002:01:00.0"),
            ("sda", "0000:00:17.0"),
            ("dm-0", "0000:00:17.0 0002:01:00.0"),
            ("dm-1", "0000:00:17.0 0002:01:00.0"),
            ("nvme1n1", "0002:02:00.0 0003:01:00.0"),
            ("loop0", ""),
            ("eth0", "0002:03:00.1"),
            ("vlan7", "0002:03:00.1 0002:03:00.2"),
            ("lo", ""),
        ] {
            let functions = devices.find_named(name).unwrap().functions.iter();
            let functions: Vec<_> = functions.map(ToString::to_string).collect();
            assert_eq!(functions.join(" "), expected, "{name}");
        }
        assert_eq!(devices.find_named("nvme9n1"), None);
        let names: Vec<_> = devices.names_of("0002:03:00.1".parse().unwrap()).collect();
        assert_eq!(names, ["bond0", "eth0", "vlan7"]);
    }

    /// A captured tree is untrusted: its links must not lead out of it.
    #[test]
    fn links_are_not_followed_out_of_the_tree() {
        let dir = tempfile::tempdir().unwrap();
        link(dir.path(), "sys/class/block/dm-0", "../../devices/../../../etc");
        link(dir.path(), "sys/class/net/x", "/sys/devices/virtual/net/lo");
        let devices = Devices::read(dir.path(), &mut Problems::default());
        assert!(devices.block[0].functions.is_empty() && devices.net[0].functions.is_empty());
    }
}
