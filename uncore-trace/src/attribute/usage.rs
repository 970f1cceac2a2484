//! The use of CPUs in a window, for each set of CPUs that counters see.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::methods::Methods;
use super::traffic_source::TrafficSource;
use crate::discover::CpuList;
use crate::entries::Owner;
use crate::plan::{Counter, Plan};

/// The weight of time on a far CPU when a count is divided by time is one over this number.
///
/// Linux allocates a page on the node of the CPU that first touches it
/// (`Documentation/admin-guide/mm/numa_memory_policy.rst`, Linux 7.2), so a task's traffic to
/// another socket's memory is the exception. Methods that learn have separate rates for near and
/// far CPUs.
const FAR_DIVISOR: u64 = 4;

/// The CPUs that a counter sees.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CpuSet {
    /// All of them.
    pub cpus: CpuList,
    /// Those of them that are on another socket.
    far: CpuList,
}

impl CpuSet {
    /// The CPUs that a counter of the plan sees.
    pub(super) fn from_counter(counter: &Counter) -> Self {
        Self { cpus: counter.sees.clone(), far: counter.far.clone() }
    }

    /// Whether one of its CPUs is far; `None` for a CPU that is not in the set.
    pub(super) fn is_far(&self, cpu: u32) -> Option<bool> {
        self.cpus.contains(cpu).then(|| self.far.contains(cpu))
    }
}

/// Time by owner, sorted, for each distinct set of CPUs, ns, with [`FAR_DIVISOR`] applied. Waiting
/// windows share it.
pub(super) type OwnerTimes = Vec<Arc<[(Owner, u64)]>>;

/// The use of CPUs in one tick.
#[derive(Debug)]
pub(super) struct TickUse {
    /// The tick.
    pub tick: u64,
    /// Time by source, sorted, ns, for each set of CPUs; empty if no method learns from the set.
    pub times: Vec<Vec<(TrafficSource, u64)>>,
}

/// CPU time of the current tick and of the current window.
#[derive(Debug)]
pub(super) struct CpuUsage {
    sets: Vec<CpuSet>,
    /// The current tick, for each set of CPUs; `None` if no method learns from the set.
    tick: Vec<Option<HashMap<TrafficSource, u64>>>,
    ticks: Vec<TickUse>,
    by_cpu: BTreeMap<u32, HashMap<Owner, u64>>,
}

/// The distinct sets of CPUs that the plan's counters see, in the order of their first use, and for
/// each counter the index of its set.
pub(super) fn distinct_cpu_sets(plan: &Plan) -> (Vec<CpuSet>, Vec<usize>) {
    let mut sets: Vec<CpuSet> = Vec::new();
    let mut index_of: HashMap<CpuSet, usize> = HashMap::new();
    let index = |counter: &Counter| {
        let set = CpuSet::from_counter(counter);
        *index_of.entry(set).or_insert_with_key(|set| {
            sets.push(set.clone());
            sets.len() - 1
        })
    };
    let of_counters = plan.counters.iter().map(index).collect();
    (sets, of_counters)
}

/// For each of so many sets of CPUs, whether a counter that sees it learns from ticks; `set_of` is
/// the set of each counter.
pub(super) fn sets_with_learners(
    sets: usize,
    set_of: &[usize],
    plan: &Plan,
    methods: Methods,
) -> Vec<bool> {
    let mut learnt = vec![false; sets];
    for (counter, set) in plan.counters.iter().zip(set_of) {
        if !learnt[*set] && methods.learns_from_ticks(plan, counter) {
            learnt[*set] = true;
        }
    }
    learnt
}

impl CpuUsage {
    /// An empty window. `learnt` says which sets methods learn from.
    pub(super) fn new(sets: Vec<CpuSet>, learnt: &[bool]) -> Self {
        let any = learnt.contains(&true);
        let tick = learnt.iter().map(|learnt| learnt.then(HashMap::new));
        Self {
            tick: if any { tick.collect() } else { Vec::new() },
            ticks: Vec::new(),
            by_cpu: BTreeMap::new(),
            sets,
        }
    }

    /// Adds the use of a CPU in the current tick.
    pub(super) fn add_use(&mut self, cpu: u32, use_by_owner: &[(Owner, u64)]) {
        let use_of = self.by_cpu.entry(cpu).or_default();
        for &(owner, ns) in use_by_owner {
            *use_of.entry(owner).or_default() += ns;
        }
        for (tick, set) in self.tick.iter_mut().zip(&self.sets) {
            let Some(tick) = tick else { continue };
            let Some(is_far) = set.is_far(cpu) else { continue };
            for &(owner, ns) in use_by_owner {
                *tick.entry(TrafficSource { owner, is_far }).or_default() += ns;
            }
        }
    }

    /// Ends the current tick.
    pub(super) fn end_tick(&mut self, tick: u64) {
        if self.tick.is_empty() {
            return;
        }
        let times = self.tick.iter_mut().map(|set| {
            let mut times: Vec<_> = set.iter_mut().flat_map(HashMap::drain).collect();
            times.sort_unstable();
            times
        });
        self.ticks.push(TickUse { tick, times: times.collect() });
    }

    /// The ticks since the last call.
    pub(super) fn take_ticks(&mut self) -> Vec<TickUse> {
        std::mem::take(&mut self.ticks)
    }

    /// Ends the window. Returns the time by owner for each set.
    pub(super) fn take_window(&mut self) -> OwnerTimes {
        let by_cpu = &self.by_cpu;
        let times = self.sets.iter().map(|set| {
            let mut sum: HashMap<Owner, u64> = HashMap::new();
            for (cpu, use_of) in by_cpu {
                let Some(is_far) = set.is_far(*cpu) else { continue };
                for (owner, ns) in use_of {
                    let ns = if is_far { ns / FAR_DIVISOR } else { *ns };
                    *sum.entry(*owner).or_default() += ns;
                }
            }
            let mut times: Vec<_> = sum.into_iter().collect();
            times.sort_unstable();
            Arc::from(times)
        });
        let times = times.collect();
        for use_of in self.by_cpu.values_mut() {
            use_of.clear();
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_on_far_cpus_counts_for_less_and_on_others_for_nothing() {
        let set = CpuSet { cpus: (0..2).chain([4]).collect(), far: [4].into_iter().collect() };
        let mut usage = CpuUsage::new(vec![set], &[true]);
        for cpu in [0, 1, 2, 4] {
            usage.add_use(cpu, &[(Owner::Irq(1), 100), (Owner::Idle, 300)]);
        }
        usage.end_tick(1);
        let source = |owner, is_far| TrafficSource { owner, is_far };
        let by_source = [vec![
            (source(Owner::Irq(1), false), 200),
            (source(Owner::Irq(1), true), 100),
            (source(Owner::Idle, false), 600),
            (source(Owner::Idle, true), 300),
        ]];
        assert_eq!(usage.take_ticks()[0].times, by_source);
        assert_eq!(*usage.take_window()[0], [(Owner::Irq(1), 225), (Owner::Idle, 675)]);
    }
}
