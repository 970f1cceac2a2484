//! Regression calibration: removes the measurement error of witnesses from the misses that learners
//! use.
//!
//! A witness has measurement errors: other tasks prefetch or evict lines, and readings are some ten
//! microseconds apart. The counts of the fabric do not have these errors. Learning from the raw
//! misses would move traffic to the baseline (regression dilution). So learners get the expected
//! misses given the measured ones (regression calibration; Carroll, Ruppert, Stefanski,
//! Crainiceanu, "Measurement Error in Nonlinear Models", 2006, chapter 4): an owner's mean misses
//! per time over some ticks, times its time in each tick. Time is exact, and its errors are
//! independent of those of the witnesses.

use std::collections::BTreeMap;

use super::traffic_source::TrafficSource;

/// Number of ticks in the mean. Chosen among 2, 5, 10 and 20 on mixes of the lab.
const TICKS: usize = 10;

/// CPU time and misses of a source in a tick.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimeAndMisses {
    /// CPU time.
    pub time: f64,
    /// Misses.
    pub misses: f64,
}

/// CPU time and misses of each source in a tick.
pub(super) type MissesByTime = BTreeMap<TrafficSource, TimeAndMisses>;

/// Calibrates the misses of some ticks. Misses of sources without time are not changed.
pub(super) fn calibrate_misses(ticks: &mut [MissesByTime]) {
    for ticks in ticks.chunks_mut(TICKS) {
        let mut sums = MissesByTime::new();
        for (source, TimeAndMisses { time, misses }) in ticks.iter().flatten() {
            let sum = sums.entry(*source).or_default();
            sum.time += time;
            sum.misses += misses;
        }
        for (source, TimeAndMisses { time, misses }) in ticks.iter_mut().flatten() {
            if let Some(total) = sums.get(source)
                && total.time > 0.0
            {
                *misses = total.misses * *time / total.time;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries::Owner;

    #[test]
    fn misses_go_with_time_and_none_is_lost() {
        let source = |number| TrafficSource::from_cpus(Owner::Irq(number), false);
        let mut ticks: Vec<MissesByTime> = (0..12)
            .map(|tick| {
                let time = f64::from(tick % 3);
                let ran = TimeAndMisses { time, misses: f64::from(tick * tick) };
                let idle = TimeAndMisses { time: 0.0, misses: 5.0 };
                MissesByTime::from([(source(1), ran), (source(2), idle)])
            })
            .collect();
        calibrate_misses(&mut ticks);
        let of = |range: std::ops::Range<usize>, number| {
            ticks[range].iter().map(|tick| tick[&source(number)].misses).sum::<f64>()
        };
        assert!((of(0..10, 1) - 285.0).abs() < 1e-9 && (of(10..12, 1) - 221.0).abs() < 1e-9);
        assert!(ticks.iter().all(|tick| (tick[&source(2)].misses - 5.0).abs() < 1e-9));
        assert!((ticks[2][&source(1)].misses / ticks[1][&source(1)].misses - 2.0).abs() < 1e-9);
    }
}
