//! Reads the counters of a plan, and computes their counts in a lap: a span of time between two
//! readings.
//!
//! Guarantees: consecutive laps leave nothing out and count nothing twice; the length of a lap is
//! the time in which the counters were enabled, so rates stay right when they were disabled in
//! between.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::count::Count;
use crate::open::{Counting, Unopened};
use crate::plan::Plan;
use crate::workload::CommandCpuTime;

/// The count of one counter in a lap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tally {
    /// The counter could not be opened.
    NotSupported,
    /// Raw count, time enabled and time running.
    Counted(Count),
}

impl Tally {
    /// The count, scaled up to the time enabled and rounded as in perf, or unscaled. `None` if the
    /// counter never ran.
    pub fn scaled_count(self, scale: bool) -> Option<f64> {
        let Self::Counted(count) = self else { return None };
        let factor = count.scale_factor()?;
        let value = count.value as f64;
        Some(if scale && factor > 1.0 { (value * factor).round() } else { value })
    }
}

/// The counts of all counters in a lap.
#[derive(Clone, Debug)]
pub struct Lap {
    /// Indexed by counter id.
    pub tallies: Vec<Tally>,
    /// Time in which the counters were enabled, ns.
    pub counted_ns: u64,
    /// Time of the command on CPUs; `None` until it has ended, and of a lap that is not the whole.
    pub used: Option<CommandCpuTime>,
}

/// Difference of the time enabled between counters that is tolerated, as a fraction and in ns:
/// enabling thousands of counters takes milliseconds.
const SLACK: (f64, f64) = (0.05, 20e6);

impl Lap {
    /// The counters that were enabled for less than the whole lap. The kernel removes a counter
    /// from a CPU that goes offline, and its time enabled stops.
    pub fn absent_counters(&self) -> impl Iterator<Item = u32> {
        let minimum_ns = (1.0 - SLACK.0) * self.counted_ns as f64 - SLACK.1;
        let ids = (0..).zip(&self.tallies);
        ids.filter(move |(_, tally)| match tally {
            Tally::Counted(count) => (count.enabled as f64) < minimum_ns,
            Tally::NotSupported => false,
        })
        .map(|(id, _)| id)
    }
}

/// A reading of all counters, and how long they had been enabled.
#[derive(Clone, Debug)]
struct MeterReading {
    counts: Vec<Count>,
    counted: Duration,
}

/// The open counters of a plan, with the readings at which the lap and the measurement began.
#[derive(Debug)]
pub struct CounterMeter {
    counting: Counting,
    supported: Vec<bool>,
    /// Since when the counters are enabled.
    on_since: Option<Instant>,
    /// Time enabled before that.
    counted: Duration,
    first_reading: MeterReading,
    last_reading: MeterReading,
}

impl CounterMeter {
    /// Opens the plan's counters, disabled. Sysfs is under `root`.
    ///
    /// # Errors
    ///
    /// As [`Counting::open`].
    pub fn open(plan: &Plan, root: &Path) -> Result<Self> {
        let counting = Counting::open(&plan.counters, root)?;
        let mut supported = vec![true; plan.counters.len()];
        for Unopened { counter, reason: _ } in counting.unopened() {
            supported[*counter as usize] = false;
        }
        let counts = vec![Count::default(); plan.counters.len()];
        let zero = MeterReading { counts, counted: Duration::ZERO };
        let (first_reading, last_reading) = (zero.clone(), zero);
        let mut meter = Self {
            counting,
            supported,
            on_since: None,
            counted: Duration::ZERO,
            first_reading,
            last_reading,
        };
        meter.restart_measurement();
        Ok(meter)
    }

    /// The counters that could not be opened.
    pub fn unopened(&self) -> &[Unopened] {
        self.counting.unopened()
    }

    /// Whether the counters are enabled.
    pub const fn is_on(&self) -> bool {
        self.on_since.is_some()
    }

    /// Enables all counters.
    pub fn enable(&mut self) -> Result<()> {
        if self.on_since.is_none() {
            self.counting.enable()?;
            self.on_since = Some(Instant::now());
        }
        Ok(())
    }

    /// Disables all counters; see [`Counting::disable`] for failures.
    pub fn disable(&mut self) {
        if let Some(since) = self.on_since.take() {
            self.counted += since.elapsed();
            self.counting.disable();
        }
    }

    /// Begins a new measurement.
    pub fn restart_measurement(&mut self) {
        self.last_reading = self.take_reading();
        self.first_reading = self.last_reading.clone();
    }

    /// The counts since the last call, or since [`CounterMeter::restart_measurement`].
    pub fn take_lap(&mut self) -> Lap {
        let reading = self.take_reading();
        let previous = std::mem::replace(&mut self.last_reading, reading);
        self.lap_since(&previous)
    }

    /// The counts from [`CounterMeter::restart_measurement`] to the last
    /// [`CounterMeter::take_lap`].
    pub fn total_lap(&self) -> Lap {
        self.lap_since(&self.first_reading)
    }

    fn lap_since(&self, start: &MeterReading) -> Lap {
        let pairs = self.last_reading.counts.iter().zip(&start.counts).zip(&self.supported);
        let tally = |((current, earlier), supported): ((&Count, &Count), &bool)| match supported {
            true => Tally::Counted(current.count_since(*earlier)),
            false => Tally::NotSupported,
        };
        let counted_ns = self.last_reading.counted.saturating_sub(start.counted).as_nanos() as u64;
        Lap { tallies: pairs.map(tally).collect(), counted_ns, used: None }
    }

    fn take_reading(&self) -> MeterReading {
        // A counter that cannot be read keeps its last value, so its count is 0.
        let mut counts = self.last_reading.counts.clone();
        let enabled_time = self.on_since.map_or(Duration::ZERO, |since| since.elapsed());
        for (id, count) in self.counting.read() {
            let previous = &mut counts[id as usize];
            *previous = count.not_below(*previous);
        }
        MeterReading { counts, counted: self.counted + enabled_time }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_scaled_to_the_time_enabled_unless_told_not_to() {
        let tally = |value, enabled, running| Tally::Counted(Count { value, enabled, running });
        assert_eq!(tally(100, 1000, 1000).scaled_count(true), Some(100.0));
        assert_eq!(tally(100, 1000, 300).scaled_count(true), Some(333.0));
        assert_eq!(tally(100, 1000, 300).scaled_count(false), Some(100.0));
        assert_eq!(tally(0, 1000, 500).scaled_count(true), Some(0.0));
        for never_ran in [tally(0, 1000, 0), tally(7, 1000, 0), tally(0, 0, 0)] {
            assert_eq!(never_ran.scaled_count(true), None);
            assert_eq!(never_ran.scaled_count(false), None);
        }
        assert_eq!(Tally::NotSupported.scaled_count(true), None);
    }

    #[test]
    fn a_counter_that_was_not_always_there_is_found() {
        let counted = |enabled| Tally::Counted(Count { value: 1, enabled, running: enabled });
        let absent = |counted_ns, tallies| {
            let lap = Lap { tallies, counted_ns, used: None };
            lap.absent_counters().collect::<Vec<_>>()
        };
        let second = 1_000_000_000;
        let tallies = vec![counted(second), Tally::NotSupported, counted(second / 2)];
        assert_eq!(absent(second, tallies), [2]);
        assert!(absent(second, vec![counted(second - 60_000_000)]).is_empty());
        assert!(absent(1_000_000, vec![counted(0)]).is_empty());
    }
}
