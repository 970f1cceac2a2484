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
    let counter_text = |counter: &Counter| {
        format!("{} {} {} [{}]", counter.subsystem, counter.family, counter.event, counter.unit)
    };
    plan.counters.iter().map(counter_text).collect()
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
        let mut filters_of_events: BTreeMap<(&str, &str, u32), Vec<&str>> = BTreeMap::new();
        for its in &plan.counters {
            filters_of_events.entry((&its.pmu, &its.event, its.cpu)).or_default().push(&its.filter);
        }
        for (key, filters) in filters_of_events {
            let parts: BTreeSet<&str> = filters.iter().copied().collect();
            assert_eq!(parts.len(), filters.len(), "{name}: {key:?} {filters:?}");
            assert!(parts.len() == 1 || !parts.contains(""), "{name}: {key:?} {filters:?}");
        }
        let mut links: BTreeMap<u32, &str> = BTreeMap::new();
        let mut families: BTreeMap<(&str, Option<i16>), BTreeSet<&str>> = BTreeMap::new();
        for link in &plan.links {
            for link_counter in
                link.counters.iter().filter(|counted| counted.direction != Direction::Both)
            {
                let previous_link = links.insert(link_counter.counter, &link.name);
                assert_eq!(
                    previous_link, None,
                    "{name}: counter {} is of two links",
                    link_counter.counter
                );
                let family = plan.counters[link_counter.counter as usize].family.as_str();
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
            let event_family =
                catalog.families.iter().find(|candidate| candidate.family == *family).unwrap();
            for rule in event_family.overlaps.iter().filter(|rule| rule.yields) {
                let overlapping = kinds.iter().find(|(its, other)| rule.applies(event, its, other));
                assert_eq!(overlapping, None, "{name}: {family} {event}");
            }
        }
    }
}

/// A rule without an event in the catalog would leave nothing out.
#[test]
fn every_rule_that_leaves_something_out_is_about_events_of_a_group() {
    let catalog = Catalog::load_embedded().unwrap();
    let opens = |family: &str, any: &[String]| {
        let family = catalog.families.iter().find(|candidate| candidate.family == family).unwrap();
        let stem = |glob: &str| glob.split(['*', '|']).next().unwrap_or_default().to_owned();
        let globs: Vec<String> = family.opens.values().flatten().map(|glob| stem(glob)).collect();
        any.iter().any(|glob| {
            let rule_stem = stem(glob);
            globs.iter().any(|opened_stem| {
                opened_stem.starts_with(&rule_stem) || rule_stem.starts_with(opened_stem.as_str())
            })
        })
    };
    for family in &catalog.families {
        for rule in family.overlaps.iter().filter(|rule| rule.yields) {
            assert!(opens(&rule.family, &rule.others), "{}: {:?}", family.family, rule.others);
        }
    }
}
