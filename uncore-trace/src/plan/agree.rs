//! Terms that all counters of a PMU share, because its hardware has one register for them.

use std::collections::HashMap;

use anyhow::{Result, ensure};

use super::resolve::Resolved;
use crate::catalog::pattern::matches_event;
use crate::text::printable;

/// What the first counter of each PMU asked for.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    first: HashMap<String, (String, String)>,
}

impl Agreement {
    /// Takes one more counter; an error if it cannot run beside those before it. A member of a
    /// group without such terms has its leader's.
    pub(super) fn add(&mut self, event: &Resolved<'_>, in_group: bool) -> Result<()> {
        let Some(rule) = event.words.family.and_then(|family| family.one_value.as_ref()) else {
            return Ok(());
        };
        let encoded = &event.encoded;
        if rule.except.iter().any(|glob| matches_event(glob, &encoded.event)) {
            return Ok(());
        }
        let shared = |term: &&str| {
            let name = term.split('=').next().unwrap_or(term);
            rule.terms.iter().any(|shared| shared == name)
        };
        let terms: Vec<&str> = encoded.filter.split(',').filter(shared).collect();
        if in_group && terms.is_empty() && self.first.contains_key(&event.words.pmu.name) {
            return Ok(());
        }
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
