//! Kernel drivers for the uncore PMUs of each platform, as `catalog/kernel/drivers.toml` has them.

use std::sync::LazyLock;

use serde::Deserialize;

use super::ExaminedMachine;
use crate::catalog::pattern::matches;
use crate::discover::processor::Processor;
use crate::discover::release::KernelVersion;

const TEXT: &str = include_str!("../../catalog/kernel/drivers.toml");

/// The table; a test parses it.
static TABLE: LazyLock<DriverTable> = LazyLock::new(|| toml::from_str(TEXT).unwrap_or_default());

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DriverTable {
    platform: Vec<Platform>,
    driver: Vec<Driver>,
}

/// A platform and the drivers its PMUs need.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Platform {
    name: String,
    /// Patterns of [`Processor::generation_name`].
    processors: Vec<String>,
    /// Modules of drivers.
    drivers: Vec<String>,
}

/// A kernel driver.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Driver {
    /// The module, as `/sys/module` spells it.
    pub(super) module: String,
    /// What it counts, in a few words.
    pub(super) counts: String,
    /// The configuration option, with its prefix.
    pub(super) option: String,
    /// First kernel known to have it.
    pub(super) since: KernelVersion,
    /// Patterns of its PMU names.
    pub(super) pmus: Vec<String>,
    /// Whether it cannot be a module.
    pub(super) is_built_in: bool,
    /// Tables in `/sys/firmware/acpi/tables`, of which it needs one.
    acpi_tables: Vec<String>,
    /// Hardware ids of ACPI devices, of which it needs one.
    acpi_devices: Vec<String>,
    /// The same for how names of platform devices begin.
    platform_devices: Vec<String>,
    /// The same for how names of CXL devices begin.
    cxl_devices: Vec<String>,
    /// The same for `VENDOR:DEVICE` of PCI.
    pci_devices: Vec<String>,
}

impl Driver {
    /// Whether a PMU of this name is its own.
    pub(super) fn has_pmu(&self, pmu: &str) -> bool {
        self.pmus.iter().any(|pattern| matches(pattern, pmu))
    }

    /// Where its devices are, what is said if there is none, and how their names begin.
    fn required_devices(&self) -> impl Iterator<Item = (&'static str, &'static str, &Vec<String>)> {
        let sources = [
            ("sys/firmware/acpi/tables", "the firmware has no ACPI table", &self.acpi_tables),
            ("sys/bus/acpi/devices", "the firmware has no ACPI device", &self.acpi_devices),
            ("sys/bus/platform/devices", "there is no platform device", &self.platform_devices),
            ("sys/bus/cxl/devices", "there is no CXL device", &self.cxl_devices),
            (PCI, "there is no PCI device", &self.pci_devices),
        ];
        sources.into_iter().filter(|(.., names)| !names.is_empty())
    }

    /// Whether the processor itself is all that it needs.
    pub(super) fn is_of_processor(&self) -> bool {
        self.required_devices().next().is_none()
    }

    /// Whether the machine has one of its devices; `None` if it needs none, or if that cannot be
    /// read.
    pub(super) fn has_device(&self, machine: &ExaminedMachine) -> Option<bool> {
        let (directory, _, wanted) = self.required_devices().next()?;
        let device_names = machine.read_names(directory).ok().filter(|names| !names.is_empty())?;
        let is_one = |name: &String| match directory {
            PCI => wanted.contains(&pci_id(machine, name)),
            _ => wanted.iter().any(|prefix| name.starts_with(prefix)),
        };
        Some(device_names.iter().any(is_one))
    }

    /// What is said of a machine that has none of its devices.
    pub(super) fn missing_device(&self) -> String {
        let describe = |(_, absence, names): (_, &str, &Vec<String>)| {
            format!("{absence} {}", names.join(" or "))
        };
        self.required_devices().next().map_or_else(String::new, describe)
    }
}

const PCI: &str = "sys/bus/pci/devices";

/// `VENDOR:DEVICE` of a PCI device.
fn pci_id(machine: &ExaminedMachine, name: &str) -> String {
    let id = |file: &str| machine.read_text(&format!("{PCI}/{name}/{file}")).unwrap_or_default();
    format!("{}:{}", id("vendor"), id("device"))
}

