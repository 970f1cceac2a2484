//! The time of one CPU, in bins.
//!
//! A CPU's time is known from its records, and from a [`Peek`] at its unsent state when a bin must
//! be closed and the CPU has not switched since. Both add time only after `accounted_ns`. So a
//! record that arrives after a peek at the same time is not counted twice, and a lost record shows
//! as a gap.
//!
//! Times add up by construction: tasks (without their interrupts), interrupts, offline time and
//! unknown time sum to the length of the bin.

mod bin;
mod crossing;

use std::collections::VecDeque;

pub use self::bin::CpuBin;
use self::bin::OpenBin;
use self::crossing::Crossing;
use crate::clock::TimeSpan;
use crate::drain::{IrqRecord, IrqTime, Peek, RunRecord, TaskIdentity, TaskSlot};
use crate::identity::names::TaskNames;

/// The bins of one CPU.
///
/// Memory is proportional to the records, not to the time that passed: after the recorder was
/// stopped for an hour, an hour of empty bins must be closed, and none of them is stored.
#[derive(Debug, Default)]
pub struct CpuTrack {
    bin_ns: u64,
    /// Start of the first open bin.
    open_begin_ns: u64,
    /// The bins that hold something, by number: their begin divided by the bin length.
    bins: VecDeque<(u64, OpenBin)>,
    /// Slices that cross the end of a bin, in order of time; the parts in closed bins are removed.
    long: VecDeque<LongSlice>,
    /// Interrupts that cross the end of a bin, in no order, as far as their bins are open.
    crossing: Vec<Crossing>,
    /// When the CPU was offline, likewise.
    offline: VecDeque<TimeSpan>,
    /// Everything before this is in a bin, or known to be lost.
    pub accounted_ns: u64,
    irq_accounted_ns: u64,
    /// Interrupt time taken from a peek. Its record may still arrive.
    peeked: Vec<IrqRecord>,
    /// Nothing after this time is counted.
    stop_ns: u64,
    offline_state: Option<OfflineState>,
}

/// A slice that crosses the end of a bin, or the rest of it that lies in open bins.
#[derive(Clone, Copy, Debug)]
struct LongSlice {
    task: TaskIdentity,
    begin_ns: u64,
    end_ns: u64,
    /// Whether the slice ends here. It goes on after a peek, a change of its name or the end of the
    /// recording.
    ends: bool,
}

/// A CPU that is offline.
#[derive(Clone, Copy, Debug, Default)]
struct OfflineState {
    /// The CPU has made a switch since it came back, but its record may not have been drained yet.
    has_switched: bool,
}

impl CpuTrack {
    /// A CPU whose time counts from `start_ns`. If `start_ns` is not a multiple of `bin_ns`, the
    /// first bin is shorter.
    pub fn new(start_ns: u64, bin_ns: u64) -> Self {
        Self {
            bin_ns,
            open_begin_ns: start_ns,
            accounted_ns: start_ns,
            irq_accounted_ns: start_ns,
            stop_ns: u64::MAX,
            ..Self::default()
        }
    }

    /// Ends the recording at this time, which may lie within a bin.
    pub const fn stop_at(&mut self, stop_ns: u64) {
        self.stop_ns = stop_ns;
    }

    /// The span between the time that is accounted and `begin_ns`, if there is one.
    fn gap_before(&self, begin_ns: u64) -> Option<TimeSpan> {
        let gap = TimeSpan { begin_ns: self.accounted_ns, end_ns: begin_ns };
        (gap.begin_ns < gap.end_ns).then_some(gap)
    }

    /// Takes the CPU offline since its last switch. `peek` is its state that was not sent. Returns
    /// the span before that state for which no record exists.
    pub fn go_offline(&mut self, peek: Option<&Peek>) -> Option<TimeSpan> {
        let mut gap = None;
        if let Some(peek) = peek {
            let run = &peek.run;
            if run.begin_ns >= self.accounted_ns
                && run.begin_ns < run.end
                && run.end <= self.stop_ns
            {
                gap = self.gap_before(run.begin_ns);
                self.add_combined_slots(&run.slots, run.begin_ns, run.end);
                self.accounted_ns = run.end;
            }
            for irq in &peek.irqs {
                self.peek_irq(irq);
            }
        }
        self.offline_state = Some(OfflineState::default());
        gap
    }

    /// Whether the CPU is offline.
    pub const fn is_offline(&self) -> bool {
        self.offline_state.is_some()
    }

    /// Counts the CPU as offline until `end_ns`. Returns the span that was added.
    pub fn add_offline_until(&mut self, end_ns: u64) -> Option<TimeSpan> {
        let added = self.gap_before(end_ns.min(self.stop_ns))?;
        match self.offline.back_mut() {
            Some(last) if last.end_ns == added.begin_ns => last.end_ns = added.end_ns,
            _ => self.offline.push_back(added),
        }
        self.accounted_ns = added.end_ns;
        Some(added)
    }

