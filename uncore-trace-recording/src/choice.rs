//! What a user chooses for a recording, on the command line or in the configuration of the agent.

use std::time::Duration;

use serde::Deserialize;

/// The requested method. Counters whose parts are known are always `exact`, and traffic
/// that no CPU causes is never divided by the use of CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MethodChoice {
    /// io for PCIe root ports, misses for traffic of CPUs if misses are counted, regression for
    /// other counters that CPUs share, residency for counters of one CPU
    #[default]
    Auto,
    /// In proportion to time on the CPUs that the counter sees
    Residency,
    /// PCIe root ports by the bytes that disks and interfaces moved for each owner, other counters
    /// by residency
    Io,
    /// Traffic of CPUs by last-level cache misses, other counters as with auto; reads the core's
    /// miss counter at every context switch and tick of these CPUs
    Misses,
    /// By each owner's traffic per CPU time, which is learnt from the ticks; by residency where
    /// nothing can be learnt
    Regression,
}

impl MethodChoice {
    /// All methods.
    pub const ALL: [Self; 5] =
        [Self::Auto, Self::Residency, Self::Io, Self::Misses, Self::Regression];

    /// The choice of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.name() == name)
    }

    /// The value on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Residency => "residency",
            Self::Io => "io",
            Self::Misses => "misses",
            Self::Regression => "regression",
        }
    }

    /// Whether counters of PCIe devices are divided by the bytes moved on them.
    pub const fn wants_io(self) -> bool {
        matches!(self, Self::Auto | Self::Io | Self::Misses)
    }
}

/// Who causes the traffic of counters whose cause the catalog does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeclaredCause {
    /// CPUs cause what they count.
    Cpu,
    /// Devices cause it.
    Device,
}

impl DeclaredCause {
    /// The value on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Device => "device",
        }
    }
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
