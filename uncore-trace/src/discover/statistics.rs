//! Disks and network interfaces, whose bytes the kernel counts in sysfs, as PMUs.
//!
//! Each device is a PMU: `disk_vda`, `net_eth0`. The catalog names their events. They are not read
//! with `perf_event_open`: see [`crate::open`].

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::pci;
use super::pmu::Pmu;
use super::read::{Problems, dir_names};
use crate::bounds;
use crate::schema::counters::STATISTICS;

/// Kind of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A disk: the file `stat`, in sectors of 512 bytes.
    Disk,
    /// A network interface: the files in `statistics`.
    Net,
}

/// A device whose bytes the kernel counts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelCountedDevice {
    /// Name of the device, as in `/dev` or `ip link`.
    pub device: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// Whether other devices count the same bytes: it is built on them (dm, md, loop, bond, bridge,
    /// VLAN), or its bytes are memory only (zram), or it is the end of a virtual link (veth, tap).
    pub counts_again: bool,
    /// Line rate of an interface in one direction, bytes/s; `None` if unknown.
    pub bytes_per_s: Option<f64>,
}

/// The disks and interfaces below `root` that have statistics, as PMUs, disks first. Partitions,
/// disks of size 0 and the hidden paths of a multipath disk are left out.
pub(super) fn read_pmus(root: &Path, problems: &mut Problems) -> Vec<Pmu> {
    let mut disks = read_devices(root, "block", problems, read_disk);
    let mut net = read_devices(root, "net", problems, read_interface);
    // Within a container no interface is of hardware. Then those that are built on no other one
    // count.
    let is_of_hardware =
        |candidate: &KernelCountedDevice| !candidate.counts_again && candidate.device != LOOPBACK;
    if !net.iter().any(|(candidate, _)| is_of_hardware(candidate)) {
        for (candidate, has_lower) in &mut net {
            candidate.counts_again = *has_lower;
        }
    }
    disks.append(&mut net);
    let types = STATISTICS..;
    let pmu = |((statistics, _), attr_type): ((KernelCountedDevice, bool), u32)| {
        let prefix = match statistics.kind {
            DeviceKind::Disk => "disk",
            DeviceKind::Net => "net",
        };
        let name = format!("{prefix}_{}", statistics.device);
        Pmu { name, attr_type, statistics: Some(statistics), ..Pmu::default() }
    };
    disks.into_iter().zip(types).map(pmu).collect()
}

/// The interface of a host to itself.
const LOOPBACK: &str = "lo";

/// The devices of a class, and whether each is built on others.
fn read_devices(
    root: &Path,
    class: &str,
    problems: &mut Problems,
    read: fn(&str, &Path) -> Option<(KernelCountedDevice, bool)>,
) -> Vec<(KernelCountedDevice, bool)> {
    let class = root.join("sys/class").join(class);
    let mut statistics = Vec::new();
    for name in problems.read_names(&class) {
        let dir = fs::read_link(class.join(&name))
            .ok()
            .and_then(|link| pci::sysfs_device_dir(root, &link));
        statistics.extend(dir.and_then(|dir| read(&name, &dir)));
    }
    statistics
}

fn read_disk(name: &str, dir: &Path) -> Option<(KernelCountedDevice, bool)> {
    let has_file = |file: &str| dir.join(file).exists();
    let is_text = |file: &str, value: &str| read_text(dir, file).is_some_and(|text| text == value);
    if !has_file("stat") || has_file("partition") || is_text("size", "0") || is_text("hidden", "1")
    {
        return None;
    }
    let has_lower = !dir_names(&dir.join("slaves"), 1).is_empty();
    // A loop device has this directory while a file is bound to it; only zram has this file.
    let counts_again = has_lower || has_file("loop") || has_file("mm_stat");
    let device = name.to_owned();
    let kind = DeviceKind::Disk;
    Some((KernelCountedDevice { device, kind, counts_again, bytes_per_s: None }, has_lower))
}

