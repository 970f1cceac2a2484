//! What the events say as they were typed, beside the plan.

use std::collections::BTreeSet;

use crate::catalog::spec::{self, EventItem, EventSpec, TermValue};
use crate::discover::Machine;

/// The events as typed; planning has already accepted all of them.
pub(super) fn parse_events(texts: &[String]) -> Vec<EventSpec> {
    let items = texts.iter().filter_map(|text| spec::parse(text).ok()).flatten();
    let events = items.flat_map(|item| match item {
        EventItem::One(event) => vec![event],
        EventItem::Group { members, .. } => members,
    });
    events.collect()
}

/// The name that an event was given: the last one, as in planning.
pub(super) fn event_label(event: &EventSpec) -> Option<String> {
    event.terms.iter().rev().find_map(|term| match &term.value {
        TermValue::Symbol(name) if term.name == "name" => Some(name.clone()),
        _ => None,
    })
}

/// The PMU instances that were given by their full names.
pub(super) fn named_pmus(machine: &Machine, typed: &[EventSpec]) -> BTreeSet<String> {
    let words: Vec<_> = typed.iter().filter_map(|event| event.pmu.as_deref()).collect();
    let called = machine.pmus.iter().filter(|pmu| words.iter().any(|word| pmu.is_called(word)));
    called.map(|pmu| pmu.name.clone()).collect()
}
