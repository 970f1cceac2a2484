//! What is left out is said, with its name: by plans as a warning, by `list` as a problem and by
//! `doctor` as a finding. A PMU that no group opens is never called absent.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use uncore_trace::catalog::Catalog;
use uncore_trace::cmd::list::{ListForm, View, What, render_list, summary};
use uncore_trace::discover::machine;
use uncore_trace::doctor::{self, FindingState};
use uncore_trace::plan::{Plan, plan};

use crate::machines::{request, unpacked};

const DEVICES: &str = "sys/bus/event_source/devices";

fn planned(root: &Path, groups: &[&str], events: &[&str]) -> Result<Plan, String> {
    let catalog = Catalog::load_embedded().unwrap();
    plan(&machine(root).unwrap(), &catalog, &request(groups, events))
        .map_err(|error| format!("{error:#}"))
}

/// The warnings of a plan of the group, the problems of `list`, and the warnings of `doctor` on
/// PMUs.
fn reports_of(root: &Path, group: &str) -> [String; 3] {
    let catalog = Catalog::load_embedded().unwrap();
    let warnings = planned(root, &[group], &[]).unwrap().warnings.join("\n");
    let discovered = machine(root).unwrap();
    let listed =
        render_list(&discovered, &catalog, What::Groups, ListForm::Text(View::default())).unwrap();
    let problems = listed.lines().filter(|line| line.starts_with("problem: "));
    let findings = doctor::run_checks(&doctor::ExaminedMachine::at_root(root)).into_iter();
    let findings = findings.filter(|doctor_finding| {
        doctor_finding.name == "uncore PMUs" && doctor_finding.state == FindingState::Warn
    });
    [
        warnings,
        problems.collect::<Vec<_>>().join("\n"),
        findings.map(|finding| finding.what).collect::<Vec<_>>().join("\n"),
    ]
}

fn with_mask(machine: &str, pmu: &str, mask: &str) -> TempDir {
    let root = unpacked(machine);
    fs::write(root.path().join(DEVICES).join(pmu).join("cpumask"), mask).unwrap();
    root
}

/// Asserts that a plan, `list` and `doctor` say the text.
fn assert_said(root: &Path, group: &str, text: &str) {
    for (place, report) in ["plan", "list", "doctor"].into_iter().zip(reports_of(root, group)) {
        assert!(report.contains(text), "{place} does not say {text:?}:\n{report}");
    }
}

#[test]
fn a_fully_counted_machine_has_no_note() {
    for (name, group) in [("sapphire-rapids-2s", "mem"), ("grace-2s", "mem"), ("zen4-2s", "mem")] {
        assert_eq!(reports_of(unpacked(name).path(), group), ["", "", ""], "{name}");
    }
}

#[test]
fn a_cpu_of_a_cpumask_that_is_offline_is_named() {
    let root = with_mask("sapphire-rapids-2s", "uncore_imc_1", "0,77\n");
    assert_said(root.path(), "mem", "uncore_imc_1 is not counted on CPU 77 of its cpumask");
}

#[test]
fn a_pmu_whose_cpus_are_all_offline_is_named() {
    let root = with_mask("sapphire-rapids-2s", "uncore_imc_1", "\n");
    assert_said(root.path(), "mem", "the cpumask of uncore_imc_1 is empty");
    let root = with_mask("sapphire-rapids-2s", "uncore_imc_1", "77\n");
    assert_said(root.path(), "mem", "uncore_imc_1 can only be read on CPU 77, which is offline");
}

#[test]
fn a_socket_that_is_not_counted_is_named() {
    let root = unpacked("sapphire-rapids-2s");
    for entry in fs::read_dir(root.path().join(DEVICES)).unwrap() {
        let dir = entry.unwrap().path();
        if dir.file_name().unwrap().to_str().unwrap().starts_with("uncore_imc_") {
            fs::write(dir.join("cpumask"), "0\n").unwrap();
        }
    }
    assert_said(root.path(), "mem", "does not count socket 1");
}

#[test]
fn a_box_without_the_events_of_the_others_is_named() {
    let root = unpacked("grace-2s");
    fs::remove_dir_all(root.path().join(DEVICES).join("nvidia_scf_pmu_1/events")).unwrap();
    assert_said(root.path(), "mem", "mem does not count nvidia_scf_pmu_1");
}

