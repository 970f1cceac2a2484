//! The ports that a plan opens, on captured machines.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use uncore_trace::catalog::Catalog;
use uncore_trace::discover::{CpuList, Machine};
use uncore_trace::plan::{CounterRole, Plan, PlanRequest, plan};

use crate::machines::{captured, request};

fn planned(machine: &Machine, groups: &[&str], events: &[&str]) -> Result<Plan, String> {
    let request = PlanRequest { ports: true, ..request(groups, events) };
    let plan_result = plan(machine, &Catalog::load_embedded().unwrap(), &request);
    plan_result.map_err(|error| format!("{error:#}"))
}

/// Reader CPU, role, event and CPUs of each port.
fn ports(plan: &Plan) -> Vec<(u32, CounterRole, &str, String)> {
    let ports = plan.counters.iter().filter(|counter| counter.is_port());
    ports.map(|port| (port.cpu, port.role, port.event.as_str(), port.sees.to_string())).collect()
}

/// Each processor has its event for the misses of a core complex.
#[test]
fn each_last_level_cache_is_a_port_of_the_memory() {
    for (machine, event) in [
        ("zen2", "l3_comb_clstr_state.request_miss"),
        ("zen3-2s", "l3_comb_clstr_state.request_miss"),
        ("zen4-2s", "l3_lookup_state.l3_miss"),
        ("zen5-2s", "l3_lookup_state.l3_miss"),
    ] {
        let machine = captured(machine);
        let plan = planned(&machine, &["mem"], &[]).unwrap();
        let ports = ports(&plan);
        assert!(
            ports.len() > 1 && ports.iter().all(|port| port.1 == CounterRole::Weight),
            "{ports:?}"
        );
        assert!(ports.iter().all(|port| port.2 == event), "{ports:?}");
        let seen_cpus: CpuList = plan
            .counters
            .iter()
            .filter(|planned_counter| planned_counter.is_port())
            .flat_map(|port| port.sees.iter())
            .collect();
        assert_eq!(seen_cpus, machine.cpus.online);
        for counter in &plan.counters {
            assert_eq!(plan.has_ports_of(counter), !counter.is_port(), "{counter:?}");
            assert_eq!(counter.witness_bytes, counter.is_port().then_some(64.0));
            assert!(!plan.has_misses_of(counter) && !counter.at_switch);
        }
        assert_eq!((plan.only_witnesses().count(), plan.has_misses()), (0, false));
        let deserialized: Plan =
            serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        assert_eq!(deserialized, plan);
    }
}

#[test]
fn a_note_says_what_ports_do_not_count() {
    let plan = planned(&captured("zen4-2s"), &["mem"], &[]).unwrap();
    let note = plan.notes.iter().find(|note| note.contains(" divided by port ")).unwrap();
    insta::assert_snapshot!(note);
}

/// A port that was asked for has rows too, and is divided by the use of its own CPUs.
#[test]
fn a_port_that_was_asked_for_serves_both() {
    let events = &["amd_l3/l3_lookup_state.l3_miss/"];
    let plan = planned(&captured("zen4-2s"), &["mem"], events).unwrap();
    assert!(ports(&plan).iter().all(|port| port.1 == CounterRole::Both));
    let has_ports = |counter: &&uncore_trace::plan::Counter| plan.has_ports_of(counter);
    assert!(plan.counters.iter().filter(has_ports).all(|counter| counter.subsystem == "mem"));
}

#[test]
fn a_machine_without_ports_says_so() {
    for machine in ["grace-2s", "icelake-2s", "yitian"] {
        let error = planned(&captured(machine), &["mem"], &[]).unwrap_err();
        assert!(error.starts_with("this machine has no ports"), "{machine}: {error}");
        assert!(error.ends_with("leave out --witness ports") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn ports_are_refused_for_counts_that_cpus_do_not_cause() {
    let error = planned(&captured("zen4-2s"), &["pcie"], &[]).unwrap_err();
    assert!(error.starts_with("--witness ports divides traffic of CPUs"), "{error}");
    let error =
        planned(&captured("zen4-2s"), &[], &["amd_l3/l3_lookup_state.l3_hit/"]).unwrap_err();
    assert!(error.contains("no selected counter counts more CPUs than a port"), "{error}");
}

/// A cache whose PMU cannot be read leaves its CPUs without a port.
#[test]
fn ports_are_refused_where_a_cpu_has_none() {
    let mut machine = captured("zen4-2s");
    let pmu = machine.pmus.iter_mut().find(|pmu| pmu.name == "amd_l3").unwrap();
    let mask = pmu.cpumask.as_ref().unwrap();
    pmu.cpumask = Some(mask.iter().take(1).collect());
    let error = planned(&machine, &["mem"], &[]).unwrap_err();
    assert!(error.starts_with("--witness ports: no ports for counter"), "{error}");
    assert!(error.contains("has none") && !error.contains('\n'), "{error}");
}

/// Six counters of a cache are taken.
#[test]
fn ports_do_not_take_turns() {
    let events: Vec<String> =
        (1..=6).map(|umask| format!("amd_l3/event=0x4,umask={:#x}/", umask << 1)).collect();
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let error = planned(&captured("zen4-2s"), &["mem"], &events).unwrap_err();
    assert!(error.starts_with("--witness ports: no counter of amd_l3 is left"), "{error}");
}

/// Clusters of Arm say which CPUs they have.
#[test]
fn each_cluster_is_a_port_of_the_memory() {
    let machine = captured("altra-2s");
    let plan = planned(&machine, &["mem"], &[]).unwrap();
    let ports = ports(&plan);
    assert!(
        !ports.is_empty() && ports.iter().all(|port| port.2 == "l3d_cache_refill"),
        "{ports:?}"
    );
}
