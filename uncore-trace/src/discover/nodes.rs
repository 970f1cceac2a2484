//! Device files by which a process uses a device itself, and the PCI functions behind them.
//!
//! [`KINDS`] is what is known of them. A file is identified by its numbers, as the kernel has them:
//! its name in `/dev` is only a label, and a container may give it another. Like [`super::pci`],
//! this uses the texts of links below a root.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use super::devices::controller_functions;
use super::pci::{self, PciAddress};
use super::read::{dir_names, read_bytes};

/// Largest number of a minor: `MINORMASK`, `include/linux/kdev_t.h`, Linux 6.1 to 7.2.
const MINORS: u32 = (1 << 20) - 1;

/// Where NVIDIA's driver says which GPU has which minor number; it makes no links in sysfs.
const GPUS: &str = "proc/driver/nvidia/gpus";

/// Where it says which file gives access to which part of a GPU (MIG).
const PARTS: &str = "proc/driver/nvidia-caps/mig-minors";

/// The numbers of a device file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// Whether it is a block device.
    pub is_block: bool,
    /// Major number: the driver.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl DeviceNumber {
    /// Not greater than any other.
    pub const MIN: Self = Self { is_block: false, major: 0, minor: 0 };
    /// Not less than any other.
    pub const MAX: Self = Self { is_block: true, major: u32::MAX, minor: u32::MAX };
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// How the functions behind a file are found.
#[derive(Debug, Clone, Copy)]
enum FunctionLookup {
    /// Its link in `sys/dev/{char,block}` leads below its function.
    Link,
    /// Its link names a group of the IOMMU, which has the functions.
    Group,
    /// [`GPUS`] has the minor number.
    Gpu,
    /// [`PARTS`] has the minor number.
    Part,
    /// No function: it serves all devices of its driver.
    All,
}

/// A kind of device files.
#[derive(Debug)]
struct DeviceNodeKind {
    name: &'static str,
    /// Its driver's name in `/proc/devices`.
    driver: &'static str,
    is_block: bool,
    lookup: FunctionLookup,
    /// Its name in `/dev` where sysfs has none; `{}` is the minor number. If sysfs has a name, the
    /// file is of this kind only if the name begins so.
    dev_name: &'static str,
    access: DeviceAccess,
}

/// What a process can do that has a file of a kind open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceAccess {
    /// Give the device work: have it read and write memory.
    Work,
    /// That too, if it has a file of this kind open as well. Programs that manage or watch the
    /// device have none.
    With(&'static str),
    /// Manage the device, or send requests that the kernel knows.
    Manage,
}

/// A line of the table, of character devices.
const fn device_file_kind(
    name: &'static str,
    driver: &'static str,
    lookup: FunctionLookup,
    dev_name: &'static str,
    access: DeviceAccess,
) -> DeviceNodeKind {
    DeviceNodeKind { name, driver, is_block: false, lookup, dev_name, access }
}

/// The access of who also has a file of [`UVM`] open.
const WITH_UVM: DeviceAccess = DeviceAccess::With(UVM);
const UVM: &str = "nvidia-uvm";

