//! Who can have caused what a PMU counts.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use uncore_trace::catalog::Catalog;
use uncore_trace::catalog::family::PmuKind;
use uncore_trace::catalog::pmu_words::PmuWords;
use uncore_trace::catalog::source::TrafficCause;
use uncore_trace::choice::DeclaredCause;
use uncore_trace::cmd::list::{ListForm, View, What, render_list};
use uncore_trace::discover::Machine;
use uncore_trace::plan::{Counter, Plan, PlanRequest, plan};
use uncore_trace_lab::fixtures;

use crate::attribute::again_the_same;
use crate::command::Place;
use crate::harness::{assert_checked, or_skip, root_or_skip, rows};
use crate::machines::{captured, machine_with_files, request};

/// The plan of one event, or the error.
fn plan_of_event(
    machine: &Machine,
    event: &str,
    told: Option<DeclaredCause>,
) -> Result<Plan, String> {
    let request = PlanRequest { declared_cause: told, ..request(&[], &[event]) };
    plan(machine, &Catalog::load_embedded().unwrap(), &request)
        .map_err(|error| format!("{error:#}"))
}

/// Who causes what a counter counts, in words.
fn causes(counter: &Counter) -> String {
    let causes = counter.causes.iter().chain(&counter.cause);
    let names: Vec<_> = causes.map(TrafficCause::to_string).collect();
    if counter.is_of_unknown_cause() { "unknown".to_owned() } else { names.join(",") }
}

/// A PMU that no driver has.
const NEW: [(&str, &str); 5] = [
    ("fabric_x_0/type", "77\n"),
    ("fabric_x_0/cpumask", "0\n"),
    ("fabric_x_0/format/event", "config:0-7\n"),
    ("fabric_x_0/events/beats", "event=0x1\n"),
    ("fabric_x_0/events/cycles", "event=0x2\n"),
];

/// PMUs of drivers of Linux 7.2, an event of each, and who causes it. The files are
/// `drivers/perf/*.c` and those named in the catalog's file of the family.
pub(crate) const OF_DRIVERS: &[(&str, &str, &str)] = &[
    ("smmuv3_pmcg_2b442", "transaction", "device"),
    ("smmuv3_pmcg_2b442", "cycles", "device"),
    ("hns3_pmu_sicl_0", "bw_ssu_rpu_byte_num", "device"),
    ("mrvl_pcie_rc_pmu_0", "ib_tlp_dwords_pr", "device"),
    ("mrvl_pcie_rc_pmu_0", "ob_tlp_dwords_cpl_partid", "device"),
    ("mrvl_pcie_rc_pmu_0", "ib_tlp_cpl_partid", "cpu"),
    ("mrvl_pcie_rc_pmu_0", "ob_tlp_pr_partid", "cpu"),
    ("arm_ni_0_cd_1", "asni", "device"),
    ("hisi_scl1_noc0_0", "ingress_flow_sum", "cpu,device,remote"),
    ("hisi_scl1_noc0_0", "cycles", ""),
    ("hisi_scl1_mn0", "req_dvmop_num", "cpu,remote"),
    ("hisi_scl1_mn0", "pa_req_dvm_num", "remote"),
    ("hisi_sccl1_uc0_0", "cpu_rd", "cpu"),
    ("hisi_sccl1_uc0_0", "cring_rxdat_cnt", "cpu,device,remote"),
    ("uncore_dmc_0", "read_txns", "cpu,device,remote"),
    ("uncore_l3c_0", "read_hit", "cpu,device,remote"),
    ("uncore_ccpi2_0", "data_pktsent", "cpu,device,remote"),
    ("l3cache_0_1", "read-miss", "cpu,device,remote"),
    ("l2cache_0", "total-reads", "cpu"),
    ("ccn_0", "rni_rxdat_flits", "device"),
    ("ccn_0", "hnf_mc_reqs", "cpu,device,remote"),
    ("mcb0", "csw-read", "cpu,device"),
    ("iob0", "axi0-read", "device"),
    ("imx8_ddr0", "read-cycles", "cpu,device"),
    ("meson_ddr_bw", "total_rw_bytes", "cpu,device"),
    ("starfive_starlink_pmu", "read_miss", "cpu,device"),
    ("dmar0", "iommu_requests", "device"),
    ("dsa0", "config=0x11", "device"),
    ("i915", "rcs0-busy", "device"),
    ("xe_0000_03_00.0", "gt-c6-residency", "device"),
    ("core_imc", "CPM_PCYC", "cpu"),
    ("cstate_pkg", "c6-residency", "unknown"),
    ("uncore_pcie6_1", "config=0x1", "device"),
    ("uncore_itc_1", "config=0x1", "device"),
    ("uncore_hamvf_3", "config=0x1", "cpu,device,remote"),
    ("uncore_santa_3", "config=0x1", "cpu,device,remote"),
    ("uncore_iio_free_running_0", "inb_data_port0", "device"),
    ("uncore_iio_free_running_0", "clockticks", "device"),
    // What these are is not documented.
    ("uncore_crs_0", "config=0x1", "unknown"),
    ("fabric_x_0", "beats", "unknown"),
    ("fabric_x_0", "cycles", "unknown"),
    ("fabric_x_0", "config=0x7", "unknown"),
];

