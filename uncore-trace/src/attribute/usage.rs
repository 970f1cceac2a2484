//! The use of CPUs in a window, for each set of CPUs that counters see.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::core_siblings::CoreSiblings;
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
    /// The part of these times in which a sibling thread was busy, likewise; empty for sets none of
    /// whose CPUs has a sibling.
    pub beside_busy: Vec<Vec<(TrafficSource, u64)>>,
}

/// CPU time of the current tick and of the current window.
#[derive(Debug)]
pub(super) struct CpuUsage {
    sets: Vec<CpuSet>,
    /// The current tick, for each set of CPUs; `None` if no method learns from the set.
    tick: Vec<Option<HashMap<TrafficSource, u64>>>,
    ticks: Vec<TickUse>,
    by_cpu: BTreeMap<u32, HashMap<Owner, u64>>,
    siblings: CoreSiblings,
    /// The current tick of the CPUs that have siblings.
    tick_by_cpu: BTreeMap<u32, Vec<(Owner, u64)>>,
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
    pub(super) fn new(sets: Vec<CpuSet>, learnt: &[bool], siblings: CoreSiblings) -> Self {
        let any = learnt.contains(&true);
        let tick = learnt.iter().map(|learnt| learnt.then(HashMap::new));
        Self {
            tick: if any { tick.collect() } else { Vec::new() },
            ticks: Vec::new(),
            by_cpu: BTreeMap::new(),
            sets,
            siblings: if any { siblings } else { CoreSiblings::default() },
            tick_by_cpu: BTreeMap::new(),
        }
    }

    /// Adds the use of a CPU in the current tick.
    pub(super) fn add_use(&mut self, cpu: u32, use_by_owner: &[(Owner, u64)]) {
        let use_of = self.by_cpu.entry(cpu).or_default();
        for &(owner, ns) in use_by_owner {
            *use_of.entry(owner).or_default() += ns;
        }
        if !self.siblings.siblings_of(cpu).is_empty() {
            self.tick_by_cpu.entry(cpu).or_default().extend_from_slice(use_by_owner);
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
        let times = times.collect();
        let beside_busy = self.take_beside_busy();
        self.ticks.push(TickUse { tick, times, beside_busy });
    }

    /// The time of the current tick beside a busy sibling, by source, sorted, for each set of CPUs.
    /// Who ran at the same moment is not known within a tick: the time counts in the proportion in
    /// which the siblings were busy.
    fn take_beside_busy(&mut self) -> Vec<Vec<(TrafficSource, u64)>> {
        if self.siblings.is_empty() {
            return Vec::new();
        }
        let busy_fraction = |cpu: &u32| {
            let used = self.tick_by_cpu.get(cpu).map_or(&[][..], Vec::as_slice);
            let all: u64 = used.iter().map(|(_, ns)| ns).sum();
            let idle: u64 =
                used.iter().filter(|(owner, _)| *owner == Owner::Idle).map(|(_, ns)| ns).sum();
            if all > 0 { (all - idle) as f64 / all as f64 } else { 0.0 }
        };
        let fractions: BTreeMap<u32, f64> =
            self.tick_by_cpu.keys().map(|cpu| (*cpu, busy_fraction(cpu))).collect();
        let of_set = |(tick, set): (&Option<HashMap<TrafficSource, u64>>, &CpuSet)| {
            let mut sums: HashMap<TrafficSource, f64> = HashMap::new();
            if tick.is_none() {
                return Vec::new();
            }
            for (cpu, used) in &self.tick_by_cpu {
                let Some(is_far) = set.is_far(*cpu) else { continue };
                let siblings = self.siblings.siblings_of(*cpu);
                let busy: f64 = siblings.iter().filter_map(|sibling| fractions.get(sibling)).sum();
                let fraction = busy / siblings.len() as f64;
                for (owner, ns) in used.iter().filter(|(owner, _)| *owner != Owner::Idle) {
                    *sums.entry(TrafficSource { owner: *owner, is_far }).or_default() +=
                        *ns as f64 * fraction;
                }
            }
            let mut sums: Vec<_> =
                sums.into_iter().map(|(source, ns)| (source, ns as u64)).collect();
            sums.sort_unstable();
            sums
        };
        let beside_busy: Vec<_> = self.tick.iter().zip(&self.sets).map(of_set).collect();
        self.tick_by_cpu.values_mut().for_each(Vec::clear);
        beside_busy
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
    use crate::discover::cpus::CpuLocation;

    #[test]
    fn time_beside_a_busy_sibling_is_known() {
        // CPUs 0 and 1 share a core, and CPU 2 has one for itself.
        let location = |core| CpuLocation { core: Some(core), ..CpuLocation::default() };
        let locations = [(0, location(0)), (1, location(0)), (2, location(1))];
        let siblings = CoreSiblings::from_locations(&locations.into_iter().collect());
        let set = CpuSet { cpus: (0..3).collect(), far: CpuList::default() };
        let mut usage = CpuUsage::new(vec![set], &[true], siblings);
        usage.add_use(0, &[(Owner::Irq(1), 1000)]);
        usage.add_use(1, &[(Owner::Irq(2), 250), (Owner::Idle, 750)]);
        usage.add_use(2, &[(Owner::Irq(1), 1000)]);
        usage.end_tick(1);
        // The sibling of CPU 0 is idle in the next tick.
        usage.add_use(0, &[(Owner::Irq(1), 1000)]);
        usage.end_tick(2);
        let source = |number| TrafficSource { owner: Owner::Irq(number), is_far: false };
        let ticks = usage.take_ticks();
        assert_eq!(ticks[0].times[0].iter().find(|use_of| use_of.0 == source(1)).unwrap().1, 2000);
        assert_eq!(ticks[0].beside_busy, [vec![(source(1), 250), (source(2), 250)]]);
        assert_eq!(ticks[1].beside_busy, [vec![(source(1), 0)]]);
    }

    #[test]
    fn time_on_far_cpus_counts_for_less_and_on_others_for_nothing() {
        let set = CpuSet { cpus: (0..2).chain([4]).collect(), far: [4].into_iter().collect() };
        let mut usage = CpuUsage::new(vec![set], &[true], CoreSiblings::default());
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