/// All kinds. The names of drivers are those that they register: `"vfio"` and `"vfio-dev"` in
/// `drivers/vfio/{group,device_cdev}.c`, `"nvme"` and `"nvme-generic"` in
/// `drivers/nvme/host/core.c`, `"accel"` in `drivers/accel/drm_accel.c`, `"drm"` in
/// `drivers/gpu/drm/drm_drv.c`, `"infiniband_verbs"` in `drivers/infiniband/core/uverbs_main.c`,
/// `"kfd"` in `drivers/gpu/drm/amd/amdkfd/kfd_chardev.c` (Linux 6.1 to 7.2); `"nvidia"`, in older
/// versions `"nvidia-frontend"`, `"nvidia-uvm"` and `"nvidia-caps"` in NVIDIA's
/// open-gpu-kernel-modules (`kernel-open/nvidia/nv.c`, nv-caps.c, `kernel-open/nvidia-uvm/uvm.c`).
/// Block devices above 259:0 share the driver `"blkext"` (block/genhd.c).
const KINDS: [DeviceNodeKind; 14] = {
    use self::DeviceAccess::{Manage, Work};
    use self::FunctionLookup::{All, Gpu, Group, Link, Part};
    [
        device_file_kind("nvidia", "nvidia", Gpu, "nvidia{}", WITH_UVM),
        device_file_kind("nvidia", "nvidia-frontend", Gpu, "nvidia{}", WITH_UVM),
        device_file_kind(UVM, "nvidia-uvm", All, "nvidia-uvm", Work),
        device_file_kind("nvidia-caps", "nvidia-caps", Part, "nvidia-caps/nvidia-cap{}", WITH_UVM),
        device_file_kind("dri", "drm", Link, "dri/renderD", Work),
        device_file_kind("dri", "drm", Link, "dri/", Manage),
        device_file_kind("kfd", "kfd", All, "kfd", Work),
        device_file_kind("accel", "accel", Link, "accel/", Work),
        device_file_kind("uverbs", "infiniband_verbs", Link, "infiniband/uverbs", Work),
        device_file_kind("vfio", "vfio", Group, "vfio/", Work),
        device_file_kind("vfio", "vfio-dev", Link, "vfio/devices/", Work),
        device_file_kind("nvme", "nvme", Link, "nvme", Manage),
        device_file_kind("nvme", "nvme-generic", Link, "ng", Work),
        DeviceNodeKind {
            is_block: true,
            ..device_file_kind("nvme", "blkext", Link, "nvme", Manage)
        },
    ]
};

/// Minor numbers of NVIDIA's driver that are no GPU, with their names
/// (`kernel-open/common/inc/nv-chardev-numbers.h` of open-gpu-kernel-modules).
const NO_GPU: [(u32, &str); 2] = [(254, "nvidia-modeset"), (255, "nvidiactl")];

/// A device file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNode {
    /// Its usual path, such as `/dev/dri/card0`.
    pub path: String,
    /// Its kind, such as `dri`.
    pub kind_name: &'static str,
    /// What who has it open can do.
    pub access: DeviceAccess,
    /// The functions behind it, in ascending order; empty if it serves all devices of its driver,
    /// or its device is not on PCI.
    pub functions: Vec<PciAddress>,
}

impl DeviceNode {
    /// Whether its driver tells in `/proc/PID/fdinfo` what a process used: GPUs and accelerators
    /// (`Documentation/gpu/drm-usage-stats.rst`, Linux 7.2).
    pub fn has_clients(&self) -> bool {
        matches!(self.kind_name, "dri" | "accel")
    }
}

/// The drivers of [`KINDS`] that are loaded, by the major numbers that they have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceDrivers(BTreeMap<(bool, u32), Vec<usize>>);

impl DeviceDrivers {
    /// Reads `proc/devices` below `root`; none if it cannot be read.
    pub fn read(root: &Path) -> Self {
        let text = read_bytes(&root.join("proc/devices")).unwrap_or_default();
        let mut drivers = Self::default();
        let mut is_block = false;
        for line in String::from_utf8_lossy(&text).lines() {
            match line.split_once(':') {
                Some(("Character devices", _)) => is_block = false,
                Some(("Block devices", _)) => is_block = true,
                _ => {}
            }
            let Some((major, driver)) = line.trim().split_once(' ') else { continue };
            let Ok(major) = major.parse::<u32>() else { continue };
            let is_listed = |file_kind: &DeviceNodeKind| {
                file_kind.driver == driver && file_kind.is_block == is_block
            };
            let kinds = KINDS.iter().enumerate().filter(|(_, file_kind)| is_listed(file_kind));
            for (index, _) in kinds {
                drivers.0.entry((is_block, major)).or_default().push(index);
            }
        }
        drivers.drop_foreign();
        drivers
    }

