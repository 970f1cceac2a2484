//! Which memory of this machine a request does not count: that of a PMU without known events, and
//! persistent memory, which shares its PMUs with DRAM.

use std::collections::{BTreeMap, BTreeSet};

use super::measure::ResolvedMetric;
use super::resolve::{ResolvedEvent, Resolver};
use crate::catalog::family::Family;
use crate::catalog::group::Group;
use crate::catalog::pattern::matches_any_event;
use crate::catalog::pmu_words::PmuWords;
use crate::suggest::list_names;

/// Metrics with such names of ours count all memory, as far as it is of a kind that they know.
const OF_ALL: &str = "mem_";

/// Memory of one kind that is not counted, as a whole or by some of its PMUs.
struct UncountedMemory<'a> {
    memory_kind: &'a str,
    pmus: Vec<PmuWords<'a>>,
    is_part: bool,
}

impl<'a> Resolver<'a> {
    /// The events of persistent memory that a group opens: where the firmware describes such
    /// memory.
    pub(super) fn persistent_events(&self, family: &'a Family, group: Group) -> &'a [String] {
        let is_there = group == Group::Mem && self.machine.persistent_memory == Some(true);
        if is_there { &family.persistent } else { &[] }
    }

    /// A note for each kind of memory of this machine that none of these events of the group `mem`
    /// counts, or that some of its PMUs do not count.
    pub(super) fn memory_not_counted(&self, opened: &[ResolvedEvent<'a>]) -> Vec<String> {
        let note =
            |UncountedMemory { memory_kind: kind_name, pmus, is_part }: UncountedMemory<'_>| {
                let prefix = if is_part { "a part of " } else { "" };
                format!(
                    "{prefix}{kind_name} is not counted: no event of {} counts its bytes",
                    pmu_names(&pmus)
                )
            };
        let mut notes: Vec<_> = self.uncounted_memory(opened).into_iter().map(note).collect();
        let events = self.unknown_persistent(opened).map(|family| {
            let typed: Vec<_> =
                family.persistent.iter().map(|event| format!("-e {event}")).collect();
            typed.join(" ")
        });
        notes.extend(events.map(|events| {
            format!(
                "persistent memory is not counted, if there is any: the tables of the firmware \
                 (/sys/firmware/acpi/tables) cannot be listed; {events} counts it"
            )
        }));
        notes
    }

    /// A note for each metric of the bandwidth of memory and each kind of memory that it does not
    /// count.
    pub(super) fn memory_beside(&self, measured: &[ResolvedMetric<'a>]) -> Vec<String> {
        let mut metrics: BTreeMap<&str, Vec<ResolvedEvent<'a>>> = BTreeMap::new();
        for resolved in measured.iter().filter(|candidate| candidate.is_of_memory()) {
            let inputs = resolved.inputs.iter().filter_map(|(_, event)| event.clone());
            metrics.entry(&resolved.metric.name).or_default().extend(inputs);
        }
        let mut notes = Vec::new();
        for (metric, opened) in metrics {
            for UncountedMemory { memory_kind, pmus, .. } in
                self.uncounted_memory(&opened).into_iter().filter(|silent| !silent.is_part)
            {
                let how = if pmus.iter().any(|words| self.pmus.has_group_events(*words, Group::Mem))
                {
                    "-p mem does".to_owned()
                } else {
                    format!("no event of {} counts its bytes", pmu_names(&pmus))
                };
                notes.push(format!("{metric} does not count {memory_kind}: {how}"));
            }
            if self.has_persistent().is_some() {
                let maybe = match self.machine.persistent_memory {
                    Some(true) => "",
                    Some(false) => continue,
                    None => ", if there is any",
                };
                notes.push(format!(
                    "{metric} does not count persistent memory{maybe}: -M pmem_bandwidth does"
                ));
            }
        }
        notes
    }

    /// The kinds of memory of this machine that these events do not count.
    fn uncounted_memory(&self, opened: &[ResolvedEvent<'a>]) -> Vec<UncountedMemory<'a>> {
        let counted: BTreeSet<&str> = opened.iter().map(|event| event.words.pmu_name()).collect();
        let counts = |words: &PmuWords<'_>| counted.contains(words.pmu_name());
        let mut kinds: BTreeMap<&str, Vec<PmuWords<'a>>> = BTreeMap::new();
        for words in self.pmu_words() {
            if let Some(memory_kind) = words.family.and_then(|family| family.memory.as_deref()) {
                kinds.entry(memory_kind).or_default().push(words);
            }
        }
        let mut silent = Vec::new();
        for (memory_kind, mut pmus) in kinds {
            let counted: BTreeSet<&str> =
                pmus.iter().filter(|words| counts(words)).map(PmuWords::family_name).collect();
            // Of other families of a kind that is counted, nothing is missing.
            pmus.retain(|words| {
                !counts(words) && (counted.is_empty() || counted.contains(words.family_name()))
            });
            if !pmus.is_empty() {
                silent.push(UncountedMemory { memory_kind, pmus, is_part: !counted.is_empty() });
            }
        }
        silent
    }

    /// The first family here that has events of persistent memory.
    fn has_persistent(&self) -> Option<&'a Family> {
        self.pmu_words().find(has_persistent)?.family
    }

    /// Whether a PMU of the family called `name` has such events.
    pub(super) fn counts_persistent(&self, name: &str) -> bool {
        self.pmu_words().any(|words| words.family_name() == name && has_persistent(&words))
    }

    /// The same if it is not known whether this machine has such memory, and these events do not
    /// count it.
    fn unknown_persistent(&self, opened: &[ResolvedEvent<'a>]) -> Option<&'a Family> {
        let is_counted = |family: &Family| {
            opened.iter().any(|event| family.persistent.contains(&event.encoded.event))
        };
        let unknown = self.machine.persistent_memory.is_none();
        self.has_persistent().filter(|family| unknown && !is_counted(family))
    }
}

impl ResolvedMetric<'_> {
    /// Whether it is the bandwidth of memory: made of events that the group `mem` opens.
    fn is_of_memory(&self) -> bool {
        let Some(family) = self.words.family.filter(|family| family.memory.is_some()) else {
            return false;
        };
        let globs = family.opens.get(&Group::Mem).map_or(&[][..], Vec::as_slice);
        let opens = |name: &str| matches_any_event(globs, name);
        let mut inputs = self.inputs.iter().filter_map(|(_, event)| event.as_ref());
        self.metric.unit.ends_with("B/s")
            && (self.metric.vendor || self.metric.name.starts_with(OF_ALL))
            && inputs.any(|event| opens(&event.encoded.event))
    }
}

fn has_persistent(words: &PmuWords<'_>) -> bool {
    let events = words.family.map_or(&[][..], |family| &family.persistent);
    events.iter().any(|event| words.find_event(event).is_some())
}

fn pmu_names(pmus: &[PmuWords<'_>]) -> String {
    list_names(pmus.iter().map(|words| &words.pmu.name))
}
