//! What witnesses and ports share: counters whose counts serve to divide those of others.

use std::collections::BTreeMap;

use anyhow::Result;

use super::assembly::Assembly;
use super::plan_notes::by_pmu;
use super::pmu_cpus::ReaderSpot;
use super::resolve::{ResolvedEvent, group_name};
use super::{Counter, CounterRole};
use crate::catalog::budget::find_overcommitted;
use crate::catalog::pmu_words::{PmuEvent, PmuWords};
use crate::catalog::spec::Term;
use crate::catalog::witness::Witness;
use crate::discover::CpuList;
use crate::suggest::list_names;
use crate::text::printable;

/// The event that is the witness of a CPU, or a port.
#[derive(Clone, Copy)]
pub(super) struct WitnessEvent<'a> {
    pub words: PmuWords<'a>,
    pub event: PmuEvent<'a>,
    pub witness: &'a Witness,
}

impl<'a> WitnessEvent<'a> {
    /// The first witness of the PMU's family for its processor that the PMU has.
    pub(super) fn find_first(words: PmuWords<'a>) -> Option<Self> {
        let witnesses = &words.family?.witnesses;
        let mut witnesses = witnesses.iter().filter(|witness| witness.applies_to_pmu(words.pmu));
        witnesses.find_map(|witness| {
            Some(WitnessEvent { words, event: words.find_event(&witness.event)?, witness })
        })
    }

    /// The event with its encoding.
    pub(super) fn resolve_event(self) -> Result<ResolvedEvent<'a>> {
        let Self { words, event, .. } = self;
        let encoded = words.encode_terms(&[Term::bare(event.name, 1)], &[])?;
        let group = group_name(words, event.name);
        Ok(ResolvedEvent { words, group, encoded, die: None, functions: Vec::new() })
    }
}

/// A counter of what several CPUs cause.
#[derive(Debug, Clone)]
pub(super) struct CpusCounter {
    pub id: u32,
    pub sees: CpuList,
}

/// `counter 3` or `counters 0,3`.
pub(super) fn name_counters(counters: &[CpusCounter]) -> String {
    let ids: CpuList = counters.iter().map(|counter| counter.id).collect();
    format!("counter{} {ids}", if counters.len() == 1 { "" } else { "s" })
}

/// The CPUs that any of these counters sees.
pub(super) fn all_seen(counters: &[CpusCounter]) -> CpuList {
    counters.iter().map(|counter| &counter.sees).collect()
}

impl<'a> Assembly<'a> {
    /// The counters of what several CPUs cause.
    pub(super) fn counters_of_cpus(&self) -> Vec<CpusCounter> {
        let of_cpus = self.plan.counters.iter().filter(|counter| counter.is_of_cpus());
        of_cpus.map(|counter| CpusCounter { id: counter.id, sees: counter.sees.clone() }).collect()
    }

    /// Whether the PMU of a witness has a counter for it beside what is planned, as far as known.
    pub(super) fn has_counter(&self, source: WitnessEvent<'a>) -> Result<bool> {
        let pmu = &source.words.pmu.name;
        let planned = by_pmu(&self.events).into_iter().find(|entry| entry.0.pmu.name == *pmu);
        let mut events = planned.map_or_else(Vec::new, |(_, events)| events);
        let encoded = source.resolve_event()?.encoded;
        if !events.iter().any(|event| event.config == encoded.config) {
            events.push(&encoded);
        }
        Ok(find_overcommitted(source.words, &events).iter().all(|limit| limit.unsure))
    }

    /// Adds a counter whose counts serve to divide those of others, unless it exists.
    pub(super) fn push_weight(
        &mut self,
        event: &ResolvedEvent<'a>,
        spot: ReaderSpot,
        witness: &Witness,
    ) -> Option<&mut Counter> {
        let (id, new) = self.push(event, spot, None);
        if new {
            self.add_event(event.clone());
        }
        let counter = self.plan.counters.get_mut(id as usize)?;
        let is_only_weight = new || counter.role == CounterRole::Weight;
        counter.role = if is_only_weight { CounterRole::Weight } else { CounterRole::Both };
        counter.witness_bytes = Some(witness.bytes);
        Some(counter)
    }
}

/// The CPUs on which each event is read that serves to divide others.
#[derive(Default)]
pub(super) struct WitnessReaders<'a>(BTreeMap<(&'a str, &'a str), (&'a Witness, Vec<u32>)>);

/// Such an event, as texts of a note.
pub(super) struct WitnessCpus {
    /// `PMU/EVENT/`.
    pub event: String,
    pub cpus: CpuList,
    /// What it does not count.
    pub unseen: String,
}

impl<'a> WitnessReaders<'a> {
    /// Adds a CPU. `true` if it is the first of the event.
    pub(super) fn add_reader(&mut self, source: WitnessEvent<'a>, cpu: u32) -> bool {
        let key = (source.words.pmu_name(), source.event.name);
        let (_, cpus) = self.0.entry(key).or_insert((source.witness, Vec::new()));
        cpus.push(cpu);
        cpus.len() == 1
    }

    /// Each event, in the order of the PMUs' names.
    pub(super) fn list_events(self) -> impl Iterator<Item = WitnessCpus> {
        self.0.into_iter().map(|((pmu, event), (witness, cpus))| WitnessCpus {
            event: format!("{}/{event}/", printable(pmu)),
            cpus: cpus.into_iter().collect(),
            unseen: list_names(witness.unseen.iter().map(String::as_str)),
        })
    }
}
