//! Discovery and planning on captured machines: what `list` and `record --dry-run` say of each.
//!
//! The snapshots are the review of the catalog: encodings, units, reader CPUs and filters of every
//! group on every machine are in them. What a snapshot shows by accident is asserted here by rule.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;
use uncore_trace::catalog::Catalog;
use uncore_trace::catalog::group::Group;
use uncore_trace::catalog::source::Cause;
use uncore_trace::cmd::list::{Form, View, What, list};
use uncore_trace::discover::{Machine, machine};
use uncore_trace::plan::{Counter, Plan, Request, plan};
use uncore_trace_lab::fixtures;

/// The files of a captured machine in a directory of their own, for `--root`, which the test may
/// change.
pub(crate) fn unpacked(name: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    fixtures::machine(name).unwrap().fill(dir.path()).unwrap();
    dir
}

/// A captured machine as it is discovered. It is unpacked and read once a process; its files are
/// removed then, so that what reads them later (`list absent`) takes [`unpacked`].
pub(crate) fn captured(name: &str) -> Machine {
    static FOUND: Mutex<BTreeMap<String, Machine>> = Mutex::new(BTreeMap::new());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let discovered = || machine(unpacked(name).path()).unwrap();
    found.entry(name.to_owned()).or_insert_with(discovered).clone()
}

pub(crate) fn request(groups: &[&str], events: &[&str]) -> Request {
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    Request {
        groups: owned(groups),
        events: owned(events),
        tick_ns: 1_000_000,
        window_ns: 10_000_000,
        ..Request::default()
    }
}

fn try_plan(name: &str, groups: &[&str], events: &[&str]) -> Result<Plan, String> {
    let catalog = Catalog::embedded().unwrap();
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
        Ok(plan) => panic!("{name} {groups:?} {events:?} was planned:\n{}", plan.render()),
        Err(error) => error,
    }
}

/// What a test wants to see of a counter.
pub(crate) fn brief(plan: &Plan) -> Vec<String> {
    let one = |c: &Counter| {
        let [config, config1, config2, ..] = c.config;
        let leader = c.leader.map_or(String::new(), |leader| format!(" leader {leader}"));
        format!(
            "{} {} [{}] {}x{} {config:#x},{config1:#x},{config2:#x} cpu {}{leader}",
            c.pmu, c.event, c.filter, c.unit, c.scale, c.cpu
        )
    };
    plan.counters.iter().map(one).collect()
}

#[test]
fn one_requester_holds_for_a_whole_root_complex() {
    let pmu = "nvidia_pcie_pmu_0_rc_4";
    let device = |bdf: &str| format!("{pmu}/rd_bytes,src_bdf={bdf},src_bdf_en=1/");
    let (one, other, ports) = (device("0x100"), device("0x200"), format!("{pmu}/wr_bytes/"));
    for second in [&other, &ports] {
        let error = refused("all-drivers-acpi", &[], &[&one, second]);
        assert!(error.contains("one register for src_bdf"), "{error}");
    }
    let cycles = format!("{pmu}/cycles/");
    assert_eq!(planned("all-drivers-acpi", &[], &[&one, &cycles]).counters.len(), 2);
}

#[test]
fn every_machine_lists() {
    let catalog = Catalog::embedded().unwrap();
    for name in &fixtures::names().unwrap() {
        let root = unpacked(name);
        let machine = machine(root.path()).unwrap();
        let problems = machine.problems.iter().filter(|line| !line.contains("mountinfo")).count();
        assert_eq!(problems, 0, "{name}: {:#?}", machine.problems);
        for (what, part) in [
            (What::Pmus, "pmus"),
            (What::Groups, "groups"),
            (What::Events, "events"),
            (What::Metrics, "metrics"),
            (What::Absent, "absent"),
        ] {
            let mut text = list(&machine, &catalog, what, Form::Text(View::default())).unwrap();
            text = text.replace(&root.path().display().to_string(), "ROOT");
            insta::assert_snapshot!(format!("list-{name}-{part}"), text);
        }
        if !machine.devices.pci.is_empty() {
            let text =
                list(&machine, &catalog, What::Devices, Form::Text(View::default())).unwrap();
            insta::assert_snapshot!(format!("list-{name}-devices"), text);
        }
        let json: String = list(&machine, &catalog, What::All, Form::Json).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["groups"].as_array().unwrap().len(), Group::ALL.len());
    }
}

