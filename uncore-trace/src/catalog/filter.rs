//! Filters that are set by default.

use serde::Deserialize;

use super::pattern::matches_any_event;
use super::pmu_words::PmuWords;
use super::rules::is_of;
use crate::discover::Pmu;
use crate::discover::event::EventAlias;

/// A filter that is set by default.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefaultFilter {
    /// The terms and values. None of them is set if the user gives one of the terms.
    #[serde(deserialize_with = "super::family::deserialize_values")]
    pub terms: EventAlias,
    /// The events; `*` matches anything; empty: all.
    #[serde(default)]
    pub events: Vec<String>,
    /// Other terms that prevent it.
    #[serde(default)]
    pub unless: Vec<String>,
    /// The processors, with patterns as in [`super::family::Family::processors`]. Empty: any.
    #[serde(default)]
    pub processors: Vec<String>,
}

impl DefaultFilter {
    /// Whether it applies to this event of the PMU; `None` stands for an event without a name.
    pub fn applies_to(&self, pmu: &Pmu, event: Option<&str>) -> bool {
        let listed = |event: &str| matches_any_event(&self.events, event);
        is_of(&self.processors, pmu) && (self.events.is_empty() || event.is_some_and(listed))
    }
}

impl PmuWords<'_> {
    /// The default value of a term of an event; `None` if it has none.
    pub fn default_value(&self, term: &str, event: &str) -> Option<u64> {
        let rules =
            self.family?.filters.iter().filter(|rule| rule.applies_to(self.pmu, Some(event)));
        let mut numbers = rules.flat_map(|rule| rule.terms.numbers());
        numbers.find(|(name, _)| *name == term).map(|(_, value)| value)
    }
}
