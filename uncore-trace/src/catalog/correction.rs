//! Corrections of known errors in sysfs descriptions of events.

use serde::Deserialize;

use super::pattern::matches_any_event;
use super::pmu_words::PmuWords;
use super::rules::is_of;
use crate::discover::event::EventAlias;

/// Events that the kernel's sysfs describes wrongly.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Correction {
    /// The events; `*` matches anything.
    #[serde(deserialize_with = "super::family::non_empty_list")]
    pub events: Vec<String>,
    /// The processors, with patterns as in [`super::family::Family::processors`]. Empty: any.
    #[serde(default)]
    pub processors: Vec<String>,
    /// The wrong scale in sysfs. An event with another scale is not corrected.
    #[serde(deserialize_with = "super::family::positive_number")]
    pub scale: f64,
    /// The correct scale, in the same unit. `None` if a count has no fixed size: the event is not
    /// offered then.
    pub right: Option<f64>,
    /// A note for the user, one line.
    pub note: String,
}

/// Tolerance for comparing scales: sysfs prints ten digits.
const SAME: f64 = 1e-6;

impl<'a> PmuWords<'a> {
    /// The correction for an event; `None` if no error is known.
    pub fn find_correction(&self, name: &str, alias: &EventAlias) -> Option<&'a Correction> {
        let pmu = self.pmu;
        let is_known_error = |rule: &&Correction| {
            (alias.scale.unwrap_or_default() / rule.scale - 1.0).abs() < SAME
                && is_of(&rule.processors, pmu)
                && matches_any_event(&rule.events, name)
        };
        self.family?.corrections.iter().find(is_known_error)
    }

    /// Whether its counts are meaningless.
    pub(super) fn is_useless(&self, name: &str, alias: &EventAlias) -> bool {
        self.find_correction(name, alias).is_some_and(|rule| rule.right.is_none())
    }
}
