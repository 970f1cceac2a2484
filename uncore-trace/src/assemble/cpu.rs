//! The time of one CPU, in bins.
//!
//! A CPU tells its time in two ways: by records, and by a [`Peek`] at what it has not sent when a
//! bin must be closed and it made no switch since. Both only ever add time after `accounted`, so
//! what was peeked at and arrives later as a record is not counted twice, and a record that was
//! lost shows as a gap.
//!
//! Time adds up by construction: tasks (without their interrupts), interrupts, and what was not
//! seen sum to the length of the bin.

use std::collections::VecDeque;

use crate::drain::{Context, Irq, IrqSlot, Peek, Run, Slot, Task};
use crate::identity::names::Names;

/// Owner used a CPU within one bin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// End of the bin, ns on `CLOCK_MONOTONIC`.
    pub end: u64,
    /// Length of the bin, ns.
    pub len: u64,
    /// Tasks, without the interrupts that interrupted them; idle is tid 0. `irq_ns` is what was
    /// taken out.
    pub tasks: Vec<Slot>,
    /// Interrupts.
    pub irqs: Vec<IrqSlot>,
    /// Nanoseconds of which nothing is known.
    pub unknown: u64,
    /// Those of them that interrupts took, as the slots of tasks tell, whose record was lost.
    pub untold: u64,
    /// Nanoseconds for which the CPU was offline.
    pub offline: u64,
    /// Interrupt nanoseconds beyond what the bin has room for; they were cut off. What crosses the
    /// end of a tick gives way first and is not counted: others that came in between make its
    /// even spread wrong.
    pub excess: u64,
}

/// One bin that is still filled.
#[derive(Clone, Debug, Default)]
struct Open {
    /// Time whose interrupt part is known.
    slots: Vec<Slot>,
    irqs: Vec<IrqSlot>,
}

/// The bins of one CPU.
///
/// Memory is that of the bins and slices that records told of, not of the time that passed: a recorder that
/// was stopped for an hour finds bins for an hour to close, of which nothing is kept before.
#[derive(Debug)]
pub struct CpuTrack {
    bin_ns: u64,
    /// Start of the first open bin.
    base: u64,
    /// The bins that have something in them, by their number, which is their begin in bin lengths.
    bins: VecDeque<(u64, Open)>,
    /// Slices that cross the end of a bin, in order of time, as far as their bins are open.
    long: VecDeque<Long>,
    /// Interrupts that cross the end of a bin, in no order, as far as their bins are open.
    crossing: Vec<Crossing>,
    /// When the CPU was offline, likewise.
    offline: VecDeque<(u64, u64)>,
    /// Everything before this is in a bin, or known to be lost.
    accounted: u64,
    irq_accounted: u64,
    /// Interrupt time that was taken from a peek. Its record may still come.
    peeked: Vec<Irq>,
    /// Nothing after this counts.
    stop: u64,
    away: Option<Away>,
}

/// A slice, or the part of it that is in open bins.
#[derive(Clone, Copy, Debug)]
struct Long {
    task: Task,
    begin: u64,
    end: u64,
}

/// Interrupts of one kind that crossed the end of a bin: how much of each lies in which bin is not known.
#[derive(Clone, Debug)]
struct Crossing {
    slots: Vec<IrqSlot>,
    /// When they began and ended.
    span: (u64, u64),
    /// The part of the span that is in open bins.
    begin: u64,
    end: u64,
}

impl Crossing {
    /// What is in the first bin, which ends at `bin_end`: their time is spread evenly over their span. Of
    /// all bins it sums to their time, since each part is the difference of two rounded sums.
    fn take(&mut self, bin_end: u64) -> Vec<IrqSlot> {
        let (from, to) = self.span;
        let until = bin_end.min(self.end);
        let begin = std::mem::replace(&mut self.begin, until);
        let before = |ns, time| share(ns, time - from, to - from);
        let part = |slot: &IrqSlot| IrqSlot {
            ns: before(slot.ns, until) - before(slot.ns, begin),
            // Counted where it ended.
            count: if until == to { slot.count } else { 0 },
            ..*slot
        };
        self.slots.iter().map(part).collect()
    }
}

/// A CPU that is offline.
#[derive(Clone, Copy, Debug, Default)]
struct Away {
    /// It made a switch, but the record of it may still be on its way.
    stirs: bool,
}

impl CpuTrack {
    /// A CPU whose time counts from `start`, a multiple of `bin_ns` only where that is not needed:
    /// the first bin may be shorter.
    pub const fn new(start: u64, bin_ns: u64) -> Self {
        Self {
            bin_ns,
            base: start,
            bins: VecDeque::new(),
            long: VecDeque::new(),
            crossing: Vec::new(),
            offline: VecDeque::new(),
            accounted: start,
            irq_accounted: start,
            peeked: Vec::new(),
            stop: u64::MAX,
            away: None,
        }
    }

