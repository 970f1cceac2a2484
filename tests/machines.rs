//! Discovery and planning on captured machines: the output of `list` and `record --dry-run`, and
//! the machines for other tests.
//!
//! The snapshots are a review of the catalog: they contain encodings, units, reader CPUs and
//! filters of every group on every machine. Rules are asserted in `plans`, `events` and `kernels`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;
use uncore_trace::catalog::Catalog;
use uncore_trace::catalog::group::Group;
use uncore_trace::cmd::list::{ListForm, View, What, render_list};
use uncore_trace::discover::{Machine, machine};
use uncore_trace::plan::{Counter, Plan, PlanRequest, plan};
use uncore_trace_lab::fixtures;

/// The files of a captured machine in a temporary directory, for `--root`; the test may change
/// them.
pub(crate) fn unpacked(name: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    fixtures::machine(name).unwrap().fill_dir(dir.path()).unwrap();
    dir
}

/// A captured machine after discovery. It is unpacked and read once per process, and its files are
/// removed then; tests that need files later (`list absent`) use [`unpacked`].
pub(crate) fn captured(name: &str) -> Machine {
    static FOUND: Mutex<BTreeMap<String, Machine>> = Mutex::new(BTreeMap::new());
    let mut machines = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let discovered = || machine(unpacked(name).path()).unwrap();
    machines.entry(name.to_owned()).or_insert_with(discovered).clone()
}

pub(crate) fn request(groups: &[&str], events: &[&str]) -> PlanRequest {
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    PlanRequest {
        groups: owned(groups),
        events: owned(events),
        tick_ns: 1_000_000,
        window_ns: 10_000_000,
        ..PlanRequest::default()
    }
}

fn try_plan(name: &str, groups: &[&str], events: &[&str]) -> Result<Plan, String> {
    let catalog = Catalog::load_embedded().unwrap();
    let error = |error: anyhow::Error| {
        let error = format!("{error:#}");
        assert!(!error.contains('\n'), "more than one line: {error}");
        error
    };
    plan(&captured(name), &catalog, &request(groups, events)).map_err(error)
}

pub(crate) fn planned(name: &str, groups: &[&str], events: &[&str]) -> Plan {
    try_plan(name, groups, events).unwrap_or_else(|error| panic!("{name} {events:?}: {error}"))
}

pub(crate) fn refused(name: &str, groups: &[&str], events: &[&str]) -> String {
    match try_plan(name, groups, events) {
        Ok(plan) => panic!("{name} {groups:?} {events:?} was planned:\n{}", plan.render_plan()),
        Err(error) => error,
    }
}

/// The fields of a counter that tests compare.
pub(crate) fn brief(plan: &Plan) -> Vec<String> {
    let counter_line = |c: &Counter| {
        let [config, config1, config2, ..] = c.config;
        let leader = c.leader.map_or(String::new(), |leader| format!(" leader {leader}"));
        format!(
            "{} {} [{}] {}x{} {config:#x},{config1:#x},{config2:#x} cpu {}{leader}",
            c.pmu, c.event, c.filter, c.unit, c.scale, c.cpu
        )
    };
    plan.counters.iter().map(counter_line).collect()
}

#[test]
fn every_machine_lists() {
    let catalog = Catalog::load_embedded().unwrap();
    for name in &fixtures::names().unwrap() {
        let root = unpacked(name);
        let machine = machine(root.path()).unwrap();
        let problems = machine.problems.iter().filter(|line| !line.contains("mountinfo")).count();
        assert_eq!(problems, 0, "{name}: {:#?}", machine.problems);
        for (listed, part) in [
            (What::Pmus, "pmus"),
            (What::Groups, "groups"),
            (What::Events, "events"),
            (What::Metrics, "metrics"),
            (What::Absent, "absent"),
        ] {
            let mut text =
                render_list(&machine, &catalog, listed, ListForm::Text(View::default())).unwrap();
            text = text.replace(&root.path().display().to_string(), "ROOT");
            insta::assert_snapshot!(format!("list-{name}-{part}"), text);
        }
        if !machine.devices.pci.is_empty() {
            let text =
                render_list(&machine, &catalog, What::Devices, ListForm::Text(View::default()))
                    .unwrap();
            insta::assert_snapshot!(format!("list-{name}-devices"), text);
        }
        let json: String = render_list(&machine, &catalog, What::All, ListForm::Json).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        // And `auto`.
        assert_eq!(json["groups"].as_array().unwrap().len(), Group::ALL.len() + 1);
    }
}

