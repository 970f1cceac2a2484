//! Interrupts that cross the end of a bin.

use crate::assemble::span::proportion;
use crate::clock::TimeSpan;
use crate::drain::IrqTime;

/// Interrupts of one kind that crossed the end of a bin: how much of each lies in which bin is not
/// known.
#[derive(Clone, Debug)]
pub(super) struct Crossing {
    /// The sources.
    pub slots: Vec<IrqTime>,
    /// When they began and ended.
    pub span: TimeSpan,
    /// The part of the span that is in open bins.
    pub open: TimeSpan,
}

impl Crossing {
    /// What is in the first bin, which ends at `bin_end`: their time is spread evenly over their
    /// span. Of all bins it sums to their time, since each part is the difference of two rounded
    /// sums.
    pub(super) fn take_first_bin(&mut self, bin_end: u64) -> Vec<IrqTime> {
        let span = self.span;
        let until_ns = bin_end.min(self.open.end_ns);
        let part_begin_ns = std::mem::replace(&mut self.open.begin_ns, until_ns);
        let share_before = |ns, time_ns| proportion(ns, time_ns - span.begin_ns, span.len_ns());
        let slot_part = |slot: &IrqTime| IrqTime {
            ns: share_before(slot.ns, until_ns) - share_before(slot.ns, part_begin_ns),
            // Counted where it ended.
            count: if until_ns == span.end_ns { slot.count } else { 0 },
            ..*slot
        };
        self.slots.iter().map(slot_part).collect()
    }
}
