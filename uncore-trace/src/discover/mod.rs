//! Discovery: the PMUs, CPUs and devices of the machine, as plain data.
//!
//! Reads sysfs and procfs below a given root and never writes, so a captured tree serves as a
//! machine. A file that cannot be read or parsed adds a line to [`Machine::problems`] and affects
//! nothing else.

pub mod accounts;
pub mod calibration;
pub mod cgroups;
pub mod cpulist;
pub mod cpus;
pub mod devices;
pub mod event;
pub mod format;
pub mod held_functions;
pub mod iort;
pub mod mounts;
pub mod name;
pub mod nodes;
pub mod open_files;
pub mod pci;
pub mod pmu;
pub mod processor;
mod read;
pub mod release;
pub mod resctrl;
pub mod speed;
pub mod statistics;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use self::calibration::{Calibration, MachineIdentity};
pub use self::cgroups::{CgroupMounts, CgroupView};
pub use self::cpulist::CpuList;
pub use self::cpus::Cpus;
pub use self::devices::Devices;
use self::iort::StreamIds;
pub use self::pmu::Pmu;
pub use self::processor::Processor;
use self::read::Problems;
pub(crate) use self::read::{read_array, subdirectories};

/// Directory of the kernel's PMUs, below the root.
const DEVICES: &str = "sys/bus/event_source/devices";

/// What planning needs to know about a machine.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The root that was read: `/`, or a captured tree.
    pub root: PathBuf,
    /// Its PMUs in perf's order ([`name::compare_names`]), then its disks and interfaces
    /// ([`statistics`]).
    pub pmus: Vec<Pmu>,
    /// Its CPUs.
    pub cpus: Cpus,
    /// Its first CPU's processor, if known.
    pub processor: Option<Processor>,
    /// Its devices that are on PCI or have names.
    pub devices: Devices,
    /// The ids by which its SMMUs know its PCI functions.
    #[serde(skip)]
    pub streams: StreamIds,
    /// Its cgroup mounts.
    pub cgroups: CgroupMounts,
    /// What identifies the machine.
    #[serde(skip)]
    pub identity: MachineIdentity,
    /// Measured rates of its memories, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// The kernel's release, such as `6.12.107-arm64`.
    pub kernel: Option<String>,
    /// The parameter of KVM, such as `kvm_intel.enable_mediated_pmu`, by which virtual machines get
    /// the core PMUs for themselves while they run; `None` if it is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mediated_pmu: Option<&'static str>,
    /// Whether the firmware describes persistent memory; `None` if its tables cannot be listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_memory: Option<bool>,
    /// What could not be read or parsed, one printable line each.
    pub problems: Vec<String>,
}

impl Machine {
    /// The PMU of this name.
    pub fn find_pmu(&self, name: &str) -> Option<&Pmu> {
        self.pmus.iter().find(|pmu| pmu.name == name)
    }

    /// The name of its processor in perf's tables ([`Processor::generation_name`]), if known.
    pub fn generation_name(&self) -> Option<String> {
        self.processor.as_ref()?.generation_name()
    }
}

/// Reads the machine below `root`.
///
/// An error means that the machine cannot be used: there is no list of PMUs, or no CPU is online.
pub fn machine(root: &Path) -> Result<Machine> {
    let devices = root.join(DEVICES);
    fs::read_dir(&devices).with_context(|| {
        format!(
            "cannot list the PMUs in {}: mount sysfs (mount -t sysfs sysfs /sys) or give --root \
             DIR",
            devices.display()
        )
    })?;
    let mut problems = Problems::default();
    let processor = Processor::read(root);
    let mut pmus: Vec<Pmu> = Vec::new();
    for name in problems.read_names(&devices) {
        pmus.extend(Pmu::read(&devices.join(&name), &name, processor.as_ref(), &mut problems));
    }
    // A machine with several kinds of cores has a PMU for each.
    for pmu in &mut pmus {
        let cpu = pmu.cpus.as_ref().and_then(|cpus| cpus.iter().next());
        let core_processor = cpu.and_then(|cpu| Processor::arm_cpu(root, cpu)?.generation_name());
        pmu.processor = core_processor.or_else(|| pmu.processor.take());
    }
    pmus.sort_by(|a, b| name::compare_names(&a.name, &b.name));
    let cpus = Cpus::read(root, &mut problems);
    anyhow::ensure!(
        !cpus.online.is_empty(),
        "cannot read which CPUs are online from {}: mount sysfs or give --root DIR",
        root.join("sys/devices/system/cpu/online").display()
    );
    let identity = MachineIdentity::read(root, processor.as_ref(), &cpus);
    let calibration = Calibration::read(root, &identity, &mut problems);
    let cgroups = CgroupMounts::read(root, &mut problems);
    let devices = Devices::read(root, &mut problems);
    pmus.extend(statistics::read_pmus(root, &mut problems));
    let kernel = problems.read_line(&root.join("proc/sys/kernel/osrelease"));
    Ok(Machine {
        root: root.to_owned(),
        pmus,
        cpus,
        processor,
        devices,
        streams: StreamIds::read(root),
        cgroups,
        identity,
        calibration,
        kernel,
        mediated_pmu: mediated_pmu(root),
        persistent_memory: persistent_memory(root),
        problems: problems.0,
    })
}

