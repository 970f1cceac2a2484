//! What sysfs says wrong of an event, by kernels with a known mistake.

use serde::Deserialize;

use super::pattern::matches_event;
use super::rules::is_of;
use super::words::Words;
use crate::discover::event::EventAlias;

/// Events that the kernel's sysfs describes wrongly.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Correction {
    /// The events, `*` for anything.
    #[serde(deserialize_with = "super::family::some")]
    pub events: Vec<String>,
    /// The processors it is for, patterns as [`super::family::Family::processors`]. Empty: any.
    #[serde(default)]
    pub processors: Vec<String>,
    /// The wrong scale, as sysfs has it: of kernels with another one nothing is corrected.
    #[serde(deserialize_with = "super::family::positive")]
    pub scale: f64,
    /// The right scale, in the same unit; none where a count has no fixed size: such an event is
    /// not offered.
    pub right: Option<f64>,
    /// What the user should know, one line.
    pub note: String,
}

/// How near two scales are that are the same: sysfs prints ten digits.
const SAME: f64 = 1e-6;

impl<'a> Words<'a> {
    /// What is wrong of an event in sysfs; `None` where nothing is known to be.
    pub fn correction(&self, name: &str, alias: &EventAlias) -> Option<&'a Correction> {
        let pmu = self.pmu;
        let is_it = |rule: &&Correction| {
            let scale = alias.scale.unwrap_or_default();
            (scale / rule.scale - 1.0).abs() < SAME
                && is_of(&rule.processors, pmu)
                && rule.events.iter().any(|glob| matches_event(glob, name))
        };
        self.family?.corrections.iter().find(is_it)
    }

    /// Whether a count of it says nothing.
    pub(super) fn is_useless(&self, name: &str, alias: &EventAlias) -> bool {
        self.correction(name, alias).is_some_and(|rule| rule.right.is_none())
    }
}
