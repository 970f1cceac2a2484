//! The witnesses that a plan opens in addition, on captured machines.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use uncore_trace::catalog::Catalog;
use uncore_trace::catalog::pmu_words::PmuWords;
use uncore_trace::catalog::witness::Witness;
use uncore_trace::discover::{Machine, Pmu};
use uncore_trace::plan::allowance::WitnessAllowance;
use uncore_trace::plan::misses::WitnessDemand;
use uncore_trace::plan::{Counter, CounterRole, Plan, PlanRequest, plan};

use crate::machines::{captured, request};

/// The emulated core PMU of the captured machine has no such event; the count of instructions is
/// used instead.
const STAND_IN: &str = "inst_retired";

fn catalog(event: &str) -> Catalog {
    let mut catalog = Catalog::load_embedded().unwrap();
    let core = catalog.families.iter_mut().find(|family| family.family == "arm_core").unwrap();
    let witness = |event: &str, processors: &[&str]| Witness {
        event: event.to_owned(),
        bytes: 64.0,
        unseen: vec!["write-backs".to_owned(), "prefetches".to_owned()],
        processors: processors.iter().map(|&processor| processor.to_owned()).collect(),
    };
    core.witnesses = vec![
        witness("no_such_event", &[]),
        witness("cpu_cycles", &["0x00000000410fd4f0"]),
        witness(event, &[]),
    ];
    catalog
}

/// A request like that of `--method auto` with this budget in percent, on CPUs with this many
/// context switches per second.
fn within(percent: f64, switches: f64) -> WitnessDemand {
    WitnessDemand::Within(WitnessAllowance { percent, switches: Some(switches) })
}

fn planned(
    groups: &[&str],
    events: &[&str],
    misses: WitnessDemand,
    event: &str,
) -> Result<Plan, String> {
    let request = PlanRequest { misses, ..request(groups, events) };
    let plan_result = plan(&captured("t410-2s"), &catalog(event), &request);
    plan_result.map_err(|error| format!("{error:#}"))
}

/// The note about witnesses in a plan without any.
fn why_none(machine: &Machine, catalog: &Catalog, events: &[&str]) -> String {
    let request = PlanRequest { misses: within(2.0, 100.0), ..request(&[], events) };
    let plan = plan(machine, catalog, &request).unwrap();
    assert_eq!(plan.only_witnesses().count(), 0);
    plan.notes.into_iter().find(|note| note.contains("witness")).unwrap()
}

fn weights(plan: &Plan) -> Vec<&Counter> {
    plan.counters.iter().filter(|counter| counter.role.is_weight()).collect()
}

/// Traffic that only CPUs of one socket cause.
const OF_CPUS: &str = "nvidia_ucf_pmu_1/mem_bytes_rd,src_loc_cpu=1/";

/// Traffic that CPUs of both sockets cause, and devices.
const OF_ALL: &str = "nvidia_ucf_pmu_1/mem_bytes_rd,src_loc_noncpu=1,src_loc_cpu=1,src_rem=1/";

#[test]
fn each_cpu_that_a_counter_sees_has_a_witness() {
    let plan = planned(&["mem"], &[], WitnessDemand::Surely, STAND_IN).unwrap();
    let weights = weights(&plan);
    let cpus: Vec<u32> = weights.iter().map(|counter| counter.cpu).collect();
    assert_eq!(cpus, [0, 1, 2, 3]);
    for counter in &weights {
        assert_eq!((counter.role, counter.event.as_str()), (CounterRole::Weight, STAND_IN));
        assert!(counter.at_switch && counter.per_cpu);
        assert_eq!(counter.witness_bytes, Some(64.0));
    }
    for counter in &plan.counters {
        let of_cpus = counter.filter.contains("src_loc_cpu=0x1");
        assert_eq!(plan.has_misses_of(counter), of_cpus, "{}", counter.filter);
        assert_eq!(counter.witness_bytes.is_some(), counter.role.is_weight());
    }
    let note = plan.notes.iter().find(|note| note.contains(STAND_IN)).unwrap();
    assert_eq!(
        note,
        "witness armv8_pmuv3_0/inst_retired/ of counters 0,3,6,9 is read at every context switch \
         on CPU 0-3; it does not count write-backs, prefetches; --method residency or regression \
         needs none"
    );
    assert!(plan.render_plan().contains(note));
    let deserialized: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    assert_eq!(deserialized, plan);
}

