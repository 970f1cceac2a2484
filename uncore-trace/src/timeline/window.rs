//! Who used the CPUs within the window, by the sets of CPUs that counters see.

use std::collections::{BTreeMap, HashMap};

use super::{irqnames::IrqNames, sink::Sink};
use crate::{
    align::{cpu::Bin, who::Who},
    attribute::Methods,
    drain::{Context, Run},
    plan::Plan,
    tables::{irqs, runtime, slices},
};

/// How the time of one CPU divides over the owners, over the whole recording, ns.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct CpuTime {
    /// Which CPU.
    pub cpu: u32,
    /// Start.
    pub begin_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Tasks, without interrupts.
    pub task_ns: u64,
    /// Interrupt handlers.
    pub irq_ns: u64,
    /// Softirqs.
    pub softirq_ns: u64,
    /// Idle, without interrupts.
    pub idle_ns: u64,
    /// Not seen.
    pub unattributed_ns: u64,
    /// Offline.
    pub offline_ns: u64,
    /// The most interrupt time that a bin had no room for.
    pub worst_window_error_ns: u64,
}

/// Time by owner, for each distinct set of CPUs that a counter sees.
pub type Times = Vec<Vec<(Who, u64)>>;

/// Who used the CPUs in one tick.
#[derive(Debug)]
pub struct TickUse {
    /// The tick that ended it.
    pub tick: u64,
    /// Time by owner, for each set of CPUs that methods learn of.
    pub times: Times,
}

/// The window that is being filled.
#[derive(Debug)]
pub struct WindowUse {
    /// Of the bin that is being closed, for each set of CPUs; empty where nothing is learnt.
    tick: Vec<Option<HashMap<Who, u64>>>,
    ticks: Vec<TickUse>,
    by_cpu: BTreeMap<u32, HashMap<Who, u64>>,
    sets: Vec<Vec<u32>>,
    totals: BTreeMap<u32, CpuTime>,
}