/// `list` used to print lines of 789 columns, mostly about other machines.
#[test]
fn no_line_of_a_list_is_wider_than_the_terminal() {
    let catalog = Catalog::load_embedded().unwrap();
    for name in &fixtures::names().unwrap() {
        let root = unpacked(name);
        let machine = machine(root.path()).unwrap();
        for (all, width) in [(false, 80), (true, 80), (false, 60)] {
            let view = View { shows_all: all, width: Some(width) };
            let text = render_list(&machine, &catalog, What::All, ListForm::Text(view)).unwrap();
            for line in text.lines() {
                // The path of the machine's files may be longer, and is not broken.
                let path = line.contains(&root.path().display().to_string());
                assert!(line.chars().count() <= width || path, "{name} {width}: {line}");
            }
        }
    }
    let list_of_80_columns = |name, listed| {
        let view = View { width: Some(80), ..View::default() };
        render_list(&captured(name), &catalog, listed, ListForm::Text(view)).unwrap()
    };
    insta::assert_snapshot!("list-80-zen5-2s-groups", list_of_80_columns("zen5-2s", What::Groups));
    insta::assert_snapshot!(
        "list-80-grace-2s-metrics",
        list_of_80_columns("grace-2s", What::Metrics)
    );
    insta::assert_snapshot!(
        "list-80-icelake-2s-pmus",
        list_of_80_columns("icelake-2s", What::Pmus)
    );
}

/// Most first users are on a virtual machine, where the groups of the examples open nothing.
#[test]
fn the_first_lines_of_list_summarize_counters_and_confidence() {
    let catalog = Catalog::load_embedded().unwrap();
    let mut begins = Vec::new();
    for name in &fixtures::names().unwrap() {
        let text =
            render_list(&captured(name), &catalog, What::All, ListForm::Text(View::default()))
                .unwrap();
        let begin: Vec<_> = text.lines().take_while(|line| !line.is_empty()).collect();
        let has_io = captured(name).pmus.iter().any(|pmu| pmu.statistics.is_some());
        assert_eq!(begin.len(), if has_io { 6 } else { 5 }, "{name}: {begin:#?}");
        assert!(begin.iter().all(|line| line.chars().count() <= 80), "{name}: {begin:#?}");
        begins.push(format!("{name}\n{}\n", begin.join("\n")));
    }
    insta::assert_snapshot!("list-begins", begins.join("\n"));
}

#[test]
fn every_group_plans_or_says_why_not() {
    for name in &fixtures::names().unwrap() {
        for group in Group::ALL.iter().map(|(_, group)| *group).chain(["all"]) {
            let text = match try_plan(name, &[group], &[]) {
                Ok(plan) => plan.render_plan(),
                Err(error) => format!("error: {error}\n"),
            };
            insta::assert_snapshot!(format!("plan-{name}-{group}"), text);
        }
    }
}

