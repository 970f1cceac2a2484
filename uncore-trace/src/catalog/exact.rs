//! By what counts are known exactly for each task, without an estimate.

use serde::{Deserialize, Serialize};

use super::family::Family;
use super::pattern::matches_any_event;

/// What tells the tasks' parts of the count of one CPU or device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExactBy {
    /// The counter is read at every context switch: the running task causes its counts, and reading
    /// it is cheap.
    Readings,
    /// It counts at a constant rate whatever the CPU does, so the parts are those of the time.
    Time,
    /// It counts context switches. The programs see each of them.
    Switches,
    /// It counts the bytes of a disk or an interface. The programs see the requests and packets.
    Requests,
}

/// The events whose counts are known exactly.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExactRule {
    /// The events; `*` matches anything.
    #[serde(default = "super::pattern::match_any_name")]
    pub events: Vec<String>,
    /// By what they are known.
    pub by: ExactBy,
}

impl Family {
    /// By what the counts of an event of one CPU or device are known exactly; `None` if they are
    /// estimated.
    pub fn exact_by(&self, event: &str) -> Option<ExactBy> {
        let mut rules = self.exact.iter();
        rules.find(|rule| matches_any_event(&rule.events, event)).map(|rule| rule.by)
    }
}
