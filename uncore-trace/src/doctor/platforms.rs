//! Kernel drivers for the uncore PMUs of each platform: data only.
//!
//! To add a platform, add an entry to [`PLATFORMS`]; to add a driver, add a constant. Options and
//! module names are those of Linux 7.2 (`drivers/perf/Kconfig`, `drivers/perf/*/Makefile`,
//! `arch/x86/events/Kconfig`).

use crate::discover::processor::Id;
use crate::discover::release::Version;

/// A platform and the drivers its PMUs need.
#[derive(Debug)]
pub(super) struct Platform {
    pub(super) name: &'static str,
    pub(super) cpu: Cores,
    pub(super) drivers: &'static [&'static Driver],
}

/// The CPUs of a platform.
#[derive(Debug)]
pub(super) enum Cores {
    Intel,
    Amd,
    /// Implementer and part of an `MIDR_EL1`; variant and revision are masked out.
    Arm(u32),
}

impl Cores {
    /// Implementer, architecture and part; without variant 23:20 and revision 3:0.
    const MIDR_MASK: u32 = 0xff0f_fff0;

    pub(super) fn matches(&self, id: Id) -> bool {
        match (self, id) {
            (Self::Intel, Id::Intel) | (Self::Amd, Id::Amd) => true,
            (Self::Arm(cores), Id::Arm(midr)) => cores & Self::MIDR_MASK == midr & Self::MIDR_MASK,
            _ => false,
        }
    }
}

/// A kernel driver.
#[derive(Debug)]
pub(super) struct Driver {
    /// What it counts, in a few words.
    pub(super) counts: &'static str,
    /// The configuration option, with its prefix.
    pub(super) option: &'static str,
    /// The module, as `/sys/module` spells it.
    pub(super) module: &'static str,
    /// First kernel known to have it for this platform.
    pub(super) since: Version,
    /// Prefixes of its PMU names.
    pub(super) pmus: &'static [&'static str],
    /// How the firmware describes the device, without which the driver has nothing to do.
    pub(super) device: Device,
}

/// How the firmware describes a device.
#[derive(Debug)]
pub(super) enum Device {
    /// Not at all: the CPU has it.
    Cpu,
    /// A table in `/sys/firmware/acpi/tables`.
    AcpiTable(&'static str),
    /// Devices in `/sys/bus/acpi/devices` with one of these hardware ids.
    AcpiId(&'static [&'static str]),
}

/// The PMUs of the NVIDIA part of the `CoreSight` driver.
const ARM_CSPMU: &[&str] =
    &["nvidia_scf_", "nvidia_ucf_", "nvidia_pcie_", "nvidia_nvlink_c2c0_", "nvidia_cnvlink_"];

const CORESIGHT: Driver = Driver {
    counts: "fabric, PCIe and C2C",
    option: "CONFIG_ARM_CORESIGHT_PMU_ARCH_SYSTEM_PMU",
    module: "arm_cspmu_module",
    since: Version(6, 2),
    pmus: ARM_CSPMU,
    device: Device::AcpiTable("APMT"),
};

const NVIDIA: Driver = Driver {
    counts: "NVIDIA's names and filters for them",
    option: "CONFIG_NVIDIA_CORESIGHT_PMU_ARCH_SYSTEM_PMU",
    module: "nvidia_cspmu",
    since: Version(6, 7),
    pmus: ARM_CSPMU,
    device: Device::AcpiTable("APMT"),
};

const CMEM_LATENCY: Driver = Driver {
    counts: "CPU memory latency",
    option: "CONFIG_NVIDIA_TEGRA410_CMEM_LATENCY_PMU",
    module: "nvidia_t410_cmem_latency_pmu",
    since: Version(7, 1),
    pmus: &["nvidia_cmem_latency_"],
    device: Device::AcpiId(&["NVDA2021"]),
};

