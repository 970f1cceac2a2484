//! Copies the files of a machine that discovery and planning read, as the tree of a fixture in
//! `tests/fixtures/machines`.
//!
//! Guarantees that nothing else is copied. Copied are: PMUs, the processor's model, CPU numbers,
//! NUMA nodes, the names and paths of PCI, block and network devices, the kernel's release and the
//! mounts of cgroup file systems. Not copied are other mounts, processes, serial numbers, and
//! network and memory addresses.

use std::path::Path;
use std::{fs, io};

use anyhow::{Context as _, Result};

use crate::tree::{self, Entry, Tree};

/// The directory of the PMUs, with one subdirectory each.
pub const PMUS: &str = "sys/bus/event_source/devices";
const SYSTEM: &str = "sys/devices/system";

/// Files of a PMU.
const PMU_FILES: &[&str] = &[
    "type",
    "alias",
    "cpumask",
    "cpus",
    "associated_cpus",
    "identifier",
    "ali_drw_pmu_identifier",
    "peer",
    "bdf_min",
    "bdf_max",
    "perf_event_mux_interval_ms",
];

/// Directories of a PMU whose files are all copied.
const PMU_DIRS: &[&str] = &["format", "events", "caps"];

/// Files of the whole machine.
const MACHINE_FILES: &[&str] = &[
    "proc/sys/kernel/osrelease",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/possible",
];

/// Fields of the first processor of `proc/cpuinfo`.
const PROCESSOR: &[&str] = &[
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "CPU implementer",
    "CPU variant",
    "CPU part",
    "CPU revision",
];

/// Directories of links to devices.
const LINKS: &[&str] =
    &["sys/bus/pci/devices", "sys/class/block", "sys/class/net", "sys/class/nvme"];

/// Files of a PCI function.
const FUNCTION_FILES: &[&str] = &["class", "vendor", "numa_node"];

/// Files of a disk or an interface that are read.
const DEVICE_FILES: &[&str] = &["size", "partition", "hidden", "speed"];

/// Files and links of a disk or an interface of which only the existence matters. They hold numbers
/// that change, or private names.
const DEVICE_MARKS: &[&str] =
    &["stat", "mm_stat", "loop/backing_file", "statistics/rx_bytes", "device"];

/// Files of each CPU and each NUMA node: the directory, the prefix of its subdirectories, the
/// files.
const PARTS: &[(&str, &str, &[&str])] = &[
    (
        "cpu",
        "cpu",
        &[
            "topology/physical_package_id",
            "topology/die_id",
            "cache/index2/level",
            "cache/index2/shared_cpu_list",
            "cache/index3/level",
            "cache/index3/shared_cpu_list",
            "regs/identification/midr_el1",
        ],
    ),
    ("node", "node", &["cpulist"]),
];

/// Reads the files below `root`. Also returns the number of PMUs.
///
/// # Errors
///
/// `root` has no list of PMUs, or a link target is not UTF-8. Files that do not exist are left out.
pub fn capture_machine(root: &Path) -> Result<(Tree, usize)> {
    let mut tree = Tree::default();
    let output = &mut tree;
    let pmus = dir_names(&root.join(PMUS))
        .with_context(|| format!("cannot list the PMUs in {}", root.join(PMUS).display()))?;
    for pmu in &pmus {
        let dir = Path::new(PMUS).join(pmu);
        for file in PMU_FILES {
            copy_file(root, output, &dir.join(file))?;
        }
        let dies = dir_names(&root.join(&dir)).unwrap_or_default();
        for file in dies.iter().filter(|name| is_numbered(name, "die")) {
            copy_file(root, output, &dir.join(file))?;
        }
        for subdir in PMU_DIRS {
            for file in dir_names(&root.join(&dir).join(subdir)).unwrap_or_default() {
                copy_file(root, output, &dir.join(subdir).join(file))?;
            }
        }
    }
    for file in MACHINE_FILES {
        copy_file(root, output, Path::new(file))?;
    }
    for (dir, prefix, files) in PARTS {
        let dir = Path::new(SYSTEM).join(dir);
        for name in dir_names(&root.join(&dir)).unwrap_or_default() {
            if is_numbered(&name, prefix) {
                for file in *files {
                    copy_file(root, output, &dir.join(&name).join(file))?;
                }
            }
        }
    }
    copy_processor(root, output)?;
    copy_devices(root, output)?;
    copy_cgroup_mounts(root, output)?;
    Ok((tree, pmus.len()))
}

