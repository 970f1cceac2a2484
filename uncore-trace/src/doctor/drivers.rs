//! The uncore drivers for the CPU of this machine, and why each shows no PMU.
//!
//! Distribution kernels for arm64 often have only the mesh driver, so a machine with many counters
//! shows none. A driver is never required: recording works with the PMUs that exist.

use std::rc::Rc;

use super::kconfig::{KernelConfig, OptionSetting};
use super::kernel;
use super::machine::KnownMachine;
use super::platforms::{self, Driver};
use super::{ExaminedMachine, Finding, FindingState};
use crate::catalog::kernels::CounterGap;
use crate::discover;
use crate::discover::processor::Processor;
use crate::discover::release::KernelVersion;
use crate::plan::pmus::PmuIndex;
use crate::plan::resolve::Resolver;

const NAME: &str = "PMU drivers";

pub(super) fn check(machine: &ExaminedMachine) -> Vec<Finding> {
    examine_drivers(machine, || known_gaps(machine), |_| true)
}

/// The findings on drivers that show no PMU.
pub fn absent_drivers(machine: &ExaminedMachine, pmus: &Rc<PmuIndex<'_>>) -> Vec<Finding> {
    examine_drivers(machine, || find_gaps(pmus), |driver| !shows_pmu(machine, driver))
}

/// Whether one of the driver's PMUs exists.
fn shows_pmu(machine: &ExaminedMachine, driver: &Driver) -> bool {
    let pmus = machine.read_names("sys/bus/event_source/devices").unwrap_or_default();
    pmus.iter().any(|pmu| driver.has_pmu(pmu))
}

/// The findings on the drivers for which `wanted` is true.
fn examine_drivers(
    machine: &ExaminedMachine,
    find_gaps: impl FnOnce() -> Vec<(CounterGap, Option<String>)>,
    wanted: impl Fn(&Driver) -> bool,
) -> Vec<Finding> {
    let Some(cpu) = Processor::read(machine.root_dir()) else {
        return vec![Finding::not_here(NAME, "neither midr_el1 nor /proc/cpuinfo names the CPU")];
    };
    if cpu.hypervisor {
        let message = format!("{} in a VM: the hypervisor hides uncore PMUs", cpu.name);
        return vec![Finding::not_here(NAME, message)];
    }
    let Some((platform, drivers)) = platforms::needed_drivers(machine, &cpu) else {
        let message = format!("{}: no list of drivers for this CPU", cpu.name);
        return vec![Finding::not_here(NAME, message)];
    };
    let (config, unreadable) = match KernelConfig::read(machine) {
        Ok(config) => (config, None),
        Err(error) => (None, Some(format!("{error:#}"))),
    };
    let gaps = find_gaps();
    let mut findings = Vec::new();
    for driver in drivers {
        let driver_gaps: Vec<_> =
            gaps.iter().filter(|(gap, _)| concerns_driver(gap, driver)).collect();
        if !wanted(driver) && driver_gaps.is_empty() {
            continue;
        }
        let finding = judge_driver(machine, &platform, driver, config.as_ref());
        // A driver that is there is not all right if it does not know the machine, and loading it
        // then would not help.
        let is_useless = driver_gaps.iter().any(|(gap, _)| gap.is_whole);
        if driver_gaps.is_empty() || (!is_useless && !matches!(finding.state, FindingState::Ok)) {
            findings.push(finding);
        }
        findings.extend(
            driver_gaps
                .into_iter()
                .map(|(gap, instead)| gap_finding(&platform, gap, instead.as_deref())),
        );
    }
    findings.extend(unreadable.map(|message| Finding::warning(NAME, message)));
    findings
}

/// What keeps counters of this machine from being counted, each with what counts the same all the
/// same.
fn known_gaps(machine: &ExaminedMachine) -> Vec<(CounterGap, Option<String>)> {
    match machine.known_machine() {
        Ok(KnownMachine { machine, catalog }) => {
            find_gaps(&Rc::new(PmuIndex::new(machine, catalog)))
        }
        Err(_) => Vec::new(),
    }
}