#[test]
fn cpus_that_no_counter_sees_have_no_witness() {
    let plan = planned(&[], &[OF_CPUS], WitnessDemand::Surely, STAND_IN).unwrap();
    let cpus: Vec<u32> = weights(&plan).iter().map(|counter| counter.cpu).collect();
    assert_eq!(cpus, [2, 3]);
}

#[test]
fn a_counter_of_cpus_and_devices_has_the_witnesses_of_all_cpus() {
    let plan = planned(&[], &[OF_ALL], within(2.0, 100.0), STAND_IN).unwrap();
    let cpus: Vec<u32> = weights(&plan).iter().map(|counter| counter.cpu).collect();
    assert_eq!(cpus, [0, 1, 2, 3]);
    let counter = &plan.counters[0];
    assert!(counter.cause.is_none() && plan.has_misses_of(counter), "{counter:?}");
}

#[test]
fn a_requested_witness_event_is_counted_once_and_needs_no_budget() {
    let plan = planned(&[], &[OF_CPUS, STAND_IN], within(0.0, 1e9), STAND_IN).unwrap();
    let roles: Vec<_> = plan.counters.iter().map(|counter| (counter.cpu, counter.role)).collect();
    let counted = CounterRole::Counted;
    assert_eq!(
        roles,
        [(2, counted), (0, counted), (1, counted), (2, CounterRole::Both), (3, CounterRole::Both)]
    );
    assert_eq!(plan.only_witnesses().count(), 0);
}

#[test]
fn no_witness_is_opened_where_none_is_wanted() {
    for (groups, demand) in [(&["mem"], WitnessDemand::No), (&["pcie"], within(2.0, 100.0))] {
        let plan = planned(groups, &[], demand, STAND_IN).unwrap();
        assert_eq!(weights(&plan), [] as [&Counter; 0]);
        assert!(!plan.notes.iter().any(|note| note.contains("witness")), "{:?}", plan.notes);
    }
}

#[test]
fn auto_opens_witnesses_within_the_budget_and_says_what_they_cost() {
    let plan = planned(&["mem"], &[], within(2.0, 5000.0), STAND_IN).unwrap();
    assert_eq!(weights(&plan).len(), 4);
    assert_eq!(plan.only_witnesses().count(), 4);
    let note = plan.notes.iter().find(|note| note.contains("witness")).unwrap();
    assert_eq!(
        note,
        "witness armv8_pmuv3_0/inst_retired/ of counters 0,3,6,9 is read at every context switch on \
         CPU 0-3; it does not count write-backs, prefetches; this takes 0.54 % of the time of each \
         CPU at 5000 context switches a second, --witness-budget is 2 %"
    );
    let unknown = WitnessDemand::Within(WitnessAllowance { percent: 2.0, switches: None });
    let plan = planned(&["mem"], &[], unknown, STAND_IN).unwrap();
    assert_eq!(weights(&plan).len(), 4);
    let note = plan.notes.iter().find(|note| note.contains("witness")).unwrap();
    assert!(note.ends_with("is measured when a recording starts"), "{note}");
}

#[test]
fn auto_opens_none_above_the_budget_and_says_why() {
    let none = |demand| {
        let plan = planned(&["mem"], &[], demand, STAND_IN).unwrap();
        assert_eq!(weights(&plan), [] as [&Counter; 0]);
        plan.notes.iter().find(|note| note.contains("witness")).unwrap().clone()
    };
    let note_begin = "no witness armv8_pmuv3_0/inst_retired/ for counters 0,3,6,9: ";
    assert_eq!(
        none(within(2.0, 50_000.0)),
        format!(
            "{note_begin}at 50000 context switches a second it would take 4.6 % of the time of each CPU, \
             and --witness-budget is 2 %"
        )
    );
    assert_eq!(none(within(0.0, 10.0)), format!("{note_begin}--witness-budget is 0"));
}

