//! When a probe pauses cgroups, and for how long.
//!
//! Pauses have random lengths and come at random times, one at a time, so that no tenant's period can
//! be in step with them. Guarantee: a cgroup is paused only if all its pauses, with the next one,
//! take at most its budget of the time since the begin.

use std::collections::HashMap;

use super::super::random::Random;

/// Shortest and longest pause, ns: an owner's absence must be longer than some ticks, and a tenant
/// must not take it for a failure.
const LENGTH_NS: (f64, f64) = (5e6, 20e6);

/// Least mean time between two pauses, ns: half of the time nobody is paused.
const LEAST_NS: f64 = 25e6;

/// Cgroups among which one is chosen: those with the most traffic in doubt.
const AMONG: usize = 32;

/// The times that cgroups were paused.
#[derive(Debug)]
pub(super) struct Pace {
    begin_ns: i64,
    /// Part of its time for which a cgroup is paused at most.
    budget: f64,
    /// By id.
    paused_ns: HashMap<u64, i64>,
}

impl Pace {
    pub(super) fn new(begin_ns: i64, budget: f64) -> Self {
        Self { begin_ns, budget, paused_ns: HashMap::new() }
    }

    /// When the next pause begins, ns, if there are `count` cgroups to pause.
    pub(super) fn next(&self, now_ns: i64, count: usize, random: &mut Random) -> i64 {
        let mean = f64::midpoint(LENGTH_NS.0, LENGTH_NS.1);
        let every = (mean / (self.budget * count.clamp(1, AMONG) as f64)).max(LEAST_NS);
        now_ns + (-every * (1.0 - random.part()).ln()) as i64
    }

    /// Length of a pause, ns.
    pub(super) fn length(random: &mut Random) -> i64 {
        (LENGTH_NS.0 + (LENGTH_NS.1 - LENGTH_NS.0) * random.part()) as i64
    }

    /// Chooses one of these cgroups that may be paused for a time; the first have the most traffic
    /// in doubt.
    pub(super) fn choose(
        &self,
        now_ns: i64,
        length_ns: i64,
        of: &[u64],
        random: &mut Random,
    ) -> Option<u64> {
        let most = self.budget * (now_ns - self.begin_ns) as f64;
        let spent = |id: &u64| self.paused_ns.get(id).copied().unwrap_or(0);
        let free = |id: &&u64| (spent(id) + length_ns) as f64 <= most;
        let free: Vec<u64> = of.iter().filter(free).copied().take(AMONG).collect();
        random.one(&free).copied()
    }

    /// Notes a pause of a cgroup.
    pub(super) fn paused(&mut self, id: u64, ns: i64) {
        *self.paused_ns.entry(id).or_default() += ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cgroup_is_paused_for_more_than_its_budget() {
        for seed in 0..20 {
            let mut random = Random(seed);
            let (mut pace, mut now) = (Pace::new(7, 0.02), 7);
            let mut spent = [0; 3];
            for _ in 0..2000 {
                now = pace.next(now, 3, &mut random);
                let length = Pace::length(&mut random);
                assert!((5_000_000..=20_000_000).contains(&length));
                let Some(id) = pace.choose(now, length, &[0, 1, 2], &mut random) else { continue };
                pace.paused(id, length);
                spent[id as usize] += length;
                now += length;
                assert!(spent[id as usize] as f64 <= 0.02 * (now - 7) as f64);
            }
            for spent in spent {
                let part = spent as f64 / (now - 7) as f64;
                assert!(part > 0.01, "{part}");
            }
        }
    }

    #[test]
    fn nobody_is_paused_if_there_is_nobody() {
        let pace = Pace::new(0, 0.05);
        assert_eq!(pace.choose(1 << 40, 1, &[], &mut Random(1)), None);
    }
}
