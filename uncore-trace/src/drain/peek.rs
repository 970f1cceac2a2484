//! The unsent state of a CPU. It closes a tick without a context switch, without waking the CPU.

use uncore_trace_common::record::{self, CONTEXT_IRQ, CONTEXT_SOFTIRQ};
use uncore_trace_common::state::{self, CpuState, IO_SLOTS, IoState, IrqTrack, RUN_SLOTS};

use super::decode::{
    Comm, Context, IoRecord, IoSlot, Irq, IrqSlot, Run, Slot, Task, device_name, io_kind, mover,
};

/// A consistent copy of a CPU's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peek {
    /// The slots that were not sent, if any; `last == end`.
    pub run: Run,
    /// The thread that has run since `run.end`.
    pub next_tid: u32,
    /// Interrupt time that was not sent.
    pub irqs: Vec<Irq>,
    /// I/O that was not sent.
    pub io: Option<IoRecord>,
}

/// Decodes a copy of a CPU's state; `None` if the CPU was writing it, or has not switched yet. `io`
/// is given if I/O is recorded.
pub fn peek(cpu: u32, state: &CpuState, io: Option<&IoState>) -> Option<Peek> {
    let run = &state.run;
    let io = io.map(|io| &io.pending);
    if run.end == 0 || !run.is_consistent() || io.is_some_and(|io| !io.is_consistent()) {
        return None;
    }
    let len = (run.len as usize).min(RUN_SLOTS);
    let slots = run.slots.iter().take(len).map(|slot| Slot {
        task: task(&slot.task),
        wall_ns: slot.wall_ns,
        irq_ns: slot.irq_ns,
        slices: u64::from(slot.slices),
    });
    let run_copy =
        Run { cpu, begin: run.begin, last: run.end, end: run.end, slots: slots.collect() };
    let irqs = [&state.hard, &state.soft].into_iter().filter_map(|track| pending(cpu, track));
    Some(Peek {
        run: run_copy,
        next_tid: run.next_tid(),
        irqs: irqs.collect(),
        io: io.map(|io| moved(cpu, io)),
    })
}

const fn task(task: &record::Task) -> Task {
    let record::Task { tid, pid, cgroup_id, comm } = *task;
    Task { tid, pid, cgroup_id, comm: Comm(comm) }
}

fn moved(cpu: u32, pending: &state::Io) -> IoRecord {
    let slots = pending.slots.iter().take((pending.len as usize).min(IO_SLOTS));
    let slots = slots.filter_map(|slot| {
        Some(IoSlot {
            kind: io_kind(slot.what).ok()?,
            mover: mover(slot.context, slot.number, task(&slot.task)).ok()?,
            device: device_name(&slot.device),
            interface: (slot.netns, slot.ifindex),
            bytes: slot.bytes,
            requests: u64::from(slot.requests),
        })
    });
    let sequence = Some(pending.sequence);
    IoRecord { cpu, boundary: pending.boundary, span: None, sequence, slots: slots.collect() }
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
