//! The domains that have one register each, where they are not those of a PMU's `cpumask`.
//!
//! A driver opens a PMU once on each CPU of its `cpumask`. If several of these CPUs read the same
//! register, their counts are copies of one count, and their sum is too large.

use serde::Deserialize;

use super::family::Family;
use super::pattern::matches_any_event;
use super::rules::is_of;
use crate::discover::Pmu;

/// A part of the machine that has one register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RegisterDomain {
    /// The package.
    Package,
    /// The whole machine.
    Machine,
}

/// The domain of certain events.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainRule {
    /// What has one register.
    pub per: RegisterDomain,
    /// The events; `*` matches anything.
    #[serde(default = "super::pattern::match_any_name")]
    pub events: Vec<String>,
    /// Processors, in the form of [`Pmu::processor`], with the patterns of names. Empty: any.
    #[serde(default)]
    pub processors: Vec<String>,
}

impl Family {
    /// The domain of the register that an event of `pmu` reads; `None` if each CPU of the `cpumask`
    /// has its own.
    pub fn register_domain(&self, pmu: &Pmu, event: &str) -> Option<RegisterDomain> {
        let applies = |rule: &&DomainRule| {
            matches_any_event(&rule.events, event) && is_of(&rule.processors, pmu)
        };
        self.domains.iter().find(applies).map(|rule| rule.per)
    }
}
