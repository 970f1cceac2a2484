//! The uncore drivers for the CPU of this machine, and why each shows no PMU.
//!
//! Distribution kernels for arm64 often have only the mesh driver, so a machine with many counters
//! shows none. A driver is never required: recording works with the PMUs that exist.

use super::kconfig::{Config, Setting};
use super::kernel;
use super::machine::Known;
use super::platforms::{self, Driver};
use super::{Finding, Machine, State};
use crate::catalog::kernels::{self, Gap};
use crate::discover;
use crate::discover::processor::Processor;
use crate::discover::release::Version;
use crate::plan::resolve::Resolver;

const NAME: &str = "PMU drivers";

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    examine(machine, |_| true)
}

/// The findings on drivers that show no PMU.
pub(super) fn absent(machine: &Machine) -> Vec<Finding> {
    examine(machine, |driver| !shows(machine, driver))
}

/// Whether one of the driver's PMUs exists.
fn shows(machine: &Machine, driver: &Driver) -> bool {
    let pmus = machine.names("sys/bus/event_source/devices").unwrap_or_default();
    pmus.iter().any(|pmu| driver.has(pmu))
}

/// The findings on the drivers for which `wanted` is true.
fn examine(machine: &Machine, wanted: impl Fn(&Driver) -> bool) -> Vec<Finding> {
    let Some(cpu) = Processor::read(machine.root()) else {
        let what = "neither midr_el1 nor /proc/cpuinfo names the CPU";
        return vec![Finding::new(NAME, State::NotHere, what)];
    };
    if cpu.hypervisor {
        let what = format!("{} in a VM: the hypervisor hides uncore PMUs", cpu.name);
        return vec![Finding::new(NAME, State::NotHere, what)];
    }
    let Some((platform, drivers)) = platforms::drivers(machine, &cpu) else {
        let what = format!("{}: no list of drivers for this CPU", cpu.name);
        return vec![Finding::new(NAME, State::NotHere, what)];
    };
    let (config, unreadable) = match Config::read(machine) {
        Ok(config) => (config, None),
        Err(error) => (None, Some(format!("{error:#}"))),
    };
    let gaps = gaps(machine);
    let mut findings = Vec::new();
    for driver in drivers {
        let own: Vec<_> = gaps.iter().filter(|(gap, _)| is_of(gap, driver)).collect();
        if !wanted(driver) && own.is_empty() {
            continue;
        }
        let finding = judge(machine, &platform, driver, config.as_ref());
        // A driver that is there is not all right if it does not know the machine, and loading it then
        // would not help.
        let is_useless = own.iter().any(|(gap, _)| gap.is_whole);
        if own.is_empty() || (!is_useless && !matches!(finding.state, State::Ok)) {
            findings.push(finding);
        }
        findings.extend(
            own.into_iter().map(|(gap, instead)| unknown(&platform, gap, instead.as_deref())),
        );
    }
    findings.extend(unreadable.map(|what| Finding::new(NAME, State::Warn, what)));
    findings
}

/// What keeps counters of this machine from being counted, each with what counts the same all the same.
fn gaps(machine: &Machine) -> Vec<(Gap, Option<String>)> {
    let Ok(Known { machine, catalog }) = machine.known() else { return Vec::new() };
    let with_instead = |gap: Gap| {
        let mut resolver = Resolver::for_whole_machine(machine, catalog);
        let opened: Vec<_> =
            gap.groups.iter().map(|group| (*group, resolver.resolve_group(*group))).collect();
        // Another PMU counts what a PMU without known events would.
        let is_counted = opened.iter().any(|(_, events)| !events.is_empty());
        if gap.driver.is_none() && is_counted {
            return None;
        }
        let instead =
            opened.iter().find(|(_, events)| !events.is_empty()).map(|(group, events)| {
                let first = events.first().map_or("", |event| event.words.pmu.name.as_str());
                format!("-p {group} counts with {} instead", discover::name::stem(first))
            });
        Some((gap, instead))
    };
    kernels::gaps(machine, catalog).into_iter().filter_map(with_instead).collect()
}

/// Whether the PMUs of a gap are, or would be, of a driver.
fn is_of(gap: &Gap, driver: &Driver) -> bool {
    gap.driver.as_ref() == Some(&driver.module) || gap.pmus.iter().any(|pmu| driver.has(pmu))
}

