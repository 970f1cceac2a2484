//! The unsent state of a CPU. It closes a tick without a context switch, without waking the CPU.

use uncore_trace_common::record::{self, CONTEXT_IRQ, CONTEXT_SOFTIRQ};
use uncore_trace_common::state::{self, CpuState, IO_SLOTS, IoState, IrqTrack, RUN_SLOTS};

use super::decode::{
    Comm, CpuContext, IoRecord, IoTransfer, IrqRecord, IrqTime, RunRecord, TaskIdentity, TaskSlot,
    device_name, io_kind, mover_of,
};

/// A consistent copy of a CPU's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peek {
    /// The slots that were not sent, if any; `last_slot_begin == end`.
    pub run: RunRecord,
    /// The thread that has run since `run.end`.
    pub next_tid: u32,
    /// Interrupt time that was not sent.
    pub irqs: Vec<IrqRecord>,
    /// I/O that was not sent.
    pub io: Option<IoRecord>,
}

/// Decodes a copy of a CPU's state; `None` if the CPU was writing it, or has not switched yet. `io`
/// is given if I/O is recorded.
pub fn decode_state(cpu: u32, state: &CpuState, io: Option<&IoState>) -> Option<Peek> {
    let run = &state.run;
    let io = io.map(|io| &io.pending);
    if run.end == 0 || !run.is_consistent() || io.is_some_and(|io| !io.is_consistent()) {
        return None;
    }
    let slots = run.slots.iter().take((run.len as usize).min(RUN_SLOTS)).map(|slot| TaskSlot {
        task: copy_task(&slot.task),
        wall_ns: slot.wall_ns,
        irq_ns: slot.irq_ns,
        slices: u64::from(slot.slices),
    });
    let run_copy = RunRecord {
        cpu,
        begin_ns: run.begin,
        last_slot_begin: run.end,
        end: run.end,
        slots: slots.collect(),
    };
    let irqs = [&state.hard, &state.soft].into_iter().filter_map(|track| pending_irqs(cpu, track));
    Some(Peek {
        run: run_copy,
        next_tid: run.next_tid(),
        irqs: irqs.collect(),
        io: io.map(|io| pending_io(cpu, io)),
    })
}

const fn copy_task(task: &record::Task) -> TaskIdentity {
    let record::Task { tid, pid, cgroup_id, comm } = *task;
    TaskIdentity { tid, pid, cgroup_id, comm: Comm(comm) }
}

fn pending_io(cpu: u32, pending: &state::Io) -> IoRecord {
    let slots = pending.slots.iter().take((pending.len as usize).min(IO_SLOTS));
    let slots = slots.filter_map(|slot| {
        Some(IoTransfer {
            kind: io_kind(slot.what).ok()?,
            mover: mover_of(slot.context, slot.number, copy_task(&slot.task)).ok()?,
            device: device_name(&slot.device),
            interface: (slot.netns, slot.ifindex),
            bytes: slot.bytes,
            requests: u64::from(slot.requests),
        })
    });
    let sequence = Some(pending.sequence);
    IoRecord { cpu, tick_end_ns: pending.tick_end_ns, span: None, sequence, slots: slots.collect() }
}

fn pending_irqs(cpu: u32, track: &IrqTrack) -> Option<IrqRecord> {
    let pending = &track.pending;
    let slots: Vec<IrqTime> = pending
        .slots
        .iter()
        .take(pending.len as usize)
        .filter_map(|slot| {
            let source = match slot.context {
                CONTEXT_IRQ => CpuContext::Irq(slot.number),
                CONTEXT_SOFTIRQ => CpuContext::Softirq(slot.number),
                _ => return None,
            };
            Some(IrqTime { source, ns: slot.ns, count: slot.count })
        })
        .collect();
    (!slots.is_empty()).then_some(IrqRecord {
        cpu,
        tick_end_ns: pending.tick_end_ns,
        span: None,
        slots,
    })
}
