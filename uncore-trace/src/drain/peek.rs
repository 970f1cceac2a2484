//! What a CPU has not sent yet: needed to close a tick in which it made no switch, without waking
//! it.

use uncore_trace_common::{
    record::{CONTEXT_IRQ, CONTEXT_SOFTIRQ},
    state::{CpuState, IrqTrack, RUN_SLOTS},
};

use super::decode::{Comm, Context, Irq, IrqSlot, Run, Slot, Task};

/// A consistent copy of a CPU's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peek {
    /// The slots that were not sent, if any; `last == end`.
    pub run: Run,
    /// The thread that runs since `run.end`.
    pub next_tid: u32,
    /// Interrupt time that was not sent.
    pub irqs: Vec<Irq>,
}

/// Interprets a copy of a CPU's state; `None` if it was taken while the CPU was writing it, or
/// before the CPU's first switch.
pub fn peek(cpu: u32, state: &CpuState) -> Option<Peek> {
    let run = &state.run;
    if run.end == 0 || !run.is_consistent() {
        return None;
    }
    let len = (run.len as usize).min(RUN_SLOTS);
    let slots = run.slots.iter().take(len).map(|slot| Slot {
        task: Task {
            tid: slot.task.tid,
            pid: slot.task.pid,
            cgroup_id: slot.task.cgroup_id,
            comm: Comm(slot.task.comm),
        },
        wall_ns: slot.wall_ns,
        irq_ns: slot.irq_ns,
        slices: u64::from(slot.slices),
    });
    let run_copy =
        Run { cpu, begin: run.begin, last: run.end, end: run.end, slots: slots.collect() };
    let irqs = [&state.hard, &state.soft].into_iter().filter_map(|track| pending(cpu, track));
    Some(Peek { run: run_copy, next_tid: run.next_tid(), irqs: irqs.collect() })
}

fn pending(cpu: u32, track: &IrqTrack) -> Option<Irq> {
    let pending = &track.pending;
    let slots: Vec<IrqSlot> = pending
        .slots
        .iter()
        .take(pending.len as usize)
        .filter_map(|slot| {
            let source = match slot.context {
                CONTEXT_IRQ => Context::Irq(slot.number),
                CONTEXT_SOFTIRQ => Context::Softirq(slot.number),
                _ => return None,
            };
            Some(IrqSlot { source, ns: slot.ns, count: slot.count })
        })
        .collect();
    (!slots.is_empty()).then_some(Irq { cpu, boundary: pending.boundary, span: None, slots })
}
