//! Properties of plans on every machine: CPUs that a counter sees, reader CPUs, times, missing
//! groups, and hostile names.

use std::path::Path;

use uncore_trace::catalog::Catalog;
use uncore_trace::catalog::source::TrafficCause;
use uncore_trace::cmd::list::{ListForm, View, What, render_list};
use uncore_trace::discover::machine;
use uncore_trace::plan::{Counter, Plan, PlanRequest, plan};
use uncore_trace_lab::fixtures;

use crate::machines::{captured, machine_with_files, planned, refused, request};

/// A counter has owners on exactly the CPUs that can cause its counts: none for traffic of devices,
/// those of other sockets for traffic from there.
#[test]
fn a_counter_sees_who_can_cause_what_it_counts() {
    let sight_lines = |name: &str, events: &[&str]| -> Vec<String> {
        let plan = planned(name, &[], events);
        let sight_line = |counter: &Counter| {
            format!("{} sees {}, far {}", counter.pmu, counter.sees, counter.far)
        };
        plan.counters.iter().map(sight_line).collect()
    };
    let filters = [
        ("src_loc_cpu=1", "0-1", ""),
        ("src_loc_noncpu=1", "", ""),
        ("src_rem=1", "2-3", ""),
        ("src_loc_cpu=1,src_loc_noncpu=1", "0-1", ""),
        ("src_loc_cpu=1,src_rem=1", "0-3", "2-3"),
        ("dst_loc_cmem=1", "0-3", "2-3"),
    ];
    for (filter, sees, far) in filters {
        let event = format!("nvidia_ucf_pmu_0/mem_bytes_rd,{filter}/");
        let expected = format!("nvidia_ucf_pmu_0 sees {sees}, far {far}");
        assert_eq!(sight_lines("t410-2s", &[&event]), [expected], "{filter}");
    }
    for (name, event, expected) in [
        ("grace-2s", "nvidia_scf_pmu_1/cmem_rd_data/", "nvidia_scf_pmu_1 sees 0-3, far 0-1"),
        ("grace-2s", "nvidia_scf_pmu_1/remote_socket_rd_data/", "nvidia_scf_pmu_1 sees 2-3, far "),
        ("grace-2s", "nvidia_pcie_pmu_0/rd_bytes_loc/", "nvidia_pcie_pmu_0 sees , far "),
        // The first socket's link leads to GPUs, the second's to the other CPU.
        ("t410-2s", "nvidia_nvlink_c2c_pmu_0/in_rd_req/", "nvidia_nvlink_c2c_pmu_0 sees , far "),
        ("t410-2s", "nvidia_nvlink_c2c_pmu_1/in_rd_req/", "nvidia_nvlink_c2c_pmu_1 sees 0-1, far "),
        (
            "t410-2s",
            "nvidia_nvlink_c2c_pmu_1/out_rd_req/",
            "nvidia_nvlink_c2c_pmu_1 sees 2-3, far ",
        ),
        // The die of a sub-channel is not known: no CPU is nearer than another.
        ("yitian", "ali_drw_2018000/hif_rd/", "ali_drw_2018000 sees 0-3, far "),
    ] {
        assert_eq!(sight_lines(name, &[event]), [expected], "{event}");
    }
    let memory = sight_lines("icelake-2s", &["uncore_imc_0/cas_count_read/"]);
    assert_eq!(memory, ["uncore_imc_0 sees 0-3, far 2-3", "uncore_imc_0 sees 0-3, far 0-1"]);
}

/// Groups open standalone counters: a perf group of two `dwc_pcie` events opens but never counts,
/// and one of two `ali_drw` events is refused.
#[test]
fn every_plan_is_consistent() {
    for name in &fixtures::names().unwrap() {
        let machine = captured(name);
        let plan = planned(name, &["all"], &[]);
        let mut seen_encodings = std::collections::BTreeSet::new();
        for (index, counter) in plan.counters.iter().enumerate() {
            assert_eq!(counter.id as usize, index);
            assert_eq!(counter.leader, None);
            assert!(machine.cpus.online.contains(counter.cpu));
            let of_cpus = counter.cause.is_none_or(|cause| cause == TrafficCause::Cpu);
            let divided = of_cpus && !counter.is_of_unknown_cause();
            assert!(!divided || !counter.sees.is_empty(), "{counter:?}");
            assert!(counter.far.iter().all(|cpu| counter.sees.contains(cpu)), "{counter:?}");
            assert!(counter.scale > 0.0);
            assert!(
                seen_encodings.insert((counter.attr_type, counter.config, counter.cpu)),
                "{counter:?}"
            );
            if let Some(mask) = &machine.find_pmu(&counter.pmu).unwrap().cpumask {
                assert!(mask.contains(counter.cpu) && !counter.per_cpu, "{counter:?}");
            } else if !counter.is_statistic() {
                assert!(counter.per_cpu && counter.sees.to_string() == counter.cpu.to_string());
            }
        }
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    }
}

/// Not a capture: the machine that runs the tests.
#[test]
fn the_machine_at_hand_can_be_planned() {
    let this_machine = machine(Path::new("/")).unwrap();
    let plan =
        plan(&this_machine, &Catalog::load_embedded().unwrap(), &request(&["host"], &[])).unwrap();
    assert_eq!(plan.reader_cpus(), this_machine.cpus.online);
}

