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
    /// Parts of interrupts that cross the end of a tick: how much of each lies in this bin is not
    /// known.
    spread: Vec<IrqSlot>,
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
    pub fn irq(&mut self, irq: &Irq) {
        match self.peeked.iter().position(|peeked| is_same(peeked, irq)) {
            Some(at) => drop(self.peeked.swap_remove(at)),
            None => self.add_irq(irq),
        }
    }

    /// Adds interrupt time whose record may still come.
    fn peek_irq(&mut self, irq: &Irq) {
        if !self.peeked.iter().any(|peeked| is_same(peeked, irq)) {
            self.add_irq(irq);
            self.peeked.push(irq.clone());
        }
    }

    fn add_irq(&mut self, irq: &Irq) {
        if let Some((begin, end)) = irq.span {
            self.crossing_irq(&irq.slots, begin, end);
        } else if irq.boundary > self.irq_accounted && irq.boundary <= self.stop {
            let bin = self.bin(irq.boundary - 1);
            bin.irqs.extend(&irq.slots);
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
        let offline = self.take_offline(end);
        self.base = end;
        self.accounted = self.accounted.max(end);
        self.irq_accounted = self.irq_accounted.max(end);
        // Their records are not counted again: they are of bins that are closed.
        self.peeked.retain(|irq| irq.boundary > end);
        open.close(end, len, &pieces, offline)
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

    /// An interrupt over the end of a tick: its time is spread evenly over its span.
    fn crossing_irq(&mut self, slots: &[IrqSlot], from: u64, end: u64) {
        let stop = end.min(self.stop);
        let mut begin = from.max(self.irq_accounted);
        while begin < stop {
            let until = self.bin_end(begin).min(stop);
            let part = u128::from(until - begin);
            for slot in slots {
                let ns = (u128::from(slot.ns) * part / u128::from(end - from)) as u64;
                // Counted where it ended.
                let count = if until == end { slot.count } else { 0 };
                self.bin(begin).spread.push(IrqSlot { ns, count, ..*slot });
            }
            begin = until;
        }
    }

    /// Bins lie on multiples of their length; the first is cut off at the start.
    const fn bin_end(&self, time: u64) -> u64 {
        (time / self.bin_ns + 1) * self.bin_ns
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
    /// `pieces` are the parts of slices that cross the end of a bin.
    fn close(self, end: u64, len: u64, pieces: &[Slot], mut offline: u64) -> Bin {
        let Self { slots, mut irqs, mut spread } = self;
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
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::drain::{CgroupChange, CgroupEvent};
    use crate::identity::cgroups::Cgroups;

    fn names() -> Names {
        Names::new(
            Path::new("/nonexistent"),
            Cgroups::new(None, Path::new("/nonexistent")),
            Vec::new(),
        )
    }

    fn task(tid: u32) -> Task {
        Task { tid, pid: tid, ..Task::default() }
    }

    fn slot(tid: u32, wall_ns: u64, irq_ns: u64) -> Slot {
        Slot { task: task(tid), wall_ns, irq_ns, slices: 1 }
    }

    /// What a CPU that is idle has not sent.
    fn peek(run: Run) -> Peek {
        Peek { run, next_tid: 0, irqs: Vec::new(), io: None }
    }

    fn total(bin: &Bin) -> u64 {
        let tasks: u64 = bin.tasks.iter().map(|task| task.wall_ns).sum();
        tasks + bin.irq_ns(false) + bin.irq_ns(true) + bin.unknown
    }

    #[test]
    fn time_offline_is_nobodys() {
        let mut track = CpuTrack::new(1000, 100);
        let run = Run { cpu: 0, begin: 1000, last: 1050, end: 1050, slots: vec![slot(1, 50, 0)] };
        assert_eq!(track.leave(Some(&peek(run))), None);
        assert!(track.is_away());
        assert_eq!(track.stay_away(1200), Some((1050, 1200)));
        let bins = [track.close(1100), track.close(1200)];
        assert_eq!(bins.iter().map(|bin| bin.offline).collect::<Vec<_>>(), [50, 100]);
        assert!(bins.iter().all(|bin| bin.unknown == 0 && bin.excess == 0), "{bins:?}");
        assert!(track.saw_switch(), "its records may be on their way");
        assert!(!track.saw_switch());
        assert_eq!(track.come_back(1230), Some((1200, 1230)));
        assert!(!track.is_away());
        let run = Run { cpu: 0, begin: 1230, last: 1300, end: 1300, slots: vec![slot(2, 70, 0)] };
        assert_eq!(track.run(&run, &mut names()), None);
        let bin = track.close(1300);
        assert_eq!((bin.offline, bin.unknown, bin.tasks.len()), (30, 0, 1));
    }

    #[test]
    fn what_was_lost_before_a_cpu_went_offline_is_a_gap() {
        let mut track = CpuTrack::new(1000, 100);
        let run = Run { cpu: 0, begin: 1030, last: 1050, end: 1050, slots: vec![slot(1, 20, 0)] };
        assert_eq!(track.leave(Some(&peek(run))), Some((1000, 1030)));
        assert_eq!(track.stay_away(1100), Some((1050, 1100)));
        let bin = track.close(1100);
        assert_eq!((bin.unknown, bin.offline, total(&bin)), (30, 50, 50));
    }

    #[test]
    fn an_old_state_or_one_after_the_end_says_nothing_of_a_cpu_that_went_offline() {
        for (begin, end, stop) in [(990, 1010, 1100), (1050, 1110, 1100), (1050, 1050, 1100)] {
            let mut track = CpuTrack::new(1000, 100);
            track.stop_at(stop);
            let slots = vec![slot(1, end - begin, 0)];
            let state = peek(Run { cpu: 0, begin, last: end, end, slots });
            assert_eq!(track.leave(Some(&state)), None);
            assert_eq!(track.accounted(), 1000);
            assert_eq!(track.stay_away(1200), Some((1000, 1100)));
            assert_eq!(track.stay_away(1200), None);
            let bin = track.close(1100);
            assert_eq!((bin.offline, bin.unknown, bin.tasks.len()), (100, 0, 0));
        }
    }

    #[test]
    fn a_slice_over_several_bins_is_divided_at_their_ends() {
        let mut track = CpuTrack::new(1000, 100);
        let run = Run {
            cpu: 0,
            begin: 1000,
            last: 1050,
            end: 1320,
            slots: vec![slot(1, 30, 0), slot(2, 20, 0), slot(3, 270, 0)],
        };
        assert_eq!(track.run(&run, &mut names()), None);
        let first = track.close(1100);
        assert_eq!(first.tasks, [slot(1, 30, 0), slot(2, 20, 0), slot(3, 50, 0)]);
        assert_eq!(track.close(1200).tasks, [slot(3, 100, 0)]);
        assert_eq!(track.close(1300).tasks, [slot(3, 100, 0)]);
        assert_eq!(track.close(1400).unknown, 80);
    }

    #[test]
    fn interrupt_time_is_taken_out_of_the_task() {
        let mut track = CpuTrack::new(1000, 100);
        let run = Run {
            cpu: 0,
            begin: 1000,
            last: 1060,
            end: 1200,
            slots: vec![slot(1, 60, 10), slot(2, 140, 25)],
        };
        track.run(&run, &mut names());
        let irq = |boundary, ns| Irq {
            cpu: 0,
            boundary,
            span: None,
            slots: vec![IrqSlot { source: Context::Irq(9), ns, count: 1 }],
        };
        track.irq(&irq(1100, 15));
        track.irq(&irq(1200, 20));
        let first = track.close(1100);
        assert_eq!(first.tasks, [slot(1, 50, 10), slot(2, 35, 5)]);
        assert_eq!(first.irq_ns(false), 15);
        assert_eq!(total(&first), 100);
        let second = track.close(1200);
        assert_eq!(second.tasks, [slot(2, 80, 20)]);
        assert_eq!(total(&second), 100);
    }

    /// A softirq from 1080 to 1120, of which a handler took the first 20: spread evenly, 10 of its
    /// own 20 would lie in the first bin too.
    #[test]
    fn what_crosses_a_boundary_gives_way_to_what_does_not() {
        let mut track = CpuTrack::new(1000, 100);
        let run = Run {
            cpu: 0,
            begin: 1000,
            last: 1080,
            end: 1200,
            slots: vec![slot(1, 80, 0), slot(2, 120, 40)],
        };
        track.run(&run, &mut names());
        let irq = |boundary, span, source| Irq {
            cpu: 0,
            boundary,
            span,
            slots: vec![IrqSlot { source, ns: 20, count: 1 }],
        };
        track.irq(&irq(1100, None, Context::Irq(9)));
        track.irq(&irq(1200, Some((1080, 1120)), Context::Softirq(8)));
        let first = track.close(1100);
        assert_eq!((first.irq_ns(false), first.irq_ns(true), first.excess), (20, 0, 0));
        assert_eq!((total(&first), first.unknown), (100, 0));
    }

    #[test]
    fn what_was_peeked_at_is_not_counted_again() {
        let mut track = CpuTrack::new(1000, 100);
        let mut names = names();
        let run = Run { cpu: 0, begin: 1000, last: 1040, end: 1040, slots: vec![slot(1, 40, 0)] };
        let peek = Peek { run: run.clone(), next_tid: 2, irqs: Vec::new(), io: None };
        assert_eq!(track.peek(&peek, &task(2), 1200, &mut names), None);
        assert_eq!(track.close(1100).tasks, [slot(1, 40, 0), slot(2, 60, 0)]);
        assert_eq!(track.close(1200).tasks, [slot(2, 100, 0)]);
        // The same slots arrive with the slice that ends at last.
        let record = Run { end: 1250, slots: vec![slot(1, 40, 0), slot(2, 210, 0)], ..run };
        assert_eq!(track.run(&record, &mut names), None);
        let third = track.close(1300);
        assert_eq!(third.tasks, [slot(2, 50, 0)]);
        assert_eq!(third.unknown, 50);
    }

    #[test]
    fn interrupts_that_were_not_sent_are_of_the_ticks_that_have_ended() {
        let irq = |boundary| {
            let slots = vec![IrqSlot { source: Context::Irq(9), ns: 10, count: 1 }];
            Irq { cpu: 0, boundary, span: None, slots }
        };
        let mut track = CpuTrack::new(1000, 100);
        let run = Run { cpu: 0, begin: 1000, last: 1100, end: 1100, slots: vec![slot(1, 100, 10)] };
        // What began before the first bin is of none, and the next tick may bring more.
        let irqs = [1000, 1100, 1200].map(irq).to_vec();
        let state = Peek { irqs, ..peek(run) };
        assert_eq!(track.peek(&state, &task(2), 1100, &mut names()), None);
        assert_eq!(track.accounted(), 1100);
        assert_eq!(track.close(1100).irq_ns(false), 10);
        track.stop_at(1200);
        track.irq(&irq(1100));
        track.irq(&irq(1200));
        assert_eq!(track.close(1200).irq_ns(false), 10);
    }

    /// The bin of the peek stays open while another CPU is waited for, and the record comes meanwhile.
    #[test]
    fn interrupts_that_were_peeked_at_are_not_counted_again() {
        let irq = |source, boundary, span, ns| Irq {
            cpu: 0,
            boundary,
            span,
            slots: vec![IrqSlot { source, ns, count: 1 }],
        };
        let hard = irq(Context::Irq(9), 1100, None, 10);
        let crossing = irq(Context::Softirq(3), 1100, Some((1050, 1070)), 20);
        let mut track = CpuTrack::new(1000, 100);
        let run = Run { cpu: 0, begin: 1000, last: 1040, end: 1040, slots: vec![slot(1, 40, 0)] };
        let state = Peek { irqs: vec![hard.clone(), crossing.clone()], ..peek(run) };
        assert_eq!(track.peek(&state, &task(2), 1100, &mut names()), None);
        track.irq(&hard);
        track.irq(&crossing);
        // This one was sent before the peek, and is not in it.
        track.irq(&irq(Context::Softirq(3), 1100, None, 5));
        let bin = track.close(1100);
        assert_eq!((bin.irq_ns(false), bin.irq_ns(true)), (10, 25));
        assert!(track.peeked.is_empty());
    }

    /// As after a recorder was stopped: the first record may be of a time long after the last one, and tell
    /// of a slice that was long itself.
    #[test]
    fn memory_does_not_grow_with_the_time_that_passed() {
        const MINUTE: u64 = 60_000_000_000;
        const MS: u64 = 1_000_000;
        let mut track = CpuTrack::new(0, MS);
        let (begin, end) = (MINUTE, 2 * MINUTE + MS / 2);
        let slots = vec![slot(1, end - begin, 0)];
        let gap = track.run(&Run { cpu: 0, begin, last: begin, end, slots }, &mut names());
        assert_eq!(gap, Some((0, MINUTE)));
        let slots = vec![slot(2, MS / 4, 0)];
        let (begin, end) = (end, end + MS / 4);
        track.run(&Run { cpu: 0, begin, last: end, end, slots }, &mut names());
        assert_eq!((track.bins.len(), track.long.len()), (1, 1));
        track.leave(None);
        track.stay_away(3 * MINUTE);
        track.stay_away(4 * MINUTE);
        assert_eq!(track.offline.len(), 1);
        let (mut ran, mut unknown, mut offline) = (0, 0, 0);
        for number in 1..=4 * MINUTE / MS {
            let bin = track.close(number * MS);
            ran += bin.tasks.iter().map(|task| task.wall_ns).sum::<u64>();
            unknown += bin.unknown;
            offline += bin.offline;
        }
        assert_eq!((ran, unknown, offline), (MINUTE + 3 * MS / 4, MINUTE, 2 * MINUTE - 3 * MS / 4));
    }

    #[test]
    fn a_lost_record_before_a_peek_is_a_gap() {
        let mut track = CpuTrack::new(1000, 100);
        let run = Run { cpu: 0, begin: 1030, last: 1050, end: 1050, slots: vec![slot(1, 20, 0)] };
        let gap = track.peek(&peek(run), &task(2), 1100, &mut names());
        assert_eq!((gap, track.close(1100).unknown), (Some((1000, 1030)), 30));
    }

    /// Its own interrupt time is known, and is not spread over what crosses the end of a bin.
    #[test]
    fn a_slice_up_to_the_end_of_a_bin_is_whole() {
        let mut track = CpuTrack::new(1000, 100);
        let run = Run { cpu: 0, begin: 1000, last: 1000, end: 1150, slots: vec![slot(1, 150, 0)] };
        track.run(&run, &mut names());
        let run = Run { cpu: 0, begin: 1150, last: 1150, end: 1200, slots: vec![slot(2, 50, 10)] };
        track.run(&run, &mut names());
        let slots = vec![IrqSlot { source: Context::Irq(9), ns: 10, count: 1 }];
        track.irq(&Irq { cpu: 0, boundary: 1200, span: None, slots });
        track.close(1100);
        assert_eq!(track.close(1200).tasks, [slot(2, 40, 10), slot(1, 50, 0)]);
    }

    #[test]
    fn a_slice_is_of_the_cgroup_that_its_task_was_in() {
        let (mut track, mut names) = (CpuTrack::new(1000, 100), names());
        let of = |cgroup_id, wall_ns| Slot {
            task: Task { cgroup_id, ..task(1) },
            wall_ns,
            irq_ns: 0,
            slices: 1,
        };
        let mut run = |begin, slot: Slot| {
            let end = begin + slot.wall_ns;
            track.run(&Run { cpu: 0, begin, last: begin, end, slots: vec![slot] }, &mut names);
            if end == 1030 {
                let change = CgroupChange::Attached(1);
                names.cgroup_event(CgroupEvent { time: 1080, change, cgroup_id: 8, path: None });
            }
        };
        // The record of a slice has the cgroup of its end.
        run(1000, of(7, 30));
        run(1030, of(8, 40));
        run(1070, of(8, 30));
        let tasks = track.close(1100).tasks;
        assert_eq!(tasks, [Slot { slices: 3, ..of(7, 80) }, of(8, 20)]);
    }

    #[test]
    fn a_record_of_no_time_is_of_nobody() {
        let mut track = CpuTrack::new(1000, 100);
        let run = Run { cpu: 0, begin: 1050, last: 1050, end: 1050, slots: vec![slot(1, 0, 0)] };
        assert_eq!(track.run(&run, &mut names()), Some((1000, 1050)));
        let bin = track.close(1100);
        assert_eq!((bin.tasks.len(), bin.unknown), (0, 100));
    }

    /// The programs send no such record. In one bin it would be more than there is.
    #[test]
    fn slots_that_were_combined_over_the_end_of_a_bin_are_unknown_time() {
        let run = Run { cpu: 0, begin: 1050, last: 1150, end: 1150, slots: vec![slot(1, 100, 0)] };
        let bins = |take: &dyn Fn(&mut CpuTrack) -> Option<(u64, u64)>| {
            let mut track = CpuTrack::new(1000, 100);
            assert_eq!(take(&mut track), Some((1000, 1050)));
            let bins = [track.close(1100), track.close(1200)];
            bins.map(|bin| (total(&bin), bin.excess, bin.tasks.len()))
        };
        let record = bins(&|track| track.run(&run, &mut names()));
        assert_eq!(record, [(100, 0, 0); 2]);
        let state = peek(run);
        let look = bins(&|track| track.peek(&state, &task(2), 1200, &mut names()));
        assert_eq!(look, [(100, 0, 0), (100, 0, 1)]);
        let offline = bins(&|track| track.leave(Some(&state)));
        assert_eq!(offline, [(100, 0, 0); 2]);
    }

    #[test]
    fn a_lost_record_is_a_gap_and_unknown_time() {
        let mut track = CpuTrack::new(1000, 100);
        let run = Run { cpu: 0, begin: 1080, last: 1100, end: 1100, slots: vec![slot(1, 20, 0)] };
        assert_eq!(track.run(&run, &mut names()), Some((1000, 1080)));
        assert_eq!(track.close(1100).unknown, 80);
    }

    #[test]
    fn interrupts_of_lost_slices_are_of_the_unknown_time() {
        let mut track = CpuTrack::new(1000, 100);
        let run = Run { cpu: 0, begin: 1060, last: 1100, end: 1100, slots: vec![slot(1, 40, 5)] };
        assert_eq!(track.run(&run, &mut names()), Some((1000, 1060)));
        let slots = vec![IrqSlot { source: Context::Irq(9), ns: 25, count: 2 }];
        track.irq(&Irq { cpu: 0, boundary: 1100, span: None, slots });
        let bin = track.close(1100);
        assert_eq!((bin.irq_ns(false), bin.unknown, bin.excess), (25, 40, 0));
        assert_eq!(total(&bin), 100);
    }

    #[test]
    fn interrupts_whose_record_was_lost_are_unknown_time() {
        let mut track = CpuTrack::new(1000, 100);
        let slots = vec![slot(1, 60, 25), slot(2, 40, 10)];
        let run = Run { cpu: 0, begin: 1000, last: 1100, end: 1100, slots };
        assert_eq!(track.run(&run, &mut names()), None);
        let told = vec![IrqSlot { source: Context::Irq(9), ns: 10, count: 2 }];
        track.irq(&Irq { cpu: 0, boundary: 1100, span: None, slots: told });
        let bin = track.close(1100);
        assert_eq!((bin.irq_ns(false), bin.unknown, bin.untold), (10, 25, 25));
        assert_eq!(total(&bin), 100);
    }

    /// First of the slots that know of it, then of pieces, of the time offline, of unknown time; the rest is
    /// cut off.
    #[test]
    fn interrupts_are_of_the_time_that_has_room_for_them() {
        let bin = |told| {
            let irqs = vec![IrqSlot { source: Context::Irq(9), ns: told, count: 1 }];
            let (slots, pieces) = (vec![slot(1, 20, 5)], [slot(2, 10, 0)]);
            Open { slots, irqs, ..Open::default() }.close(1100, 100, &pieces, 30)
        };
        // Told: task 1, task 2, interrupts, offline, unknown, cut off.
        for (told, times) in [
            (3, [15, 10, 3, 30, 42, 0]),
            (5, [15, 10, 5, 30, 40, 0]),
            (12, [15, 3, 12, 30, 40, 0]),
            (25, [15, 0, 25, 20, 40, 0]),
            (60, [15, 0, 60, 0, 25, 0]),
            (85, [15, 0, 85, 0, 0, 0]),
            (92, [15, 0, 85, 0, 0, 7]),
        ] {
            let Bin { tasks, unknown, offline, excess, .. } = &bin(told);
            let irq_ns = bin(told).irq_ns(false);
            let found = [tasks[0].wall_ns, tasks[1].wall_ns, irq_ns, *offline, *unknown, *excess];
            assert_eq!(found, times, "{told}");
        }
    }

    #[test]
    fn a_slot_has_no_more_interrupt_time_than_time() {
        let irqs = vec![IrqSlot { source: Context::Irq(9), ns: 30, count: 1 }];
        let slots = vec![slot(1, 20, 30), slot(2, 80, 0), slot(1, 0, 0)];
        let bin = Open { slots, irqs, ..Open::default() }.close(1100, 100, &[], 0);
        assert_eq!(bin.tasks, [Slot { slices: 2, ..slot(1, 0, 20) }, slot(2, 80, 0)]);
        assert_eq!((bin.irq_ns(false), bin.unknown, bin.excess), (20, 0, 10));
    }

    #[test]
    fn the_interrupts_of_a_source_are_one() {
        let irq = |source, ns| IrqSlot { source, ns, count: 1 };
        let [hard, soft] = [Context::Irq(3), Context::Softirq(3)];
        let irqs = vec![irq(hard, 30), irq(soft, 10), irq(hard, 20)];
        let spread = vec![irq(soft, 20), irq(soft, 60)];
        let bin = Open { irqs, spread, ..Open::default() }.close(1100, 100, &[], 0);
        // 40 ns are left for the 80 that cross the end of a tick.
        let all = [IrqSlot { count: 2, ..irq(hard, 50) }, IrqSlot { count: 3, ..irq(soft, 50) }];
        assert_eq!(bin.irqs, all);
        assert_eq!((bin.irq_ns(false), bin.irq_ns(true), bin.unknown), (50, 50, 0));
    }

    #[test]
    fn an_interrupt_over_the_end_of_a_bin_is_divided() {
        let mut track = CpuTrack::new(1000, 100);
        let run = Run { cpu: 0, begin: 1000, last: 1000, end: 1200, slots: vec![slot(1, 200, 40)] };
        track.run(&run, &mut names());
        let irq = Irq {
            cpu: 0,
            boundary: 1200,
            span: Some((1090, 1130)),
            slots: vec![IrqSlot { source: Context::Softirq(3), ns: 40, count: 1 }],
        };
        track.irq(&irq);
        // Counted where it ended.
        let part = |bin: Bin| (bin.irq_ns(true), bin.irqs[0].count);
        assert_eq!(part(track.close(1100)), (10, 0));
        assert_eq!(part(track.close(1200)), (30, 1));
    }

    #[test]
    fn nothing_after_the_stop_counts() {
        let mut track = CpuTrack::new(1000, 100);
        track.stop_at(1150);
        let run = Run { cpu: 0, begin: 1000, last: 1000, end: 1190, slots: vec![slot(1, 190, 0)] };
        track.run(&run, &mut names());
        assert_eq!(track.close(1100).tasks, [slot(1, 100, 0)]);
        assert_eq!(track.close(1150).tasks, [slot(1, 50, 0)]);
    }

    proptest! {
        /// Whatever the CPU tells, every bin sums to its length unless it told too much.
        #[test]
        fn time_adds_up(slices in prop::collection::vec((1u32..5, 1u64..300, 0u64..20), 1..60)) {
            let mut track = CpuTrack::new(1000, 100);
            let mut names = names();
            let mut at = 1000;
            for (tid, wall, irq) in slices {
                let irq = irq.min(wall);
                let end = at + wall;
                let crosses = at / 100 != end / 100;
                let run = Run {
                    cpu: 0,
                    begin: at,
                    last: if crosses { at } else { end },
                    end,
                    slots: vec![slot(tid, wall, irq)],
                };
                track.run(&run, &mut names);
                let told = IrqSlot { source: Context::Irq(1), ns: irq, count: 1 };
                let boundary = (at / 100 + 1) * 100;
                let span = crosses.then_some((at, end));
                track.irq(&Irq { cpu: 0, boundary, span, slots: vec![told] });
                at = end;
            }
            let mut end = 1100;
            while end <= at {
                let bin = track.close(end);
                prop_assert_eq!(total(&bin), 100, "{:?}", bin);
                end += 100;
            }
        }
    }
}