#[test]
fn published_grace_events_are_accepted() {
    let texts = [
        "duration_time,'{nvidia_scf_pmu_0/event=cycles/,nvidia_scf_pmu_0/cmem_wb_access/,nvidia_scf_pmu_0/cmem_wr_access/}'",
        "duration_time,'{nvidia_scf_pmu_0/cmem_wr_total_bytes/,nvidia_scf_pmu_0/cmem_rd_data/}','{nvidia_scf_pmu_1/remote_socket_wr_total_bytes/,nvidia_scf_pmu_1/remote_socket_rd_data/}'",
        "nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x3/",
        "duration_time,'{nvidia_pcie_pmu_1/rd_bytes_rem,root_port=0x4/}'",
        "{nvidia_nvlink_c2c0_pmu_0/rd_bytes_loc/,nvidia_nvlink_c2c0_pmu_0/wr_bytes_loc/}",
        "cycles,stalled-cycles-backend",
        "cycles,instructions,dTLB-loads,dTLB-load-misses",
        "r80C0",
        "r1",
    ];
    insta::assert_snapshot!("events-grace-2s", planned("grace-2s", &[], &texts).render_plan());
}

#[test]
fn published_tegra_and_yitian_events_are_accepted() {
    let texts = [
        "nvidia_ucf_pmu_0/event=0x0,src_loc_cpu=0x1,dst_loc_cmem=0x1/",
        "nvidia_ucf_pmu_0/mem_bytes_rd,src_loc_noncpu/",
        "nvidia_pcie_pmu_0_rc_4/event=0x1,src_rp_mask=0x3,dst_loc_cmem=0x1/",
        "nvidia_pcie_tgt_pmu_0_rc_2/event=0x0,dst_rp_mask=0x3/",
        "nvidia_pcie_tgt_pmu_0_rc_2/event=0x1,dst_addr_base=0x10000,dst_addr_mask=0xFFF00,dst_addr_en=0x1/",
        "{nvidia_cmem_latency_pmu_0/rd_req/,nvidia_cmem_latency_pmu_0/rd_cum_outs/,nvidia_cmem_latency_pmu_0/cycles/}",
        "nvidia_nvlink_c2c_pmu_0/in_rd_cum_outs,gpu_mask=0x2/",
        "{nvidia_nvdlink_pmu_0/in_rd_req/,nvidia_nvdlink_pmu_0/in_rd_cum_outs/}",
        "arm_cmn_0/type=0x105,eventid=0x22,bynodeid=1,nodeid=413/",
        "arm_cmn_0/dtc_cycles/",
        "dwc_rootport/Rx_PCIe_TLP_Data_Payload/,dwc_rootport/rx_memory_read,lane=3/",
        "ali_drw/hif_rd/",
    ];
    // Not together with an event of other devices of its root complex.
    let device_event = ["nvidia_pcie_pmu_0_rc_4/event=0x4,src_bdf=0x0180,src_bdf_en=0x1/"];
    let [together, alone_plan] = [&texts[..], &device_event]
        .map(|texts| planned("all-drivers-acpi", &[], texts).render_plan());
    insta::assert_snapshot!("events-all-drivers", format!("{together}\n{alone_plan}"));
}

/// The driver refuses an event with neither a port nor a device, and uses the port if both are
/// given.
#[test]
fn kunpeng_counts_all_root_ports_unless_told_which() {
    let pmu = "hisi_pcie0_core0";
    let texts = ["rx_mwr_flux", "rx_mwr_flux,port=0x1", "rx_mwr_flux,bdf=0x3900,len_mode=3"];
    let texts = texts.map(|text| format!("{pmu}/{text}/"));
    let plan = planned("kunpeng-hip09", &[], &[&texts[0], &texts[1], &texts[2]]);
    insta::assert_snapshot!(brief(&plan).join("\n"));
    let refused_both =
        refused("kunpeng-hip09", &[], &[&format!("{pmu}/rx_mwr_flux,port=1,bdf=0x3900/")]);
    assert!(refused_both.contains("port") && refused_both.contains("bdf"), "{refused_both}");
}