    /// Drops block devices of kinds without a loaded driver of their own: every machine has
    /// `"blkext"`.
    fn drop_foreign(&mut self) {
        let kind_names = |kinds: &[usize]| -> Vec<&str> {
            kinds.iter().filter_map(|index| Some(KINDS.get(*index)?.name)).collect()
        };
        let char_entries = self.0.iter().filter(|((is_block, _), _)| !is_block);
        let char_names: BTreeSet<&str> =
            char_entries.flat_map(|(_, kinds)| kind_names(kinds)).collect();
        self.0.retain(|(is_block, _), kinds| {
            !is_block || kind_names(kinds).iter().any(|name| char_names.contains(name))
        });
    }

    /// Whether none is loaded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their major numbers; `true` for one of block devices.
    pub fn major_numbers(&self) -> impl Iterator<Item = (bool, u32)> {
        self.0.keys().copied()
    }

    /// The files of these drivers that sysfs or NVIDIA's driver knows.
    pub fn device_files(&self, root: &Path) -> BTreeMap<DeviceNumber, DeviceNode> {
        let listed =
            [(false, "char"), (true, "block")].into_iter().flat_map(|(is_block, class)| {
                dir_names(&root.join("sys/dev").join(class), usize::MAX).into_iter().filter_map(
                    move |name| {
                        let (major, minor) = name.split_once(':')?;
                        let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
                        Some(DeviceNumber { is_block, major, minor })
                    },
                )
            });
        let without_links = self.0.iter().flat_map(|(&(is_block, major), kinds)| {
            let kinds = kinds.iter().filter_map(|index| KINDS.get(*index));
            let minors = kinds.flat_map(|file_kind| match file_kind.lookup {
                FunctionLookup::Gpu => gpu_minors(root).into_keys().collect(),
                FunctionLookup::Part => mig_minors(root).into_keys().collect(),
                _ => Vec::new(),
            });
            minors.map(move |minor| DeviceNumber { is_block, major, minor })
        });
        let numbers: BTreeSet<DeviceNumber> = listed.chain(without_links).collect();
        let with_file = |number| Some((number, self.device_file(root, number)?));
        numbers.into_iter().filter_map(with_file).collect()
    }

    /// The file with these numbers, if it is of a kind that is known.
    pub fn device_file(&self, root: &Path, number: DeviceNumber) -> Option<DeviceNode> {
        let kinds = self.0.get(&(number.is_block, number.major))?;
        let link = read_sysfs_link(root, number);
        let name = link.as_deref().and_then(|link| read_dev_name(root, link));
        kinds.iter().filter_map(|index| KINDS.get(*index)).find_map(|file_kind| {
            if number.minor > MINORS
                || name.as_deref().is_some_and(|name| !file_kind.matches_name(name))
            {
                return None;
            }
            // A file that sysfs does not know is only of the drivers that make no links.
            let sysfs = matches!(file_kind.lookup, FunctionLookup::Link | FunctionLookup::Group);
            let path = match &name {
                Some(name) => name.clone(),
                None if sysfs => return None,
                None => file_kind.without_name(number.minor),
            };
            let functions = file_kind.find_functions(root, number.minor, link.as_deref());
            let (kind_name, access) = (file_kind.name, file_kind.access);
            Some(DeviceNode { path: format!("/dev/{path}"), kind_name, access, functions })
        })
    }
}

impl DeviceNodeKind {
    fn matches_name(&self, name: &str) -> bool {
        name.starts_with(self.dev_name.split('{').next().unwrap_or_default())
    }

    fn without_name(&self, minor: u32) -> String {
        match (self.lookup, NO_GPU.iter().find(|(number, _)| *number == minor)) {
            (FunctionLookup::Gpu, Some((_, name))) => (*name).to_owned(),
            _ => self.dev_name.replace("{}", &minor.to_string()),
        }
    }