    /// The recording ends here, in the middle of a bin maybe.
    pub const fn stop_at(&mut self, stop: u64) {
        self.stop = stop;
    }

    /// Up to where the CPU's time is known.
    pub const fn accounted(&self) -> u64 {
        self.accounted
    }

    /// The CPU is offline since its last switch; `peek` is what it had not sent by then. Returns the time
    /// before it that no record told of.
    pub fn leave(&mut self, peek: Option<&Peek>) -> Option<(u64, u64)> {
        let mut gap = None;
        if let Some(peek) = peek {
            let run = &peek.run;
            if run.begin >= self.accounted && run.begin < run.end && run.end <= self.stop {
                gap = (run.begin > self.accounted).then_some((self.accounted, run.begin));
                self.combined(&run.slots, run.begin, run.end);
                self.accounted = run.end;
            }
            for irq in &peek.irqs {
                self.peek_irq(irq);
            }
        }
        self.away = Some(Away::default());
        gap
    }

    /// Whether the CPU is offline.
    pub const fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// The CPU is offline until `end` at least. Returns what of that was new.
    pub fn stay_away(&mut self, end: u64) -> Option<(u64, u64)> {
        let begin = self.accounted;
        let end = end.min(self.stop);
        if begin >= end {
            return None;
        }
        match self.offline.back_mut() {
            Some((_, until)) if *until == begin => *until = end,
            _ => self.offline.push_back((begin, end)),
        }
        self.accounted = end;
        Some((begin, end))
    }

    /// The CPU is back, and makes its first switch at `time`. Returns the time it was offline since
    /// that was last told.
    pub fn come_back(&mut self, time: u64) -> Option<(u64, u64)> {
        self.away = None;
        self.stay_away(time)
    }

    /// What an offline CPU has not sent: `true` if it must be waited for what it has.
    pub fn saw_switch(&mut self) -> bool {
        self.away.as_mut().is_some_and(|away| !std::mem::replace(&mut away.stirs, true))
    }

    /// Adds a record. Returns the time before it that no record told of.
    pub fn run(&mut self, run: &Run, names: &mut Names) -> Option<(u64, u64)> {
        if run.end <= self.accounted {
            return None;
        }
        let gap = (run.begin > self.accounted).then_some((self.accounted, run.begin));
        let crossing = usize::from(run.last < run.end);
        let combined = run.slots.len().saturating_sub(crossing);
        let slots = run.slots.get(..combined).unwrap_or_default();
        self.combined(slots, run.begin, run.last);
        if crossing == 1
            && let Some(slice) = run.slots.last()
        {
            self.slice(slice, run.last.max(self.accounted), run.end, names);
        }
        self.accounted = run.end;
        gap
    }

    /// Adds interrupt time, but for what a peek has told of already.
    pub fn irq(&mut self, irq: Irq) {
        match self.peeked.iter().position(|peeked| is_same(peeked, &irq)) {
            Some(at) => drop(self.peeked.swap_remove(at)),
            None => self.add_irq(irq),
        }
    }

    /// Adds interrupt time whose record may still come.
    fn peek_irq(&mut self, irq: &Irq) {
        if !self.peeked.iter().any(|peeked| is_same(peeked, irq)) {
            self.add_irq(irq.clone());
            self.peeked.push(irq.clone());
        }
    }

    fn add_irq(&mut self, irq: Irq) {
        if let Some((begin, end)) = irq.span {
            self.crossing_irq(irq.slots, begin, end);
        } else if irq.boundary > self.irq_accounted && irq.boundary <= self.stop {
            let bin = self.bin(irq.boundary - 1);
            if bin.irqs.is_empty() {
                bin.irqs = irq.slots;
            } else {
                bin.irqs.extend(irq.slots);
            }
        }
    }

    /// Adds what the CPU has not sent, up to `end`, which lies before the peek was taken.
    /// `running` is the task that runs since the CPU's last switch. Returns the time before it that no
    /// record told of.
    pub fn peek(
        &mut self,
        peek: &Peek,
        running: &Task,
        end: u64,
        names: &mut Names,
    ) -> Option<(u64, u64)> {
        let run = &peek.run;
        let gap = (run.begin > self.accounted).then_some((self.accounted, run.begin));
        self.combined(&run.slots, run.begin, run.end);
        let begin = run.end.max(self.accounted);
        if begin <= end {
            self.divide(running, begin, end, names);
            self.accounted = end;
        }
        for irq in peek.irqs.iter().filter(|irq| irq.boundary <= end) {
            self.peek_irq(irq);
        }
        gap
    }