#[test]
fn errors_about_events_suggest_the_name_that_was_meant() {
    let cases: [(&str, &[&str], &[&str]); 21] = [
        ("vm-no-uncore", &["pcie"], &[]),
        ("vm-no-uncore", &["pci"], &[]),
        ("vm-no-uncore", &[], &["cycles"]),
        ("vm-no-uncore", &[], &["r80C0"]),
        ("vm-no-uncore", &[], &["duration_time"]),
        ("vm-no-uncore", &[], &["context-switch"]),
        ("vm-no-uncore", &[], &["tscc/tsc/"]),
        ("vm-no-uncore", &[], &["msr"]),
        ("icelake-2s", &[], &["cycles"]),
        ("icelake-2s", &[], &["imc/cas_count_reed/"]),
        ("icelake-2s", &[], &["uncore_iio_0/event=0x83,umask=0x4,chmask=0xff/"]),
        ("icelake-2s", &[], &["uncore_iio_0/event=0x83,umask=0x400/"]),
        ("grace-2s", &[], &["nvidia_pcie_pmu_0/rd_bytes_loc,root_port=0x400/"]),
        ("grace-2s", &[], &["nvidia_pcie_pmu_0/rd_bytes_loc,root_port/"]),
        ("grace-2s", &[], &["nvidia_scf_pmu/cycles,cmem_rd_data/"]),
        ("grace-2s", &[], &["nvidia_scf_pmu/event=cycle/"]),
        ("grace-2s", &[], &["nvidia_scf_pmu_0/cycles/u"]),
        ("all-drivers-acpi", &[], &["nvidia_pcie_pmu_0_rc_4/rd_bytes,src_bdf=0x108/"]),
        (
            "all-drivers-acpi",
            &[],
            &["nvidia_pcie_pmu_0_rc_4/rd_bytes,src_rp_mask=1,src_bdf=0x108,src_bdf_en/"],
        ),
        ("all-drivers-acpi", &[], &["dwc_rootport/rx_memory_read/"]),
        ("all-drivers-acpi", &[], &["nvidia_pcie_pmu_0_rc/rd_byte/"]),
    ];
    let errors: Vec<_> = cases
        .iter()
        .map(|(name, groups, events)| {
            format!("{groups:?} {events:?}\n  {}", refused(name, groups, events))
        })
        .collect();
    insta::assert_snapshot!("errors", errors.join("\n"));
}

/// A machine with two CPUs and PMUs with these files (path below the device directory, text).
pub(crate) fn machine_with_files(files: &[(&str, &str)]) -> (TempDir, Machine) {
    let dir = tempfile::tempdir().unwrap();
    let cpus = ("../../../devices/system/cpu/online", "0-1\n");
    for (file, text) in files.iter().chain([&cpus]) {
        let path = dir.path().join("sys/bus/event_source/devices").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let machine = machine(dir.path()).unwrap();
    (dir, machine)
}

#[test]
fn absent_pmus_are_one_line_unless_all_are_listed() {
    let catalog = Catalog::load_embedded().unwrap();
    let machine = captured("vm-no-uncore");
    let text = |all| {
        let view = View { shows_all: all, width: None };
        render_list(&machine, &catalog, What::All, ListForm::Text(view)).unwrap()
    };
    let (short_list, all) = (text(false), text(true));
    for absent_pmu in ["nvidia_scf", "arm_cmn", "intel_imc"] {
        assert!(!short_list.contains(absent_pmu), "{short_list}");
        let lines = all.lines().filter(|line| line.contains(absent_pmu));
        assert!(lines.count() > 1, "{all}");
    }
    let absent: Vec<_> = short_list.lines().filter(|line| line.starts_with("absent: ")).collect();
    let [absent] = absent.as_slice() else { panic!("{short_list}") };
    // It has PMUs of msr, software, disk and net.
    let families = catalog.families.len() - 4;
    assert!(absent.starts_with(&format!("absent: {families} known PMU families ")), "{absent}");
    assert!(absent.contains("`uncore-trace list --all`"), "{absent}");
}
