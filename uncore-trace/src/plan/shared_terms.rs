//! Terms that all counters of a PMU share, because the hardware has one register for them, and
//! events that can lead a group.

use std::collections::HashMap;

use anyhow::{Result, ensure};

use super::resolve::ResolvedEvent;
use crate::catalog::family::PmuKind;
use crate::text::printable;

/// The terms of the first counter of each PMU.
#[derive(Debug, Default)]
pub(super) struct RegisterTerms {
    terms_by_pmu: HashMap<String, (String, String)>,
}

impl RegisterTerms {
    /// Adds a counter, which is a member of the group of `leader` if there is one.
    ///
    /// # Errors
    ///
    /// It cannot be counted together with the earlier ones.
    pub(super) fn add_event(
        &mut self,
        event: &ResolvedEvent<'_>,
        leader: Option<&ResolvedEvent<'_>>,
    ) -> Result<()> {
        let Some(rule) = event.words.family.and_then(|family| family.one_value.as_ref()) else {
            return Ok(());
        };
        let encoded = &event.encoded;
        if rule.turns || !rule.applies_to_event(&encoded.event) {
            return Ok(());
        }
        let terms = shared_terms(&rule.terms, event, leader);
        let terms = if terms.is_empty() { "none of them".to_owned() } else { terms.join(",") };
        let pmu = &event.words.pmu.name;
        let new = || (encoded.event.clone(), terms.clone());
        let (first_event, first_terms) = self.terms_by_pmu.entry(pmu.clone()).or_insert_with(new);
        ensure!(
            *first_terms == terms,
            "{0}/{1}/ has {first_terms} and {0}/{2}/ has {terms}: the PMU has one register for \
             {3}, so these events never run together: record one after the other",
            printable(pmu),
            printable(first_event),
            printable(&encoded.event),
            rule.terms.join(" and ")
        );
        Ok(())
    }
}

/// Why `leader` cannot lead a group with `member`; `None` if it can.
pub(super) fn cannot_lead(
    leader: &ResolvedEvent<'_>,
    member: &ResolvedEvent<'_>,
) -> Option<String> {
    let rule = member.words.family?.leader.as_ref()?;
    let pmu = printable(&member.words.pmu.name);
    let (leader_name, event) = (printable(&leader.encoded.event), printable(&member.encoded.event));
    if leader.words.is_kind(PmuKind::Software) {
        return (!rule.software).then(|| {
            format!(
                "the software event {leader_name} cannot lead a group of {pmu}, whose driver \
                 takes the leader for an event of its own: put an event of {pmu} first"
            )
        });
    }
    let member_terms = shared_terms(&rule.terms, member, Some(leader));
    let leader_terms = shared_terms(&rule.terms, leader, None);
    (member_terms != leader_terms).then(|| {
        let describe_terms = |terms: &[&str]| {
            if terms.is_empty() { format!("no {}", rule.terms.join(",")) } else { terms.join(",") }
        };
        format!(
            "{pmu}/{event}/ has {} and {leader_name}, which leads the group, has {}: the driver \
             refuses that, give {leader_name} the same terms or put it last",
            describe_terms(&member_terms),
            describe_terms(&leader_terms)
        )
    })
}

/// The values of those `terms` that an event has. An event without a filter has those of its leader
/// on the same PMU, because the driver passes them on.
fn shared_terms<'e>(
    terms: &[String],
    event: &'e ResolvedEvent<'_>,
    leader: Option<&'e ResolvedEvent<'_>>,
) -> Vec<&'e str> {
    let named = |text: &&str| terms.iter().any(|term| text.split('=').next() == Some(term));
    let filter_terms =
        |event: &'e ResolvedEvent<'_>| event.encoded.filter.split(',').filter(named).collect();
    let own_terms: Vec<&str> = filter_terms(event);
    let word = terms
        .first()
        .and_then(|term| event.words.term_format(term))
        .map(|format| format.word_index());
    let empty = word.is_some_and(|word| event.encoded.config[word] == 0);
    match leader {
        Some(leader) if empty && leader.words.pmu.name == event.words.pmu.name => {
            filter_terms(leader)
        }
        _ => own_terms,
    }
}
