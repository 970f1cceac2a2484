//! Copies what discovery and planning read of a machine into a directory that `--root` takes: the
//! form of the fixtures in `tests/fixtures/machines`.
//!
//! Guarantees that nothing else is copied: PMUs, what the processor is, CPU numbers, NUMA nodes, the
//! names and places of PCI, block and network devices, the kernel's release and where cgroups are
//! mounted; no other mount, no process, no serial number, no network or memory address.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context as _, Result, ensure};

const PMUS: &str = "sys/bus/event_source/devices";
const SYSTEM: &str = "sys/devices/system";

/// Files of a PMU.
const PMU_FILES: &[&str] = &[
    "type",
    "cpumask",
    "cpus",
    "associated_cpus",
    "identifier",
    "ali_drw_pmu_identifier",
    "peer",
    "perf_event_mux_interval_ms",
];

/// Directories of a PMU, with all of their files.
const PMU_DIRS: &[&str] = &["format", "events", "caps"];

/// Files of the whole machine.
const MACHINE_FILES: &[&str] = &[
    "proc/sys/kernel/osrelease",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/possible",
    "sys/devices/system/cpu/cpu0/regs/identification/midr_el1",
];

/// Fields of the first processor of `proc/cpuinfo`.
const PROCESSOR: &[&str] =
    &["vendor_id", "cpu family", "model", "model name", "CPU implementer", "CPU part"];

/// Where devices have their links.
const LINKS: &[&str] =
    &["sys/bus/pci/devices", "sys/class/block", "sys/class/net", "sys/class/nvme"];

/// Files of a PCI function.
const FUNCTION_FILES: &[&str] = &["class", "vendor", "numa_node"];

/// Files of each CPU and each NUMA node, by what their directories begin with.
const PARTS: &[(&str, &str, &[&str])] = &[
    ("cpu", "cpu", &["topology/physical_package_id", "topology/die_id"]),
    ("node", "node", &["cpulist"]),
];

/// Copies from `root` to `to`, which must not exist yet. Returns how many PMUs there were.
///
/// # Errors
///
/// `to` exists or cannot be written, or `root` has no list of PMUs. What a machine does not have
/// is left out.
pub fn capture(root: &Path, to: &Path) -> Result<usize> {
    ensure!(!to.exists(), "{} exists: name a new directory", to.display());
    let pmus = names(&root.join(PMUS))
        .with_context(|| format!("cannot list the PMUs in {}", root.join(PMUS).display()))?;
    for pmu in &pmus {
        let dir = Path::new(PMUS).join(pmu);
        for file in PMU_FILES {
            copy(root, to, &dir.join(file))?;
        }
        let dies = names(&root.join(&dir)).unwrap_or_default();
        for file in dies.iter().filter(|name| numbered(name, "die")) {
            copy(root, to, &dir.join(file))?;
        }
        for part in PMU_DIRS {
            for file in names(&root.join(&dir).join(part)).unwrap_or_default() {
                copy(root, to, &dir.join(part).join(file))?;
            }
        }
    }
    for file in MACHINE_FILES {
        copy(root, to, Path::new(file))?;
    }
    for (dir, prefix, files) in PARTS {
        let dir = Path::new(SYSTEM).join(dir);
        for name in names(&root.join(&dir)).unwrap_or_default() {
            if numbered(&name, prefix) {
                for file in *files {
                    copy(root, to, &dir.join(&name).join(file))?;
                }
            }
        }
    }
    processor(root, to)?;
    devices(root, to)?;
    cgroup_mounts(root, to)?;
    Ok(pmus.len())
}