/// The name of the machine's platform, and the drivers that its PMUs need: those of its processor,
/// and those of its devices. `None` if nothing is known of the processor.
pub(super) fn needed_drivers(
    machine: &ExaminedMachine,
    processor: &Processor,
) -> Option<(String, Vec<&'static Driver>)> {
    let generation = processor.generation_name().unwrap_or_default();
    let is_its = |candidate: &&Platform| {
        candidate.processors.iter().any(|pattern| matches(pattern, &generation))
    };
    let platform = TABLE.platform.iter().find(is_its);
    let named = platform.map_or(&[][..], |known| &known.drivers);
    let find_driver = |module: &String| TABLE.driver.iter().find(|driver| driver.module == *module);
    let mut drivers: Vec<&Driver> = named.iter().filter_map(find_driver).collect();
    // A table is of PMUs of several makers: it leads to none of their drivers.
    let by_device = TABLE.driver.iter().filter(|candidate| candidate.acpi_tables.is_empty());
    let unnamed_drivers = by_device.filter(|candidate| !named.contains(&candidate.module));
    drivers.extend(unnamed_drivers.filter(|candidate| candidate.has_device(machine) == Some(true)));
    let name = platform.map_or(&processor.name, |platform| &platform.name);
    (!drivers.is_empty()).then(|| (name.clone(), drivers))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::machine::fake_tree;
    use super::*;
    use crate::catalog::Catalog;
    use crate::catalog::family::PmuKind;

    const MIDR: &str = "sys/devices/system/cpu/cpu0/regs/identification/midr_el1";

    /// Families whose PMUs have no driver of a processor: of the core kernel, of an architecture,
    /// of a device that any machine may have, and of systems that a device tree describes.
    const ELSEWHERE: [&str; 22] = [
        "accelerator",
        "amd_iommu",
        "arm_ccn",
        "core_imc",
        "cstate",
        "disk",
        "hv_24x7",
        "idxd",
        "imx8_ddr",
        "imx8mn_ddr",
        "imx8mp_ddr",
        "imx9_ddr",
        "intel_dmar",
        "meson_ddr",
        "msr",
        "nest_imc",
        "net",
        "power",
        "power_core",
        "rockchip_ddr",
        "soc_ddr",
        "software",
    ];

    fn identify_platform(files: &[(&str, &str)]) -> Option<(String, Vec<&'static str>)> {
        let dir = fake_tree(files);
        let processor = Processor::read(dir.path()).unwrap();
        let (name, drivers) = needed_drivers(&ExaminedMachine::at_root(dir.path()), &processor)?;
        Some((name, drivers.iter().map(|driver| driver.module.as_str()).collect()))
    }

    #[test]
    fn the_table_of_drivers_is_consistent() {
        let table: DriverTable = toml::from_str(TEXT).unwrap();
        let modules: BTreeSet<_> = table.driver.iter().map(|driver| &driver.module).collect();
        assert_eq!(modules.len(), table.driver.len());
        for driver in &table.driver {
            assert!(driver.option.starts_with("CONFIG_"), "{}", driver.option);
            assert!(!driver.module.contains('-'), "/sys/module has no dashes: {}", driver.module);
            assert!(driver.since > KernelVersion(4, 0) && !driver.pmus.is_empty(), "{driver:?}");
            assert!(driver.required_devices().count() <= 1, "{driver:?}");
            let is_named = |platform: &Platform| platform.drivers.contains(&driver.module);
            let has_devices = !driver.is_of_processor() && driver.acpi_tables.is_empty();
            assert!(
                has_devices || table.platform.iter().any(is_named),
                "nothing leads to {}",
                driver.module
            );
        }
        for platform in &table.platform {
            assert!(platform.drivers.iter().all(|its| modules.contains(its)), "{platform:?}");
        }
    }

    /// A PMU of each name of each family has a driver in the table.
    #[test]
    fn each_family_of_the_catalog_has_a_driver() {
        let catalog = Catalog::load_embedded().unwrap();
        let mut without = BTreeSet::new();
        for family in catalog.families.iter().filter(|family| family.kind != PmuKind::Core) {
            for pattern in &family.names {
                let pmu = pattern.replace(['#', '?'], "0").replace('*', "x");
                if !TABLE.driver.iter().any(|driver| driver.has_pmu(&pmu)) {
                    without.insert(family.family.as_str());
                }
            }
        }
        assert_eq!(without, BTreeSet::from(ELSEWHERE));
    }

    #[test]
    fn processors_are_matched_at_any_stepping_by_part_number() {
        for (midr, name) in [
            ("0x410fd4f0", "Neoverse V2 (NVIDIA Grace)"),
            ("0x411fd4f1", "Neoverse V2 (NVIDIA Grace)"),
            ("0x481fd010", "HiSilicon TSV110 (Kunpeng 920)"),
            ("0x480fd020", "HiSilicon HIP09 (Kunpeng)"),
            ("0x480fd060", "HiSilicon HIP12 (Kunpeng)"),
            ("0xc00fac30", "AmpereOne"),
            ("0xc00fac40", "AmpereOne"),
            ("0x413fd0c1", "Neoverse N1 (Ampere Altra)"),
            ("0x460f0030", "Fujitsu Monaka"),
            ("0x431f0af1", "Cavium ThunderX2"),
            ("0x510fc000", "Qualcomm Falkor (Centriq)"),
            ("0x503f0002", "APM X-Gene"),
        ] {
            assert_eq!(identify_platform(&[(MIDR, midr)]).unwrap().0, name, "{midr}");
        }
        // A64FX and Oryon have no uncore driver.
        for midr in ["0x460f0010", "0x511f0011"] {
            assert_eq!(identify_platform(&[(MIDR, midr)]), None, "{midr}");
        }
    }

    /// A processor without a list, and one whose list lacks it.
    #[test]
    fn devices_lead_to_their_drivers_on_any_processor() {
        let tad = ("sys/bus/acpi/devices/MRVL000B:00/status", "15\n");
        let (name, modules) = identify_platform(&[(MIDR, "0x410fd490"), tad]).unwrap();
        assert_eq!(name, "Neoverse N2 (Yitian 710)");
        assert_eq!(modules.last(), Some(&"marvell_cn10k_tad_pmu"));
        let card = "sys/bus/pci/devices/0000:7d:00.0";
        let ids = [format!("{card}/vendor"), format!("{card}/device")];
        let files =
            [(MIDR, "0x480fd0f0"), (ids[0].as_str(), "0x19e5\n"), (ids[1].as_str(), "0xa12d\n")];
        assert_eq!(
            identify_platform(&files).unwrap(),
            ("MIDR 0x480fd0f0".to_owned(), vec!["hisi_pcie_pmu"])
        );
    }
}