    /// Closes the first bin, which ends at `end`; the CPU must be accounted until then, or what is
    /// missing is unknown.
    pub fn close(&mut self, end: u64) -> Bin {
        let len = end - self.base;
        let number = self.base / self.bin_ns;
        let open = self.bins.pop_front_if(|(of, _)| *of == number);
        let open = open.map(|(_, open)| open).unwrap_or_default();
        let pieces = self.take_pieces(end);
        let spread = self.take_crossing(end);
        let offline = self.take_offline(end);
        self.base = end;
        self.accounted = self.accounted.max(end);
        self.irq_accounted = self.irq_accounted.max(end);
        // Their records are not counted again: they are of bins that are closed.
        self.peeked.retain(|irq| irq.boundary > end);
        open.close(end, len, &pieces, spread, offline)
    }

    /// The parts of long slices in the first bin, which ends at `end`.
    fn take_pieces(&mut self, end: u64) -> Vec<Slot> {
        let mut pieces = Vec::new();
        while let Some(long) = self.long.front_mut().filter(|long| long.begin < end) {
            let until = long.end.min(end);
            let wall_ns = until - long.begin;
            pieces.push(Slot { task: long.task, wall_ns, irq_ns: 0, slices: 1 });
            long.begin = until;
            if long.begin < long.end {
                break;
            }
            self.long.pop_front();
        }
        pieces
    }

    /// The parts of interrupts in the first bin, which ends at `end`, that crossed the end of one.
    fn take_crossing(&mut self, end: u64) -> Vec<IrqSlot> {
        let here = self.crossing.iter_mut().filter(|irq| irq.begin < end);
        let parts = here.flat_map(|irq| irq.take(end)).collect();
        self.crossing.retain(|irq| irq.begin < irq.end);
        parts
    }

    /// Nanoseconds in the first bin, which ends at `end`, for which the CPU was offline.
    fn take_offline(&mut self, end: u64) -> u64 {
        let mut ns = 0;
        while let Some((begin, until)) = self.offline.front_mut().filter(|(begin, _)| *begin < end)
        {
            let to = (*until).min(end);
            ns += to - *begin;
            *begin = to;
            if *begin < *until {
                break;
            }
            self.offline.pop_front();
        }
        ns
    }

    /// Slots that were combined from `begin` to `end`. The programs combine within one tick, so they are
    /// wholly new or wholly known. Of others nobody knows which part lies in which bin: that time is
    /// unknown.
    fn combined(&mut self, slots: &[Slot], begin: u64, end: u64) {
        let is_new = begin >= self.accounted && begin < end && end <= self.stop;
        if is_new && self.number(begin) == self.number(end - 1) {
            self.bin(begin).slots.extend(slots);
        }
    }

    /// A whole slice: with its interrupt time if it lies in one bin, in pieces if not.
    fn slice(&mut self, slot: &Slot, begin: u64, end: u64, names: &mut Names) {
        let one_bin = self.number(begin) == self.number(end - 1) && end <= self.stop;
        let whole = end - begin == slot.wall_ns && one_bin;
        let parts = names.split(&slot.task, begin, end);
        if let [(task, ..)] = parts.as_slice()
            && whole
        {
            let task = *task;
            self.bin(begin).slots.push(Slot { task, ..*slot });
            return;
        }
        self.add_long(parts);
    }

    fn divide(&mut self, task: &Task, begin: u64, end: u64, names: &mut Names) {
        self.add_long(names.split(task, begin, end));
    }

    fn add_long(&mut self, parts: Vec<(Task, u64, u64)>) {
        for (task, begin, end) in parts {
            let end = end.min(self.stop);
            if begin < end {
                self.long.push_back(Long { task, begin, end });
            }
        }
    }

    /// An interrupt over the end of a tick. Its bins are not made before they close: a virtual machine that
    /// is paused within one makes it an hour long.
    fn crossing_irq(&mut self, slots: Vec<IrqSlot>, from: u64, to: u64) {
        let (begin, end) = (from.max(self.irq_accounted), to.min(self.stop));
        if begin < end {
            self.crossing.push(Crossing { slots, span: (from, to), begin, end });
        }
    }

    /// The number of the bin that a time is in; what is before the first open bin is in that one.
    fn number(&self, time: u64) -> u64 {
        (time / self.bin_ns).max(self.base / self.bin_ns)
    }

    fn bin(&mut self, time: u64) -> &mut Open {
        let number = self.number(time);
        let at = self.bins.binary_search_by_key(&number, |(of, _)| *of).unwrap_or_else(|at| {
            self.bins.insert(at, (number, Open::default()));
            at
        });
        &mut self.bins[at].1
    }
}