/// It once printed lines of 789 columns, most of them on what other machines have.
#[test]
fn no_line_of_a_list_is_wider_than_the_terminal() {
    let catalog = Catalog::embedded().unwrap();
    for name in &fixtures::names().unwrap() {
        let root = unpacked(name);
        let machine = machine(root.path()).unwrap();
        for (all, width) in [(false, 80), (true, 80), (false, 60)] {
            let view = View { all, width: Some(width) };
            let text = list(&machine, &catalog, What::All, Form::Text(view)).unwrap();
            for line in text.lines() {
                // The path of the machine's files may be longer, and is not broken.
                let path = line.contains(&root.path().display().to_string());
                assert!(line.chars().count() <= width || path, "{name} {width}: {line}");
            }
        }
    }
    let at = |name, what| {
        let view = View { width: Some(80), ..View::default() };
        list(&captured(name), &catalog, what, Form::Text(view)).unwrap()
    };
    insta::assert_snapshot!("list-80-zen5-2s-groups", at("zen5-2s", What::Groups));
    insta::assert_snapshot!("list-80-grace-2s-metrics", at("grace-2s", What::Metrics));
    insta::assert_snapshot!("list-80-icelake-2s-pmus", at("icelake-2s", What::Pmus));
}

#[test]
fn what_is_absent_is_one_line_and_all_of_it_with_all() {
    let catalog = Catalog::embedded().unwrap();
    let machine = captured("vm-no-uncore");
    let text = |all| {
        let view = View { all, width: None };
        list(&machine, &catalog, What::All, Form::Text(view)).unwrap()
    };
    let (some, all) = (text(false), text(true));
    for other in ["nvidia_scf", "arm_cmn", "intel_imc"] {
        assert!(!some.contains(other), "{some}");
        let lines = all.lines().filter(|line| line.contains(other));
        assert!(lines.count() > 1, "{all}");
    }
    let absent: Vec<_> = some.lines().filter(|line| line.starts_with("absent: ")).collect();
    let [absent] = absent.as_slice() else { panic!("{some}") };
    let families = catalog.families.len() - 2;
    assert!(absent.starts_with(&format!("absent: {families} known PMU families ")), "{absent}");
    assert!(absent.contains("`uncore-trace list --all`"), "{absent}");
}

/// What most people try first is a virtual machine, where the groups of the examples open nothing.
#[test]
fn the_first_five_lines_say_what_can_be_counted_and_what_a_confidence_is_worth() {
    let catalog = Catalog::embedded().unwrap();
    let mut begins = Vec::new();
    for name in &fixtures::names().unwrap() {
        let text = list(&captured(name), &catalog, What::All, Form::Text(View::default())).unwrap();
        let begin: Vec<_> = text.lines().take_while(|line| !line.is_empty()).collect();
        assert_eq!(begin.len(), 5, "{name}: {begin:#?}");
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
                Ok(plan) => plan.render(),
                Err(error) => format!("error: {error}\n"),
            };
            insta::assert_snapshot!(format!("plan-{name}-{group}"), text);
        }
    }
}

