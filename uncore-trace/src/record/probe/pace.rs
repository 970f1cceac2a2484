//! When a probe pauses cgroups, and for how long.
//!
//! Pauses have random lengths and come at random times, so that no tenant's period can be in step
//! with them. Short ones say more for the same time, because each tells something new. Where one at a
//! time would not use the budget, random ones are paused together. Guarantee: a cgroup is paused only if all its pauses, with the next one,
//! take at most its budget of the time since the begin.

use std::collections::HashMap;

use fastrand::Rng;

/// Shortest and longest pause, ns: an owner's absence must be longer than some ticks, and a tenant
/// must not take it for a failure.
const LENGTH_NS: (f64, f64) = (5e6, 10e6);
const MEAN_NS: f64 = f64::midpoint(LENGTH_NS.0, LENGTH_NS.1);

/// For this part of the time or more, no cgroup is paused.
const UNPAUSED: f64 = 0.5;

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
    pub(super) fn next(&self, now_ns: i64, count: usize, random: &mut Rng) -> i64 {
        let between = MEAN_NS * (self.together(count) as f64 / self.sum(count) - 1.0);
        now_ns + (-between * (1.0 - random.f64()).ln()) as i64
    }

    /// Length of a pause, ns.
    pub(super) fn length(random: &mut Rng) -> i64 {
        (LENGTH_NS.0 + (LENGTH_NS.1 - LENGTH_NS.0) * random.f64()) as i64
    }

    /// Chooses those of these cgroups that are paused together for a time; the first have the most
    /// traffic in doubt.
    pub(super) fn choose(
        &self,
        now_ns: i64,
        length_ns: i64,
        of: &[u64],
        random: &mut Rng,
    ) -> Vec<u64> {
        let most = self.budget * (now_ns - self.begin_ns) as f64;
        let spent = |id: &u64| self.paused_ns.get(id).copied().unwrap_or(0);
        let free = |id: &&u64| (spent(id) + length_ns) as f64 <= most;
        let mut free: Vec<u64> = of.iter().filter(free).copied().take(AMONG).collect();
        let mut chosen = Vec::new();
        while chosen.len() < self.together(of.len()) && !free.is_empty() {
            chosen.push(free.swap_remove(random.usize(..free.len())));
        }
        chosen
    }

    /// Number of cgroups that are paused together: as many as use the budget.
    fn together(&self, count: usize) -> usize {
        (self.sum(count) / (1.0 - UNPAUSED)).ceil() as usize
    }

    /// Number of cgroups that are paused at a time, on average, if the budget is used.
    fn sum(&self, count: usize) -> f64 {
        self.budget * count.clamp(1, AMONG) as f64
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
            let mut random = Rng::with_seed(seed);
            let (mut pace, mut now) = (Pace::new(7, 0.02), 7);
            let mut spent = [0; 3];
            for _ in 0..2000 {
                now = pace.next(now, 3, &mut random);
                let length = Pace::length(&mut random);
                assert!((5_000_000..=10_000_000).contains(&length));
                for id in pace.choose(now, length, &[0, 1, 2], &mut random) {
                    pace.paused(id, length);
                    spent[id as usize] += length;
                    now += length;
                    assert!(spent[id as usize] as f64 <= 0.02 * (now - 7) as f64);
                }
            }
            for spent in spent {
                let part = spent as f64 / (now - 7) as f64;
                assert!(part > 0.01, "{part}");
            }
        }
    }

    #[test]
    fn many_are_paused_together_so_that_each_budget_is_used() {
        let (mut random, mut now) = (Rng::with_seed(3), 0);
        let of: Vec<u64> = (0..AMONG as u64).collect();
        let mut pace = Pace::new(now, 0.05);
        while now < 60_000_000_000 {
            now = pace.next(now, of.len(), &mut random);
            let length = Pace::length(&mut random);
            let chosen = pace.choose(now, length, &of, &mut random);
            assert!(chosen.len() <= 4, "{chosen:?}");
            for id in &chosen {
                pace.paused(*id, length);
            }
            now += if chosen.is_empty() { 0 } else { length };
        }
        let all: i64 = pace.paused_ns.values().sum();
        let part = all as f64 / (of.len() as i64 * now) as f64;
        assert!((0.04..=0.05).contains(&part), "{part}");
    }

    #[test]
    fn nobody_is_paused_if_there_is_nobody() {
        let pace = Pace::new(0, 0.05);
        assert_eq!(pace.choose(1 << 40, 1, &[], &mut Rng::with_seed(1)), Vec::<u64>::new());
    }
}
