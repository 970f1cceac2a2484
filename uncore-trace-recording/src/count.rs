//! Arithmetic of counts; no other module computes differences or scales counts.
//!
//! The only exception is `check`, which computes the same from the raw tables with code of its own,
//! to find faults in this one.

use std::mem;

/// A counter's value and times since it was first enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Raw count.
    pub value: u64,
    /// Time enabled, ns.
    pub enabled: u64,
    /// Time running, ns; less than `enabled` if the counter was multiplexed.
    pub running: u64,
}

impl Count {
    /// The sum of this count and an earlier one.
    #[must_use]
    pub const fn add_earlier(self, earlier: Self) -> Self {
        Self {
            value: self.value.wrapping_add(earlier.value),
            enabled: self.enabled.wrapping_add(earlier.enabled),
            running: self.running.wrapping_add(earlier.running),
        }
    }

    /// The difference to an earlier count.
    #[must_use]
    pub const fn count_since(self, earlier: Self) -> Self {
        Self {
            value: self.value.saturating_sub(earlier.value),
            enabled: self.enabled.saturating_sub(earlier.enabled),
            running: self.running.saturating_sub(earlier.running),
        }
    }

    /// This count, but with the value of `earlier` if the value went down since then. Later counts
    /// make up for it, so that all differences sum to the last value.
    ///
    /// Values do fall back: the driver of an Arm CMN reads the 16-bit lanes of the crosspoints
    /// before the counters that they carry into, so a carry between the two reads is in both until
    /// the next reading (`arm_cmn_event_read`, drivers/perf/arm-cmn.c, Linux 7.2).
    #[must_use]
    pub const fn not_below(self, earlier: Self) -> Self {
        if self.value < earlier.value { Self { value: earlier.value, ..self } } else { self }
    }

    /// Time enabled / time running, 1 or more; `None` if the counter never ran. perf scales by it:
    /// `perf_counts_values__scale`, tools/lib/perf/evsel.c, Linux 7.2.
    pub fn scale_factor(self) -> Option<f64> {
        match self {
            Self { running: 0, .. } | Self { enabled: 0, .. } => None,
            Self { enabled, running, .. } if running < enabled => {
                Some(enabled as f64 / running as f64)
            }
            _ => Some(1.0),
        }
    }

    /// Time running / time enabled, 0 to 1.
    pub fn running_part(self) -> f32 {
        if self.enabled == 0 {
            return 0.0;
        }
        (self.running as f64 / self.enabled as f64).min(1.0) as f32
    }
}

/// Times enabled and running of a counter whose readings store them only if it was multiplexed.
///
/// While both times are equal, their difference is 0 whatever their value, so the time of the
/// reading is used for both. When they first differ, the whole difference belongs to the time since
/// the last reading.
#[derive(Clone, Copy, Debug, Default)]
pub struct CounterTimes {
    were_equal: bool,
    offset: u64,
}

impl CounterTimes {
    /// The count at the reading at `time`. `times` are enabled and running; `None` if the counter
    /// was never multiplexed.
    pub fn count_at(&mut self, time: u64, value: u64, times: Option<(u64, u64)>) -> Count {
        let Some((enabled, running)) = times else {
            self.were_equal = true;
            return Count { value, enabled: time, running: time };
        };
        if mem::take(&mut self.were_equal) {
            self.offset = time.saturating_sub(enabled);
        }
        let [enabled, running] = [enabled, running].map(|time| time.saturating_add(self.offset));
        Count { value, enabled, running }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn count(value: u64, enabled: u64, running: u64) -> Count {
        Count { value, enabled, running }
    }

    #[test]
    fn a_multiplexed_count_is_scaled() {
        let delta = count(150, 2000, 1000).count_since(count(100, 1000, 500));
        assert_eq!((delta.value, delta.scale_factor()), (50, Some(2.0)));
        assert!((delta.running_part() - 0.5).abs() < 1e-6);
    }

    #[test]
    fn a_counter_that_never_ran_has_no_factor() {
        let delta = count(100, 2000, 500).count_since(count(100, 1000, 500));
        assert_eq!(delta.scale_factor(), None);
        assert!(delta.running_part().abs() < f32::EPSILON);
        assert_eq!(count(0, 0, 0).scale_factor(), None);
    }

    #[test]
    fn differences_sum_to_the_last_value_though_one_value_fell_back() {
        let mut last = count(0, 0, 0);
        let mut deltas = Vec::new();
        for (value, enabled) in [(100_000, 1), (65_000, 2), (90_000, 3), (120_000, 4)] {
            let now = count(value, enabled, enabled).not_below(last);
            deltas.push(now.count_since(last));
            last = now;
        }
        let one = |value| count(value, 1, 1);
        assert_eq!(deltas, [one(100_000), one(0), one(0), one(20_000)]);
    }

    #[test]
    fn the_difference_of_times_is_of_the_time_since_the_last_reading() {
        let mut times = CounterTimes::default();
        let before = times.count_at(1000, 0, None);
        let after = times.count_at(2000, 0, Some((1900, 1400))).count_since(before);
        assert_eq!((after.enabled, after.running), (1000, 500));
        let before = times.count_at(2000, 0, Some((1900, 1400)));
        let after = times.count_at(3000, 0, Some((2900, 2200))).count_since(before);
        assert_eq!((after.enabled, after.running), (1000, 800));
    }
}
