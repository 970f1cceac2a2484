//! Who used the CPUs within a window, for each set of CPUs that counters see.

use std::collections::{BTreeMap, HashMap};

use super::Methods;
use crate::log::Owner;
use crate::plan::Plan;

/// Time by owner, sorted, for each distinct set of CPUs that a counter sees.
pub(super) type Times = Vec<Vec<(Owner, u64)>>;

/// Who used the CPUs in one tick.
#[derive(Debug)]
pub(super) struct TickUse {
    /// The tick.
    pub tick: u64,
    /// Time by owner, for each set of CPUs; empty where no method learns of the set.
    pub times: Times,
}

/// The window that is being filled.
#[derive(Debug)]
pub(super) struct Usage {
    sets: Vec<Vec<u32>>,
    /// Of the current tick, for each set of CPUs; empty where no method learns.
    tick: Vec<Option<HashMap<Owner, u64>>>,
    ticks: Vec<TickUse>,
    by_cpu: BTreeMap<u32, HashMap<Owner, u64>>,
}

/// The distinct sets of CPUs that the plan's counters see, in the order of their first use.
pub(super) fn sets(plan: &Plan) -> Vec<Vec<u32>> {
    let mut sets: Vec<Vec<u32>> = Vec::new();
    for counter in &plan.counters {
        let set: Vec<u32> = counter.sees.iter().collect();
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    sets
}

/// Whether a counter that sees it learns from ticks, for each of the [`sets`].
pub(super) fn learnt(sets: &[Vec<u32>], plan: &Plan, methods: Methods) -> Vec<bool> {
    let learns = |set: &Vec<u32>| {
        plan.counters.iter().any(|counter| {
            methods.learns(plan, counter) && counter.sees.iter().eq(set.iter().copied())
        })
    };
    sets.iter().map(learns).collect()
}

impl Usage {
    /// An empty window; `learnt` says of which of the sets of CPUs methods learn.
    pub(super) fn new(sets: Vec<Vec<u32>>, learnt: &[bool]) -> Self {
        let any = learnt.contains(&true);
        let tick = learnt.iter().map(|learnt| learnt.then(HashMap::new));
        Self {
            tick: if any { tick.collect() } else { Vec::new() },
            ticks: Vec::new(),
            by_cpu: BTreeMap::new(),
            sets,
        }
    }

    /// Adds who used a CPU in the current tick.
    pub(super) fn add(&mut self, cpu: u32, parts: &[(Owner, u64)]) {
        let use_of = self.by_cpu.entry(cpu).or_default();
        let in_tick = self.tick.iter_mut().zip(&self.sets);
        let mut in_tick: Vec<_> = in_tick
            .filter_map(|(tick, set)| Some((tick.as_mut()?, set)))
            .filter(|(_, set)| set.contains(&cpu))
            .map(|(tick, _)| tick)
            .collect();
        for &(owner, ns) in parts {
            *use_of.entry(owner).or_default() += ns;
            for tick in &mut in_tick {
                *tick.entry(owner).or_default() += ns;
            }
        }
    }

    /// The current tick ends.
    pub(super) fn end_tick(&mut self, tick: u64) {
        if self.tick.is_empty() {
            return;
        }
        let times = self.tick.iter_mut().map(|set| {
            let mut times: Vec<_> = set.iter_mut().flat_map(HashMap::drain).collect();
            times.sort_unstable();
            times
        });
        let times = times.collect();
        self.ticks.push(TickUse { tick, times });
    }

    /// The ticks since they were last taken.
    pub(super) fn take_ticks(&mut self) -> Vec<TickUse> {
        std::mem::take(&mut self.ticks)
    }

    /// Ends the window: time by owner for each set.
    pub(super) fn take(&mut self) -> Times {
        let by_cpu = &self.by_cpu;
        let times = self.sets.iter().map(|set| {
            let mut sum: HashMap<Owner, u64> = HashMap::new();
            for use_of in set.iter().filter_map(|cpu| by_cpu.get(cpu)) {
                for (owner, ns) in use_of {
                    *sum.entry(*owner).or_default() += ns;
                }
            }
            let mut times: Vec<_> = sum.into_iter().collect();
            times.sort_unstable();
            times
        });
        let times = times.collect();
        for use_of in self.by_cpu.values_mut() {
            use_of.clear();
        }
        times
    }
}