/// Whether a name is `prefix` followed by a number.
fn is_numbered(name: &str, prefix: &str) -> bool {
    let number = name.strip_prefix(prefix).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The model of the first processor, and whether it is virtual.
fn copy_processor(root: &Path, output: &mut Tree) -> Result<()> {
    let file = Path::new("proc/cpuinfo");
    let Ok(text) = fs::read_to_string(root.join(file)) else {
        return Ok(());
    };
    let mut kept = Vec::new();
    for line in text.lines().take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap_or_default();
        if PROCESSOR.contains(&name.trim()) {
            kept.push(line.to_owned());
        }
        if name.trim() == "flags" && value.split(' ').any(|flag| flag == "hypervisor") {
            kept.push(format!("{name}: hypervisor"));
        }
    }
    if kept.is_empty() {
        return Ok(());
    }
    // The last line ends with a newline too.
    kept.push(String::new());
    add_file(output, file, kept.join("\n"))
}

/// The links to devices, and the parts of virtual devices.
fn copy_devices(root: &Path, output: &mut Tree) -> Result<()> {
    for dir in LINKS {
        for name in dir_names(&root.join(dir)).unwrap_or_default() {
            let link = Path::new(dir).join(&name);
            let Ok(target) = fs::read_link(root.join(&link)) else {
                continue;
            };
            output.add(&link, tree::link(&target)?)?;
            let Some((_, device_path)) =
                target.to_str().and_then(|target| target.split_once("devices/"))
            else {
                continue;
            };
            let device_dir = Path::new("sys/devices").join(device_path);
            if dir.ends_with("pci/devices") {
                copy_pci_function(root, output, &device_dir)?;
                continue;
            }
            if device_dir.starts_with("sys/devices/virtual") {
                add_device_parts(root, output, &device_dir)?;
            }
            for file in DEVICE_FILES {
                copy_file(root, output, &device_dir.join(file))?;
            }
            for mark in DEVICE_MARKS.iter().map(|mark| device_dir.join(mark)) {
                // A PCI function is a device too, and has no statistics.
                if fs::symlink_metadata(root.join(&mark)).is_ok() {
                    add_file(output, &mark, "")?;
                }
            }
        }
    }
    Ok(())
}

/// A PCI function. For NVIDIA's root ports also the configuration space, which contains their
/// location.
fn copy_pci_function(root: &Path, output: &mut Tree, device_dir: &Path) -> Result<()> {
    for file in FUNCTION_FILES {
        copy_file(root, output, &device_dir.join(file))?;
    }
    let says = |file: &str, text: &str| {
        let content = fs::read_to_string(root.join(device_dir).join(file));
        content.is_ok_and(|content| content.starts_with(text))
    };
    let on_root_bus = device_dir.components().count() == 4;
    if on_root_bus && says("class", "0x0604") && says("vendor", "0x10de") {
        copy_file(root, output, &device_dir.join("config"))?;
    }
    Ok(())
}

/// The names of the parts of a virtual device, as empty files: links would lead to files that are
/// not copied.
fn add_device_parts(root: &Path, output: &mut Tree, device_dir: &Path) -> Result<()> {
    for slave in dir_names(&root.join(device_dir).join("slaves")).unwrap_or_default() {
        add_file(output, &device_dir.join("slaves").join(slave), "")?;
    }
    for name in dir_names(&root.join(device_dir)).unwrap_or_default() {
        if name.starts_with("lower_") {
            add_file(output, &device_dir.join(name), "")?;
        }
    }
    let subsystem = device_dir.parent().filter(|dir| {
        dir.parent().and_then(Path::file_name).is_some_and(|name| name == "nvme-subsystem")
    });
    for name in
        subsystem.map_or_else(Vec::new, |dir| dir_names(&root.join(dir)).unwrap_or_default())
    {
        if let Some(dir) = subsystem.filter(|_| is_numbered(&name, "nvme")) {
            add_file(output, &dir.join(name), "")?;
        }
    }
    Ok(())
}

/// The mounts of cgroup file systems. Other mounts are private.
fn copy_cgroup_mounts(root: &Path, output: &mut Tree) -> Result<()> {
    let file = Path::new("proc/self/mountinfo");
    let Ok(text) = fs::read_to_string(root.join(file)) else {
        return Ok(());
    };
    let is_cgroup = |line: &&str| {
        line.split_once(" - ").is_some_and(|(_, fs_type)| fs_type.starts_with("cgroup"))
    };
    let mut lines: Vec<&str> = text.lines().filter(is_cgroup).collect();
    // The last line ends with a newline too.
    lines.push("");
    add_file(output, file, lines.join("\n"))
}

