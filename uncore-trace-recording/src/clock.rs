//! The two clocks. All times are measured with `CLOCK_MONOTONIC`. `CLOCK_REALTIME` is derived from
//! it with one offset for the whole recording, so that it never jumps.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds; `i64::MAX` for times above 292 years.
pub fn duration_ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Snapshot {
    /// `CLOCK_MONOTONIC`, ns.
    pub mono_ns: i64,
    /// `CLOCK_REALTIME`, ns since the epoch.
    pub wall_ns: i64,
}

impl Snapshot {
    /// Reads the wall clock between two readings of the monotonic clock and takes the middle of
    /// these. Of several tries, the one with the shortest distance is used.
    pub fn read_clocks() -> Self {
        let attempt = || {
            let before_ns = mono_ns();
            let wall = timespec_ns(clock_gettime(ClockId::Realtime));
            let after_ns = mono_ns();
            (
                after_ns - before_ns,
                Self { mono_ns: before_ns + (after_ns - before_ns) / 2, wall_ns: wall },
            )
        };
        (0..5)
            .map(|_| attempt())
            .min_by_key(|(width, _)| *width)
            .map_or_else(|| attempt().1, |(_, snapshot)| snapshot)
    }

    /// This snapshot with the offset of an earlier one, unless the wall clock was set by a
    /// millisecond or more since. Smaller differences are the time that reading takes.
    #[must_use]
    pub const fn with_offset_of(self, earlier: Self) -> Self {
        let wall_ns = earlier.wall_at(self.mono_ns);
        if wall_ns.abs_diff(self.wall_ns) < 1_000_000 { Self { wall_ns, ..self } } else { self }
    }

    /// The wall time for a time of `CLOCK_MONOTONIC`.
    pub const fn wall_at(&self, mono_ns: i64) -> i64 {
        mono_ns + (self.wall_ns - self.mono_ns)
    }
}

/// The end of a window as rows of a roll-up have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollupTime {
    /// `CLOCK_REALTIME`, microseconds since 1970.
    pub ts_us: i64,
    /// `CLOCK_MONOTONIC`, ns.
    pub mono_ns: i64,
}

/// A span of time on one clock: of records (`u64`) or of rows (`i64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan<T = u64> {
    /// Its begin, ns.
    pub begin_ns: T,
    /// Its end, ns.
    pub end_ns: T,
}

impl<T> TimeSpan<T> {
    /// The span between two times.
    pub const fn new(begin_ns: T, end_ns: T) -> Self {
        Self { begin_ns, end_ns }
    }
}

impl<T: Ord> TimeSpan<T> {
    /// The shortest span that has both.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        Self::new(self.begin_ns.min(other.begin_ns), self.end_ns.max(other.end_ns))
    }
}

impl TimeSpan {
    /// Its length, ns.
    pub const fn len_ns(self) -> u64 {
        self.end_ns - self.begin_ns
    }
}

impl TimeSpan<i64> {
    /// Its length, ns.
    pub const fn len_ns(self) -> i64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }
}

/// `CLOCK_MONOTONIC`, ns: the clock of `bpf_ktime_get_ns`.
pub fn mono_ns() -> i64 {
    timespec_ns(clock_gettime(ClockId::Monotonic))
}

const fn timespec_ns(time: Timespec) -> i64 {
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_snapshot_has_the_same_offset_until_the_clock_is_set() {
        let before = Snapshot { mono_ns: 1000, wall_ns: 5_000_000_999 };
        let later = Snapshot { mono_ns: 3000, wall_ns: 5_000_003_020 };
        assert_eq!(later.with_offset_of(before), Snapshot { wall_ns: 5_000_002_999, ..later });
        let set = Snapshot { wall_ns: 6_000_003_020, ..later };
        assert_eq!(set.with_offset_of(before), set);
    }
}