/// Whether a name is `prefix` and a number.
fn numbered(name: &str, prefix: &str) -> bool {
    let number = name.strip_prefix(prefix).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// What the first processor is and whether it is a virtual one.
fn processor(root: &Path, to: &Path) -> Result<()> {
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
    // So that the last one ends too.
    kept.push(String::new());
    write(&to.join(file), kept.join("\n").as_bytes())
}

/// The links that say where devices are, and what devices are made of.
fn devices(root: &Path, to: &Path) -> Result<()> {
    for dir in LINKS {
        for name in names(&root.join(dir)).unwrap_or_default() {
            let link = Path::new(dir).join(&name);
            let Ok(target) = fs::read_link(root.join(&link)) else {
                continue;
            };
            make_link(&to.join(&link), &target)?;
            let Some(place) = target.to_str().and_then(|target| target.split_once("devices/"))
            else {
                continue;
            };
            let place = Path::new("sys/devices").join(place.1);
            if dir.ends_with("pci/devices") {
                function(root, to, &place)?;
            } else if place.starts_with("sys/devices/virtual") {
                made_of(root, to, &place)?;
            }
        }
    }
    Ok(())
}

/// A PCI function; of NVIDIA's root ports, which say there where they are, also the configuration.
fn function(root: &Path, to: &Path, place: &Path) -> Result<()> {
    for file in FUNCTION_FILES {
        copy(root, to, &place.join(file))?;
    }
    let says = |file: &str, text: &str| {
        let found = fs::read_to_string(root.join(place).join(file));
        found.is_ok_and(|found| found.starts_with(text))
    };
    let on_root_bus = place.components().count() == 4;
    if on_root_bus && says("class", "0x0604") && says("vendor", "0x10de") {
        copy(root, to, &place.join("config"))?;
    }
    Ok(())
}

/// The names of the devices that a virtual one is made of: as empty files, the links lead nowhere.
fn made_of(root: &Path, to: &Path, place: &Path) -> Result<()> {
    for slave in names(&root.join(place).join("slaves")).unwrap_or_default() {
        write(&to.join(place).join("slaves").join(slave), b"")?;
    }
    for name in names(&root.join(place)).unwrap_or_default() {
        if name.starts_with("lower_") {
            write(&to.join(place).join(name), b"")?;
        }
    }
    let subsystem = place.parent().filter(|dir| {
        dir.parent().and_then(Path::file_name).is_some_and(|name| name == "nvme-subsystem")
    });
    for name in subsystem.map_or_else(Vec::new, |dir| names(&root.join(dir)).unwrap_or_default()) {
        if let Some(dir) = subsystem.filter(|_| numbered(&name, "nvme")) {
            write(&to.join(dir).join(name), b"")?;
        }
    }
    Ok(())
}

fn make_link(link: &Path, target: &Path) -> Result<()> {
    if let Some(dir) = link.parent() {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    symlink(target, link).with_context(|| format!("cannot make {}", link.display()))
}

/// The mounts of cgroup file systems; all others are nobody's business.
fn cgroup_mounts(root: &Path, to: &Path) -> Result<()> {
    let file = Path::new("proc/self/mountinfo");
    let Ok(text) = fs::read_to_string(root.join(file)) else {
        return Ok(());
    };
    let is_cgroup =
        |line: &&str| line.split_once(" - ").is_some_and(|(_, kind)| kind.starts_with("cgroup"));
    let mut lines: Vec<&str> = text.lines().filter(is_cgroup).collect();
    // So that the last one ends too.
    lines.push("");
    write(&to.join(file), lines.join("\n").as_bytes())
}

fn names(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

/// Copies a file's bytes, if it can be read: sysfs files say nothing true about their length.
fn copy(root: &Path, to: &Path, file: &Path) -> Result<()> {
    match fs::read(root.join(file)) {
        Ok(bytes) => write(&to.join(file), &bytes),
        Err(_absent) => Ok(()),
    }
}

fn write(path: &PathBuf, bytes: &[u8]) -> Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_copied_and_nothing_else() {
        let dir = std::env::temp_dir().join(format!("capture-{}", std::process::id()));
        let (root, to) = (dir.join("root"), dir.join("to"));
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
            write(&root.join(file), text.as_bytes()).unwrap();
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
        ] {
            make_link(&root.join(link), Path::new(&target)).unwrap();
        }
        assert_eq!(capture(&root, &to).unwrap(), 1);
        let mut found = Vec::new();
        let mut dirs = vec![to.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    dirs.push(entry.path());
                } else if kind.is_file() {
                    let text = fs::read_to_string(entry.path()).unwrap();
                    assert!(!text.contains("secret"), "{}", entry.path().display());
                    found.push(entry.path());
                }
            }
        }
        let has = |file: &str| found.contains(&to.join(file));
        assert!(has("sys/devices/pci0000:00/0000:00:01.0/config"), "{found:?}");
        assert!(has("sys/devices/virtual/net/bond0/lower_eth0"), "{found:?}");
        assert!(has("sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme3"), "{found:?}");
        assert!(has("sys/bus/event_source/devices/x_0/die1"), "{found:?}");
        let link = fs::read_link(to.join("sys/bus/pci/devices/0000:01:00.0")).unwrap();
        assert!(link.ends_with("0000:00:01.0/0000:01:00.0"));
        let read = |file: &str| fs::read_to_string(to.join(file)).unwrap();
        assert_eq!(read("sys/bus/event_source/devices/x_0/events/a.scale"), "0.5");
        assert_eq!(read("sys/devices/system/cpu/cpu3/topology/die_id"), "1\n");
        assert_eq!(read("sys/devices/system/node/node0/cpulist"), "0-3\n");
        assert_eq!(read("proc/cpuinfo"), "vendor_id\t: AuthenticAMD\nflags\t: hypervisor\n");
        assert_eq!(read("proc/self/mountinfo"), "1 0 / /cg rw - cgroup2 c rw\n");
        assert!(!to.join("sys/bus/event_source/devices/x_0/uevent").exists());
        assert!(!to.join("sys/devices/system/cpu/cpufreq").exists());
        assert!(capture(&root, &to).unwrap_err().to_string().contains("exists"));
        fs::remove_dir_all(&dir).unwrap();
    }
}
