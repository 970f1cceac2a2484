//! One bin of a CPU: how its time is divided when it is closed.

use crate::assemble::span::proportion;
use crate::drain::{CpuContext, IrqTime, TaskSlot};

/// Who used a CPU within one bin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuBin {
    /// End of the bin, ns on `CLOCK_MONOTONIC`.
    pub end_ns: u64,
    /// Length of the bin, ns.
    pub len_ns: u64,
    /// Tasks, without the interrupts that interrupted them; idle is tid 0. `irq_ns` is the
    /// interrupt time that was subtracted, and `slices` is the number of slices that ended here.
    pub tasks: Vec<TaskSlot>,
    /// Interrupts.
    pub irqs: Vec<IrqTime>,
    /// Nanoseconds for which no user is known.
    pub unknown_ns: u64,
    /// The part of `unknown_ns` that interrupts took: the slots of tasks include it, but the
    /// interrupts' own record was lost.
    pub untold: u64,
    /// Nanoseconds for which the CPU was offline.
    pub offline_ns: u64,
    /// Interrupt nanoseconds that exceed the bin and were cut off. Interrupts that cross the end of
    /// a tick are cut first and are not counted here: spreading them evenly is only an estimate.
    pub excess_ns: u64,
}

impl CpuBin {
    /// Nanoseconds in hardware interrupts, or in softirqs if `soft`.
    pub fn irq_ns(&self, soft: bool) -> u64 {
        let is_wanted = |irq: &&IrqTime| matches!(irq.source, CpuContext::Softirq(_)) == soft;
        self.irqs.iter().filter(is_wanted).map(|irq| irq.ns).sum()
    }
}

/// A bin that is still being filled.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenBin {
    /// Slots whose interrupt time is known.
    pub slots: Vec<TaskSlot>,
    /// Interrupts.
    pub irqs: Vec<IrqTime>,
}

impl OpenBin {
    /// Closes the bin. `pieces` are the parts of slices that cross the end of a bin, `spread` those
    /// of interrupts.
    pub(super) fn close_bin(
        self,
        end_ns: u64,
        len_ns: u64,
        pieces: &[TaskSlot],
        mut spread: Vec<IrqTime>,
        mut offline: u64,
    ) -> CpuBin {
        let Self { slots, mut irqs } = self;
        let wall = |slots: &[TaskSlot]| slots.iter().map(|slot| slot.wall_ns).sum::<u64>();
        let sum = |irqs: &[IrqTime]| irqs.iter().map(|irq| irq.ns).sum::<u64>();
        let covered = wall(&slots) + wall(pieces);
        let inside_slots: u64 = slots.iter().map(|slot| slot.irq_ns.min(slot.wall_ns)).sum();
        let (certain, estimated) = (sum(&irqs), sum(&spread));
        let reported = certain + estimated;
        // Interrupts that no slot includes happened within the pieces, whose interrupt time is not
        // known.
        let pieces_wall = wall(pieces);
        let in_pieces = reported.saturating_sub(inside_slots).min(pieces_wall);
        // Next, in the time offline: it is counted from the CPU's last switch to its first one, and
        // the CPU took interrupts after the one and before the other.
        let in_offline = reported.saturating_sub(inside_slots + in_pieces).min(offline);
        // Last, in slices whose record was lost, which is the time that nothing else covers.
        let lost = len_ns.saturating_sub(covered + offline);
        offline -= in_offline;
        let untold = inside_slots.saturating_sub(reported);
        let in_lost = reported.saturating_sub(inside_slots + in_pieces + in_offline).min(lost);
        let fits = inside_slots + in_pieces + in_offline + in_lost;
        let excess = certain.saturating_sub(fits);
        // Estimates give way to measurements: `irqs` is scaled only if the measured time alone is
        // too long, and `spread` gets what is left.
        if excess > 0 {
            scale_irqs(&mut irqs, fits, certain);
        }
        scale_irqs(&mut spread, fits.saturating_sub(certain).min(estimated), estimated);
        irqs.append(&mut spread);
        let kept = sum(&irqs);
        let mut tasks = Vec::with_capacity(slots.len() + pieces.len());
        for slot in slots {
            merge_slot(&mut tasks, TaskSlot { irq_ns: slot.irq_ns.min(slot.wall_ns), ..slot });
        }
        let mut irq_left = in_pieces;
        let mut wall_left = pieces_wall;
        for piece in pieces {
            // The remaining time is divided by the remaining pieces, so that rounding leaves no
            // remainder.
            let irq_ns = proportion(irq_left, piece.wall_ns, wall_left);
            irq_left -= irq_ns;
            wall_left -= piece.wall_ns;
            merge_slot(&mut tasks, TaskSlot { irq_ns, ..*piece });
        }
        // `wall_ns` includes interrupts until here. Entries of one task are merged first, because
        // the pieces got their `irq_ns` only above.
        for task in &mut tasks {
            task.wall_ns -= task.irq_ns;
        }
        let tasks_ns: u64 = wall(&tasks);
        CpuBin {
            end_ns,
            len_ns,
            tasks,
            irqs: merge_irqs(irqs),
            unknown_ns: len_ns.saturating_sub(tasks_ns + kept + offline),
            untold,
            offline_ns: offline,
            excess_ns: excess,
        }
    }
}

/// Scales the sources from `from_ns` nanoseconds in total to `to_ns`.
fn scale_irqs(irqs: &mut [IrqTime], to_ns: u64, from_ns: u64) {
    for irq in irqs {
        irq.ns = proportion(to_ns, irq.ns, from_ns);
    }
}

/// Adds to the entry of the same task. Bins hold few tasks, so a linear search is faster than a
/// hash.
fn merge_slot(tasks: &mut Vec<TaskSlot>, slot: TaskSlot) {
    if let Some(known) = tasks.iter_mut().find(|known| known.task == slot.task) {
        known.wall_ns += slot.wall_ns;
        known.irq_ns += slot.irq_ns;
        known.slices += slot.slices;
    } else {
        tasks.push(slot);
    }
}

fn merge_irqs(irqs: Vec<IrqTime>) -> Vec<IrqTime> {
    let mut merged: Vec<IrqTime> = Vec::with_capacity(irqs.len().min(16));
    for irq in irqs {
        if let Some(known) = merged.iter_mut().find(|known| known.source == irq.source) {
            known.ns += irq.ns;
            known.count += irq.count;
        } else {
            merged.push(irq);
        }
    }
    merged
}