const C2C: Driver = Driver {
    counts: "C2C, C-Link and D-Link",
    option: "CONFIG_NVIDIA_TEGRA410_C2C_PMU",
    module: "nvidia_t410_c2c_pmu",
    since: Version(7, 1),
    pmus: &["nvidia_nvlink_c2c_", "nvidia_nvclink_", "nvidia_nvdlink_"],
    device: Device::AcpiId(&["NVDA2020", "NVDA2022", "NVDA2023"]),
};

const CMN: Driver = Driver {
    counts: "mesh",
    option: "CONFIG_ARM_CMN",
    module: "arm_cmn",
    since: Version(5, 10),
    pmus: &["arm_cmn_"],
    device: Device::AcpiId(&["ARMHC600", "ARMHC650", "ARMHC700", "ARMHC003"]),
};

const DWC_PCIE: Driver = Driver {
    counts: "PCIe root ports",
    option: "CONFIG_DWC_PCIE_PMU",
    module: "dwc_pcie_pmu",
    since: Version(6, 8),
    pmus: &["dwc_rootport_", "pcie_bdf_"],
    device: Device::Cpu,
};

const ALI_DRW: Driver = Driver {
    counts: "DRAM",
    option: "CONFIG_ALIBABA_UNCORE_DRW_PMU",
    module: "alibaba_uncore_drw_pmu",
    since: Version(6, 0),
    pmus: &["ali_drw_"],
    device: Device::AcpiId(&["BABA5000", "ARMHD700"]),
};

const INTEL: Driver = Driver {
    counts: "DRAM, PCIe, mesh and UPI",
    option: "CONFIG_PERF_EVENTS_INTEL_UNCORE",
    module: "intel_uncore",
    since: Version(4, 6),
    pmus: &["uncore_"],
    device: Device::Cpu,
};

const AMD: Driver = Driver {
    counts: "data fabric, DRAM and L3",
    option: "CONFIG_PERF_EVENTS_AMD_UNCORE",
    module: "amd_uncore",
    since: Version(4, 10),
    pmus: &["amd_df", "amd_umc_", "amd_l3"],
    device: Device::Cpu,
};

/// The platforms with known drivers. Grace and Yitian 710 have the main ID registers of Arm's
/// Neoverse V2 and N2 cores (`arch/arm64/include/asm/cputype.h`), which other makers use too. So
/// the firmware is checked for each device.
pub(super) const PLATFORMS: &[Platform] = &[
    Platform {
        name: "Neoverse V2 (NVIDIA Grace)",
        cpu: Cores::Arm(0x410f_d4f0),
        drivers: &[&CORESIGHT, &NVIDIA],
    },
    Platform {
        name: "NVIDIA Olympus (Vera, Tegra410)",
        cpu: Cores::Arm(0x4e0f_0100),
        drivers: &[&CORESIGHT, &NVIDIA, &CMEM_LATENCY, &C2C],
    },
    Platform {
        name: "Neoverse N2 (Yitian 710)",
        cpu: Cores::Arm(0x410f_d490),
        drivers: &[&CMN, &DWC_PCIE, &ALI_DRW],
    },
    Platform { name: "Intel", cpu: Cores::Intel, drivers: &[&INTEL] },
    Platform { name: "AMD", cpu: Cores::Amd, drivers: &[&AMD] },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steppings_match_and_other_parts_do_not() {
        let grace = Cores::Arm(0x410f_d4f0);
        assert!(grace.matches(Id::Arm(0x410f_d4f0)));
        assert!(grace.matches(Id::Arm(0x411f_d4f1)));
        assert!(!grace.matches(Id::Arm(0x410f_d490)));
        assert!(!grace.matches(Id::Intel));
    }

    #[test]
    fn names_are_as_the_kernel_spells_them() {
        for driver in PLATFORMS.iter().flat_map(|platform| platform.drivers) {
            assert!(driver.option.starts_with("CONFIG_"), "{}", driver.option);
            assert!(!driver.module.contains('-'), "/sys/module has no dashes: {}", driver.module);
        }
    }
}