/// The finding on what a driver, or this program, does not know.
fn unknown(platform: &str, gap: &Gap, instead: Option<&str>) -> Finding {
    let instead = instead.map(|instead| format!("; {instead}")).unwrap_or_default();
    let mut finding =
        Finding::new(NAME, State::Warn, format!("{platform}: {}{instead}", gap.describe_gap()));
    if let Some(since) = gap.since {
        finding = finding.mend(format!("boot a kernel >= {since}"));
    }
    match gap.event_options() {
        Some(options) => {
            finding.mend(format!("uncore-trace record -o run.parquet {options} -- COMMAND"))
        }
        None => finding,
    }
}

/// The finding on one driver: loaded or built in, to be loaded, to be built, or without a device.
fn judge(machine: &Machine, platform: &str, driver: &Driver, config: Option<&Config>) -> Finding {
    let Driver { counts, option, module, since, is_built_in, .. } = driver;
    let about = format!("{platform}: {module} ({counts})");
    let finding = |state, what: &str| Finding::new(NAME, state, format!("{about}: {what}"));
    let setting = config.map(|config| config.setting(option));
    let how = if machine.has(&format!("sys/module/{module}")) {
        Some("loaded")
    } else {
        (setting == Some(Setting::BuiltIn)).then_some("built in")
    };
    match (how, shows(machine, driver)) {
        (None, true) => return finding(State::Ok, "its PMUs are here"),
        (Some(how), false) if driver.is_of_processor() => {
            let what = format!("{how}, but it shows no PMU: this processor or firmware hides them");
            return finding(State::Warn, &what);
        }
        (Some(how), _) => return finding(State::Ok, how),
        (None, false) => {}
    }
    if driver.has_device(machine) == Some(false) {
        return finding(State::NotHere, &driver.missing());
    }
    let load = machine.as_root(&format!("modprobe {module}"));
    let version = kernel::release(machine).as_deref().and_then(Version::parse);
    let boot = format!("boot a kernel >= {since} built with {option}");
    let boot = if *is_built_in { format!("{boot}=y") } else { format!("{boot}=m, then {load}") };
    match (config, setting) {
        (_, Some(Setting::Module)) => {
            finding(State::Warn, "a module that is not loaded").mend(load)
        }
        (Some(config), _) => {
            let too_old = version.is_some_and(|version| version < *since);
            let why = if too_old { "this kernel is too old for it" } else { "not in this kernel" };
            let what = format!("{why} ({option} is not set in {})", config.source);
            finding(State::Warn, &what).mend(boot)
        }
        (None, _) => {
            let what = format!("not loaded; no kernel configuration was found to look up {option}");
            finding(State::Warn, &what).mend(if *is_built_in { boot } else { load })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::examine;
    use super::*;

    const MIDR: &str = "sys/devices/system/cpu/cpu0/regs/identification/midr_el1";
    const RELEASE: (&str, &str) = ("proc/sys/kernel/osrelease", "7.2.13\n");
    const CONFIG: &str = "boot/config-7.2.13";
    const APMT: (&str, &str) = ("sys/firmware/acpi/tables/APMT", "");

    #[test]
    fn grace_on_a_kernel_without_the_drivers() {
        let findings = examine(
            check,
            &[(MIDR, "0x00000000410fd4f0\n"), RELEASE, APMT, (CONFIG, "CONFIG_ARM_CMN=m\n")],
        );
        assert_eq!(findings.len(), 2);
        assert!(findings.iter().all(|finding| finding.state == State::Warn), "{findings:?}");
        let mend = &findings[0].mend[0];
        assert!(mend.contains("CONFIG_ARM_CORESIGHT_PMU_ARCH_SYSTEM_PMU=m"), "{mend}");
    }

    #[test]
    fn grace_with_modules_loaded_and_not() {
        let config = "CONFIG_ARM_CORESIGHT_PMU_ARCH_SYSTEM_PMU=m\n\
                      CONFIG_NVIDIA_CORESIGHT_PMU_ARCH_SYSTEM_PMU=m\n";
        let findings = examine(
            check,
            &[
                (MIDR, "0x410fd4f0\n"),
                RELEASE,
                APMT,
                (CONFIG, config),
                ("sys/module/arm_cspmu_module/refcnt", "0\n"),
            ],
        );
        assert_eq!(findings[0].state, State::Ok);
        assert_eq!(findings[1].mend, ["modprobe nvidia_cspmu"]);
    }

    /// The same cores in another maker's machine: the table is missing, so no driver is expected.
    #[test]
    fn neoverse_v2_without_the_devices() {
        let tables = ("sys/firmware/acpi/tables/FACP", "");
        let findings = examine(check, &[(MIDR, "0x411fd4f1\n"), RELEASE, tables, (CONFIG, "")]);
        assert!(findings.iter().all(|finding| finding.state == State::NotHere), "{findings:?}");
    }

    #[test]
    fn vera_on_an_old_kernel() {
        let findings = examine(
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
        assert_eq!(findings[3].state, State::NotHere);
    }

    #[test]
    fn yitian_without_a_configuration() {
        let findings = examine(check, &[(MIDR, "0x410fd490\n"), RELEASE]);
        let mends: Vec<_> = findings.iter().flat_map(|finding| &finding.mend).collect();
        let expected =
            ["modprobe arm_cmn", "modprobe dwc_pcie_pmu", "modprobe alibaba_uncore_drw_pmu"];
        assert_eq!(mends, expected);
    }

    /// A captured tree has no modules: a PMU shows that its driver is there.
    #[test]
    fn what_shows_a_pmu_is_not_absent() {
        let pmu = ("sys/bus/event_source/devices/arm_cmn_0/type", "8\n");
        let findings = examine(absent, &[(MIDR, "0x410fd490\n"), RELEASE, pmu]);
        let missing: Vec<_> = findings.iter().map(|finding| &finding.what).collect();
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[0].contains("dwc_pcie_pmu") && missing[1].contains("alibaba"));
    }

    /// Kunpeng 920 and Ampere's own cores, of which there was no list.
    #[test]
    fn each_named_processor_has_its_drivers() {
        let config = (CONFIG, "CONFIG_HISI_PMU=m\nCONFIG_AMPERE_CORESIGHT_PMU_ARCH_SYSTEM_PMU=m\n");
        let of = |midr: &str, device: (&str, &str)| {
            examine(check, &[(MIDR, midr), RELEASE, config, device])
        };
        let kunpeng = of("0x481fd010", ("sys/bus/acpi/devices/HISI0213:00/status", "15\n"));
        let mend: Vec<_> = kunpeng.iter().flat_map(|finding| &finding.mend).collect();
        assert_eq!(mend, ["modprobe hisi_uncore_l3c_pmu"]);
        assert!(kunpeng[0].what.contains("no ACPI device HISI0233 or HISI0234"), "{kunpeng:?}");
        let ampere = of("0xc00fac30", APMT);
        assert_eq!(ampere.len(), 3);
        assert_eq!(ampere[1].mend, ["modprobe ampere_cspmu"]);
        let old = [(MIDR, "0x510fc000"), RELEASE, (CONFIG, "")];
        let qualcomm = examine(check, &old);
        assert_eq!(qualcomm[0].mend, ["boot a kernel >= 6.1 built with CONFIG_QCOM_L2_PMU=y"]);
    }

    #[test]
    fn x86_bare_and_in_a_vm() {
        let bare = "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 106\nmodel name : Xeon\nflags : fpu\n";
        let config = (CONFIG, "CONFIG_PERF_EVENTS_INTEL_UNCORE=y\n");
        let pmu = ("sys/bus/event_source/devices/uncore_imc_0/type", "8\n");
        let findings = examine(check, &[("proc/cpuinfo", bare), RELEASE, config, pmu]);
        assert_eq!(findings[0].state, State::Ok);
        let findings = examine(check, &[("proc/cpuinfo", bare), RELEASE, config]);
        assert_eq!(findings[0].state, State::Warn);
        assert!(findings[0].what.contains("built in, but it shows no PMU"), "{findings:?}");
        let vm = "vendor_id : AuthenticAMD\nmodel name : EPYC\nflags : fpu hypervisor\n";
        let findings = examine(check, &[("proc/cpuinfo", vm), RELEASE]);
        assert_eq!(findings[0].state, State::NotHere);
        assert!(findings[0].what.contains("a VM: the hypervisor hides uncore PMUs"));
    }

    #[test]
    fn unknown_cpus_and_damaged_configurations() {
        assert_eq!(examine(check, &[])[0].state, State::NotHere);
        let other = examine(check, &[(MIDR, "0x000000006f1f0000\n")]);
        assert!(other[0].what.contains("no list of drivers"));
        let damaged = examine(check, &[(MIDR, "0x410fd490\n"), ("proc/config.gz", "x")]);
        assert!(damaged.last().unwrap().what.contains("/proc/config.gz"));
    }
}
