//! `--per device`: counters of single functions beside the counters of the whole.
//!
//! [`PortPmu::rule`] says which term takes the id of a function, or else which one selects its root
//! port. The counter of the whole stays: its parts count no more than it does, and the rest is of
//! functions without a counter of their own.
//!
//! Counters that one register of their PMU keeps from running together are in groups that the
//! kernel runs one after the other. Such a group is `exclusive`: without that, the kernel would ask
//! the driver for the other ones at each turn, and `pcie_v2_pmu_validate_event`
//! (`drivers/perf/arm_cspmu/nvidia_cspmu.c`, Linux 7.2) would write an error into the kernel's log
//! each time (`group_can_go_on`, kernel/events/core.c).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Result, ensure};

use super::assembly::Assembly;
use super::device::{Narrowing, Subset, no_pmu, selected_functions};
use super::metric_groups::FEW;
use super::plan_notes::by_pmu;
use super::port_pmu::PortPmu;
use super::resolve::{ResolvedEvent, Resolver};
use crate::catalog::pattern::matches_any_event;
use crate::catalog::pmu_words::PmuWords;
use crate::catalog::ports::Locate;
use crate::catalog::rules::OneValueRule;
use crate::catalog::source::TrafficCause;
use crate::discover::held_functions::SeparateFunctions;
use crate::discover::pci::{PciAddress, PciFunction};
use crate::suggest::list_names;
use crate::text::printable;

/// In a note on a function that a PMU cannot select.
const NO_FILTER: &str = "it has no filter for";

impl<'a> Narrowing<'a> {
    /// Counts functions on their own: those of the `devices`, or of `apart` if there are none.
    ///
    /// # Errors
    ///
    /// No device has this name, or there is no function.
    pub(super) fn set_apart(
        &mut self,
        devices: &[String],
        apart: &SeparateFunctions,
    ) -> Result<()> {
        let mut selected: Vec<&'a PciFunction> = Vec::new();
        for device in devices {
            selected.extend(selected_functions(self.machine, device)?);
        }
        if devices.is_empty() {
            let known = |address: &PciAddress| self.machine.devices.find_function(*address);
            selected.extend(
                apart.functions.iter().filter_map(known).filter(|candidate| !candidate.is_bridge()),
            );
            ensure!(
                !selected.is_empty(),
                "--per device: no GPU, NIC, accelerator, NVMe or VFIO device on PCI has a device \
                 file here: leave it out, or name devices with --device"
            );
            if !apart.is_whole {
                self.notes.insert(
                    "--per device: the open files of some processes cannot be read, so functions \
                     that they hold may be missing: run it as root, or name devices with --device"
                        .to_owned(),
                );
            } else if !apart.is_held {
                self.notes.insert(
                    "--per device: nobody holds a device, so each one that has a device file is \
                     counted on its own"
                        .to_owned(),
                );
            }
        }
        let mut seen = BTreeSet::new();
        selected.retain(|function| seen.insert(function.address));
        self.apart = Some(selected);
        Ok(())
    }

    /// The whole of a PMU, and the parts of these functions that it can select.
    pub(super) fn beside_whole(
        &mut self,
        ports: PortPmu<'_>,
        event: &str,
        apart: &[&PciFunction],
    ) -> Vec<Subset> {
        let mut subsets = vec![Subset::default()];
        if !is_of_devices(ports, event) {
            return subsets;
        }
        let select = |function: &&PciFunction| self.select_function(ports, function);
        let selected: BTreeSet<Subset> = apart.iter().filter_map(select).collect();
        if !selected.is_empty() {
            self.used = true;
            self.notes.insert(
                "--per device: the counters of all devices include the traffic of single devices: \
                 never add the two"
                    .to_owned(),
            );
        }
        subsets.extend(selected);
        subsets
    }

    /// The part of a PMU that counts this function, if it has a filter for it.
    fn select_function(&mut self, ports: PortPmu<'_>, function: &PciFunction) -> Option<Subset> {
        let PortPmu { words, rule, .. } = ports;
        let position = ports.single_position(function)?;
        let has_term = |term: &String| words.term_format(term).is_some();
        let requester = rule.requester.as_ref().filter(|id_filter| has_term(&id_filter.term));
        if let Some((id_filter, id)) = requester.zip(ports.id_of(function)) {
            let (terms, functions) = (id_filter.selecting_terms(id), vec![function.address]);
            return Some(Subset { terms, die: position.die, functions });
        }
        let counted_together = ports.counted_with(function, position);
        let pmu = printable(&words.pmu.name);
        let address = function.address;
        let term = rule.term.as_ref().filter(|term| has_term(term));
        let Some((term, port)) = term.zip(position.port) else {
            if counted_together.is_empty() {
                // The whole has no other device.
                self.used = true;
            } else {
                let names = list_names(counted_together.iter().map(PciAddress::to_string));
                self.notes.insert(format!(
                    "{pmu}: {NO_FILTER} {address}, which is counted together with {names}"
                ));
            }
            return None;
        };
        if !counted_together.is_empty() {
            let top = function.top;
            self.notes.insert(format!(
                "{pmu}: its filter is for root ports, so all devices below {top} are counted \
                 together"
            ));
        }
        let mut functions = counted_together;
        functions.push(address);
        functions.sort_unstable();
        Some(Subset { terms: vec![(term.clone(), 1_u64 << port)], die: position.die, functions })
    }
}

