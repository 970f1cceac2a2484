//! The group `auto`, which is counted without a request: all traffic, nothing of it twice.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;

use super::resolve::{ResolvedEvent, Resolver};
use super::{Plan, PlanRequest, plan};
use crate::catalog::Catalog;
use crate::catalog::family::OverlapRule;
use crate::catalog::group::Group;
use crate::discover::Machine;
use crate::suggest::list_names;

/// Its name after `-p`.
pub const AUTO: &str = "auto";

/// Groups of traffic.
pub const TRAFFIC: [Group; 4] = [Group::Mem, Group::Pcie, Group::C2c, Group::Mesh];

/// Number of event names in a note; the patterns of the catalog stand for more.
const FEW: usize = 2;

impl<'a> Resolver<'a> {
    /// The events of all groups of traffic, without clocks and without those that count again, at
    /// the same place, what another one counts; a note says which.
    pub(super) fn traffic_events(&mut self) -> Vec<ResolvedEvent<'a>> {
        let group_events = TRAFFIC.into_iter().flat_map(|group| self.resolve_group(group));
        let events: Vec<_> = group_events.filter(|event| event.encoded.unit != "cycles").collect();
        let mut left_out: Vec<(&OverlapRule, BTreeSet<&str>)> = Vec::new();
        let mut kept = Vec::new();
        let names: BTreeSet<(&str, &str)> = events.iter().map(family_and_event).collect();
        let mut rules: HashMap<(&str, &str), Option<&OverlapRule>> = HashMap::new();
        for event in &events {
            let rule =
                *rules.entry(family_and_event(event)).or_insert_with(|| yields_to(event, &names));
            let Some(rule) = rule else {
                kept.push(event.clone());
                continue;
            };
            let name = event.encoded.event.as_str();
            match left_out.iter_mut().find(|(known, _)| known.note == rule.note) {
                Some((_, names)) => _ = names.insert(name),
                None => left_out.push((rule, BTreeSet::from([name]))),
            }
        }
        for (rule, names) in left_out {
            let names =
                if names.len() > FEW { list_names(&rule.events) } else { list_names(names) };
            self.notes.push(format!("{AUTO} leaves out {names}: {}", rule.note));
        }
        kept
    }
}

/// The names of an event's family and of the event.
fn family_and_event<'e>(event: &'e ResolvedEvent<'_>) -> (&'e str, &'e str) {
    (event.words.family_name(), &event.encoded.event)
}

/// The rule by which an event gives way to another one of these, given as families and events.
fn yields_to<'a>(
    event: &ResolvedEvent<'a>,
    counted: &BTreeSet<(&str, &str)>,
) -> Option<&'a OverlapRule> {
    let mut rules = event.words.family?.overlaps.iter().filter(|rule| rule.yields);
    rules.find(|rule| {
        counted.iter().any(|(family, name)| rule.applies(&event.encoded.event, family, name))
    })
}

/// The plan of `auto` by root port, in the requested ticks and windows. If no PMU here counts
/// traffic, also the reason why it has other counters.
///
/// # Errors
///
/// Not even the group host can be planned.
pub fn plan_traffic(
    machine: &Machine,
    catalog: &Catalog,
    asked: &PlanRequest,
) -> Result<(Plan, Option<String>)> {
    let auto = PlanRequest { groups: vec![AUTO.to_owned()], ..asked.clone() };
    // Root ports that cannot be distinguished are counted together.
    let by_port = plan(machine, catalog, &PlanRequest { per_port: true, ..auto.clone() });
    let plan = by_port.or_else(|_| plan(machine, catalog, &auto))?;
    let is_traffic = |subsystem: &str| TRAFFIC.iter().any(|group| group.name() == subsystem);
    let counts_traffic = plan.counters.iter().any(|counter| is_traffic(&counter.subsystem));
    let notice = "no PMU here counts traffic; disks, interfaces and software counters are shown \
                  (see uncore-trace doctor)";
    Ok((plan, (!counts_traffic).then(|| notice.to_owned())))
}
