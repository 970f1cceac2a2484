//! The use of CPUs in a window, for each set of CPUs that counters see.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};

use super::attribution_settings::AttributionSettings;
use super::core_siblings::CoreSiblings;
use super::traffic_source::{SourceUse, TrafficSource};
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
    pub times: Vec<Vec<SourceUse<u64>>>,
}

/// The use of a source in the current tick, ns.
#[derive(Clone, Copy, Debug, Default)]
struct SourceTime {
    all: u64,
    beside_busy: u64,
}

/// The current tick of a CPU that has siblings.
#[derive(Debug)]
struct ThreadTick {
    /// Positions of its siblings in [`CpuUsage::threads`].
    siblings: Vec<usize>,
    /// Whether it is far, for each set of CPUs; `None` if it is not in the set.
    is_far: Vec<Option<bool>>,
    /// Time by owner, without idle time, and the sum with it, ns. Time of which nothing is known is in
    /// neither.
    busy_by_owner: Vec<(Owner, u64)>,
    all: u64,
}

impl ThreadTick {
    /// The part of the tick in which it was busy.
    fn busy_fraction(&self) -> f64 {
        let busy: u64 = self.busy_by_owner.iter().map(|(_, ns)| ns).sum();
        if self.all > 0 { busy as f64 / self.all as f64 } else { 0.0 }
    }
}

/// The CPUs that have siblings, in ascending order.
fn thread_ticks(
    siblings: &CoreSiblings,
    sets: &[CpuSet],
) -> (HashMap<u32, usize>, Vec<ThreadTick>) {
    let position_by_cpu: HashMap<u32, usize> = siblings.cpus().zip(0..).collect();
    let thread = |cpu: u32| ThreadTick {
        siblings: siblings
            .siblings_of(cpu)
            .iter()
            .filter_map(|sibling| position_by_cpu.get(sibling).copied())
            .collect(),
        is_far: sets.iter().map(|set| set.is_far(cpu)).collect(),
        busy_by_owner: Vec::new(),
        all: 0,
    };
    let threads = siblings.cpus().map(thread).collect();
    (position_by_cpu, threads)
}

/// CPU time of the current tick and of the current window.
#[derive(Debug)]
pub(super) struct CpuUsage {
    sets: Vec<CpuSet>,
    /// The current tick, for each set of CPUs; `None` if no method learns from the set.
    tick: Vec<Option<HashMap<TrafficSource, SourceTime>>>,
    ticks: Vec<TickUse>,
    by_cpu: BTreeMap<u32, HashMap<Owner, u64>>,
    /// The CPUs that have siblings, and the position of each.
    threads: Vec<ThreadTick>,
    thread_by_cpu: HashMap<u32, usize>,
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
    settings: AttributionSettings,
) -> Vec<bool> {
    let mut learnt = vec![false; sets];
    for (counter, set) in plan.counters.iter().zip(set_of) {
        if !learnt[*set] && settings.learns_from_ticks(plan, counter) {
            learnt[*set] = true;
        }
    }
    learnt
}

impl CpuUsage {
    /// An empty window. `learnt` says which sets methods learn from.
    pub(super) fn new(sets: Vec<CpuSet>, learnt: &[bool], siblings: &CoreSiblings) -> Self {
        let any = learnt.contains(&true);
        let (thread_by_cpu, threads) =
            if any { thread_ticks(siblings, &sets) } else { Default::default() };
        let tick = learnt.iter().map(|learnt| learnt.then(HashMap::new));
        Self {
            tick: if any { tick.collect() } else { Vec::new() },
            ticks: Vec::new(),
            by_cpu: BTreeMap::new(),
            sets,
            threads,
            thread_by_cpu,
        }
    }

    /// Adds the use of a CPU in the current tick.
    pub(super) fn add_use(&mut self, cpu: u32, use_by_owner: &[(Owner, u64)]) {
        let use_of = self.by_cpu.entry(cpu).or_default();
        for &(owner, ns) in use_by_owner {
            *use_of.entry(owner).or_default() += ns;
        }
        let position = self.thread_by_cpu.get(&cpu);
        if let Some(thread) = position.and_then(|position| self.threads.get_mut(*position)) {
            let known = use_by_owner.iter().filter(|(owner, _)| *owner != Owner::Unattributed);
            for owner_time in known {
                thread.all += owner_time.1;
                if owner_time.0 != Owner::Idle {
                    thread.busy_by_owner.push(*owner_time);
                }
            }
        }
        for (tick, set) in self.tick.iter_mut().zip(&self.sets) {
            let Some(tick) = tick else { continue };
            let Some(is_far) = set.is_far(cpu) else { continue };
            for &(owner, ns) in use_by_owner {
                tick.entry(TrafficSource::from_cpus(owner, is_far)).or_default().all += ns;
            }
        }
    }