#[test]
fn every_driver_s_pmu_says_who_causes_its_counts() {
    for (pmu, event, expected) in OF_DRIVERS {
        let path = |file: &str| format!("{pmu}/{file}");
        let named = !event.starts_with("config");
        let event_file = if named { format!("events/{event}") } else { "events/e".to_owned() };
        let files = [
            (path("type"), "77\n"),
            (path("cpumask"), "0\n"),
            (path("format/event"), "config:0-7\n"),
            (path("format/global"), "config1:52\n"),
            (path(&event_file), "event=0x1\n"),
        ];
        let files: Vec<_> = files.iter().map(|(file, text)| (file.as_str(), *text)).collect();
        let (_dir, machine) = machine_with_files(&files);
        let plan = plan_of_event(&machine, &format!("{pmu}/{event}/"), None).unwrap();
        let [counter] = plan.counters.as_slice() else { panic!("{plan:?}") };
        assert_eq!(causes(counter), *expected, "{pmu}/{event}/");
        // CPUs are asked only where they are among the causes, or it is a known clock.
        let sees = expected.is_empty() || expected.contains("cpu") || *expected == "remote";
        assert_eq!(!counter.sees.is_empty(), sees && *expected != "remote", "{pmu}/{event}/");
        let is_told = plan.notes.iter().any(|note| note.starts_with("cause unknown: "));
        assert_eq!(is_told, *expected == "unknown", "{pmu}/{event}/: {:?}", plan.notes);
    }
}

/// Families whose events have causes that nothing says, with the reason.
const UNKNOWN: &[(&str, &str)] = &[
    ("fujitsu_pci", "no source says whether CPUs or devices begin a transaction"),
    ("nvidia_uncore", "the kernel does not know the product"),
    ("amd_df", "a data fabric of a processor that the catalog does not know"),
    ("cstate", "nobody causes idle time"),
    ("intel_pcu", "nobody causes states of power"),
    ("intel_ubox", "a clock, and messages of any unit"),
];

/// The table PMUs x causes: every event of every captured machine has known causes, or is the clock
/// of a known PMU, or is not divided.
#[test]
fn no_event_of_a_captured_machine_is_divided_without_a_cause() {
    let catalog = Catalog::load_embedded().unwrap();
    let mut unknown: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for name in fixtures::names().unwrap() {
        let machine = captured(&name);
        for pmu in &machine.pmus {
            let words = PmuWords::new(&catalog, pmu);
            let all = words.all_events().chain(words.vendor_events());
            let unnamed_causes = all.filter(|event| words.causes_by_name(*event).is_none());
            let its: BTreeSet<String> = unnamed_causes.map(|event| event.name.to_owned()).collect();
            let Some(first) = its.first() else { continue };
            let event = format!("{}/{first}/", pmu.name);
            if let Ok(plan) = plan_of_event(&machine, &event, None) {
                for counter in &plan.counters {
                    assert!(counter.is_of_unknown_cause(), "{name} {counter:?}");
                    assert!(counter.sees.is_empty() && counter.far.is_empty(), "{counter:?}");
                }
                assert!(plan.render_plan().contains("cause unknown"), "{}", plan.render_plan());
            }
            if let Some(family) = words.family {
                unknown.entry(family.family.clone()).or_default().extend(its);
            }
        }
    }
    for (family, events) in &unknown {
        assert!(
            UNKNOWN.iter().any(|(known_family, _)| known_family == family),
            "{family}: {events:?}"
        );
    }
    assert!(unknown.contains_key("fujitsu_pci"), "{unknown:?}");
    for family in
        catalog.families.iter().filter(|uncore_family| uncore_family.kind == PmuKind::Uncore)
    {
        let why = UNKNOWN.iter().find(|(known_family, _)| *known_family == family.family);
        assert_eq!(family.sources.is_empty(), why.is_some(), "{}: {why:?}", family.family);
    }
}

#[test]
fn the_user_can_say_the_cause_of_counters_that_have_none() {
    let (_dir, machine) = machine_with_files(&NEW);
    let event = "fabric_x/beats/";
    let plan = plan_of_event(&machine, event, None).unwrap();
    let note = plan.notes.iter().find(|note| note.starts_with("cause unknown: ")).unwrap();
    assert!(note.contains("fabric_x/beats/") && note.contains("--cause cpu"), "{note}");
    let json = serde_json::to_value(&plan.counters[0]).unwrap();
    assert_eq!((&json["sees"], json.get("cause")), (&serde_json::json!(""), None));

    let cpu = plan_of_event(&machine, event, Some(DeclaredCause::Cpu)).unwrap();
    assert_eq!(
        (cpu.counters[0].cause, &cpu.counters[0].sees),
        (Some(TrafficCause::Cpu), &"0-1".parse().unwrap())
    );
    assert!(cpu.counters[0].is_of_cpus());
    let device = plan_of_event(&machine, event, Some(DeclaredCause::Device)).unwrap();
    assert_eq!(device.counters[0].cause, Some(TrafficCause::Device));
    assert!(device.counters[0].sees.is_empty() && !device.counters[0].is_of_unknown_cause());
    for (plan, name) in [(&cpu, "cpu"), (&device, "device")] {
        let note = format!("cause {name}, as --cause says: fabric_x/beats/");
        assert!(plan.notes.contains(&note), "{:?}", plan.notes);
    }
    let view = ListForm::Text(View::default());
    let text =
        render_list(&machine, &Catalog::load_embedded().unwrap(), What::Events, view).unwrap();
    let line = text.lines().find(|line| line.contains("beats")).unwrap();
    assert!(line.contains(" unknown "), "{text}");
}

