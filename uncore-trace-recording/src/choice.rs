//! What a user chooses for a recording, on the command line or in the configuration of the agent.

use std::time::Duration;

use serde::Deserialize;

use crate::named_values::named_values;

named_values! {
    /// The requested method. Counters whose parts are known are always `exact`, and traffic
    /// that no CPU causes is never divided by the use of CPUs.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum MethodChoice;
    /// The value on the command line.
    pub fn name;
    /// io for PCIe root ports, misses for traffic of CPUs if misses are counted, regression for
    /// other counters that CPUs share, residency for counters of one CPU
    #[default]
    Auto = "auto",
    /// In proportion to time on the CPUs that the counter sees
    Residency = "residency",
    /// PCIe root ports by the bytes that disks and interfaces moved for each owner, other counters
    /// by residency
    Io = "io",
    /// Traffic of CPUs by last-level cache misses, other counters as with auto; reads the core's
    /// miss counter at every context switch and tick of these CPUs
    Misses = "misses",
    /// By each owner's traffic per CPU time, which is learnt from the ticks; by residency where
    /// nothing can be learnt
    Regression = "regression",
}

impl MethodChoice {
    /// Whether counters of PCIe devices are divided by the bytes moved on them.
    pub const fn wants_io(self) -> bool {
        matches!(self, Self::Auto | Self::Io | Self::Misses)
    }
}

named_values! {
    /// Who causes the traffic of counters whose cause the catalog does not know.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum DeclaredCause;
    /// The value on the command line.
    pub fn name;
    /// CPUs cause what they count.
    Cpu = "cpu",
    /// Devices cause it.
    Device = "device",
}

/// The default tick: 1 ms, which is shorter than a scheduling slice, or the interval if that is
/// shorter.
pub fn default_tick(interval: Duration) -> Duration {
    Duration::from_millis(1).min(interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tick_follows_a_short_interval() {
        let us = Duration::from_micros(500);
        assert_eq!(default_tick(us), us);
        assert_eq!(default_tick(Duration::from_millis(10)), Duration::from_millis(1));
    }
}