    /// Ends the current tick.
    pub(super) fn end_tick(&mut self, tick: u64) {
        if self.tick.is_empty() {
            return;
        }
        self.add_beside_busy();
        let mut times = Vec::new();
        for set in &mut self.tick {
            let source_time = |(source, time): (TrafficSource, SourceTime)| SourceUse {
                source,
                amount: time.all,
                beside_busy: time.beside_busy,
            };
            let drained = set.iter_mut().flat_map(HashMap::drain);
            let mut times_of_set: Vec<_> = drained.map(source_time).collect();
            times_of_set.sort_unstable_by_key(|source_use| source_use.source);
            times.push(times_of_set);
        }
        self.ticks.push(TickUse { tick, times });
    }

    /// Adds the time of the current tick beside a busy sibling. Who ran at the same moment is not
    /// known within a tick: the time counts in the proportion in which the siblings were busy.
    fn add_beside_busy(&mut self) {
        for position in 0..self.threads.len() {
            let thread = &self.threads[position];
            let siblings = thread.siblings.iter().map(|sibling| &self.threads[*sibling]);
            let busy: f64 = siblings.map(ThreadTick::busy_fraction).sum();
            if busy <= 0.0 {
                continue;
            }
            let fraction = busy / thread.siblings.len() as f64;
            for (tick, is_far) in self.tick.iter_mut().zip(&thread.is_far) {
                let (Some(tick), Some(is_far)) = (tick, *is_far) else { continue };
                for &(owner, ns) in &thread.busy_by_owner {
                    tick.entry(TrafficSource::from_cpus(owner, is_far)).or_default().beside_busy +=
                        (ns as f64 * fraction) as u64;
                }
            }
        }
        for thread in &mut self.threads {
            thread.busy_by_owner.clear();
            thread.all = 0;
        }
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
        let mut usage = CpuUsage::new(vec![set], &[true], &siblings);
        usage.add_use(0, &[(Owner::Irq(1), 1000)]);
        usage.add_use(1, &[(Owner::Irq(2), 250), (Owner::Idle, 750)]);
        usage.add_use(2, &[(Owner::Irq(1), 1000)]);
        usage.end_tick(1);
        // The sibling of CPU 0 is idle in the next tick.
        usage.add_use(0, &[(Owner::Irq(1), 1000)]);
        usage.end_tick(2);
        let source = |number| TrafficSource::from_cpus(Owner::Irq(number), false);
        let idle = TrafficSource::from_cpus(Owner::Idle, false);
        let ticks = usage.take_ticks();
        let used = |source, amount, beside_busy| SourceUse { source, amount, beside_busy };
        let first_tick =
            vec![used(source(1), 2000, 250), used(source(2), 250, 250), used(idle, 750, 0)];
        assert_eq!(ticks[0].times, [first_tick]);
        assert_eq!(ticks[1].times, [vec![used(source(1), 1000, 0)]]);
    }

    #[test]
    fn time_on_far_cpus_counts_for_less_and_on_others_for_nothing() {
        let set = CpuSet { cpus: (0..2).chain([4]).collect(), far: [4].into_iter().collect() };
        let mut usage = CpuUsage::new(vec![set], &[true], &CoreSiblings::default());
        for cpu in [0, 1, 2, 4] {
            usage.add_use(cpu, &[(Owner::Irq(1), 100), (Owner::Idle, 300)]);
        }
        usage.end_tick(1);
        let used = |owner, is_far, ns| SourceUse::new(TrafficSource::from_cpus(owner, is_far), ns);
        let by_source = [vec![
            used(Owner::Irq(1), false, 200),
            used(Owner::Irq(1), true, 100),
            used(Owner::Idle, false, 600),
            used(Owner::Idle, true, 300),
        ]];
        assert_eq!(usage.take_ticks()[0].times, by_source);
        assert_eq!(*usage.take_window()[0], [(Owner::Irq(1), 225), (Owner::Idle, 675)]);
    }
}
