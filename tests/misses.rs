//! Which miss counters a plan opens beside what was asked for, on captured machines.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use uncore_trace::catalog::Catalog;
use uncore_trace::plan::misses::Wanted;
use uncore_trace::plan::{Counter, Plan, Request, Role, plan};

use crate::machines::{captured, request};

/// The emulated core PMU of the captured machine has no such event; the count of instructions stands
/// for it.
const STAND_IN: &str = "inst_retired";

fn catalog(event: &str) -> Catalog {
    let mut catalog = Catalog::embedded().unwrap();
    let core = catalog.families.iter_mut().find(|family| family.family == "arm_core").unwrap();
    core.misses = vec!["no_such_event".to_owned(), event.to_owned()];
    catalog
}

fn planned(groups: &[&str], events: &[&str], misses: Wanted, event: &str) -> Result<Plan, String> {
    let request = Request { misses, ..request(groups, events) };
    let made = plan(&captured("t410-2s"), &catalog(event), &request);
    made.map_err(|error| format!("{error:#}"))
}

fn weights(plan: &Plan) -> Vec<&Counter> {
    plan.counters.iter().filter(|counter| counter.role.weighs()).collect()
}

/// What CPUs alone cause on one socket.
const OF_CPUS: &str = "nvidia_ucf_pmu_1/mem_bytes_rd,src_loc_cpu=1/";

#[test]
fn each_cpu_that_a_counter_sees_has_one() {
    let plan = planned(&["mem"], &[], Wanted::Surely, STAND_IN).unwrap();
    let weights = weights(&plan);
    let cpus: Vec<u32> = weights.iter().map(|counter| counter.cpu).collect();
    assert_eq!(cpus, [0, 1, 2, 3]);
    for counter in &weights {
        assert_eq!((counter.role, counter.event.as_str()), (Role::Weight, STAND_IN));
        assert!(counter.at_switch && counter.per_cpu);
    }
    for counter in &plan.counters {
        let of_cpus = counter.filter.contains("src_loc_cpu=0x1");
        assert_eq!(plan.has_misses_of(counter), of_cpus, "{}", counter.filter);
    }
    let note = plan.notes.iter().find(|note| note.contains(STAND_IN)).unwrap();
    assert_eq!(
        note,
        "armv8_pmuv3_0/inst_retired/ is read at every switch on CPU 0-3 to divide counters \
         0,3,6,9 by misses; another --method goes without"
    );
    assert!(plan.render().contains(note));
    let again: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    assert_eq!(again, plan);
}

#[test]
fn other_cpus_have_none() {
    let plan = planned(&[], &[OF_CPUS], Wanted::Surely, STAND_IN).unwrap();
    let cpus: Vec<u32> = weights(&plan).iter().map(|counter| counter.cpu).collect();
    assert_eq!(cpus, [2, 3]);
}

#[test]
fn one_that_was_asked_for_serves_both() {
    let plan = planned(&[], &[OF_CPUS, STAND_IN], Wanted::IfCounted, STAND_IN).unwrap();
    let roles: Vec<_> = plan.counters.iter().map(|counter| (counter.cpu, counter.role)).collect();
    let counted = Role::Counted;
    assert_eq!(roles, [(2, counted), (0, counted), (1, counted), (2, Role::Both), (3, Role::Both)]);
}

#[test]
fn nobody_pays_for_what_is_not_wanted() {
    for (groups, wanted) in [(&["mem"], Wanted::No), (&["pcie"], Wanted::IfCounted)] {
        let plan = planned(groups, &[], wanted, STAND_IN).unwrap();
        assert_eq!(weights(&plan), [] as [&Counter; 0]);
        assert!(!plan.notes.iter().any(|note| note.contains("misses")), "{:?}", plan.notes);
    }
}

#[test]
fn who_does_not_ask_is_told_that_he_could() {
    let plan = planned(&["mem"], &[], Wanted::IfCounted, STAND_IN).unwrap();
    assert_eq!(weights(&plan), [] as [&Counter; 0]);
    let note = plan.notes.iter().find(|note| note.contains("misses")).unwrap();
    assert_eq!(
        note,
        "--method misses would divide counters 0,3,6,9 by the last-level misses of each task, for \
         some 0.7 us at every switch"
    );
}

#[test]
fn what_cannot_be_had_is_a_note_or_an_error() {
    let plan = planned(&["mem"], &[], Wanted::IfCounted, "absent").unwrap();
    assert_eq!(weights(&plan), [] as [&Counter; 0]);
    let why = "armv8_pmuv3_0 on CPU 0-3 counts no misses of the last cache \
               (no event no_such_event, absent)";
    assert!(plan.notes.contains(&format!("not divided by misses: {why}")), "{:?}", plan.notes);
    let refused = planned(&["mem"], &[], Wanted::Surely, "absent").unwrap_err();
    assert_eq!(refused, format!("--method misses: {why}; choose --method regression"));
    let refused = planned(&["pcie"], &[], Wanted::Surely, STAND_IN).unwrap_err();
    assert!(refused.starts_with("--method misses divides what CPUs alone cause"), "{refused}");
}
