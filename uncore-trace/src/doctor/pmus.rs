//! The uncore PMUs that the kernel shows, and signs that a PMU has a wrong name.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::machine::KnownMachine;
use super::{ExaminedMachine, Finding};
use crate::discover::name::stem;
use crate::plan::pmus::PmuIndex;
use crate::plan::uncounted::find_uncounted;

const NAME: &str = "uncore PMUs";
const DEVICES: &str = "sys/bus/event_source/devices";

/// PMUs that have a `cpumask` like an uncore PMU but count no traffic: CPU idle states and energy
/// (`arch/x86/events/{intel/cstate,rapl}.c`), statistical profiling (`drivers/perf/arm_spe_pmu.c`)
/// and graphics engines (`drivers/gpu/drm/i915/i915_pmu.c`).
const OTHERS: &[&str] = &["cstate_", "power", "arm_spe_", "i915", "xe_"];

/// Prefix of a device name, and the product that bits 31:12 of its `identifier` must have, in place
/// of PMIIDR (`drivers/perf/arm_cspmu/nvidia_cspmu.c` of Linux 7.2). The driver of 6.12 compares
/// only bits 31:20 and gives Tegra410 devices the names and events of Grace.
const PRODUCTS: &[(&str, u32)] = &[
    ("nvidia_scf_pmu_", 0x2cf0_0000),
    ("nvidia_nvlink_c2c0_pmu_", 0x1050_0000),
    ("nvidia_nvlink_c2c1_pmu_", 0x1040_0000),
    ("nvidia_cnvlink_pmu_", 0x1060_0000),
];

pub(super) fn check(machine: &ExaminedMachine) -> Vec<Finding> {
    let names = match machine.read_names(DEVICES) {
        Ok(names) => names,
        Err(error) => {
            let message = format!("cannot read /{DEVICES}: {error}");
            let mend = machine.as_root("mount -t sysfs sysfs /sys");
            return vec![Finding::warning(NAME, message).with_fix(mend)];
        }
    };
    let uncore: Vec<String> = names.into_iter().filter(|name| is_uncore(machine, name)).collect();
    if uncore.is_empty() {
        let message = "none here: `record -p host` counts what the kernel itself counts";
        return vec![Finding::not_here(NAME, message)];
    }
    let mut findings = vec![Finding::ok(NAME, summarize_families(&uncore))];
    findings.extend(uncore.iter().filter_map(|name| misnamed_finding(machine, name)));
    findings.extend(uncounted_findings(machine, &uncore));
    findings
}

/// Uncore PMUs have a `cpumask`; core PMUs have `cpus`, software PMUs neither.
fn is_uncore(machine: &ExaminedMachine, name: &str) -> bool {
    machine.has_path(&format!("{DEVICES}/{name}/cpumask"))
        && !OTHERS.iter().any(|prefix| name.starts_with(prefix))
}

/// `arm_cmn x2, nvidia_scf_pmu`: families with their number of instances.
fn summarize_families(names: &[String]) -> String {
    let mut families = BTreeMap::<&str, usize>::new();
    for name in names {
        *families.entry(stem(name)).or_default() += 1;
    }
    let describe_family = |(family, count): (&str, usize)| {
        if count == 1 { family.to_owned() } else { format!("{family} x{count}") }
    };
    families.into_iter().map(describe_family).collect::<Vec<_>>().join(", ")
}

/// A finding if the PMU's identifier belongs to another product than its name.
fn misnamed_finding(machine: &ExaminedMachine, name: &str) -> Option<Finding> {
    let (_, product) = PRODUCTS.iter().find(|(prefix, _)| name.starts_with(prefix))?;
    let identifier = machine.read_text(&format!("{DEVICES}/{name}/identifier")).ok()?;
    let product_id = u32::from_str_radix(identifier.trim_start_matches("0x"), 16).ok()?;
    // Only the upper half is compared: the lower bits may differ within a product.
    if product_id >> 16 == product >> 16 {
        return None;
    }
    let message = format!(
        "{name} identifies as {product_id:#x}, not {product:#x}: this kernel's driver takes it for \
         another PMU and its event names are wrong"
    );
    Some(Finding::warning(NAME, message).with_fix("boot a kernel >= 7.2"))
}

