//! The methods of attribution: how a share was made, and what may be asked for.

use crate::plan::Plan;

/// How a share was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Each owner's part of a per-CPU counter is known: see
    /// [`ExactBy`](crate::catalog::exact::ExactBy).
    Exact,
    /// Not divided: by its hardware, the counter counts only traffic of devices or other systems.
    Source,
    /// Measured by a monitor of the hardware for the owner's cgroup.
    Monitor,
    /// By time on the CPUs whose traffic the counter sees.
    Residency,
    /// By the bytes moved on the counter's devices.
    Io,
    /// Traffic of devices, by who holds them.
    Held,
    /// By each owner's traffic per miss, learnt from ticks.
    Misses,
    /// By each owner's traffic per byte at ports, which count fewer CPUs.
    Ports,
    /// By each owner's traffic per CPU time, learnt from ticks.
    Regression,
    /// Not divided: the counter did not run, or its count is 0.
    None,
}

impl Method {
    /// All methods.
    pub const ALL: [Self; 10] = [
        Self::Exact,
        Self::Source,
        Self::Monitor,
        Self::Residency,
        Self::Io,
        Self::Held,
        Self::Misses,
        Self::Ports,
        Self::Regression,
        Self::None,
    ];

    /// The value in the column `method`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Source => "source",
            Self::Monitor => "monitor",
            Self::Residency => "residency",
            Self::Io => "io",
            Self::Held => "held",
            Self::Misses => "misses",
            Self::Ports => "ports",
            Self::Regression => "regression",
            Self::None => "none",
        }
    }
}

/// The requested method. Counters whose parts are known are always `exact`, and traffic
/// that no CPU causes is never divided by the use of CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// io for PCIe root ports, misses for traffic of CPUs if misses are counted, regression for
    /// other counters that CPUs share, residency for counters of one CPU
    #[default]
    Auto,
    /// In proportion to time on the CPUs that the counter sees
    Residency,
    /// PCIe root ports by the bytes that disks and interfaces moved for each owner, others by
    /// residency
    Io,
    /// Traffic of CPUs by last-level cache misses, others as with auto; reads the core's miss
    /// counter at every context switch and tick of these CPUs
    Misses,
    /// By rates learnt from ticks, or residency where nothing can be learnt
    Regression,
}

impl Choice {
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

    /// Whether the method needs I/O to be recorded for a counter of the plan.
    pub fn needs_io(self, plan: &Plan) -> bool {
        plan.counters
            .iter()
            .any(|counter| counter.is_statistic() || self.wants_io() && counter.io.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::fabric::METHODS;

    #[test]
    fn the_schema_has_the_word_of_each_method() {
        assert_eq!(Method::ALL.map(Method::name), METHODS);
    }
}