#[test]
fn auto_opens_none_where_the_core_has_no_counters() {
    let mut machine = captured("t410-2s");
    machine.pmus.retain(|pmu| !pmu.name.starts_with("armv8"));
    assert_eq!(
        why_none(&machine, &catalog(STAND_IN), &[OF_CPUS]),
        "no witness for counter 0: CPU 2-3 has no core PMU (a virtual machine without counters?)"
    );
}

#[test]
fn auto_opens_none_where_the_counters_of_the_core_are_planned_for_others() {
    let mut catalog = catalog(STAND_IN);
    let core = catalog.families.iter_mut().find(|family| family.family == "arm_core").unwrap();
    core.budgets = vec![toml::from_str("counters = 1").unwrap()];
    assert_eq!(
        why_none(&captured("t410-2s"), &catalog, &[OF_CPUS, "armv8_pmuv3_0/cpu_cycles/"]),
        "no witness armv8_pmuv3_0/inst_retired/ for counter 0: no counter of armv8_pmuv3_0 is left \
         for it"
    );
}

#[test]
fn a_witness_is_useless_where_another_that_its_counters_need_is_gone() {
    let plan = planned(&["mem"], &[], within(2.0, 100.0), STAND_IN).unwrap();
    let id_on = |cpu| plan.only_witnesses().find(|witness| witness.cpu == cpu).unwrap().id;
    let useless =
        |gone: &[u32]| plan.useless_witnesses(&gone.iter().map(|cpu| id_on(*cpu)).collect());
    assert_eq!(useless(&[]), [] as [u32; 0]);
    // Counters of traffic by local CPUs see those of one socket, 0 and 1 or 2 and 3.
    assert_eq!(useless(&[1]), [id_on(0)]);
    assert_eq!(useless(&[0, 2]), [id_on(1), id_on(3)]);
}

#[test]
fn a_witness_that_does_not_exist_is_a_note_or_an_error() {
    let plan = planned(&["mem"], &[], within(2.0, 100.0), "absent").unwrap();
    assert_eq!(weights(&plan), [] as [&Counter; 0]);
    let why = "armv8_pmuv3_0 on CPU 0-3 has none of its events, no_such_event, cpu_cycles, absent";
    let note = format!("no witness for counters 0,3,6,9: {why}");
    assert!(plan.notes.contains(&note), "{:?}", plan.notes);
    let refused = planned(&["mem"], &[], WitnessDemand::Surely, "absent").unwrap_err();
    assert_eq!(refused, format!("--method misses: {why}; choose --method regression"));
    let refused = planned(&["pcie"], &[], WitnessDemand::Surely, STAND_IN).unwrap_err();
    assert!(refused.starts_with("--method misses divides traffic of CPUs"), "{refused}");
}

/// The witness on CPUs of this processor, whose core PMU has only `cache-misses` in sysfs.
fn first(processor: &str) -> String {
    let catalog = Catalog::load_embedded().unwrap();
    let formats = ["event", "umask"].map(|name| (name.to_owned(), "config:0-15".parse().unwrap()));
    let pmu = Pmu {
        name: "cpu".to_owned(),
        processor: Some(processor.to_owned()),
        formats: formats.into_iter().collect(),
        ..Pmu::default()
    };
    let words = PmuWords::new(&catalog, &pmu);
    let witnesses = &words.family.unwrap().witnesses;
    let mut usable = witnesses.iter().filter(|witness| witness.applies_to_pmu(&pmu));
    usable.find_map(|witness| words.find_event(&witness.event)).unwrap().name.to_owned()
}

#[test]
fn each_processor_has_its_own_witness() {
    for (processor, event) in [
        ("GenuineIntel-6-8f", "cache-misses"),
        ("AuthenticAMD-23-1", "cache-misses"),
        ("AuthenticAMD-23-31", "ls_refills_from_sys.ls_mabresp_dram"),
        ("AuthenticAMD-25-1", "ls_any_fills_from_sys.dram_io_all"),
        ("AuthenticAMD-26-2", "ls_any_fills_from_sys.dram_io_all"),
        ("CentaurHauls-7-5b", "cache-misses"),
    ] {
        assert_eq!(first(processor), event, "{processor}");
    }
}