/// The same of a machine whose PMUs are known.
fn find_gaps(pmus: &Rc<PmuIndex<'_>>) -> Vec<(CounterGap, Option<String>)> {
    let with_instead = |gap: &CounterGap| {
        let mut resolver = Resolver::for_whole_machine(pmus);
        let opened: Vec<_> =
            gap.groups.iter().map(|group| (*group, resolver.resolve_group(*group))).collect();
        // Another PMU counts what a PMU without known events would.
        let is_counted = opened.iter().any(|(_, events)| !events.is_empty());
        if gap.driver.is_none() && is_counted {
            return None;
        }
        let instead =
            opened.iter().find(|(_, events)| !events.is_empty()).map(|(group, events)| {
                let pmu_name = events.first().map_or("", |event| event.words.pmu.name.as_str());
                format!("-p {group} counts with {} instead", discover::name::stem(pmu_name))
            });
        Some((gap.clone(), instead))
    };
    pmus.gaps().iter().filter_map(with_instead).collect()
}

/// Whether the PMUs of a gap are, or would be, of a driver.
fn concerns_driver(gap: &CounterGap, driver: &Driver) -> bool {
    gap.driver.as_ref() == Some(&driver.module) || gap.pmus.iter().any(|pmu| driver.has_pmu(pmu))
}

/// The finding on what a driver, or this program, does not know.
fn gap_finding(platform: &str, gap: &CounterGap, instead: Option<&str>) -> Finding {
    let instead = instead.map(|instead| format!("; {instead}")).unwrap_or_default();
    let mut finding =
        Finding::warning(NAME, format!("{platform}: {}{instead}", gap.describe_gap()));
    if let Some(since) = gap.since {
        finding = finding.with_fix(format!("boot a kernel >= {since}"));
    }
    match gap.event_options() {
        Some(options) => {
            finding.with_fix(format!("uncore-trace record -o run.parquet {options} -- COMMAND"))
        }
        None => finding,
    }
}

