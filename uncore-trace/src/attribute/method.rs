//! The methods of attribution: how a share was made.

/// How a share was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

    /// Whether shares are estimates, which are rounded: not counted for each owner, nor those of the
    /// only owner.
    pub const fn is_estimate(self) -> bool {
        !matches!(self, Self::Exact | Self::Source)
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::fabric::METHODS;

    #[test]
    fn the_schema_has_the_word_of_each_method() {
        assert_eq!(Method::ALL.map(Method::name), METHODS);
    }
}