    fn find_functions(&self, root: &Path, minor: u32, link: Option<&Path>) -> Vec<PciAddress> {
        let functions: BTreeSet<PciAddress> = match self.lookup {
            FunctionLookup::All => BTreeSet::new(),
            FunctionLookup::Gpu => gpu_minors(root).remove(&minor).into_iter().collect(),
            FunctionLookup::Part => {
                let gpu_minor = mig_minors(root).remove(&minor);
                gpu_minor.and_then(|gpu| gpu_minors(root).remove(&gpu)).into_iter().collect()
            }
            FunctionLookup::Link => {
                let address = link.and_then(|link| pci::addresses_in_path(link).last().copied());
                let below =
                    || link.map(|link| controller_functions(root, link)).unwrap_or_default();
                address.map_or_else(below, |direct_address| [direct_address].into())
            }
            FunctionLookup::Group => {
                link.map(|link| iommu_group_functions(root, link)).unwrap_or_default()
            }
        };
        functions.into_iter().collect()
    }
}

/// The link of sysfs for these numbers.
fn read_sysfs_link(root: &Path, number: DeviceNumber) -> Option<PathBuf> {
    let class = if number.is_block { "block" } else { "char" };
    fs::read_link(root.join("sys/dev").join(class).join(number.to_string())).ok()
}

/// The name in `/dev` that the kernel gives the file (`DEVNAME` of `uevent`).
fn read_dev_name(root: &Path, link: &Path) -> Option<String> {
    let text = read_bytes(&pci::sysfs_device_dir(root, link)?.join("uevent")).ok()?;
    let text = String::from_utf8(text).ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    Some(name.strip_prefix("/dev/").unwrap_or(name).to_owned())
}

/// The functions of the IOMMU's group that a link names.
fn iommu_group_functions(root: &Path, link: &Path) -> BTreeSet<PciAddress> {
    let name = link.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let number = name.strip_prefix("noiommu-").unwrap_or(name);
    if number.parse::<u32>().is_err() {
        return BTreeSet::new();
    }
    let dir = root.join("sys/kernel/iommu_groups").join(number).join("devices");
    dir_names(&dir, usize::MAX).iter().filter_map(|name| name.parse().ok()).collect()
}

/// The GPUs of NVIDIA's driver with their minor numbers.
fn gpu_minors(root: &Path) -> BTreeMap<u32, PciAddress> {
    let gpu = |(minor, address): (String, PciAddress)| Some((minor.parse().ok()?, address));
    gpu_facts(root, "Device Minor:").into_iter().filter_map(gpu).collect()
}

/// The ids of the GPUs of NVIDIA's driver, `GPU-...`.
pub fn gpu_ids(root: &Path) -> Vec<(String, PciAddress)> {
    gpu_facts(root, "GPU UUID:")
}

/// What NVIDIA's driver says of each GPU behind this word.
fn gpu_facts(root: &Path, word: &str) -> Vec<(String, PciAddress)> {
    let dir = root.join(GPUS);
    let fact = |name: String| {
        let address: PciAddress = name.parse().ok()?;
        let text = read_bytes(&dir.join(&name).join("information")).ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let fact = text.lines().find_map(|line| line.strip_prefix(word))?;
        Some((fact.trim().to_owned(), address))
    };
    dir_names(&dir, usize::MAX).into_iter().filter_map(fact).collect()
}

