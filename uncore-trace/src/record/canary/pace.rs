//! When the canary moves bytes, and for how long.
//!
//! Bursts begin at random, so that no tenant's period can be in step with them. Guarantee: at the
//! end of each burst the lengths of all bursts so far are at most [`PART_OF_TIME`] of the time
//! since the begin. A burst that has to wait for its CPU or disk takes longer, and moves no more.

use fastrand::Rng;

/// Largest part of the time that bursts take.
pub(super) const PART_OF_TIME: f64 = 0.01;

/// Shortest and longest burst, ns: a default window is 10 ms.
const LENGTH_NS: (f64, f64) = (5e6, 20e6);

/// Mean of the exponential pauses, ns. With bursts of 12.5 ms on average they take 0.8 % of the
/// time, so the limit changes few pauses.
const PAUSE_NS: f64 = 1.5e9;

/// Longest pause, ns, so that each kind is moved at least every 15 s.
const LONGEST_PAUSE_NS: f64 = 4.5e9;

/// The times of the bursts.
#[derive(Debug)]
pub(super) struct Pace {
    begin_ns: i64,
    used_ns: i64,
}

impl Pace {
    pub(super) const fn new(begin_ns: i64) -> Self {
        Self { begin_ns, used_ns: 0 }
    }

    /// Begin and length of the next burst, ns; now is `now_ns`.
    pub(super) fn next_burst(&self, now_ns: i64, random: &mut Rng) -> (i64, i64) {
        let (shortest, longest) = LENGTH_NS;
        let length = (shortest + (longest - shortest) * random.f64()) as i64;
        let pause = (-PAUSE_NS * (1.0 - random.f64()).ln()).min(LONGEST_PAUSE_NS) as i64;
        let used = (self.used_ns + length) as f64;
        let earliest_begin = self.begin_ns + (used / PART_OF_TIME) as i64 - length;
        ((now_ns + pause).max(earliest_begin), length)
    }

    /// Notes a burst of this length.
    pub(super) const fn note_burst(&mut self, ns: i64) {
        self.used_ns += ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_random_and_take_a_hundredth_of_the_time_at_most() {
        for seed in 0..50 {
            let mut random = Rng::with_seed(seed);
            let (mut pace, mut now) = (Pace::new(7), 7_i64);
            let mut used = 0;
            let mut begins = Vec::new();
            while begins.len() < 400 {
                let (begin, length) = pace.next_burst(now, &mut random);
                assert!(begin > now && (5_000_000..20_000_001).contains(&length));
                now = begin + length;
                used += length;
                pace.note_burst(length);
                let part = used as f64 / (now - 7) as f64;
                assert!(part < PART_OF_TIME + 1e-9, "{part}");
                begins.push(begin);
            }
            let pauses: Vec<f64> =
                begins.windows(2).map(|two| (two[1] - two[0]) as f64 / 1e9).collect();
            let mean = pauses.iter().sum::<f64>() / pauses.len() as f64;
            let spread = pauses.iter().map(|its| (its - mean).powi(2)).sum::<f64>();
            let spread = (spread / pauses.len() as f64).sqrt();
            assert!((1.2..2.2).contains(&mean) && spread > 0.4 * mean, "{mean} {spread}");
        }
    }
}