/// The kernel's own counters are read on every CPU of every machine.
#[test]
fn the_group_host_is_planned_on_every_machine() {
    for name in &fixtures::names().unwrap() {
        let plan = planned(name, &["host"], &[]);
        let switches: Vec<_> =
            plan.counters.iter().filter(|c| c.event == "context-switches").collect();
        assert_eq!(switches.len(), captured(name).cpus.online.len());
        assert!(switches.iter().all(|c| c.attr_type == 1 && c.config[0] == 3 && c.per_cpu));
    }
}

#[test]
fn times_that_make_no_sense_are_refused() {
    let (machine, catalog) = (captured("vm-no-uncore"), Catalog::load_embedded().unwrap());
    for (tick_ns, window_ns) in [
        (0, 0),
        (1, 1),
        (1_000_000, 0),
        (1_000_000, 1_500_000),
        (1_000_000, 31_536_000_000_000_000),
    ] {
        let request = PlanRequest { tick_ns, window_ns, ..request(&["host"], &[]) };
        assert!(plan(&machine, &catalog, &request).is_err(), "{tick_ns} {window_ns}");
    }
}

/// An empty `cpumask` is what `arm_cspmu` shows when its CPUs are offline; a stale one is what
/// `ali_drw` keeps after its CPU went offline.
#[test]
fn offline_owners_are_named() {
    let catalog = Catalog::load_embedded().unwrap();
    let mut machine = captured("grace-2s");
    let scf = machine.pmus.iter_mut().find(|pmu| pmu.name == "nvidia_scf_pmu_1").unwrap();
    scf.cpumask = Some("".parse().unwrap());
    let only = plan(&machine, &catalog, &request(&[], &["nvidia_scf_pmu_1/cycles/"]));
    insta::assert_snapshot!(only.unwrap_err(), @"the cpumask of nvidia_scf_pmu_1 is empty, which means that every CPU it can be read on is offline: bring one online, one of 2-3 (echo 1 > /sys/devices/system/cpu/cpuN/online)");
    let plan_here = plan(&machine, &catalog, &request(&["mem"], &[])).unwrap();
    assert!(plan_here.counters.iter().all(|c| c.pmu == "nvidia_scf_pmu_0"));
    let is_named = |warning: &String| warning.contains("the cpumask of nvidia_scf_pmu_1 is empty");
    assert!(plan_here.warnings.iter().any(is_named), "{:?}", plan_here.warnings);

    let mut machine = captured("all-drivers-acpi");
    machine.cpus.online = "0-2".parse().unwrap();
    let stale = plan(&machine, &catalog, &request(&["mem"], &[])).unwrap();
    assert!(stale.counters.iter().all(|c| c.family != "ali_drw"));
    let is_named = |warning: &String| warning.contains("ali_drw_c0050");
    assert!(stale.warnings.iter().any(is_named), "{:?}", stale.warnings);
}

#[test]
fn missing_groups_are_one_error_or_allowed_with_warnings() {
    let groups = ["mem", "pcie", "c2c", "mesh", "energy"];
    let error = refused("sapphire-rapids-2s", &groups, &[]);
    for part in ["mesh", "energy", "--allow-missing", "doctor"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let catalog = Catalog::load_embedded().unwrap();
    let allowed = |groups: &[&str]| {
        let request = PlanRequest { allow_missing: true, ..request(groups, &[]) };
        plan(&captured("sapphire-rapids-2s"), &catalog, &request)
    };
    let plan = allowed(&groups).unwrap();
    assert_eq!(plan.counters, planned("sapphire-rapids-2s", &["mem", "pcie", "c2c"], &[]).counters);
    for group in ["mesh", "energy"] {
        let warning = format!("the group {group} is not counted: no PMU of this machine is in it");
        assert!(plan.warnings.contains(&warning), "{:?}", plan.warnings);
        assert!(
            plan.render_plan().contains(&format!("\nwarning: {warning}\n")),
            "{}",
            plan.render_plan()
        );
    }
    assert_eq!(plan.warnings.len(), 2);
    let error = format!("{:#}", allowed(&["mesh", "energy"]).unwrap_err());
    assert!(error.contains("groups mesh, energy") && !error.contains("--allow"), "{error}");
}

/// Names come from drivers and from the tree and can have any content: they must not reach a
/// terminal unescaped.
#[test]
fn hostile_names_are_shown_escaped() {
    let (_dir, machine) = machine_with_files(&[
        ("evil\u{1b}[2J\n_0/type", "20"),
        ("evil\u{1b}[2J\n_0/events/x\ny", "config=1"),
        ("evil\u{1b}[2J\n_0/events/bad", "\u{1b}"),
    ]);
    let catalog = Catalog::load_embedded().unwrap();
    let text = render_list(&machine, &catalog, What::All, ListForm::Text(View::default())).unwrap();
    assert!(!text.contains('\u{1b}') && text.contains("x\\ny"), "{text}");
    let error = plan(&machine, &catalog, &request(&[], &["evil/x/"])).unwrap_err().to_string();
    assert!(!error.contains(['\u{1b}', '\n']), "{error}");
}