/// A finding for each PMU, CPU, socket or box that no counter counts although it is here. Without a
/// plan, because the tree has no CPUs or a PMU has no type, for each PMU whose CPUs are all
/// offline.
fn uncounted_findings(machine: &ExaminedMachine, names: &[String]) -> Vec<Finding> {
    let online = "sh -c 'for c in /sys/devices/system/cpu/cpu*/online; do echo 1 >$c; done'";
    let finding = |message: String| {
        let finding = Finding::warning(NAME, message);
        if finding.what.contains("offline") {
            finding.with_fix(machine.as_root(online))
        } else {
            finding
        }
    };
    if let Ok(KnownMachine { machine, catalog }) = machine.known_machine() {
        let pmus = Rc::new(PmuIndex::new(machine, catalog));
        return find_uncounted(&pmus).into_iter().map(finding).collect();
    }
    let is_empty = |name: &&String| {
        machine.read_text(&format!("{DEVICES}/{name}/cpumask")).is_ok_and(|mask| mask.is_empty())
    };
    let message =
        |name: &String| format!("{name} has no CPU that can read it: all of its CPUs are offline");
    names.iter().filter(is_empty).map(|name| finding(message(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::FindingState;
    use super::super::machine::examine_tree;
    use super::*;

    fn single_finding(files: &[(&str, &str)]) -> Finding {
        let mut findings = examine_tree(check, files);
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings.remove(0)
    }

    fn file(name: &str) -> String {
        format!("{DEVICES}/{name}")
    }

    #[test]
    fn present_pmus_are_counted_by_family() {
        let finding = single_finding(&[
            (&file("nvidia_scf_pmu_0/cpumask"), "0\n"),
            (&file("nvidia_scf_pmu_0/identifier"), "2cf0036b\n"),
            (&file("nvidia_scf_pmu_1/cpumask"), "72\n"),
            (&file("arm_cmn_0/cpumask"), "0\n"),
            (&file("ali_drw_c0050/cpumask"), "0\n"),
            (&file("amd_l3/cpumask"), "0\n"),
            (&file("power/cpumask"), "0\n"),
            (&file("cpu/type"), "4\n"),
        ]);
        assert_eq!(finding.state, FindingState::Ok);
        assert_eq!(finding.what, "ali_drw, amd_l3, arm_cmn, nvidia_scf_pmu x2");
    }

    #[test]
    fn no_uncore_pmu_is_no_fault_and_a_missing_sysfs_is() {
        assert_eq!(single_finding(&[(&file("software/type"), "1\n")]).state, FindingState::NotHere);
        assert_eq!(single_finding(&[]).state, FindingState::Warn);
    }

    /// A 6.12 driver names the UCF of Tegra410 as the SCF of Grace.
    #[test]
    fn a_pmu_under_the_name_of_another_product_is_named() {
        let findings = examine_tree(
            check,
            &[
                (&file("nvidia_scf_pmu_0/cpumask"), "0\n"),
                (&file("nvidia_scf_pmu_0/identifier"), "2cf2036b\n"),
            ],
        );
        assert_eq!(findings.len(), 2);
        assert_eq!(findings[1].state, FindingState::Warn);
        assert!(findings[1].what.contains("0x2cf2036b"), "{}", findings[1].what);
    }

    #[test]
    fn a_pmu_with_an_empty_or_offline_cpumask_is_named() {
        let findings = examine_tree(check, &[(&file("arm_cmn_0/cpumask"), "\n")]);
        assert!(findings[1].what.contains("offline"));
        let online = ("sys/devices/system/cpu/online", "0-3\n");
        let with = |mask: &str| {
            let (cpumask, kind) = (file("arm_cmn_0/cpumask"), file("arm_cmn_0/type"));
            let findings = examine_tree(check, &[(&cpumask, mask), (&kind, "9\n"), online]);
            findings.into_iter().skip(1).map(|finding| finding.what).collect::<Vec<_>>()
        };
        assert_eq!(with("0\n"), [""; 0]);
        assert!(with("\n")[0].contains("the cpumask of arm_cmn_0 is empty"), "{:?}", with("\n"));
        assert!(with("4\n")[0].contains("on CPU 4, which is offline"), "{:?}", with("4\n"));
        assert!(with("0,4\n")[0].contains("not counted on CPU 4"), "{:?}", with("0,4\n"));
    }
}
