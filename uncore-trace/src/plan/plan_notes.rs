//! Notes on a plan as a whole: multiplexing, traffic that is counted twice, and filters without
//! effect.

use std::collections::{BTreeSet, HashMap, HashSet};

use anyhow::{Result, ensure};

use super::resolve::ResolvedEvent;
use crate::catalog::budget::{Overcommitted, find_overcommitted};
use crate::catalog::encode::EncodedEvent;
use crate::catalog::family::{Family, OverlapRule};
use crate::catalog::pmu_words::PmuWords;
use crate::discover::Machine;
use crate::suggest::did_you_mean;
use crate::text::printable;

/// The notes on all events, one line each.
///
/// # Errors
///
/// Some of the events would never run.
pub(super) fn collect_notes(
    machine: &Machine,
    events: &[ResolvedEvent<'_>],
) -> Result<Vec<String>> {
    let mut notes = multiplexing_notes(events)?;
    notes.extend(catalog_notes(events).into_iter().map(str::to_owned));
    notes.extend(without_cpumask(machine, events));
    notes.extend(overlap_notes(events).into_iter().map(str::to_owned));
    notes.extend(mistyped_filters(machine, events));
    notes.extend(correction_notes(events));
    Ok(notes)
}

/// Notes on multiplexing: one line for all PMUs to which it applies.
fn multiplexing_notes(events: &[ResolvedEvent<'_>]) -> Result<Vec<String>> {
    let mut shared: Vec<(Overcommitted, Vec<&str>)> = Vec::new();
    for (words, counters) in by_pmu(events) {
        let pmu = words.pmu_name();
        for limit in find_overcommitted(words, &counters) {
            ensure!(!limit.hard, "{}", limit.refusal_text(pmu));
            match shared.iter_mut().find(|(known, _)| *known == limit) {
                Some((_, pmus)) => pmus.push(pmu),
                None => shared.push((limit, vec![pmu])),
            }
        }
    }
    Ok(shared.into_iter().map(|(limit, pmus)| limit.multiplex_note(&pmus)).collect())
}

/// The events of each PMU instance, once for all its reader CPUs.
pub(super) fn by_pmu<'e, 'a>(
    events: &'e [ResolvedEvent<'a>],
) -> Vec<(PmuWords<'a>, Vec<&'e EncodedEvent>)> {
    let mut pmus: Vec<(PmuWords<'a>, Vec<&EncodedEvent>)> = Vec::new();
    let mut index_by_pmu: HashMap<&str, usize> = HashMap::new();
    for event in events {
        let index = *index_by_pmu.entry(event.words.pmu_name()).or_insert(pmus.len());
        if index == pmus.len() {
            pmus.push((event.words, Vec::new()));
        }
        if !pmus[index].1.contains(&&event.encoded) {
            pmus[index].1.push(&event.encoded);
        }
    }
    pmus
}

/// Default filters of the user's families whose term no PMU here has. In an embedded family that is
/// due to older kernels; in a user's file it is probably a typing error.
fn mistyped_filters(machine: &Machine, events: &[ResolvedEvent<'_>]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut seen = HashSet::new();
    for family in events.iter().filter_map(|event| event.words.family) {
        let Some(file) = &family.outside else { continue };
        if !seen.insert(file) {
            continue;
        }
        let pmus = machine.pmus.iter().filter(|pmu| family.recognises_pmu(pmu));
        let family_pmus: Vec<_> =
            pmus.map(|pmu| PmuWords { pmu, family: Some(family), base: None }).collect();
        for term in family.filters.iter().flat_map(|filter| &filter.terms.terms) {
            if family_pmus.iter().all(|words| words.term_format(&term.name).is_none()) {
                let known = family_pmus.iter().flat_map(|words| words.pmu.formats.keys());
                notes.push(format!(
                    "{}: its default filter {} is not set, because no PMU of it has such a term{}",
                    printable(file),
                    term.name,
                    did_you_mean(&term.name, known)
                ));
            }
        }
    }
    notes
}

/// The catalog's notes on these events.
fn catalog_notes<'a>(events: &[ResolvedEvent<'a>]) -> Vec<&'a str> {
    let mut notes = Vec::new();
    for (family, event) in family_events(events) {
        let rules = family.notes.iter().filter(|rule| rule.applies_to_event(event));
        notes.extend(rules.map(|rule| rule.text.as_str()));
    }
    without_repeats(notes)
}

/// PMUs that do not say on which CPU they are read, and are not per-CPU PMUs.
fn without_cpumask(machine: &Machine, events: &[ResolvedEvent<'_>]) -> Vec<String> {
    let pmus = by_pmu(events).into_iter().map(|(words, _)| words);
    let is_silent = |words: &PmuWords<'_>| {
        words.pmu.cpumask.is_none() && words.pmu.statistics.is_none() && !words.is_per_cpu()
    };
    let silent = pmus.filter(is_silent);
    let note = |words: PmuWords<'_>| {
        format!(
            "{}: this kernel does not say on which CPU it is read (it has no cpumask file), so it \
             is opened once, on CPU {}, and its counts are of the whole machine",
            printable(&words.pmu.name),
            machine.cpus.online.iter().next().unwrap_or_default()
        )
    };
    silent.map(note).collect()
}

/// The catalog's notes on traffic that two of the events count.
fn overlap_notes<'a>(events: &[ResolvedEvent<'a>]) -> Vec<&'a str> {
    let family_events = family_events(events);
    let mut notes = Vec::new();
    for (family, event) in &family_events {
        let counts_again = |rule: &&OverlapRule| {
            let mut counted = family_events.iter();
            counted
                .any(|(family, counted_event)| rule.applies(event, &family.family, counted_event))
        };
        notes.extend(family.overlaps.iter().filter(counts_again).map(|rule| rule.note.as_str()));
    }
    without_repeats(notes)
}

/// Each event of a known family once, with the family.
fn family_events<'e, 'a>(events: &'e [ResolvedEvent<'a>]) -> Vec<(&'a Family, &'e str)> {
    let family_event =
        |event: &'e ResolvedEvent<'a>| Some((event.words.family?, event.encoded.event.as_str()));
    let mut seen = HashSet::new();
    let mut family_events: Vec<_> = events.iter().filter_map(family_event).collect();
    family_events.retain(|(family, event)| seen.insert((family.family.as_str(), *event)));
    family_events
}

/// The notes in their order, each once.
fn without_repeats(mut notes: Vec<&str>) -> Vec<&str> {
    let mut seen = HashSet::new();
    notes.retain(|note| seen.insert(*note));
    notes
}

/// The catalog's corrections of sysfs for these events, one line each.
fn correction_notes(events: &[ResolvedEvent<'_>]) -> BTreeSet<String> {
    let note = |event: &ResolvedEvent<'_>| {
        let words = event.words;
        let (name, alias) = words.pmu.find_event(&event.encoded.event)?;
        let rule = words.find_correction(name, alias)?;
        Some(format!("{}: {}", words.family_name(), rule.note))
    };
    events.iter().filter_map(note).collect()
}