/// Whether there is a table of persistent memory, by which perf has it for `#has_pmem` too
/// (`tools/perf/util/tool_pmu.c`, Linux 7.2). A container may see an empty directory.
fn persistent_memory(root: &Path) -> Option<bool> {
    let tables = fs::read_dir(root.join("sys/firmware/acpi/tables")).ok()?;
    let names: Vec<_> = tables.flatten().map(|table| table.file_name()).collect();
    (!names.is_empty()).then(|| names.iter().any(|name| name == "NFIT"))
}

/// The parameter that is on, of the two modules of KVM on x86 (`arch/x86/kvm/vmx/vmx.c` and
/// `svm/svm.c`, Linux 7.2). KVM clears it where the host's PMU cannot be shared that way.
fn mediated_pmu(root: &Path) -> Option<&'static str> {
    ["kvm_intel.enable_mediated_pmu", "kvm_amd.enable_mediated_pmu"].into_iter().find(|name| {
        let (module, parameter) = name.split_once('.').unwrap_or_default();
        let file = root.join("sys/module").join(module).join("parameters").join(parameter);
        read::read_bytes(&file).is_ok_and(|text| text.trim_ascii() == b"Y")
    })
}

/// A machine of `tests/fixtures/machines`. Its files are removed before this returns.
#[cfg(test)]
pub(crate) fn captured_machine(name: &str) -> Machine {
    let dir = tempfile::tempdir().unwrap();
    uncore_trace_lab::fixtures::machine(name).unwrap().fill_dir(dir.path()).unwrap();
    machine(dir.path()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &[u8]) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_broken_sysfs_file_loses_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let pmu = |file: &str| format!("{DEVICES}/{file}");
        write(root, "sys/devices/system/cpu/online", b"0\n");
        write(root, &pmu("good/type"), b"11\n");
        write(root, &pmu("good/cpumask"), b"\n");
        write(root, &pmu("good/format/event"), b"config:0-7\n");
        write(root, &pmu("good/format/bad"), b"config:0-99\n");
        write(root, &pmu("good/events/reads"), b"event=0x1, umask=0x2");
        write(root, &pmu("good/events/reads.scale"), b"6.103515625e-5");
        write(root, &pmu("good/events/reads.unit"), b"MiB\n");
        write(root, &pmu("good/events/unscaled"), b"event=0x2");
        write(root, &pmu("good/events/unscaled.scale"), b"many");
        write(root, &pmu("good/events/binary"), b"\xff\xfe");
        write(root, &pmu("notype/format/event"), b"config:0-7\n");
        write(root, &pmu("badtype/type"), b"\x1b[2J\n");
        let machine = machine(root).unwrap();
        assert_eq!(machine.pmus.len(), 1);
        let good = machine.find_pmu("good").unwrap();
        assert_eq!(good.cpumask, Some(CpuList::default()));
        assert_eq!(good.formats.keys().collect::<Vec<_>>(), ["event"]);
        assert_eq!(good.events.keys().collect::<Vec<_>>(), ["reads"]);
        assert_eq!(good.events["reads"].scale, Some(6.103_515_625e-5));
        assert_eq!(good.events["reads"].unit.as_deref(), Some("MiB"));
        // notype, badtype, bad format, bad scale, binary event, no mountinfo.
        assert_eq!(machine.problems.len(), 6, "{:#?}", machine.problems);
        assert!(machine.problems.iter().all(|line| !line.contains(['\u{1b}', '\n'])));
    }

    #[test]
    fn a_mediated_pmu_is_seen_only_where_it_is_on() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert_eq!(mediated_pmu(root), None);
        let file = |module| format!("sys/module/{module}/parameters/enable_mediated_pmu");
        write(root, &file("kvm_intel"), b"N\n");
        assert_eq!(mediated_pmu(root), None);
        write(root, &file("kvm_amd"), b"Y\n");
        assert_eq!(mediated_pmu(root), Some("kvm_amd.enable_mediated_pmu"));
        write(root, &file("kvm_intel"), b"Y\n");
        assert_eq!(mediated_pmu(root), Some("kvm_intel.enable_mediated_pmu"));
    }

    #[test]
    fn without_sysfs_the_error_names_the_option_root() {
        let dir = tempfile::tempdir().unwrap();
        let error = format!("{:#}", machine(dir.path()).unwrap_err());
        assert!(error.contains("--root DIR") && !error.contains('\n'), "{error}");
    }
}
