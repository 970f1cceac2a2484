//! What was typed, checked: every number in its range, every combination possible.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use anyhow::{Result, bail};

use crate::open::Timer;

/// The shortest tick: at 10 kHz a sweep of a few counters still takes less than a tenth of it.
const MIN_TICK: Duration = Duration::from_micros(100);
/// The longest tick and window.
const MAX_TICK: Duration = Duration::from_secs(1);
const MAX_WINDOW: Duration = Duration::from_secs(60);
/// The tick where none is asked for: shorter than a scheduling slice, see `attribute`.
const DEFAULT_TICK: Duration = Duration::from_millis(1);

/// Tracepoints at which counters are read too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sampling {
    /// `sched_switch`.
    Sched,
    /// Interrupt handlers and softirqs, entry and exit.
    Irq,
}

/// How and where to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where machine files are.
    pub root: PathBuf,
    /// `-`, `FILE.parquet` or a directory.
    pub output: PathBuf,
    /// Replace what exists.
    pub force: bool,
    /// From one reading to the next.
    pub tick: Duration,
    /// What a row covers.
    pub interval: Duration,
    /// How long; `None`: until a signal or the command's end.
    pub duration: Option<Duration>,
    /// How long to wait before counting.
    pub delay: Duration,
    /// Keep every slice.
    pub slices: bool,
    /// Read at tracepoints too.
    pub sample_on: Vec<Sampling>,
    /// Least time between such readings.
    pub min_gap: Duration,
    /// How often what was recorded is made to survive a kill.
    pub flush: Duration,
    /// Cgroups with rows of their own.
    pub cgroups: Vec<String>,
    /// What makes the readings.
    pub timer: Timer,
    /// Ring size in bytes.
    pub buffer: u32,
    /// Say nothing but errors.
    pub quiet: bool,
    /// The command to run.
    pub command: Vec<OsString>,
}

/// A duration with a unit (`10ms`, `2s`, `1m 30s`), or a bare number of `bare`.
///
/// # Errors
///
/// Says what a duration looks like.
pub fn parse_duration(text: &str, bare: Duration) -> Result<Duration, String> {
    if let Ok(number) = text.parse::<u32>() {
        return bare.checked_mul(number).ok_or_else(|| format!("{text} is too long"));
    }
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write it with a unit: 100us, 10ms, 2s, 1m"))
}

/// Chooses the tick and checks both against each other.
///
/// # Errors
///
/// One is out of its range, or the interval is not a whole number of ticks.
pub fn tick_and_interval(
    tick: Option<Duration>,
    interval: Duration,
) -> Result<(Duration, Duration)> {
    let show = humantime::format_duration;
    if interval < MIN_TICK || interval > MAX_WINDOW {
        bail!(
            "an interval of {} is out of range: choose {} to {}",
            show(interval),
            show(MIN_TICK),
            show(MAX_WINDOW)
        );
    }
    let tick = tick.unwrap_or_else(|| DEFAULT_TICK.min(interval));
    if tick < MIN_TICK || tick > MAX_TICK {
        bail!(
            "a tick of {} is out of range: choose {} to {}",
            show(tick),
            show(MIN_TICK),
            show(MAX_TICK)
        );
    }
    if tick > interval || interval.as_nanos() % tick.as_nanos() != 0 {
        bail!(
            "an interval of {} is not a whole number of ticks of {}: choose a multiple of it, or another --tick",
            show(interval),
            show(tick)
        );
    }
    Ok((tick, interval))
}

impl Options {
    /// Whether counters of a CPU of its own are read whenever that CPU changes hands.
    pub fn is_exact(&self) -> bool {
        self.min_gap.is_zero() && self.sample_on.contains(&Sampling::Sched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn bare_numbers_take_the_options_unit() {
        assert_eq!(parse_duration("10", ms(1)), Ok(ms(10)));
        assert_eq!(parse_duration("250us", ms(1)), Ok(Duration::from_micros(250)));
        assert!(parse_duration("soon", ms(1)).unwrap_err().contains("with a unit"));
        assert!(parse_duration("-5", ms(1)).is_err());
    }

    #[test]
    fn the_tick_follows_a_short_interval() {
        let us = Duration::from_micros(500);
        assert_eq!(tick_and_interval(None, us).unwrap(), (us, us));
        assert_eq!(tick_and_interval(None, ms(10)).unwrap(), (ms(1), ms(10)));
    }

    #[test]
    fn nonsense_is_refused() {
        let year = Duration::from_secs(365 * 86400);
        for interval in [Duration::ZERO, Duration::from_nanos(1), year] {
            assert!(tick_and_interval(None, interval).is_err());
        }
        assert!(tick_and_interval(Some(ms(3)), ms(10)).is_err());
        assert!(tick_and_interval(Some(ms(20)), ms(10)).is_err());
    }
}
