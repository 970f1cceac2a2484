//! Which CPUs are near a PMU: those that are meant where a cause of traffic is `cpu`.
//!
//! What a counter sees in all is decided by its [causes](super::source::Cause) too: the traffic of
//! other sockets is that of all CPUs that are not near.

use serde::Deserialize;

use super::family::Family;
use super::pattern::matches_event;

/// What CPUs near a PMU have in common with its reader CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Near {
    /// The package.
    Socket,
    /// The NUMA node.
    Node,
    /// The last-level cache: on AMD a core complex, on Arm a cluster.
    Cache,
    /// The core: its hardware threads.
    Core,
    /// That they are online: near and far cannot be told apart.
    All,
}

/// CPUs near a PMU, where its driver does not say or another set holds for certain events.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NearRule {
    /// What they have in common with the reader CPU.
    pub cpus: Near,
    /// With `cache`: the number of the cache within the reader CPU's socket, from 0 in the order of
    /// its first CPU, in place of the reader CPU's own.
    pub index: Option<usize>,
    /// The events, `*` for anything.
    #[serde(default = "super::pattern::any")]
    pub events: Vec<String>,
}

impl Family {
    /// The rule for an event, if the family has one.
    pub fn near(&self, event: &str) -> Option<&NearRule> {
        let of = |rule: &&NearRule| rule.events.iter().any(|glob| matches_event(glob, event));
        self.near.iter().find(of)
    }
}