/// A counter has owners on the CPUs that can cause what it counts, and on no others: none for what
/// devices cause, those of other sockets for what comes from there.
#[test]
fn a_counter_sees_who_can_cause_what_it_counts() {
    let shown = |name: &str, events: &[&str]| -> Vec<String> {
        let plan = planned(name, &[], events);
        let one = |its: &Counter| format!("{} sees {}, far {}", its.pmu, its.sees, its.far);
        plan.counters.iter().map(one).collect()
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
        assert_eq!(shown("t410-2s", &[&event]), [expected], "{filter}");
    }
    for (name, event, expected) in [
        ("grace-2s", "nvidia_scf_pmu_1/cmem_rd_data/", "nvidia_scf_pmu_1 sees 0-3, far 0-1"),
        ("grace-2s", "nvidia_scf_pmu_1/remote_socket_rd_data/", "nvidia_scf_pmu_1 sees 2-3, far "),
        ("grace-2s", "nvidia_pcie_pmu_0/rd_bytes_loc/", "nvidia_pcie_pmu_0 sees , far "),
        // GPUs are below the first socket's link, the other CPU below the second's.
        ("t410-2s", "nvidia_nvlink_c2c_pmu_0/in_rd_req/", "nvidia_nvlink_c2c_pmu_0 sees , far "),
        ("t410-2s", "nvidia_nvlink_c2c_pmu_1/in_rd_req/", "nvidia_nvlink_c2c_pmu_1 sees 0-1, far "),
        (
            "t410-2s",
            "nvidia_nvlink_c2c_pmu_1/out_rd_req/",
            "nvidia_nvlink_c2c_pmu_1 sees 2-3, far ",
        ),
        // Which die a sub-channel is on is not known: no CPU is nearer than another.
        ("yitian", "ali_drw_2018000/hif_rd/", "ali_drw_2018000 sees 0-3, far "),
    ] {
        assert_eq!(shown(name, &[event]), [expected], "{event}");
    }
    let memory = shown("icelake-2s", &["uncore_imc_0/cas_count_read/"]);
    assert_eq!(memory, ["uncore_imc_0 sees 0-3, far 2-3", "uncore_imc_0 sees 0-3, far 0-1"]);
}

/// Groups open counters that stand alone: a group of two `dwc_pcie` events opens and never counts,
/// one of two `ali_drw` events is refused.
#[test]
fn a_plan_is_consistent() {
    for name in &fixtures::names().unwrap() {
        let machine = captured(name);
        let plan = planned(name, &["all"], &[]);
        let mut seen = std::collections::BTreeSet::new();
        for (at, counter) in plan.counters.iter().enumerate() {
            assert_eq!(counter.id as usize, at);
            assert_eq!(counter.leader, None);
            assert!(machine.cpus.online.contains(counter.cpu));
            let of_cpus = counter.cause.is_none_or(|cause| cause == Cause::Cpu);
            assert!(!of_cpus || !counter.sees.is_empty(), "{counter:?}");
            assert!(counter.far.iter().all(|cpu| counter.sees.contains(cpu)), "{counter:?}");
            assert!(counter.scale > 0.0);
            assert!(seen.insert((counter.attr_type, counter.config, counter.cpu)), "{counter:?}");
            if let Some(mask) = &machine.pmu(&counter.pmu).unwrap().cpumask {
                assert!(mask.contains(counter.cpu) && !counter.per_cpu, "{counter:?}");
            } else {
                assert!(counter.per_cpu && counter.sees.to_string() == counter.cpu.to_string());
            }
        }
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    }
}

/// Not a capture: the machine these tests run on, whatever it is.
#[test]
fn the_machine_at_hand_can_be_planned() {
    let here = machine(Path::new("/")).unwrap();
    let plan = plan(&here, &Catalog::embedded().unwrap(), &request(&["host"], &[])).unwrap();
    assert_eq!(plan.owners(), here.cpus.online);
}

/// The kernel's own counters are read on every CPU of every machine.
#[test]
fn host_works_everywhere() {
    for name in &fixtures::names().unwrap() {
        let plan = planned(name, &["host"], &[]);
        let switches: Vec<_> =
            plan.counters.iter().filter(|c| c.event == "context-switches").collect();
        assert_eq!(switches.len(), captured(name).cpus.online.len());
        assert!(switches.iter().all(|c| c.attr_type == 1 && c.config[0] == 3 && c.per_cpu));
    }
}

#[test]
fn grace_events_as_published() {
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
    insta::assert_snapshot!("events-grace-2s", planned("grace-2s", &[], &texts).render());
}

#[test]
fn tegra_and_yitian_events_as_published() {
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
    // Not beside an event of other devices of its root complex.
    let alone = ["nvidia_pcie_pmu_0_rc_4/event=0x4,src_bdf=0x0180,src_bdf_en=0x1/"];
    let [together, alone] =
        [&texts[..], &alone].map(|texts| planned("all-drivers-acpi", &[], texts).render());
    insta::assert_snapshot!("events-all-drivers", format!("{together}\n{alone}"));
}