    /// Ends the CPU's offline time at `time_ns`, its first switch. Returns the span that was added.
    pub fn come_online(&mut self, time_ns: u64) -> Option<TimeSpan> {
        self.offline_state = None;
        self.add_offline_until(time_ns)
    }

    /// Whether this is the first sign that an offline CPU has switched: `true` if its records must
    /// be waited for.
    pub fn saw_switch(&mut self) -> bool {
        self.offline_state
            .as_mut()
            .is_some_and(|offline| !std::mem::replace(&mut offline.has_switched, true))
    }

    /// Adds a record. Returns the span before it for which no record exists.
    pub fn add_run(&mut self, run: &RunRecord, names: &mut TaskNames) -> Option<TimeSpan> {
        if run.end <= self.accounted_ns {
            return None;
        }
        let gap = self.gap_before(run.begin_ns);
        let crossing = usize::from(run.last_slot_begin < run.end);
        let combined = run.slots.len().saturating_sub(crossing);
        let slots = run.slots.get(..combined).unwrap_or_default();
        self.add_combined_slots(slots, run.begin_ns, run.last_slot_begin);
        if crossing == 1
            && let Some(slice) = run.slots.last()
        {
            self.add_slice(slice, run.last_slot_begin.max(self.accounted_ns), run.end, names);
        }
        self.accounted_ns = run.end;
        gap
    }

    /// Adds interrupt time, unless a peek has already added it.
    pub fn add_irq_record(&mut self, irq: IrqRecord) {
        match self.peeked.iter().position(|known| is_same(known, &irq)) {
            Some(index) => drop(self.peeked.swap_remove(index)),
            None => self.add_irq_slots(irq),
        }
    }

    /// Adds interrupt time whose record may still arrive.
    fn peek_irq(&mut self, irq: &IrqRecord) {
        if !self.peeked.iter().any(|peeked| is_same(peeked, irq)) {
            self.add_irq_slots(irq.clone());
            self.peeked.push(irq.clone());
        }
    }

    fn add_irq_slots(&mut self, irq: IrqRecord) {
        if let Some(TimeSpan { begin_ns, end_ns }) = irq.span {
            self.add_crossing_irq(irq.slots, TimeSpan { begin_ns, end_ns });
        } else if irq.tick_end_ns > self.irq_accounted_ns && irq.tick_end_ns <= self.stop_ns {
            let bin = self.bin_at(irq.tick_end_ns - 1);
            if bin.irqs.is_empty() {
                bin.irqs = irq.slots;
            } else {
                bin.irqs.extend(irq.slots);
            }
        }
    }

    /// Adds the CPU's unsent state up to `end_ns`, which lies before the time of the peek.
    /// `running` is the task that has run since the CPU's last switch. Returns the span before it
    /// for which no record exists.
    pub fn add_peek(
        &mut self,
        peek: &Peek,
        running: &TaskIdentity,
        end_ns: u64,
        names: &mut TaskNames,
    ) -> Option<TimeSpan> {
        let run = &peek.run;
        let gap = self.gap_before(run.begin_ns);
        self.add_combined_slots(&run.slots, run.begin_ns, run.end);
        let begin_ns = run.end.max(self.accounted_ns);
        if begin_ns <= end_ns {
            self.add_long(names.split_slice(running, begin_ns, end_ns), None);
            self.accounted_ns = end_ns;
        }
        for irq in peek.irqs.iter().filter(|irq| irq.tick_end_ns <= end_ns) {
            self.peek_irq(irq);
        }
        gap
    }

    /// Closes the first bin, which ends at `end_ns`. Time that is not accounted by then becomes
    /// unknown.
    pub fn close_first_bin(&mut self, end_ns: u64) -> CpuBin {
        let len = end_ns - self.open_begin_ns;
        let number = self.open_begin_ns / self.bin_ns;
        let open = self.bins.pop_front_if(|(number_of_bin, _)| *number_of_bin == number);
        let open = open.map(|(_, open)| open).unwrap_or_default();
        let pieces = self.take_pieces(end_ns);
        let spread = self.take_crossing_slots(end_ns);
        let offline = self.take_offline(end_ns);
        self.open_begin_ns = end_ns;
        self.accounted_ns = self.accounted_ns.max(end_ns);
        self.irq_accounted_ns = self.irq_accounted_ns.max(end_ns);
        // These bins are closed: `add_irq_slots` ignores them, because they end before
        // `irq_accounted_ns`.
        self.peeked.retain(|irq| irq.tick_end_ns > end_ns);
        open.close_bin(end_ns, len, &pieces, spread, offline)
    }

    /// The parts of long slices in the first bin, which ends at `end_ns`.
    fn take_pieces(&mut self, end_ns: u64) -> Vec<TaskSlot> {
        let mut pieces = Vec::new();
        while let Some(long) = self.long.front_mut().filter(|long| long.begin_ns < end_ns) {
            let until_ns = long.end_ns.min(end_ns);
            let wall_ns = until_ns - long.begin_ns;
            let slices = u64::from(long.ends && until_ns == long.end_ns);
            pieces.push(TaskSlot { task: long.task, wall_ns, irq_ns: 0, slices });
            long.begin_ns = until_ns;
            if long.begin_ns < long.end_ns {
                break;
            }
            self.long.pop_front();
        }
        pieces
    }