fn dir_names(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

/// Copies a file's bytes, if it can be read. The length that sysfs reports for its files is wrong.
fn copy_file(root: &Path, output: &mut Tree, file: &Path) -> Result<()> {
    match fs::read(root.join(file)) {
        Ok(bytes) => add_file(output, file, bytes),
        Err(_absent) => Ok(()),
    }
}

fn add_file(output: &mut Tree, file: &Path, bytes: impl Into<Vec<u8>>) -> Result<()> {
    output.add(file, Entry::File(bytes.into()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_is_needed_is_copied_and_nothing_else() {
        let dir = std::env::temp_dir().join(format!("capture-{}", std::process::id()));
        let mut machine = Tree::default();
        for (file, text) in [
            ("sys/bus/event_source/devices/x_0/type", "9\n"),
            ("sys/bus/event_source/devices/x_0/events/a.scale", "0.5"),
            ("sys/bus/event_source/devices/x_0/uevent", "secret"),
            ("sys/devices/system/cpu/cpu3/topology/die_id", "1\n"),
            ("sys/devices/system/cpu/cpufreq/policy", "secret"),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/bus/event_source/devices/x_0/die1", "0000:40\n"),
            ("sys/bus/event_source/devices/x_0/diesel", "secret"),
            (
                "proc/cpuinfo",
                "vendor_id\t: AuthenticAMD\nmicrocode\t: secret\nflags\t: fpu hypervisor\n\nvendor_id\t: other\n",
            ),
            ("sys/devices/pci0000:00/0000:00:01.0/class", "0x060400\n"),
            ("sys/devices/pci0000:00/0000:00:01.0/vendor", "0x10de\n"),
            ("sys/devices/pci0000:00/0000:00:01.0/config", "port"),
            ("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/class", "0x010802\n"),
            ("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/config", "secret"),
            ("sys/devices/virtual/net/bond0/lower_eth0", ""),
            ("sys/devices/virtual/net/bond0/address", "secret"),
            ("sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme3/x", ""),
            ("sys/devices/virtual/nvme-subsystem/nvme-subsys0/serial", "secret"),
            ("proc/self/mountinfo", "1 0 / /cg rw - cgroup2 c rw\n2 0 / /home rw - ext4 x rw\n"),
        ] {
            add_file(&mut machine, Path::new(file), text).unwrap();
        }
        let port = "pci0000:00/0000:00:01.0";
        for (link, target) in [
            ("sys/bus/pci/devices/0000:00:01.0", format!("../../../devices/{port}")),
            ("sys/bus/pci/devices/0000:01:00.0", format!("../../../devices/{port}/0000:01:00.0")),
            ("sys/class/net/bond0", "../../devices/virtual/net/bond0".to_owned()),
            (
                "sys/class/block/nvme0n1",
                "../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1".to_owned(),
            ),
            (
                "sys/class/block/nvme0n2",
                "../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n2".to_owned(),
            ),
        ] {
            machine.add(Path::new(link), Entry::Link(target)).unwrap();
        }
        machine.unpack_to(&dir).unwrap();
        let (tree, pmus) = capture_machine(&dir).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(pmus, 1);
        let found: BTreeMap<_, _> = tree.all_entries().collect();
        for (path, entry) in &found {
            assert!(!format!("{entry:?}").contains("secret"), "{}", path.display());
        }
        let file = |text: &str| Entry::File(text.into());
        for (path, entry) in [
            ("sys/devices/pci0000:00/0000:00:01.0/config", file("port")),
            ("sys/devices/virtual/net/bond0/lower_eth0", file("")),
            ("sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme3", file("")),
            ("sys/bus/event_source/devices/x_0/die1", file("0000:40\n")),
            ("sys/bus/event_source/devices/x_0/events/a.scale", file("0.5")),
            ("sys/devices/system/cpu/cpu3/topology/die_id", file("1\n")),
            ("sys/devices/system/node/node0/cpulist", file("0-3\n")),
            ("proc/cpuinfo", file("vendor_id\t: AuthenticAMD\nflags\t: hypervisor\n")),
            ("proc/self/mountinfo", file("1 0 / /cg rw - cgroup2 c rw\n")),
            (
                "sys/bus/pci/devices/0000:01:00.0",
                Entry::Link(format!("../../../devices/{port}/0000:01:00.0")),
            ),
        ] {
            assert_eq!(found.get(Path::new(path)), Some(&&entry), "{path}");
        }
        let has = |path: &str| found.keys().any(|found| found.starts_with(path));
        assert!(!has("sys/bus/event_source/devices/x_0/uevent"));
        assert!(!has("sys/devices/system/cpu/cpufreq"));
    }
}