#[test]
fn groups_are_per_pmu_and_cpu_and_software_may_lead() {
    let plan = planned(
        "icelake-2s",
        &[],
        &["{uncore_imc_0/cas_count_read/,imc_1/cas_count_read/,imc_0/cas_count_write/}"],
    );
    insta::assert_snapshot!(brief(&plan).join("\n"), @r"
    uncore_imc_0 cas_count_read [] bytesx64 0xf04,0x0,0x0 cpu 0
    uncore_imc_0 cas_count_read [] bytesx64 0xf04,0x0,0x0 cpu 2
    uncore_imc_1 cas_count_read [] bytesx64 0xf04,0x0,0x0 cpu 0
    uncore_imc_1 cas_count_read [] bytesx64 0xf04,0x0,0x0 cpu 2
    uncore_imc_0 cas_count_write [] bytesx64 0x3004,0x0,0x0 cpu 0 leader 0
    uncore_imc_0 cas_count_write [] bytesx64 0x3004,0x0,0x0 cpu 2 leader 1
    ");
    assert_eq!(plan.notes.len(), 1, "{:?}", plan.notes);

    let plan =
        planned("grace-2s", &[], &["{cs,nvidia_scf_pmu_1/cycles/,nvidia_scf_pmu_1/bus_cycles/}"]);
    let leaders: Vec<_> = plan.counters.iter().map(|c| (c.cpu, c.leader)).collect();
    assert_eq!(leaders, [(0, None), (1, None), (2, None), (3, None), (2, Some(2)), (2, Some(2))]);

    let plan = planned("all-drivers-acpi", &[], &["{ali_drw/hif_rd/,ali_drw/hif_wr/}"]);
    assert!(plan.counters.iter().all(|c| c.leader.is_none()) && plan.notes.len() == 1);
}

#[test]
fn the_same_event_twice_is_one_counter() {
    let plan = planned(
        "grace-2s",
        &["pcie"],
        &["nvidia_pcie_pmu_0/rd_bytes_loc/", "nvidia_pcie_pmu_0/event=0,root_port=1023/"],
    );
    assert_eq!(plan.counters.len(), 8);
}

/// The leader's device filter is handed down by the driver; a port mask on a sibling would clash.
#[test]
fn a_sibling_leaves_the_filter_to_its_leader() {
    let plan = planned(
        "all-drivers-acpi",
        &[],
        &[
            "{nvidia_pcie_pmu_0_rc_4/rd_bytes,src_bdf=0x108,src_bdf_en/,nvidia_pcie_pmu_0_rc_4/wr_bytes/}",
        ],
    );
    assert_eq!(plan.counters[0].config[1], 0x108 << 8 | 1 << 24);
    assert_eq!(plan.counters[1].config[1], 0);
    assert_eq!(plan.counters[1].leader, Some(0));
}

/// The driver refuses an event with neither a port nor a device, and takes the port where both are
/// given.
#[test]
fn kunpeng_counts_all_root_ports_unless_told_which() {
    let pmu = "hisi_pcie0_core0";
    let texts = ["rx_mwr_flux", "rx_mwr_flux,port=0x1", "rx_mwr_flux,bdf=0x3900,len_mode=3"];
    let texts = texts.map(|text| format!("{pmu}/{text}/"));
    let plan = planned("kunpeng-hip09", &[], &[&texts[0], &texts[1], &texts[2]]);
    insta::assert_snapshot!(brief(&plan).join("\n"));
    let both = refused("kunpeng-hip09", &[], &[&format!("{pmu}/rx_mwr_flux,port=1,bdf=0x3900/")]);
    assert!(both.contains("port") && both.contains("bdf"), "{both}");
}

/// A cluster is what a cache of it sees; a DDR controller is everybody's, whatever
/// `associated_cpus` says.
#[test]
fn a_cache_of_a_cluster_sees_the_cluster() {
    let plan = planned("kunpeng-920", &["cache"], &[]);
    let sees: std::collections::BTreeSet<_> =
        plan.counters.iter().map(|c| (c.pmu.as_str(), c.sees.to_string())).collect();
    assert!(sees.contains(&("hisi_sccl5_l3c1", "6-7".to_owned())), "{sees:?}");
    assert!(
        planned("altra-2s", &["cache"], &[])
            .counters
            .iter()
            .any(|c| c.pmu == "arm_dsu_1" && c.sees.to_string() == "2-3")
    );
    let mem = planned("kunpeng-920", &["mem"], &[]);
    assert!(mem.counters.iter().all(|c| c.sees.to_string() == "0-7"), "{:?}", mem.counters);
}

/// Home nodes are HN-F on CMN-600 to CMN-700 and HN-S on CMN S3.
#[test]
fn the_mesh_opens_the_home_nodes_that_it_has() {
    for (machine, kind) in [("altra-2s", "hnf_"), ("yitian", "hnf_"), ("cmn-s3", "hns_")] {
        for group in ["cache", "mem"] {
            let plan = planned(machine, &[group], &[]);
            let mesh: Vec<_> = plan.counters.iter().filter(|c| c.pmu.contains("cmn")).collect();
            assert!(!mesh.is_empty(), "{machine} {group}");
            assert!(mesh.iter().all(|c| c.event.starts_with(kind)), "{machine} {mesh:?}");
            assert!(!plan.notes.iter().any(|note| note.contains("no event")), "{:?}", plan.notes);
        }
    }
}

/// Kernels up to 6.12 have no `port` file for C2C: they count both ports, whatever the bits.
#[test]
fn a_filter_that_the_kernel_has_no_field_for_is_left_out() {
    let dir = unpacked("grace-2s");
    let pmu = dir.path().join("sys/bus/event_source/devices/nvidia_nvlink_c2c0_pmu_0");
    std::fs::remove_file(pmu.join("format/port")).unwrap();
    let machine = machine(dir.path()).unwrap();
    let catalog = Catalog::embedded().unwrap();
    let text = "nvidia_nvlink_c2c0_pmu_0/rd_bytes_loc/";
    let plan = plan(&machine, &catalog, &request(&[], &[text])).unwrap();
    assert_eq!((plan.counters[0].config[1], plan.counters[0].filter.as_str()), (0, ""));
}

#[test]
fn errors_say_what_is_wrong_and_what_was_meant() {
    let cases: [(&str, &[&str], &[&str]); 22] = [
        ("vm-no-uncore", &["pcie"], &[]),
        ("vm-no-uncore", &["pci"], &[]),
        ("vm-no-uncore", &[], &["cycles"]),
        ("vm-no-uncore", &[], &["r80C0"]),
        ("vm-no-uncore", &[], &["duration_time"]),
        ("vm-no-uncore", &[], &["context-switch"]),
        ("vm-no-uncore", &[], &["tscc/tsc/"]),
        ("vm-no-uncore", &[], &["msr"]),
        ("vm-no-uncore", &[], &[]),
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

#[test]
fn times_that_make_no_sense_are_refused() {
    let (machine, catalog) = (captured("vm-no-uncore"), Catalog::embedded().unwrap());
    for (tick_ns, window_ns) in [
        (0, 0),
        (1, 1),
        (1_000_000, 0),
        (1_000_000, 1_500_000),
        (1_000_000, 31_536_000_000_000_000),
    ] {
        let request = Request { tick_ns, window_ns, ..request(&["host"], &[]) };
        assert!(plan(&machine, &catalog, &request).is_err(), "{tick_ns} {window_ns}");
    }
}

/// An empty `cpumask` is what `arm_cspmu` shows when its CPUs are offline, a stale one what
/// `ali_drw` keeps after its CPU went.
#[test]
fn offline_owners_are_named() {
    let catalog = Catalog::embedded().unwrap();
    let mut machine = captured("grace-2s");
    let scf = machine.pmus.iter_mut().find(|pmu| pmu.name == "nvidia_scf_pmu_1").unwrap();
    scf.cpumask = Some("".parse().unwrap());
    let only = plan(&machine, &catalog, &request(&[], &["nvidia_scf_pmu_1/cycles/"]));
    insta::assert_snapshot!(only.unwrap_err(), @"the cpumask of nvidia_scf_pmu_1 is empty, which means that every CPU it can be read on is offline: bring one online, one of 2-3 (echo 1 > /sys/devices/system/cpu/cpuN/online)");
    let both = plan(&machine, &catalog, &request(&["mem"], &[])).unwrap();
    assert!(both.counters.iter().all(|c| c.pmu == "nvidia_scf_pmu_0"));
    assert_eq!(both.notes.len(), 1, "{:?}", both.notes);

    let mut machine = captured("all-drivers-acpi");
    machine.cpus.online = "0-2".parse().unwrap();
    let stale = plan(&machine, &catalog, &request(&["mem"], &[])).unwrap();
    assert!(stale.counters.iter().all(|c| c.family != "ali_drw"));
    assert!(stale.notes.iter().any(|note| note.contains("ali_drw_c0050")), "{:?}", stale.notes);
}

/// A machine of two CPUs with the PMUs given as (file below the device folder, text).
pub(crate) fn made(files: &[(&str, &str)]) -> (TempDir, Machine) {
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

/// Formats as in `arch/x86/events/{amd/uncore.c,intel/uncore_snbep.c}`; events only in the catalog.
#[test]
fn families_without_sysfs_events_use_the_catalog() {
    let (_dir, machine) = made(&[
        ("amd_umc_0/type", "20"),
        ("amd_umc_0/cpumask", "0"),
        ("amd_umc_0/format/event", "config:0-7"),
        ("amd_umc_0/format/rdwrmask", "config:8-9"),
        ("uncore_upi_0/type", "21"),
        ("uncore_upi_0/cpumask", "0"),
        ("uncore_upi_0/format/event", "config:0-7"),
        ("uncore_upi_0/format/umask", "config:8-15,32-55"),
    ]);
    let catalog = Catalog::embedded().unwrap();
    let plan = plan(&machine, &catalog, &request(&["mem", "c2c"], &[])).unwrap();
    insta::assert_snapshot!(brief(&plan).join("\n"), @r"
    amd_umc_0 umc_cas_cmd.rd [] bytesx64 0x10a,0x0,0x0 cpu 0
    amd_umc_0 umc_cas_cmd.wr [] bytesx64 0x20a,0x0,0x0 cpu 0
    uncore_upi_0 unc_upi_txl_flits.all_data [] bytesx7.111111111111111 0xf02,0x0,0x0 cpu 0
    uncore_upi_0 unc_upi_rxl_flits.all_data [] bytesx7.111111111111111 0xf03,0x0,0x0 cpu 0
    ");
    // Nothing says which package: every CPU may have caused the traffic.
    assert!(plan.counters.iter().all(|c| c.socket.is_none() && c.sees.len() == 2));
}

/// One PMU, two kernels: other names, other encodings, another unit.
#[test]
fn cloud_kernel_ports_count_sixteen_bytes() {
    let (_dir, machine) = made(&[
        ("pcie_bdf_200/type", "20"),
        ("pcie_bdf_200/cpumask", "1"),
        ("pcie_bdf_200/format/eventid", "config:0-15"),
        ("pcie_bdf_200/format/type", "config:16-19"),
        ("pcie_bdf_200/events/Rx_PCIe_TLP_Data_Payload", "eventid=0x21, type=0x1"),
        ("pcie_bdf_200/events/Tx_PCIe_TLP_Data_Payload", "eventid=0x20, type=0x1"),
    ]);
    let catalog = Catalog::embedded().unwrap();
    let events =
        ["pcie_bdf_200/Rx_PCIe_TLP_Data_Payload/", "pcie_bdf_200/Tx_PCIe_TLP_Data_Payload/"];
    let named = plan(&machine, &catalog, &request(&[], &events)).unwrap();
    insta::assert_snapshot!(brief(&named).join("\n"), @r"
    pcie_bdf_200 Rx_PCIe_TLP_Data_Payload [] bytesx16 0x10021,0x0,0x0 cpu 1
    pcie_bdf_200 Tx_PCIe_TLP_Data_Payload [] bytesx16 0x10020,0x0,0x0 cpu 1
    ");
    let group = plan(&machine, &catalog, &request(&["pcie"], &[])).unwrap();
    assert_eq!(brief(&group), brief(&named));
}

/// A kernel that is older than the hardware gives a Tegra410 PMU the name of a Grace one.
#[test]
fn a_pmu_with_a_predecessors_name_is_left_out_and_reported() {
    let (_dir, machine) = made(&[
        ("nvidia_scf_pmu_0/type", "20"),
        ("nvidia_scf_pmu_0/cpumask", "0"),
        ("nvidia_scf_pmu_0/identifier", "2cf2036b\n"),
        ("nvidia_scf_pmu_0/format/event", "config:0-32"),
        ("nvidia_scf_pmu_0/events/cmem_rd_data", "event=0x1a5"),
        ("software/type", "1"),
    ]);
    let catalog = Catalog::embedded().unwrap();
    assert!(plan(&machine, &catalog, &request(&["mem"], &[])).is_err());
    let text = list(&machine, &catalog, What::Pmus, Form::Text(View::default())).unwrap();
    assert!(text.contains("identifier 2cf2036b is not that of nvidia_scf"), "{text}");
}

/// Names come from drivers and from the tree and can hold anything: they must not reach a terminal raw.
#[test]
fn hostile_names_are_shown_escaped() {
    let (_dir, machine) = made(&[
        ("evil\u{1b}[2J\n_0/type", "20"),
        ("evil\u{1b}[2J\n_0/events/x\ny", "config=1"),
        ("evil\u{1b}[2J\n_0/events/bad", "\u{1b}"),
    ]);
    let catalog = Catalog::embedded().unwrap();
    let text = list(&machine, &catalog, What::All, Form::Text(View::default())).unwrap();
    assert!(!text.contains('\u{1b}') && text.contains("x\\ny"), "{text}");
    let error = plan(&machine, &catalog, &request(&[], &["evil/x/"])).unwrap_err().to_string();
    assert!(!error.contains(['\u{1b}', '\n']), "{error}");
}

#[test]
fn missing_groups_are_one_error_or_notes() {
    let groups = ["mem", "pcie", "c2c", "mesh", "energy"];
    let error = refused("sapphire-rapids-2s", &groups, &[]);
    for part in ["mesh", "energy", "--allow-missing", "doctor"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let catalog = Catalog::embedded().unwrap();
    let allowed = |groups: &[&str]| {
        let request = Request { allow_missing: true, ..request(groups, &[]) };
        plan(&captured("sapphire-rapids-2s"), &catalog, &request)
    };
    let plan = allowed(&groups).unwrap();
    assert_eq!(plan.counters, planned("sapphire-rapids-2s", &["mem", "pcie", "c2c"], &[]).counters);
    for group in ["mesh", "energy"] {
        let note = format!("the group {group} is not counted");
        assert!(plan.notes.iter().any(|its| its.contains(&note)), "{:?}", plan.notes);
    }
    let error = format!("{:#}", allowed(&["mesh", "energy"]).unwrap_err());
    assert!(error.contains("groups mesh, energy") && !error.contains("--allow"), "{error}");
}

/// Kernels before 6.15 take a count for 4 bytes where it is 32.
#[test]
fn the_size_of_a_free_running_count_is_corrected() {
    let dir = unpacked("sapphire-rapids-2s");
    let pmus = dir.path().join("sys/bus/event_source/devices");
    for at in 0..3 {
        std::fs::remove_dir_all(pmus.join(format!("uncore_iio_{at}"))).unwrap();
        let events = pmus.join(format!("uncore_iio_free_running_{at}/events"));
        for port in 0..8 {
            let write = |name: &str, text: &str| std::fs::write(events.join(name), text).unwrap();
            write(&format!("bw_in_port{port}.scale"), "3.814697266e-6");
            write(&format!("bw_out_port{port}"), &format!("event=0xff,umask={:#x}", 0x30 + port));
            write(&format!("bw_out_port{port}.scale"), "3.814697266e-6");
            write(&format!("bw_out_port{port}.unit"), "MiB");
        }
    }
    let catalog = Catalog::embedded().unwrap();
    let old = plan(&machine(dir.path()).unwrap(), &catalog, &request(&["pcie"], &[])).unwrap();
    assert_eq!(old.counters.len(), 3 * 8 * 2);
    assert!(old.counters.iter().all(|c| c.unit == "bytes" && (c.scale - 32.0).abs() < 1e-9));
    assert!(old.notes.iter().any(|note| note.contains("corrected")), "{:?}", old.notes);
    // Skylake counts 4 bytes.
    let new = planned("skylake-sp-2s", &[], &["uncore_iio_free_running/bw_in_port0/"]);
    assert!(new.counters.iter().all(|c| (c.scale - 4.0).abs() < 1e-9));
    assert!(new.notes.iter().all(|note| !note.contains("corrected")), "{:?}", new.notes);
}

#[test]
fn clock_ticks_of_a_memory_controller_take_a_counter() {
    let events = ["cas_count_read", "cas_count_write", "clockticks", "event=0x9", "event=0xa"]
        .map(|event| format!("uncore_imc_0/{event}/"));
    let plan = planned("skylake-sp-2s", &[], &events.each_ref().map(String::as_str));
    assert!(plan.notes.iter().any(|note| note.contains("5 events share 4")), "{:?}", plan.notes);
}

#[test]
fn intel_events_are_found_by_the_vendors_names() {
    let one = |name: &str, event: &str| brief(&planned(name, &[], &[event]))[0].clone();
    // The case does not matter; what the PMU has no name for in sysfs nor in the catalog.
    assert_eq!(
        one("sapphire-rapids-2s", "UNC_CHA_TOR_INSERTS.IA_MISS_DRD"),
        "uncore_cha_0 unc_cha_tor_inserts.ia_miss_drd [] requestsx1 0xc817fe00000135,0x0,0x0 cpu 0"
    );
    // Skylake-SP has the filter in the upper half of config1.
    assert_eq!(
        one("skylake-sp-2s", "unc_cha_tor_inserts.ia_miss_drd"),
        "uncore_cha_0 unc_cha_tor_inserts.ia_miss_drd [] requestsx1 0x2135,0x4043300000000,0x0 cpu 0"
    );
    assert_eq!(
        one("skylake-sp-2s", "uncore_iio_1/unc_iio_data_req_of_cpu.mem_read.part2/"),
        "uncore_iio_1 unc_iio_data_req_of_cpu.mem_read.part2 [] bytesx4 0x704000000483,0x0,0x0 cpu 0"
    );
    // One that no family has.
    assert!(one("skylake-sp-2s", "unc_m3upi_upi_prefetch_spawn").starts_with("uncore_m3upi_0 "));
    let error = refused("sapphire-rapids-2s", &[], &["unc_cha_tor_inserts.ia_miss_drdd"]);
    assert!(error.contains("did you mean unc_cha_tor_inserts.ia_miss_drd"), "{error}");
    // Another processor has another encoding, and an unknown one has none.
    assert!(refused("zen4-2s", &[], &["unc_cha_clockticks"]).contains("no event"));
    let names = |all| {
        let view = View { all, width: None };
        let catalog = Catalog::embedded().unwrap();
        list(&captured("skylake-sp-2s"), &catalog, What::Events, Form::Text(view)).unwrap()
    };
    assert!(names(true).contains("unc_m2m_directory_lookup.any"));
    let short = names(false);
    assert!(!short.contains("unc_m2m_directory_lookup.any") && short.contains("--all"), "{short}");
}

#[test]
fn intel_has_latency_and_mesh() {
    let groups = ["mem", "pcie", "c2c", "cache", "mesh", "latency"];
    for name in ["skylake-sp-2s", "sapphire-rapids-2s"] {
        let missing: &[&str] = if name == "skylake-sp-2s" { &[] } else { &["mesh"] };
        let here: Vec<_> =
            groups.iter().copied().filter(|group| !missing.contains(group)).collect();
        let plan = planned(name, &here, &[]);
        for group in here {
            assert!(plan.counters.iter().any(|c| c.subsystem == group), "{name} {group}");
        }
    }
    let latency = planned("skylake-sp-2s", &["latency"], &[]);
    let of = |event: &str| {
        let mut found = latency.counters.iter().filter(|c| c.event == event);
        found.next().map(|c| (c.config[0], c.config[1], c.unit.clone()))
    };
    let occupancy = "unc_cha_tor_occupancy.ia_miss_drd_";
    assert_eq!(
        of(&format!("{occupancy}local")),
        Some((0x2136, 0x40432 << 32, "request_cycles".to_owned()))
    );
    assert_eq!(
        of(&format!("{occupancy}remote")),
        Some((0x2136, 0x40431 << 32, "request_cycles".to_owned()))
    );
    let metrics = ["mem_read_latency_local", "mem_read_latency_remote", "mem_read_latency"];
    for name in ["skylake-sp-2s", "sapphire-rapids-2s"] {
        let request = Request { metrics: metrics.map(str::to_owned).to_vec(), ..request(&[], &[]) };
        let plan = plan(&captured(name), &Catalog::embedded().unwrap(), &request).unwrap();
        let found: std::collections::BTreeSet<_> =
            plan.metrics.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(found.len(), 3, "{name}: {found:?}");
    }
}
