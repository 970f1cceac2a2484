//! Who used each CPU in each tick: the rows of `runtime` and `irqs`, tick by tick.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use arrow::array::RecordBatch;

use super::{
    facts::{Facts, Spans},
    rows::Rows,
};
use crate::{
    align::{cpu::Bin, who::Who},
    drain::{Context, IrqSlot, Slot, Task},
    tables::{columns, irqs, reader::Recording, runtime},
    timeline::Replay,
};

/// Both tables, as far as they were taken.
#[derive(Debug)]
pub struct Time {
    runtime: Rows<Ran>,
    irqs: Rows<Interrupted>,
    tick_ns: u64,
    spans: Vec<(u32, u64, u64)>,
    offline: Spans,
}

/// A row of `runtime`.
#[derive(Debug)]
struct Ran {
    end: u64,
    cpu: u32,
    slot: Slot,
    who: Who,
}

/// A row of `irqs`.
#[derive(Debug)]
struct Interrupted {
    end: u64,
    cpu: u32,
    slot: IrqSlot,
    name: String,
}

impl Time {
    /// Before the first row.
    pub fn open(recording: &Recording, facts: &Facts) -> Result<Self> {
        let wanted =
            ["mono_ns", "cpu", "tid", "pid", "comm", "cgroup_id", "run_ns", "slices", "process"];
        let runtime = recording.table(&runtime::TABLE)?.scan(&wanted)?;
        let irqs = recording.table(&irqs::TABLE)?;
        let irqs = irqs.scan(&["mono_ns", "cpu", "kind", "number", "name", "ns", "count"])?;
        Ok(Self {
            runtime: Rows::new(runtime, ran),
            irqs: Rows::new(irqs, interrupted),
            tick_ns: facts.told.plan.tick_ns,
            spans: facts.spans.clone(),
            offline: facts.offline.clone(),
        })
    }

    /// Whether nothing more is told.
    pub fn is_over(&mut self) -> Result<bool> {
        Ok(self.runtime.peek()?.is_none() && self.irqs.peek()?.is_none())
    }

    /// Hands on the tick that ends here.
    pub fn feed(&mut self, end: u64, replay: &mut Replay) -> Result<()> {
        let mut bins: BTreeMap<u32, (Bin, Vec<Who>)> = BTreeMap::new();
        let begin = end - self.tick_ns;
        for &(cpu, from, to) in &self.spans {
            if from < end && end <= to {
                let bin = Bin { end, len: self.tick_ns, ..Bin::default() };
                bins.insert(cpu, (bin, Vec::new()));
            }
        }
        while let Some(ran) = self.runtime.next_if(|ran| ran.end <= end)? {
            if ran.end < end {
                bail!("runtime is not in the order of time at mono_ns {}", ran.end);
            }
            let (bin, owners) = bins.entry(ran.cpu).or_default();
            bin.tasks.push(ran.slot);
            owners.push(ran.who);
        }
        while let Some(irq) = self.irqs.next_if(|irq| irq.end <= end)? {
            if let Context::Irq(number) = irq.slot.source {
                replay.irq(number, &irq.name);
            }
            bins.entry(irq.cpu).or_default().0.irqs.push(irq.slot);
        }
        for (cpu, (mut bin, owners)) in bins {
            let tasks: u64 = bin.tasks.iter().map(|slot| slot.wall_ns).sum();
            let told = tasks + bin.irq_ns(false) + bin.irq_ns(true);
            bin.end = end;
            bin.offline = self.offline(cpu, begin, end);
            bin.unknown = self.tick_ns.saturating_sub(told + bin.offline);
            replay.bin(cpu, &bin, &owners);
        }
        Ok(())
    }

    fn offline(&self, cpu: u32, begin: u64, end: u64) -> u64 {
        let spans = self.offline.get(&cpu).into_iter().flatten();
        spans.map(|&(from, to)| to.min(end).saturating_sub(from.max(begin))).sum()
    }
}

fn ran(batch: &RecordBatch) -> Result<Vec<Ran>> {
    let (end, cpu) = (columns::i64s(batch, "mono_ns")?, columns::i32s(batch, "cpu")?);
    let (tid, pid) = (columns::i32s(batch, "tid")?, columns::i32s(batch, "pid")?);
    let (comm, process) = (columns::words(batch, "comm")?, columns::words(batch, "process")?);
    let cgroup_id = columns::u64s(batch, "cgroup_id")?;
    let (run_ns, slices) = (columns::i64s(batch, "run_ns")?, columns::i32s(batch, "slices")?);
    let row = |row| {
        let (tid, pid) = (tid.value(row) as u32, pid.value(row) as u32);
        let cgroup_id = cgroup_id.value(row);
        let word = process.get(row).or(comm.get(row)).unwrap_or_default();
        let task = Task { tid, pid, cgroup_id, ..Task::default() };
        let wall_ns = run_ns.value(row) as u64;
        let slot = Slot { task, wall_ns, irq_ns: 0, slices: slices.value(row) as u64 };
        let who = Who::of_word(word, tid, pid, cgroup_id);
        Ran { end: end.value(row) as u64, cpu: cpu.value(row) as u32, slot, who }
    };
    Ok((0..batch.num_rows()).map(row).collect())
}

fn interrupted(batch: &RecordBatch) -> Result<Vec<Interrupted>> {
    let (end, cpu) = (columns::i64s(batch, "mono_ns")?, columns::i32s(batch, "cpu")?);
    let (kind, name) = (columns::words(batch, "kind")?, columns::words(batch, "name")?);
    let number = columns::i32s(batch, "number")?;
    let (ns, count) = (columns::i64s(batch, "ns")?, columns::i32s(batch, "count")?);
    let row = |row| {
        let number = number.value(row) as u32;
        let source = match kind.get(row) {
            Some("softirq") => Context::Softirq(number),
            _ => Context::Irq(number),
        };
        let slot = IrqSlot { source, ns: ns.value(row) as u64, count: count.value(row) as u64 };
        let name = name.get(row).unwrap_or_default().to_owned();
        Interrupted { end: end.value(row) as u64, cpu: cpu.value(row) as u32, slot, name }
    };
    Ok((0..batch.num_rows()).map(row).collect())
}