/// The minor numbers of parts of GPUs, and those of their GPUs: lines are `gpu0/gi1/access 12`.
fn mig_minors(root: &Path) -> BTreeMap<u32, u32> {
    let text = read_bytes(&root.join(PARTS)).unwrap_or_default();
    let parse_line = |line: &str| {
        let (access_path, minor) = line.split_once(' ')?;
        let gpu = access_path.strip_prefix("gpu")?.split('/').next()?;
        Some((minor.trim().parse().ok()?, gpu.parse().ok()?))
    };
    String::from_utf8_lossy(&text).lines().filter_map(parse_line).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const DEVICES: &str = "Character devices:\n  1 mem\n 10 misc\n195 nvidia\n195 \
                           nvidia-modeset\n226 drm\n231 infiniband_mad\n231 infiniband_verbs\n238 \
                           nvidia-caps\n239 vfio\n240 vfio-dev\n241 nvme-generic\n242 nvme\n243 \
                           nvidia-uvm\n244 kfd\n261 accel\n\nBlock devices:\n  7 loop\n226 \
                           drm\n259 blkext\n";

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn file(root: &Path, number: &str, place: &str, name: &str) {
        let link = root.join("sys/dev").join(number);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(format!("../../devices/{place}"), link).unwrap();
        write(root, &format!("sys/devices/{place}/uevent"), &format!("MAJOR=1\nDEVNAME={name}\n"));
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(root, "proc/devices", DEVICES);
        let port = "pci0002:00/0002:00:00.0";
        file(root, "char/226:0", &format!("{port}/0002:01:00.0/drm/card0"), "dri/card0");
        file(
            root,
            "char/226:128",
            &format!("{port}/0002:01:00.0/drm/renderD128"),
            "dri/renderD128",
        );
        let uverbs = format!("{port}/0002:02:00.1/infiniband_verbs/uverbs1");
        file(root, "char/231:193", &uverbs, "infiniband/uverbs1");
        let umad = format!("{port}/0002:02:00.1/infiniband_mad/umad1");
        file(root, "char/231:1", &umad, "infiniband/umad1");
        file(root, "char/239:0", "virtual/vfio/42", "vfio/42");
        file(
            root,
            "char/240:0",
            &format!("{port}/0002:03:00.2/vfio-dev/vfio0"),
            "vfio/devices/vfio0",
        );
        file(root, "char/242:0", &format!("{port}/0002:04:00.0/nvme/nvme0"), "nvme0");
        file(root, "char/241:0", &format!("{port}/0002:04:00.0/nvme/nvme0/ng0n1"), "ng0n1");
        let shared = "virtual/nvme-subsystem/nvme-subsys1";
        file(root, "char/241:1", &format!("{shared}/ng1n1"), "ng1n1");
        write(root, &format!("sys/devices/{shared}/nvme1/x"), "");
        let controller = root.join("sys/class/nvme/nvme1");
        fs::create_dir_all(controller.parent().unwrap()).unwrap();
        symlink(format!("../../devices/{port}/0002:05:00.0/nvme/nvme1"), controller).unwrap();
        file(root, "block/259:0", &format!("{port}/0002:04:00.0/nvme/nvme0/nvme0n1"), "nvme0n1");
        file(root, "block/259:1", "virtual/block/loop0/loop0p1", "loop0p1");
        file(root, "char/261:0", "platform/npu/accel/accel0", "accel/accel0");
        for address in ["0002:06:00.0", "0002:06:00.1"] {
            write(root, &format!("sys/kernel/iommu_groups/42/devices/{address}"), "");
        }
        let gpu = |minor| format!("Model: \t\t X\nDevice Minor: \t {minor}\n");
        write(root, &format!("{GPUS}/0009:01:00.0/information"), &gpu(0));
        write(root, &format!("{GPUS}/0019:01:00.0/information"), &gpu(1));
        write(root, PARTS, "config 1\nmonitor 2\ngpu1/gi2/access 12\ngpu1/gi2/ci0/access 13\n");
        dir
    }

    #[test]
    fn numbers_of_device_files_lead_to_pci_functions() {
        let dir = tree();
        let drivers = DeviceDrivers::read(dir.path());
        for (number, path, kind, functions) in [
            ("c195:0", "/dev/nvidia0", "nvidia", "0009:01:00.0"),
            ("c195:1", "/dev/nvidia1", "nvidia", "0019:01:00.0"),
            ("c195:255", "/dev/nvidiactl", "nvidia", ""),
            ("c243:0", "/dev/nvidia-uvm", "nvidia-uvm", ""),
            ("c238:13", "/dev/nvidia-caps/nvidia-cap13", "nvidia-caps", "0019:01:00.0"),
            ("c238:1", "/dev/nvidia-caps/nvidia-cap1", "nvidia-caps", ""),
            ("c226:128", "/dev/dri/renderD128", "dri", "0002:01:00.0"),
            ("c231:193", "/dev/infiniband/uverbs1", "uverbs", "0002:02:00.1"),
            ("c239:0", "/dev/vfio/42", "vfio", "0002:06:00.0 0002:06:00.1"),
            ("c240:0", "/dev/vfio/devices/vfio0", "vfio", "0002:03:00.2"),
            ("c242:0", "/dev/nvme0", "nvme", "0002:04:00.0"),
            ("c241:0", "/dev/ng0n1", "nvme", "0002:04:00.0"),
            ("c241:1", "/dev/ng1n1", "nvme", "0002:05:00.0"),
            ("b259:0", "/dev/nvme0n1", "nvme", "0002:04:00.0"),
            ("c244:0", "/dev/kfd", "kfd", ""),
            ("c261:0", "/dev/accel/accel0", "accel", ""),
        ] {
            let node = drivers.device_file(dir.path(), parsed(number)).expect(number);
            let function_names: Vec<_> = node.functions.iter().map(ToString::to_string).collect();
            assert_eq!(
                (&*node.path, node.kind_name, &*function_names.join(" ")),
                (path, kind, functions)
            );
        }
        // Of other drivers, of other files of the same driver, or unknown to sysfs.
        for number in ["c10:196", "c231:1", "b259:1", "b226:0", "c226:7", "b7:0"] {
            assert_eq!(drivers.device_file(dir.path(), parsed(number)), None, "{number}");
        }
        let nodes: Vec<String> =
            drivers.device_files(dir.path()).into_values().map(|node| node.path).collect();
        let expected = "nvidia0 nvidia1 dri/card0 dri/renderD128 infiniband/uverbs1 \
                        nvidia-caps/nvidia-cap12 nvidia-caps/nvidia-cap13 vfio/42 \
                        vfio/devices/vfio0 ng0n1 ng1n1 nvme0 accel/accel0 nvme0n1";
        let expected: Vec<_> =
            expected.split_whitespace().map(|name| format!("/dev/{name}")).collect();
        assert_eq!(nodes, expected);
        let majors: Vec<_> = drivers.major_numbers().collect();
        assert_eq!(majors.len(), 12, "{majors:?}");
        assert!(majors.contains(&(true, 259)) && !majors.contains(&(true, 226)), "{majors:?}");
    }

    fn parsed(text: &str) -> DeviceNumber {
        let (major, minor) = text[1..].split_once(':').unwrap();
        let (major, minor) = (major.parse().unwrap(), minor.parse().unwrap());
        DeviceNumber { is_block: text.starts_with('b'), major, minor }
    }

    /// A captured tree is untrusted, and may be of a machine without any of this.
    #[test]
    fn a_hostile_or_empty_tree_names_no_function() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert!(DeviceDrivers::read(root).is_empty());
        write(root, "proc/devices", "Block devices:\n259 blkext\n");
        assert!(DeviceDrivers::read(root).is_empty());
        write(root, "proc/devices", "Character devices:\n226 drm\n239 vfio\n99999999999 drm\n");
        let drivers = DeviceDrivers::read(root);
        assert_eq!(drivers.major_numbers().collect::<Vec<_>>(), [(false, 226), (false, 239)]);
        for (number, target) in [("226:0", "/etc"), ("226:1", "../../devices/../../../etc")] {
            let link = root.join("sys/dev/char").join(number);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(target, link).unwrap();
            assert_eq!(drivers.device_file(root, parsed(&format!("c{number}"))), None);
        }
        file(root, "char/239:5", "virtual/vfio/..%2f..", "vfio/\u{1b}[2J");
        let node = drivers.device_file(root, parsed("c239:5")).unwrap();
        assert_eq!(node.functions, []);
    }
}