/// A PMU of which no group opens an event, in all places.
#[test]
fn a_pmu_that_is_only_counted_by_name_is_not_absent() {
    let root = unpacked("imx8mm");
    let pmu = root.path().join(DEVICES).join("imx8_ddr0");
    fs::write(pmu.join("identifier"), "i.MX8QM\n").unwrap();
    let how = "imx8_ddr0 is counted with -e only, such as -e imx8_ddr0/activate/";
    let refused = planned(root.path(), &["mem"], &[]).unwrap_err();
    assert!(refused.contains(how), "{refused}");
    let notes = planned(root.path(), &[], &[]).unwrap().notes.join("\n");
    assert!(notes.contains(how), "{notes}");
    let (discovered, catalog) = (machine(root.path()).unwrap(), Catalog::load_embedded().unwrap());
    let summary = summary::summary_text(&discovered, &catalog, None);
    let (begin, _) = how.split_once(", such as").unwrap();
    assert!(summary.contains(begin) && !summary.contains("No uncore counters"), "{summary}");
    assert!(planned(root.path(), &[], &["imx8_ddr0/activate/"]).is_ok());
    let mut metrics = request(&[], &[]);
    metrics.metrics = vec!["mem_bandwidth".to_owned()];
    let refused = plan(&discovered, &catalog, &metrics).unwrap_err().to_string();
    assert!(refused.contains(how), "{refused}");
}

/// The memory of small systems, in all places, in bytes.
#[test]
fn memory_of_small_systems_is_counted_in_bytes() {
    for (name, events, bytes) in [
        ("rk3588", "read-bytes write-bytes", 1.0),
        ("amlogic-g12", "total_rw_bytes", 1.0),
        ("imx8mm", "read-cycles write-cycles", 16.0),
    ] {
        let root = unpacked(name);
        let catalog = Catalog::load_embedded().unwrap();
        let discovered = machine(root.path()).unwrap();
        let mut metrics = request(&[], &[]);
        metrics.metrics = vec!["mem_bandwidth".to_owned()];
        for request in [request(&["mem"], &[]), request(&[], &[]), metrics] {
            let plan = plan(&discovered, &catalog, &request).unwrap();
            let counted: Vec<_> =
                plan.counters.iter().map(|counter| counter.event.as_str()).collect();
            assert_eq!(counted.join(" "), events, "{name}");
            let all = plan
                .counters
                .iter()
                .all(|counter| counter.unit == "bytes" && counter.scale.total_cmp(&bytes).is_eq());
            assert!(all && plan.links.len() == 1, "{name}: {}", plan.render_plan());
        }
        let summary = summary::summary_text(&discovered, &catalog, None);
        assert!(summary.contains("Uncore counters here: -p mem"), "{name}: {summary}");
    }
}

/// Metrics of perf by its names.
#[test]
fn metrics_of_imx_have_the_names_of_perf() {
    let root = unpacked("imx8mm");
    let pmu = root.path().join(DEVICES).join("imx8_ddr0");
    let names = |identifier: &str, metrics: &[&str]| {
        fs::write(pmu.join("identifier"), format!("{identifier}\n")).unwrap();
        let discovered = machine(root.path()).unwrap();
        for metric in metrics {
            let mut request = request(&[], &[]);
            request.metrics = vec![(*metric).to_owned()];
            let plan = plan(&discovered, &Catalog::load_embedded().unwrap(), &request);
            assert_eq!(plan.unwrap().metrics.len(), 1, "{metric}");
        }
    };
    names("i.MX8MM", &["imx8mm_ddr_read.all", "imx8mm_ddr_write.all"]);
    names("i.MX8MP", &["imx8mp_ddr_read.all", "imx8mp_ddr_write.all"]);
    let imx9 = root.path().join(DEVICES).join("imx9_ddr0");
    fs::create_dir_all(imx9.join("events")).unwrap();
    fs::create_dir_all(imx9.join("format")).unwrap();
    for (file, text) in [
        ("type", "11"),
        ("cpumask", "0"),
        ("identifier", "imx95"),
        ("format/event", "config:0-15"),
        ("events/eddrtq_pm_rd_beat_filt0", "event=0x0149"),
        ("events/eddrtq_pm_wr_beat_filt", "event=0x0849"),
    ] {
        fs::write(imx9.join(file), format!("{text}\n")).unwrap();
    }
    names(
        "i.MX8MM",
        &["imx95_bandwidth_usage.lpddr5", "imx95_ddr_read.all", "imx95_ddr_write.all"],
    );
}
