//! The two clocks. `CLOCK_MONOTONIC` measures; `CLOCK_REALTIME` is a label that is derived from
//! it by one offset for the whole recording, so that the label never jumps.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Snapshot {
    /// `CLOCK_MONOTONIC`, ns.
    pub mono_ns: i64,
    /// `CLOCK_REALTIME`, ns since the epoch.
    pub wall_ns: i64,
}

impl Snapshot {
    /// Reads the wall clock between two readings of the monotonic one, takes their middle, and
    /// keeps the narrowest of several tries.
    pub fn take() -> Self {
        let attempt = || {
            let before = mono_ns();
            let wall = ns(clock_gettime(ClockId::Realtime));
            let after = mono_ns();
            (after - before, Self { mono_ns: before + (after - before) / 2, wall_ns: wall })
        };
        (0..5)
            .map(|_| attempt())
            .min_by_key(|(width, _)| *width)
            .map_or_else(|| attempt().1, |(_, snapshot)| snapshot)
    }

    /// The wall time of a monotonic one.
    pub const fn wall(&self, mono_ns: i64) -> i64 {
        mono_ns + (self.wall_ns - self.mono_ns)
    }
}

/// `CLOCK_MONOTONIC`, ns: the clock of `bpf_ktime_get_ns`.
pub fn mono_ns() -> i64 {
    ns(clock_gettime(ClockId::Monotonic))
}

const fn ns(time: Timespec) -> i64 {
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