impl Resolver<'_> {
    /// Why none of these functions is counted on its own.
    pub(super) fn no_filter(&self, apart: &[&PciFunction]) -> String {
        let is_iort = |words: PmuWords<'_>| {
            let ports = words.family.and_then(|family| family.ports.as_ref());
            ports.is_some_and(|ports| ports.by == Locate::Iort)
        };
        let missing = apart.iter().find(|function| !self.pmus.can_single_out(function));
        let why = if let Some(note) =
            self.narrowing.notes.iter().find(|candidate| candidate.contains(NO_FILTER))
        {
            note.clone()
        } else if self.machine.streams.is_empty() && self.pmu_words().any(is_iort) {
            "the firmware's table IORT says which StreamID belongs to which device, and only root \
             can read it"
                .to_owned()
        } else if let Some(function) = missing {
            no_pmu(&self.pmus, &function.address.to_string(), function)
        } else {
            "PMUs with such a filter count other events".to_owned()
        };
        format!(
            "--per device has no effect: no selected counter has a filter for {}: {why}",
            list_names(apart.iter().map(|function| function.address.to_string()))
        )
    }
}

/// Whether an event counts what devices alone cause, and can be narrowed to one of them; of a PMU
/// that counts bytes of devices, only these.
fn is_of_devices(ports: PortPmu<'_>, event: &str) -> bool {
    let PortPmu { words, rule, .. } = ports;
    let is_listed = |globs: &[String]| matches_any_event(globs, event);
    let counts_bytes = !rule.reads.is_empty() || !rule.writes.is_empty();
    let causes = words.family.map(|family| family.possible_causes(words.pmu, event, ""));
    is_listed(&rule.events)
        && (!counts_bytes || is_listed(&rule.reads) || is_listed(&rule.writes))
        && causes.is_some_and(|causes| causes == BTreeSet::from([TrafficCause::Device]))
}

impl Assembly<'_> {
    /// Lets counters take turns that have different values in terms of which their PMU has one.
    pub(super) fn take_turns(&mut self, events: &[ResolvedEvent<'_>]) {
        let mut counters: HashMap<String, Vec<u32>> = HashMap::new();
        for counter in &self.plan.counters {
            counters.entry(counter.pmu.clone()).or_default().push(counter.id);
        }
        for (words, _) in by_pmu(events) {
            let Some(family) = words.family else { continue };
            let Some(rule) = family.one_value.as_ref().filter(|rule| rule.turns) else { continue };
            let ids = counters.get(&words.pmu.name).into_iter().flatten();
            let pmu_counters = ids.filter_map(|id| self.plan.counters.get(*id as usize));
            let of_rule =
                pmu_counters.clone().filter(|counter| rule.applies_to_event(&counter.event));
            let distinct: BTreeSet<_> =
                of_rule.map(|candidate| shared_values(rule, &candidate.filter)).collect();
            if distinct.len() < 2 {
                continue;
            }
            let mut sets: BTreeMap<(u32, String), Vec<u32>> = BTreeMap::new();
            for counter in pmu_counters {
                let key = (counter.cpu, shared_values(rule, &counter.filter));
                sets.entry(key).or_default().push(counter.id);
            }
            let max_members = if family.groupable { FEW } else { 1 };
            let mut turns: BTreeMap<u32, usize> = BTreeMap::new();
            let mut leaders = Vec::new();
            for ((cpu, _), ids) in sets {
                let group_leaders = self.form_groups(&ids, max_members);
                *turns.entry(cpu).or_default() += group_leaders.len();
                leaders.extend(group_leaders);
            }
            let turns = turns.into_values().max().unwrap_or_default();
            for leader in leaders {
                self.plan.counters[leader as usize].exclusive = true;
            }
            self.add_note(format!(
                "{} has one register for {}, so {turns} groups of its counters take turns: \
                 each counts about {:.0} % of the time",
                printable(&words.pmu.name),
                list_names(&rule.terms),
                100.0 / turns as f64
            ));
        }
    }

    /// Makes groups of at most this many of those counters that are in none. Returns the leaders of
    /// all groups.
    fn form_groups(&mut self, ids: &[u32], max_members: usize) -> Vec<u32> {
        let counters = &self.plan.counters;
        let leads = |id: &u32| self.siblings.contains_key(id);
        let leaders: Vec<u32> = ids.iter().copied().filter(leads).collect();
        let is_free = |id: &u32| !leads(id) && counters[*id as usize].leader.is_none();
        let free: Vec<u32> = ids.iter().copied().filter(is_free).collect();
        let groups = free.chunks(max_members);
        let mut all_leaders = leaders;
        for group in groups {
            let Some((leader, siblings)) = group.split_first() else { continue };
            all_leaders.push(*leader);
            self.set_leader(siblings, *leader);
        }
        all_leaders
    }
}

/// The values in a filter that all counters must share.
fn shared_values(rule: &OneValueRule, filter: &str) -> String {
    let is_one =
        |term: &&str| rule.terms.iter().any(|term_name| term.split('=').next() == Some(term_name));
    filter.split(',').filter(is_one).collect::<Vec<_>>().join(",")
}