impl Open {
    /// `pieces` are the parts of slices that cross the end of a bin, `spread` those of interrupts.
    fn close(
        self,
        end: u64,
        len: u64,
        pieces: &[Slot],
        mut spread: Vec<IrqSlot>,
        mut offline: u64,
    ) -> Bin {
        let Self { slots, mut irqs } = self;
        let wall = |slots: &[Slot]| slots.iter().map(|slot| slot.wall_ns).sum::<u64>();
        let sum = |irqs: &[IrqSlot]| irqs.iter().map(|irq| irq.ns).sum::<u64>();
        let covered = wall(&slots) + wall(pieces);
        let inside_slots: u64 = slots.iter().map(|slot| slot.irq_ns.min(slot.wall_ns)).sum();
        let (certain, estimated) = (sum(&irqs), sum(&spread));
        let told = certain + estimated;
        // Interrupts that the slots do not know of came in the pieces.
        let room = wall(pieces);
        let in_pieces = told.saturating_sub(inside_slots).min(room);
        // Those that came after a CPU's last switch before it went offline, or before its first
        // when it came back: its time begins and ends with a switch.
        let around = told.saturating_sub(inside_slots + in_pieces).min(offline);
        // Those that came in slices whose record was lost: they are of the time that nothing else is
        // known of.
        let lost = len.saturating_sub(covered + offline);
        offline -= around;
        let untold = inside_slots.saturating_sub(told);
        let in_lost = told.saturating_sub(inside_slots + in_pieces + around).min(lost);
        let fits = inside_slots + in_pieces + around + in_lost;
        let excess = certain.saturating_sub(fits);
        if excess > 0 {
            scale(&mut irqs, fits, certain);
        }
        scale(&mut spread, fits.saturating_sub(certain).min(estimated), estimated);
        irqs.append(&mut spread);
        let kept = sum(&irqs);
        let mut tasks = Vec::with_capacity(slots.len() + pieces.len());
        for slot in slots {
            let irq_ns = slot.irq_ns.min(slot.wall_ns);
            merge(&mut tasks, Slot { irq_ns, ..slot });
        }
        let mut rest = in_pieces;
        let mut rest_wall = room;
        for piece in pieces {
            // What is left of the time is divided by what is left of the pieces: no remainder.
            let irq_ns = share(rest, piece.wall_ns, rest_wall);
            rest -= irq_ns;
            rest_wall -= piece.wall_ns;
            merge(&mut tasks, Slot { irq_ns, ..*piece });
        }
        for task in &mut tasks {
            task.wall_ns -= task.irq_ns;
        }
        let tasks_ns: u64 = wall(&tasks);
        let unknown = len.saturating_sub(tasks_ns + kept + offline);
        Bin { end, len, tasks, irqs: merged(irqs), unknown, untold, offline, excess }
    }
}

/// Whether both are one record: the slots of a tick are complete when it is over, and each kind of interrupt
/// has one record of them.
fn is_same(one: &Irq, other: &Irq) -> bool {
    let kind = |irq: &Irq| irq.slots.first().map(|slot| std::mem::discriminant(&slot.source));
    one.boundary == other.boundary && one.span == other.span && kind(one) == kind(other)
}

/// Brings the sources down to `to` of `from` nanoseconds in all.
fn scale(irqs: &mut [IrqSlot], to: u64, from: u64) {
    for irq in irqs {
        irq.ns = share(to, irq.ns, from);
    }
}

fn share(whole: u64, part: u64, of: u64) -> u64 {
    if of == 0 { 0 } else { (u128::from(whole) * u128::from(part) / u128::from(of)) as u64 }
}

/// Adds to the entry of the same task; bins hold few tasks, a scan beats a hash.
fn merge(tasks: &mut Vec<Slot>, slot: Slot) {
    if let Some(known) = tasks.iter_mut().find(|known| known.task == slot.task) {
        known.wall_ns += slot.wall_ns;
        known.irq_ns += slot.irq_ns;
        known.slices += slot.slices;
    } else {
        tasks.push(slot);
    }
}

fn merged(irqs: Vec<IrqSlot>) -> Vec<IrqSlot> {
    let mut all: Vec<IrqSlot> = Vec::with_capacity(irqs.len().min(16));
    for irq in irqs {
        if let Some(known) = all.iter_mut().find(|known| known.source == irq.source) {
            known.ns += irq.ns;
            known.count += irq.count;
        } else {
            all.push(irq);
        }
    }
    all
}

impl Bin {
    /// Nanoseconds in interrupts of a kind.
    pub fn irq_ns(&self, soft: bool) -> u64 {
        let kind = |irq: &&IrqSlot| matches!(irq.source, Context::Softirq(_)) == soft;
        self.irqs.iter().filter(kind).map(|irq| irq.ns).sum()
    }
}

#[cfg(test)]
mod tests;