    /// The parts of interrupts in the first bin, which ends at `end_ns`, that crossed the end of
    /// one.
    fn take_crossing_slots(&mut self, end_ns: u64) -> Vec<IrqTime> {
        let in_first_bin = self.crossing.iter_mut().filter(|irq| irq.open.begin_ns < end_ns);
        let slots = in_first_bin.flat_map(|irq| irq.take_first_bin(end_ns)).collect();
        self.crossing.retain(|irq| irq.open.begin_ns < irq.open.end_ns);
        slots
    }

    /// Nanoseconds in the first bin, which ends at `end_ns`, for which the CPU was offline.
    fn take_offline(&mut self, end_ns: u64) -> u64 {
        let mut ns = 0;
        while let Some(span) = self.offline.front_mut().filter(|span| span.begin_ns < end_ns) {
            let cut_ns = span.end_ns.min(end_ns);
            ns += cut_ns - span.begin_ns;
            span.begin_ns = cut_ns;
            if span.begin_ns < span.end_ns {
                break;
            }
            self.offline.pop_front();
        }
        ns
    }

    /// Adds slots that were combined from `begin_ns` to `end_ns`. The programs combine within one
    /// tick only, so the slots are either all new or all known. If they cross a bin, their division
    /// is not known: that time stays unknown.
    fn add_combined_slots(&mut self, slots: &[TaskSlot], begin_ns: u64, end_ns: u64) {
        let is_new = begin_ns >= self.accounted_ns && begin_ns < end_ns && end_ns <= self.stop_ns;
        if is_new && self.bin_number(begin_ns) == self.bin_number(end_ns - 1) {
            self.bin_at(begin_ns).slots.extend(slots);
        }
    }

    /// Adds one slice: with its own interrupt time if it lies in one bin, otherwise in pieces.
    fn add_slice(&mut self, slot: &TaskSlot, begin_ns: u64, end_ns: u64, names: &mut TaskNames) {
        let one_bin =
            self.bin_number(begin_ns) == self.bin_number(end_ns - 1) && end_ns <= self.stop_ns;
        let whole = end_ns - begin_ns == slot.wall_ns && one_bin;
        let pieces = names.split_slice(&slot.task, begin_ns, end_ns);
        if let [(task, ..)] = pieces.as_slice()
            && whole
        {
            self.bin_at(begin_ns).slots.push(TaskSlot { task: *task, ..*slot });
            return;
        }
        self.add_long(pieces, Some(end_ns));
    }

    /// Adds the parts of a slice that ends at `ended_ns`, or of one that goes on.
    fn add_long(&mut self, pieces: Vec<(TaskIdentity, u64, u64)>, ended_ns: Option<u64>) {
        for (task, begin_ns, until_ns) in pieces {
            let end_ns = until_ns.min(self.stop_ns);
            if begin_ns < end_ns {
                self.long.push_back(LongSlice {
                    task,
                    begin_ns,
                    end_ns,
                    ends: ended_ns == Some(end_ns),
                });
            }
        }
    }

    /// An interrupt over the end of a tick. Its bins are not made before they close: a virtual
    /// machine that is paused within one makes it an hour long.
    fn add_crossing_irq(&mut self, slots: Vec<IrqTime>, span: TimeSpan) {
        let open = TimeSpan {
            begin_ns: span.begin_ns.max(self.irq_accounted_ns),
            end_ns: span.end_ns.min(self.stop_ns),
        };
        if open.begin_ns < open.end_ns {
            self.crossing.push(Crossing { slots, span, open });
        }
    }

    /// The number of the bin that a time is in; what is before the first open bin is in that one.
    fn bin_number(&self, time_ns: u64) -> u64 {
        (time_ns / self.bin_ns).max(self.open_begin_ns / self.bin_ns)
    }

    fn bin_at(&mut self, time_ns: u64) -> &mut OpenBin {
        let number = self.bin_number(time_ns);
        let index = self
            .bins
            .binary_search_by_key(&number, |(number_of_bin, _)| *number_of_bin)
            .unwrap_or_else(|place_to_insert| {
                self.bins.insert(place_to_insert, (number, OpenBin::default()));
                place_to_insert
            });
        &mut self.bins[index].1
    }
}

/// Whether both are the same record. The slots of a tick are complete when the tick is over, and
/// each kind of interrupt has one record for them.
fn is_same(peeked: &IrqRecord, received: &IrqRecord) -> bool {
    let source_kind =
        |irq: &IrqRecord| irq.slots.first().map(|slot| std::mem::discriminant(&slot.source));
    peeked.tick_end_ns == received.tick_end_ns
        && peeked.span == received.span
        && source_kind(peeked) == source_kind(received)
}

#[cfg(test)]
mod tests;
