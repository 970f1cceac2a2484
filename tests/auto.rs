//! `-p auto`, which is counted without a request: all traffic of a machine, nothing of it twice.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::{BTreeMap, BTreeSet};

use uncore_trace::catalog::Catalog;
use uncore_trace::catalog::group::Group;
use uncore_trace::plan::traffic::{AUTO, TRAFFIC};
use uncore_trace::plan::{Counter, Plan, plan};
use uncore_trace::schema::link::Direction;
use uncore_trace_lab::fixtures;

use crate::machines::{captured, planned, request};

/// The groups of traffic that open something on a machine.
fn traffic_here(name: &str) -> Vec<&'static str> {
    let catalog = Catalog::load_embedded().unwrap();
    let opens = |group: &str| plan(&captured(name), &catalog, &request(&[group], &[])).is_ok();
    TRAFFIC.into_iter().map(Group::name).filter(|group| opens(group)).collect()
}

/// `PMU/EVENT/` without the number of the instance, once for all instances, and the unit.
fn events(plan: &Plan) -> BTreeSet<String> {
    let of = |counter: &Counter| {
        format!("{} {} {} [{}]", counter.subsystem, counter.family, counter.event, counter.unit)
    };
    plan.counters.iter().map(of).collect()
}

#[test]
fn every_machine_counts_without_a_request() {
    let mut counts = Vec::new();
    for name in &fixtures::names().unwrap() {
        let plan = planned(name, &[], &[]);
        assert_eq!(plan, planned(name, &[AUTO], &[]), "{name}");
        let groups: BTreeSet<&str> =
            plan.counters.iter().map(|counter| counter.subsystem.as_str()).collect();
        let traffic = traffic_here(name);
        if traffic.is_empty() {
            let has_io = captured(name).pmus.iter().any(|pmu| pmu.statistics.is_some());
            let expected: &[&str] = if has_io { &["host", "io"] } else { &["host"] };
            assert!(groups.iter().eq(expected), "{name}: {groups:?}");
        } else {
            // A group may be a view of another one, and is left out as a whole.
            assert!(groups.iter().all(|group| traffic.contains(group)), "{name}: {groups:?}");
            assert!(groups.contains(traffic[0]), "{name}: {groups:?}");
        }
        counts.push(format!("{name}: {} counters", plan.counters.len()));
        counts.extend(events(&plan).iter().map(|event| format!("  {event}")));
        let notes = plan.notes.iter().filter(|note| note.starts_with(AUTO));
        counts.extend(notes.map(|note| format!("  {note}")));
    }
    insta::assert_snapshot!("auto", counts.join("\n"));
}

/// Four ways to count a byte twice at one place: two counters with one encoding on a PMU, where
/// one is limited to a part of what the other counts; two families on a link; a counter on two
/// links; and what the catalog says.
#[test]
fn no_byte_is_counted_twice_at_one_place() {
    let catalog = Catalog::load_embedded().unwrap();
    for name in &fixtures::names().unwrap() {
        let plan = planned(name, &[], &[]);
        let mut whole: BTreeMap<(&str, &str, u32), Vec<&str>> = BTreeMap::new();
        for its in &plan.counters {
            whole.entry((&its.pmu, &its.event, its.cpu)).or_default().push(&its.filter);
        }
        for (key, filters) in whole {
            let parts: BTreeSet<&str> = filters.iter().copied().collect();
            assert_eq!(parts.len(), filters.len(), "{name}: {key:?} {filters:?}");
            assert!(parts.len() == 1 || !parts.contains(""), "{name}: {key:?} {filters:?}");
        }
        let mut links: BTreeMap<u32, &str> = BTreeMap::new();
        let mut families: BTreeMap<(&str, Option<i16>), BTreeSet<&str>> = BTreeMap::new();
        for link in &plan.links {
            for its in link.counters.iter().filter(|its| its.direction != Direction::Both) {
                let other = links.insert(its.counter, &link.name);
                assert_eq!(other, None, "{name}: counter {} is of two links", its.counter);
                let family = plan.counters[its.counter as usize].family.as_str();
                families.entry((&link.kind, link.socket)).or_default().insert(family);
            }
        }
        // This one has the drivers of several vendors, so links of the same name.
        families.retain(|_, _| name != "all-drivers-acpi");
        for (link, families) in families {
            assert_eq!(families.len(), 1, "{name}: {link:?} {families:?}");
        }
        let kinds: BTreeSet<(&str, &str)> =
            plan.counters.iter().map(|its| (its.family.as_str(), its.event.as_str())).collect();
        for (family, event) in &kinds {
            let known = catalog.families.iter().find(|its| its.family == *family).unwrap();
            for rule in known.overlaps.iter().filter(|rule| rule.yields) {
                let twice = kinds.iter().find(|(its, other)| rule.applies(event, its, other));
                assert_eq!(twice, None, "{name}: {family} {event}");
            }
        }
    }
}

/// A rule without an event in the catalog would leave nothing out.
#[test]
fn every_rule_that_leaves_something_out_is_about_events_of_a_group() {
    let catalog = Catalog::load_embedded().unwrap();
    let opens = |family: &str, any: &[String]| {
        let family = catalog.families.iter().find(|its| its.family == family).unwrap();
        let stem = |glob: &str| glob.split(['*', '|']).next().unwrap_or_default().to_owned();
        let globs: Vec<String> = family.opens.values().flatten().map(|glob| stem(glob)).collect();
        any.iter().any(|glob| {
            let wanted = stem(glob);
            globs.iter().any(|its| its.starts_with(&wanted) || wanted.starts_with(its.as_str()))
        })
    };
    for family in &catalog.families {
        for rule in family.overlaps.iter().filter(|rule| rule.yields) {
            assert!(opens(&rule.family, &rule.others), "{}: {:?}", family.family, rule.others);
        }
    }
}