fn read_interface(name: &str, dir: &Path) -> Option<(KernelCountedDevice, bool)> {
    if !dir.join("statistics/rx_bytes").exists() {
        return None;
    }
    let has_lower = dir_names(dir, usize::MAX).iter().any(|name| name.starts_with("lower_"));
    // Only hardware has this link.
    let is_of_hardware = fs::symlink_metadata(dir.join("device")).is_ok();
    // In Mb/s; -1 or an error if unknown (`speed_show`, net/core/net-sysfs.c, Linux 7.2).
    let speed = read_text(dir, "speed").and_then(|text| text.parse::<f64>().ok());
    let statistics = KernelCountedDevice {
        device: name.to_owned(),
        kind: DeviceKind::Net,
        counts_again: has_lower || !(is_of_hardware || name == LOOPBACK),
        bytes_per_s: speed.filter(|speed| *speed > 0.0).map(|mb| mb * 1e6 / 8.0),
    };
    Some((statistics, has_lower))
}

/// A file's text without surrounding white space. Some of these files cannot be read while a device
/// is down, which is no problem of the machine.
fn read_text(dir: &Path, file: &str) -> Option<String> {
    Some(bounds::system_text(dir.join(file)).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A class with devices: name, files (with a value) and directories (a trailing `/`).
    fn tree(class: &str, devices: &[(&str, &[(&str, &str)])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, files) in devices {
            let dir = root.path().join(format!("sys/devices/x/{name}"));
            for (file, value) in *files {
                let path = dir.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                match file.strip_suffix('/') {
                    Some(_) => fs::create_dir_all(path).unwrap(),
                    None => fs::write(path, value).unwrap(),
                }
            }
            let link = root.path().join(format!("sys/class/{class}/{name}"));
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(format!("../../devices/x/{name}"), link).unwrap();
        }
        root
    }

    fn statistics_pmus(root: &Path) -> Vec<(String, bool)> {
        let pmus = read_pmus(root, &mut Problems::default());
        let counts_again = |pmu: &Pmu| pmu.statistics.as_ref().unwrap().counts_again;
        pmus.iter().map(|pmu| (pmu.name.clone(), counts_again(pmu))).collect()
    }

    fn named(names: &[(&str, bool)]) -> Vec<(String, bool)> {
        names.iter().map(|(name, again)| ((*name).to_owned(), *again)).collect()
    }

    #[test]
    fn a_disk_that_is_built_on_others_counts_again() {
        let stat = ("stat", "0 0 8 0 0 0 16");
        let root = tree(
            "block",
            &[
                ("dm-0", &[stat, ("size", "8"), ("slaves/vda/", "")]),
                ("loop0", &[stat, ("size", "0")]),
                ("loop1", &[stat, ("size", "8"), ("loop/backing_file", "/x")]),
                ("nvme0c0n1", &[stat, ("size", "8"), ("hidden", "1")]),
                ("vda", &[stat, ("size", "8"), ("slaves/", "")]),
                ("vda1", &[stat, ("size", "8"), ("partition", "1")]),
                ("zram0", &[stat, ("size", "8"), ("mm_stat", "0")]),
            ],
        );
        let expected =
            [("disk_dm-0", true), ("disk_loop1", true), ("disk_vda", false), ("disk_zram0", true)];
        assert_eq!(statistics_pmus(root.path()), named(&expected));
    }

    #[test]
    fn an_interface_without_hardware_counts_again_unless_there_is_no_other() {
        let bytes = ("statistics/rx_bytes", "1");
        let outside = [bytes];
        let hardware = [bytes, ("device/", ""), ("speed", "1000")];
        let bridge = [bytes, ("lower_veth0/", "")];
        let all: [(&str, &[(&str, &str)]); 4] =
            [("br0", &bridge), ("eth0", &hardware), ("lo", &outside), ("veth0", &outside)];
        let root = tree("net", &all);
        let expected =
            [("net_br0", true), ("net_eth0", false), ("net_lo", false), ("net_veth0", true)];
        assert_eq!(statistics_pmus(root.path()), named(&expected));
        let pmus = read_pmus(root.path(), &mut Problems::default());
        assert_eq!(pmus[1].statistics.as_ref().unwrap().bytes_per_s, Some(125e6));
        assert_ne!(pmus[1].attr_type, pmus[2].attr_type);
        let within = tree("net", &[all[0], all[2], all[3]]);
        let expected = [("net_br0", true), ("net_lo", false), ("net_veth0", false)];
        assert_eq!(statistics_pmus(within.path()), named(&expected));
    }
}
