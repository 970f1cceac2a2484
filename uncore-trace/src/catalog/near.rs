//! The CPUs near a PMU, which are those that the cause `cpu` means.
//!
//! The traffic that a counter sees also depends on its [causes](super::source::TrafficCause): that of
//! other sockets comes from all CPUs that are not near.

use serde::Deserialize;

use super::family::Family;
use super::pattern::matches_any_event;

/// The resource that CPUs near a PMU share with its reader CPU.
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
    /// Nothing: near and far CPUs cannot be distinguished.
    All,
}

/// The CPUs near a PMU, if its driver does not say or certain events differ.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NearRule {
    /// The resource that they share with the reader CPU.
    pub cpus: Near,
    /// With `cache`: the number of the cache within the reader CPU's socket, from 0 in the order of
    /// its first CPU, instead of the reader CPU's own cache.
    pub index: Option<usize>,
    /// The events; `*` matches anything.
    #[serde(default = "super::pattern::match_any_name")]
    pub events: Vec<String>,
}

impl Family {
    /// The rule for an event, if the family has one.
    pub fn near_rule(&self, event: &str) -> Option<&NearRule> {
        self.near.iter().find(|rule| matches_any_event(&rule.events, event))
    }
}
