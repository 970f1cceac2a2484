//! What the miss counters of each CPU counted, by owner, until every window that needs it is closed.
//!
//! A counter's window is divided by misses if the windows of the miss counters of all CPUs that it
//! sees make up just that time: where a reading is missing they may be of other lengths.

use std::collections::{BTreeMap, VecDeque};

use crate::log::Owner;

/// Windows of a CPU that are kept. A counter whose window goes on for longer is divided otherwise.
const KEPT: usize = 64;

/// One window of a miss counter.
#[derive(Debug)]
struct Missed {
    /// Its ticks.
    from: u64,
    to: u64,
    /// By owner, scaled for multiplexing.
    counts: Vec<(Owner, u64)>,
}

/// Windows of the miss counters, by CPU.
#[derive(Debug, Default)]
pub(super) struct Misses(BTreeMap<u32, VecDeque<Missed>>);

impl Misses {
    /// Takes raw counts by owner of a CPU's window between two ticks; `factor` is for multiplexing.
    pub(super) fn add(
        &mut self,
        cpu: u32,
        ticks: (u64, u64),
        counts: &[(Owner, u64)],
        factor: f64,
    ) {
        let scaled = |&(who, count): &(Owner, u64)| (who, (count as f64 * factor).round() as u64);
        let counts = counts.iter().map(scaled).collect();
        let windows = self.0.entry(cpu).or_default();
        if windows.len() == KEPT {
            windows.pop_front();
        }
        windows.push_back(Missed { from: ticks.0, to: ticks.1, counts });
    }

    /// The misses of these CPUs between two ticks, sorted; `None` if those of one are not known.
    pub(super) fn of(&self, cpus: &[u32], ticks: (u64, u64)) -> Option<Vec<(Owner, u64)>> {
        let mut sum: BTreeMap<Owner, u64> = BTreeMap::new();
        for cpu in cpus {
            let mut at = ticks.0;
            for window in self.0.get(cpu)?.iter().filter(|window| window.from >= ticks.0) {
                if window.from != at || window.to > ticks.1 {
                    break;
                }
                at = window.to;
                for &(who, count) in &window.counts {
                    *sum.entry(who).or_default() += count;
                }
            }
            if at != ticks.1 {
                return None;
            }
        }
        Some(sum.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_windows_that_make_up_the_time_are_its_misses() {
        let mut misses = Misses::default();
        let count = |count| [(Owner::Irq(1), count)];
        misses.add(0, (10, 20), &count(1), 1.0);
        misses.add(0, (20, 30), &count(2), 1.0);
        misses.add(0, (30, 50), &count(4), 2.5);
        misses.add(1, (10, 30), &count(100), 1.0);
        misses.add(1, (30, 40), &count(200), 1.0);
        misses.add(1, (40, 50), &count(400), 1.0);
        let sum = |cpus: &[u32], ticks| {
            let found = misses.of(cpus, ticks);
            found.map(|found| found.iter().map(|(_, count)| count).sum::<u64>())
        };
        assert_eq!(sum(&[0], (10, 20)), Some(1));
        assert_eq!(sum(&[0, 1], (10, 30)), Some(103));
        assert_eq!(sum(&[0, 1], (30, 50)), Some(610));
        assert_eq!(sum(&[0, 1], (10, 50)), Some(713));
        for part in [(10, 20), (10, 40), (20, 30), (5, 20), (40, 60)] {
            assert_eq!(sum(&[0, 1], part), None, "{part:?}");
        }
        assert_eq!(sum(&[0, 2], (10, 30)), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut misses = Misses::default();
        for at in 0..1000 {
            misses.add(0, (at, at + 1), &[(Owner::Idle, 1)], 1.0);
        }
        assert_eq!(misses.0[&0].len(), KEPT);
    }
}
