//! Terms that all counters of a PMU share, because the hardware has one register for them, and
//! events that can lead a group.

use std::collections::HashMap;

use anyhow::{Result, ensure};

use super::resolve::Resolved;
use crate::catalog::family::PmuKind;
use crate::text::printable;

/// The terms of the first counter of each PMU.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    first: HashMap<String, (String, String)>,
}

impl Agreement {
    /// Adds a counter, which is a member of the group of `leader` if there is one.
    ///
    /// # Errors
    ///
    /// It cannot be counted together with the earlier ones.
    pub(super) fn add(
        &mut self,
        event: &Resolved<'_>,
        leader: Option<&Resolved<'_>>,
    ) -> Result<()> {
        let Some(rule) = event.words.family.and_then(|family| family.one_value.as_ref()) else {
            return Ok(());
        };
        let encoded = &event.encoded;
        if rule.turns || !rule.is_of(&encoded.event) {
            return Ok(());
        }
        let terms = shared(&rule.terms, event, leader);
        let terms = if terms.is_empty() { "none of them".to_owned() } else { terms.join(",") };
        let pmu = &event.words.pmu.name;
        let new = || (encoded.event.clone(), terms.clone());
        let (other, before) = self.first.entry(pmu.clone()).or_insert_with(new);
        ensure!(
            *before == terms,
            "{0}/{1}/ has {before} and {0}/{2}/ has {terms}: the PMU has one register for {3}, \
             such events never run together; record one after the other",
            printable(pmu),
            printable(other),
            printable(&encoded.event),
            rule.terms.join(" and ")
        );
        Ok(())
    }
}

/// Why `leader` cannot lead a group with `member`; `None` if it can.
pub(super) fn cannot_lead(leader: &Resolved<'_>, member: &Resolved<'_>) -> Option<String> {
    let rule = member.words.family?.leader.as_ref()?;
    let pmu = printable(&member.words.pmu.name);
    let (first, event) = (printable(&leader.encoded.event), printable(&member.encoded.event));
    if leader.words.family.is_some_and(|family| family.kind == PmuKind::Software) {
        return (!rule.software).then(|| {
            format!(
                "the software event {first} cannot lead a group of {pmu}, whose driver takes the \
                 leader for an event of its own: put an event of {pmu} first"
            )
        });
    }
    let mine = shared(&rule.terms, member, Some(leader));
    let its = shared(&rule.terms, leader, None);
    (mine != its).then(|| {
        let of = |terms: &[&str]| {
            if terms.is_empty() { format!("no {}", rule.terms.join(",")) } else { terms.join(",") }
        };
        format!(
            "{pmu}/{event}/ has {} and {first}, which leads the group, has {}: the driver refuses \
             that, give {first} the same terms or put it last",
            of(&mine),
            of(&its)
        )
    })
}

/// The values of those `terms` that an event has. An event without a filter has those of its leader
/// on the same PMU, because the driver passes them on.
fn shared<'e>(
    terms: &[String],
    event: &'e Resolved<'_>,
    leader: Option<&'e Resolved<'_>>,
) -> Vec<&'e str> {
    let named = |text: &&str| terms.iter().any(|term| text.split('=').next() == Some(term));
    let of = |event: &'e Resolved<'_>| event.encoded.filter.split(',').filter(named).collect();
    let own: Vec<&str> = of(event);
    let word = terms.first().and_then(|term| event.words.term_format(term)).map(|its| its.word_index());
    let empty = word.is_some_and(|word| event.encoded.config[word] == 0);
    match leader {
        Some(leader) if empty && leader.words.pmu.name == event.words.pmu.name => of(leader),
        _ => own,
    }
}