/// What the catalog knows is not for the user to say: a catalog file can.
#[test]
fn a_known_cause_is_not_replaced() {
    let machine = captured("grace-2s");
    let event = "nvidia_pcie_pmu_0/rd_bytes_loc/";
    for declared_cause in [DeclaredCause::Cpu, DeclaredCause::Device] {
        let error = plan_of_event(&machine, event, Some(declared_cause)).unwrap_err();
        let begin = format!("--cause {} is for counters of unknown cause", declared_cause.name());
        assert!(error.starts_with(&begin) && error.contains("list events"), "{error}");
    }
    // One of both: only the unknown one is told.
    let events = ["hisi_hha/config=0x77/", "hisi_sccl1_hha0/rx_outer/"];
    let request =
        PlanRequest { declared_cause: Some(DeclaredCause::Cpu), ..request(&[], &events[1..]) };
    let machine = captured("kunpeng-920");
    let catalog = Catalog::load_embedded().unwrap();
    plan(&machine, &catalog, &request).unwrap_err();
    let events = ["hisi_sccl1_hha0/config=0x77/".to_owned(), events[1].to_owned()].to_vec();
    let two_counters =
        plan(&machine, &catalog, &PlanRequest { events, ..request.clone() }).unwrap();
    let causes_found: Vec<_> = two_counters.counters.iter().map(causes).collect();
    assert_eq!(causes_found, ["cpu", "remote"]);
    // Of a fleet, some machines may have no such counter.
    let lenient =
        plan(&machine, &catalog, &PlanRequest { allow_missing: true, ..request }).unwrap();
    assert!(lenient.warnings.iter().any(|line| line.contains("--cause cpu")), "{lenient:?}");
}

/// A PMU of each CPU, such as that of a core which the catalog does not know, counts what runs
/// there.
#[test]
fn a_pmu_of_each_cpu_needs_no_cause() {
    let (_dir, machine) = machine_with_files(&[
        ("core_x/type", "78\n"),
        ("core_x/cpus", "0-1\n"),
        ("core_x/format/event", "config:0-7\n"),
        ("core_x/events/loads", "event=0x1\n"),
    ]);
    let plan = plan_of_event(&machine, "core_x/loads/", None).unwrap();
    let sees: Vec<_> = plan.counters.iter().map(|counter| counter.sees.to_string()).collect();
    assert_eq!(sees, ["0", "1"]);
    assert!(plan.notes.iter().all(|note| !note.contains("cause unknown")), "{:?}", plan.notes);
    plan_of_event(&machine, "core_x/loads/", Some(DeclaredCause::Cpu)).unwrap_err();
}

/// The time stamp counter as a PMU without a family: read on one CPU, it says nothing about tasks.
#[test]
fn counts_of_unknown_cause_stay_unattributed_when_recorded() {
    let _machine = root_or_skip!();
    let has_event = Path::new("/sys/bus/event_source/devices/msr/events/tsc").exists();
    or_skip!(has_event.then_some(()).ok_or("no PMU msr"));
    let place = Place::new();
    fs::create_dir(place.path("c")).unwrap();
    // It replaces the embedded family, and no PMU has its name.
    let nothing = "family = \"msr\"\nabout = \"none\"\nnames = [\"none\"]\ngroup = \"host\"\n";
    fs::write(place.path("c/msr.toml"), nothing).unwrap();
    for (option, owner) in
        [("", Some("unattributed")), ("--cause device", Some("device")), ("--cause cpu", None)]
    {
        let run = format!("run{}", option.replace(' ', ""));
        place
            .typed(&format!("record -o {run}/ --catalog c -e msr/tsc/ {option} -- sleep 0.3"))
            .recorded();
        let shares = rows::read_shares(&place.path(&run));
        let counted: Vec<_> = shares.iter().filter(|share| share.total != Some(0.0)).collect();
        assert!(!counted.is_empty());
        for share in &counted {
            if let Some(owner) = owner {
                assert_eq!((share.owner.as_str(), share.method.as_str()), (owner, "source"));
            }
        }
        let of_tasks = counted.iter().any(|share| share.owner == "task");
        assert_eq!(of_tasks, owner.is_none(), "{option}");
        again_the_same(&place.path(&run));
        assert_checked(&place.path(&run));
    }
    let line = place.refuses("record -o x.parquet -p host --cause cpu -- true".split(' '));
    assert!(line.contains("--cause cpu is for counters of unknown cause"), "{line}");
}