/// The distinct sets of CPUs that the plan's counters see, in the order of their first use.
pub fn sets(plan: &Plan) -> Vec<Vec<u32>> {
    let mut sets: Vec<Vec<u32>> = Vec::new();
    for counter in &plan.counters {
        let set: Vec<u32> = counter.sees.iter().collect();
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    sets
}

/// Whether a counter that sees it learns from ticks, for each of [`sets`].
pub fn learnt(plan: &Plan, methods: Methods) -> Vec<bool> {
    let learns = |set: &Vec<u32>| {
        plan.counters.iter().any(|counter| {
            methods.learns(plan, counter) && counter.sees.iter().eq(set.iter().copied())
        })
    };
    sets(plan).iter().map(learns).collect()
}

impl WindowUse {
    /// An empty window.
    pub fn new(plan: &Plan, methods: Methods, cpus: &[u32], begin_ns: u64) -> Self {
        let total = |cpu| CpuTime { cpu, begin_ns, end_ns: begin_ns, ..CpuTime::default() };
        let learnt = learnt(plan, methods);
        let any = learnt.contains(&true);
        let tick = learnt.into_iter().map(|learnt| learnt.then(HashMap::new));
        Self {
            tick: if any { tick.collect() } else { Vec::new() },
            ticks: Vec::new(),
            by_cpu: cpus.iter().map(|&cpu| (cpu, HashMap::new())).collect(),
            sets: sets(plan),
            totals: cpus.iter().map(|&cpu| (cpu, total(cpu))).collect(),
        }
    }

    /// A CPU that was not there at the start: its time counts from `begin`.
    pub fn join(&mut self, cpu: u32, begin: u64) {
        let total = CpuTime { cpu, begin_ns: begin, end_ns: begin, ..CpuTime::default() };
        self.totals.entry(cpu).or_insert(total);
        self.by_cpu.entry(cpu).or_default();
    }

    /// Adds a closed bin of a CPU; `owners` are those of its tasks, in their order.
    pub fn add(&mut self, cpu: u32, bin: &Bin, owners: &[Who]) {
        let (Some(use_of), Some(total)) = (self.by_cpu.get_mut(&cpu), self.totals.get_mut(&cpu))
        else {
            return;
        };
        let in_tick = self.tick.iter_mut().zip(&self.sets);
        let mut in_tick: Vec<_> = in_tick
            .filter_map(|(tick, set)| Some((tick.as_mut()?, set)))
            .filter(|(_, set)| set.contains(&cpu))
            .map(|(tick, _)| tick)
            .collect();
        let mut give = |who: Who, ns: u64| {
            *use_of.entry(who).or_default() += ns;
            for tick in &mut in_tick {
                *tick.entry(who).or_default() += ns;
            }
        };
        for (slot, &who) in bin.tasks.iter().zip(owners) {
            give(who, slot.wall_ns);
            if who == Who::Idle {
                total.idle_ns += slot.wall_ns;
            } else {
                total.task_ns += slot.wall_ns;
            }
        }
        for irq in &bin.irqs {
            let who = match irq.source {
                Context::Softirq(vector) => Who::Softirq(vector),
                Context::Irq(number) => Who::Irq(number),
                Context::Task => continue,
            };
            give(who, irq.ns);
        }
        if bin.unknown > 0 {
            give(Who::Unknown, bin.unknown);
            total.unattributed_ns += bin.unknown;
        }
        total.irq_ns += bin.irq_ns(false);
        total.softirq_ns += bin.irq_ns(true);
        total.offline_ns += bin.offline;
        total.end_ns = bin.end;
        total.worst_window_error_ns = total.worst_window_error_ns.max(bin.excess);
    }

    /// Every CPU's bin that ends with `tick` was added.
    pub fn end_bin(&mut self, tick: u64) {
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

    /// The ticks of the window.
    pub fn take_ticks(&mut self) -> Vec<TickUse> {
        std::mem::take(&mut self.ticks)
    }

    /// Ends the window: time by owner for each set, in a fixed order.
    pub fn take(&mut self) -> Times {
        let by_cpu = &self.by_cpu;
        let times = self.sets.iter().map(|set| {
            let mut sum: HashMap<Who, u64> = HashMap::new();
            for use_of in set.iter().filter_map(|cpu| by_cpu.get(cpu)) {
                for (who, ns) in use_of {
                    *sum.entry(*who).or_default() += ns;
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

    /// How each CPU's time divides, so far.
    pub fn cpu_time(&self) -> Vec<CpuTime> {
        self.totals.values().copied().collect()
    }
}

/// Rows of the raw tables for one bin of one CPU.
pub fn raw_rows(cpu: u32, bin: &Bin, owners: &[Who], irq_names: &mut IrqNames, sink: &mut Sink) {
    let (mono_ns, tick_ns, cpu) = (bin.end as i64, bin.len as i64, cpu as i32);
    for (slot, who) in bin.tasks.iter().zip(owners) {
        let (comm, process) = (slot.task.comm.text(), who.word());
        sink.runtime.append(&runtime::Row {
            mono_ns,
            tick_ns,
            cpu,
            tid: slot.task.tid as i32,
            pid: slot.task.pid as i32,
            comm: &comm,
            cgroup_id: slot.task.cgroup_id,
            run_ns: slot.wall_ns as i64,
            slices: slot.slices as i32,
            process: (*who != Who::Idle && process != comm).then_some(&process),
        });
    }
    for irq in &bin.irqs {
        let softirq;
        let (kind, number, name) = match irq.source {
            Context::Irq(number) => ("irq", number, irq_names.irq(number)),
            Context::Softirq(vector) => {
                softirq = IrqNames::softirq(vector);
                ("softirq", vector, softirq.as_str())
            }
            Context::Task => continue,
        };
        sink.irqs.append(&irqs::Row {
            mono_ns,
            tick_ns,
            cpu,
            kind,
            number: number as i32,
            name,
            ns: irq.ns as i64,
            count: irq.count as i32,
        });
    }
}

/// Rows of every slice in a record. A record of slices that was not combined follows without a
/// gap from its begin to its end.
pub fn slice_rows(run: &Run, builder: &mut slices::Builder) {
    let mut begin = run.begin;
    for slot in &run.slots {
        let end = begin + slot.wall_ns;
        builder.append(&slices::Row {
            cpu: run.cpu as i32,
            begin_ns: begin as i64,
            end_ns: end as i64,
            tid: slot.task.tid as i32,
            pid: slot.task.pid as i32,
            comm: &slot.task.comm.text(),
            cgroup_id: slot.task.cgroup_id,
            irq_ns: slot.irq_ns as i64,
        });
        begin = end;
    }
}