/// The finding on one driver: loaded or built in, to be loaded, to be built, or without a device.
fn judge_driver(
    machine: &ExaminedMachine,
    platform: &str,
    driver: &Driver,
    config: Option<&KernelConfig>,
) -> Finding {
    let Driver { counts, option, module, since, is_built_in, .. } = driver;
    let about = format!("{platform}: {module} ({counts})");
    let finding = |state, message: &str| Finding::new(NAME, state, format!("{about}: {message}"));
    let setting = config.map(|config| config.option_setting(option));
    let how = if machine.has_path(&format!("sys/module/{module}")) {
        Some("loaded")
    } else {
        (setting == Some(OptionSetting::BuiltIn)).then_some("built in")
    };
    match (how, shows_pmu(machine, driver)) {
        (None, true) => return finding(FindingState::Ok, "its PMUs are here"),
        (Some(how), false) if driver.is_of_processor() => {
            let message =
                format!("{how}, but it shows no PMU: this processor or firmware hides them");
            return finding(FindingState::Warn, &message);
        }
        (Some(how), _) => return finding(FindingState::Ok, how),
        (None, false) => {}
    }
    if driver.has_device(machine) == Some(false) {
        return finding(FindingState::NotHere, &driver.missing_device());
    }
    let load = machine.as_root(&format!("modprobe {module}"));
    let version = kernel::kernel_release(machine).as_deref().and_then(KernelVersion::parse);
    let boot = format!("boot a kernel >= {since} built with {option}");
    let boot = if *is_built_in { format!("{boot}=y") } else { format!("{boot}=m, then {load}") };
    match (config, setting) {
        (_, Some(OptionSetting::Module)) => {
            finding(FindingState::Warn, "a module that is not loaded").with_fix(load)
        }
        (Some(config), _) => {
            let too_old = version.is_some_and(|version| version < *since);
            let why = if too_old { "this kernel is too old for it" } else { "not in this kernel" };
            let message = format!("{why} ({option} is not set in {})", config.source);
            finding(FindingState::Warn, &message).with_fix(boot)
        }
        (None, _) => {
            let message =
                format!("not loaded; no kernel configuration was found to look up {option}");
            finding(FindingState::Warn, &message).with_fix(if *is_built_in { boot } else { load })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::examine_tree;
    use super::*;

    const MIDR: &str = "sys/devices/system/cpu/cpu0/regs/identification/midr_el1";
    const RELEASE: (&str, &str) = ("proc/sys/kernel/osrelease", "7.2.13\n");
    const CONFIG: &str = "boot/config-7.2.13";
    const APMT: (&str, &str) = ("sys/firmware/acpi/tables/APMT", "");

    #[test]
    fn grace_without_drivers_in_the_kernel_is_warned_with_the_remedy() {
        let findings = examine_tree(
            check,
            &[(MIDR, "0x00000000410fd4f0\n"), RELEASE, APMT, (CONFIG, "CONFIG_ARM_CMN=m\n")],
        );
        assert_eq!(findings.len(), 2);
        assert!(findings.iter().all(|finding| finding.state == FindingState::Warn), "{findings:?}");
        let mend = &findings[0].mend[0];
        assert!(mend.contains("CONFIG_ARM_CORESIGHT_PMU_ARCH_SYSTEM_PMU=m"), "{mend}");
    }

    #[test]
    fn drivers_of_grace_are_ok_if_loaded_and_a_warning_if_not() {
        let config = "CONFIG_ARM_CORESIGHT_PMU_ARCH_SYSTEM_PMU=m\n\
                      CONFIG_NVIDIA_CORESIGHT_PMU_ARCH_SYSTEM_PMU=m\n";
        let findings = examine_tree(
            check,
            &[
                (MIDR, "0x410fd4f0\n"),
                RELEASE,
                APMT,
                (CONFIG, config),
                ("sys/module/arm_cspmu_module/refcnt", "0\n"),
            ],
        );
        assert_eq!(findings[0].state, FindingState::Ok);
        assert_eq!(findings[1].mend, ["modprobe nvidia_cspmu"]);
    }

    /// The same cores in another maker's machine: the table is missing, so no driver is expected.
    #[test]
    fn neoverse_v2_without_the_acpi_table_expects_no_driver() {
        let tables = ("sys/firmware/acpi/tables/FACP", "");
        let findings =
            examine_tree(check, &[(MIDR, "0x411fd4f1\n"), RELEASE, tables, (CONFIG, "")]);
        assert!(
            findings.iter().all(|finding| finding.state == FindingState::NotHere),
            "{findings:?}"
        );
    }

    #[test]
    fn vera_on_an_old_kernel_needs_a_newer_one() {
        let findings = examine_tree(
            check,
            &[
                (MIDR, "0x000000004e0f0100\n"),
                ("proc/sys/kernel/osrelease", "6.12.107\n"),
                ("boot/config-6.12.107", "# nothing\n"),
                ("sys/bus/acpi/devices/NVDA2021:00/status", "15\n"),
            ],
        );
        assert_eq!(findings.len(), 4);
        let latency = &findings[2];
        assert!(latency.what.contains("too old"), "{latency:?}");
        assert!(latency.mend[0].contains(">= 7.1"), "{latency:?}");
        assert_eq!(findings[3].state, FindingState::NotHere);
    }

    #[test]
    fn yitian_without_a_kernel_configuration_is_advised_modprobe() {
        let findings = examine_tree(check, &[(MIDR, "0x410fd490\n"), RELEASE]);
        let mends: Vec<_> = findings.iter().flat_map(|finding| &finding.mend).collect();
        let expected =
            ["modprobe arm_cmn", "modprobe dwc_pcie_pmu", "modprobe alibaba_uncore_drw_pmu"];
        assert_eq!(mends, expected);
    }

    /// A captured tree has no modules: a PMU shows that its driver is there.
    #[test]
    fn a_driver_whose_pmu_exists_is_not_absent() {
        let pmu = ("sys/bus/event_source/devices/arm_cmn_0/type", "8\n");
        let absent_in = |machine: &ExaminedMachine| {
            let is_absent = |driver: &Driver| !shows_pmu(machine, driver);
            examine_drivers(machine, || known_gaps(machine), is_absent)
        };
        let findings = examine_tree(absent_in, &[(MIDR, "0x410fd490\n"), RELEASE, pmu]);
        let missing: Vec<_> = findings.iter().map(|finding| &finding.what).collect();
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[0].contains("dwc_pcie_pmu") && missing[1].contains("alibaba"));
    }

    /// Kunpeng 920 and Ampere's own cores, of which there was no list.
    #[test]
    fn each_named_processor_has_its_drivers() {
        let config = (CONFIG, "CONFIG_HISI_PMU=m\nCONFIG_AMPERE_CORESIGHT_PMU_ARCH_SYSTEM_PMU=m\n");
        let of = |midr: &str, device: (&str, &str)| {
            examine_tree(check, &[(MIDR, midr), RELEASE, config, device])
        };
        let kunpeng = of("0x481fd010", ("sys/bus/acpi/devices/HISI0213:00/status", "15\n"));
        let mend: Vec<_> = kunpeng.iter().flat_map(|finding| &finding.mend).collect();
        assert_eq!(mend, ["modprobe hisi_uncore_l3c_pmu"]);
        assert!(kunpeng[0].what.contains("no ACPI device HISI0233 or HISI0234"), "{kunpeng:?}");
        let ampere = of("0xc00fac30", APMT);
        assert_eq!(ampere.len(), 3);
        assert_eq!(ampere[1].mend, ["modprobe ampere_cspmu"]);
        let old = [(MIDR, "0x510fc000"), RELEASE, (CONFIG, "")];
        let qualcomm = examine_tree(check, &old);
        assert_eq!(qualcomm[0].mend, ["boot a kernel >= 6.1 built with CONFIG_QCOM_L2_PMU=y"]);
    }

    #[test]
    fn x86_drivers_are_expected_on_bare_metal_and_not_in_a_vm() {
        let bare = "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 106\nmodel name : Xeon\nflags : fpu\n";
        let config = (CONFIG, "CONFIG_PERF_EVENTS_INTEL_UNCORE=y\n");
        let pmu = ("sys/bus/event_source/devices/uncore_imc_0/type", "8\n");
        let findings = examine_tree(check, &[("proc/cpuinfo", bare), RELEASE, config, pmu]);
        assert_eq!(findings[0].state, FindingState::Ok);
        let findings = examine_tree(check, &[("proc/cpuinfo", bare), RELEASE, config]);
        assert_eq!(findings[0].state, FindingState::Warn);
        assert!(findings[0].what.contains("built in, but it shows no PMU"), "{findings:?}");
        let vm = "vendor_id : AuthenticAMD\nmodel name : EPYC\nflags : fpu hypervisor\n";
        let findings = examine_tree(check, &[("proc/cpuinfo", vm), RELEASE]);
        assert_eq!(findings[0].state, FindingState::NotHere);
        assert!(findings[0].what.contains("a VM: the hypervisor hides uncore PMUs"));
    }

    #[test]
    fn unknown_cpus_and_damaged_configurations_are_named() {
        assert_eq!(examine_tree(check, &[])[0].state, FindingState::NotHere);
        let findings_of_other = examine_tree(check, &[(MIDR, "0x000000006f1f0000\n")]);
        assert!(findings_of_other[0].what.contains("no list of drivers"));
        let damaged = examine_tree(check, &[(MIDR, "0x410fd490\n"), ("proc/config.gz", "x")]);
        assert!(damaged.last().unwrap().what.contains("/proc/config.gz"));
    }
}
