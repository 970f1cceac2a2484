//! The two clocks of a workload, in nanoseconds, and sleep until a time.

use std::io;

use anyhow::{Context, Result};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

const NS_PER_S: u64 = 1_000_000_000;

/// Time since boot: the clock of the model's truth log.
pub(crate) fn now_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// CPU time of the calling thread.
pub(crate) fn used_ns() -> u64 {
    clock_ns(ClockId::ThreadCPUTime)
}

/// Sleeps until a time of [`now_ns`], even if signals interrupt it.
pub(crate) fn sleep_until(time: u64) -> Result<()> {
    let until = Timespec { tv_sec: (time / NS_PER_S) as i64, tv_nsec: (time % NS_PER_S) as i64 };
    loop {
        match clock_nanosleep_absolute(ClockId::Monotonic, &until) {
            Err(rustix::io::Errno::INTR) => {}
            result => return result.map_err(io::Error::from).context("sleep"),
        }
    }
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * NS_PER_S + time.tv_nsec as u64
}
