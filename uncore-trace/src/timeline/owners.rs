//! The owner CPUs: which counters each reads, which ticks came, and the readings of boundary ticks
//! until their window is closed.
//!
//! A counter is not tied to a CPU: when its owner goes offline another one reads it. So every
//! sample says by its first slot which counters it is of, whoever owns them by now.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    mem,
    rc::Rc,
};

use super::{
    Setup,
    counter::{Close, Track, add},
    division::{Boundaries, Division},
    loss::{Cause, Ledger},
    sink::Labels,
    window,
};
use crate::{
    align::{clock::Snapshot, io::Moved, who::Who},
    drain::{Reading, Sample, Trigger},
    open::{Change, Count, Layout},
    tables::{fabric, readings},
};

/// The counters of a sample, by their index, and what to add to each reading.
type Slots = Rc<[(usize, Count)]>;

/// The counters that a CPU reads.
#[derive(Debug)]
struct Known {
    /// The first slot.
    first: u32,
    slots: Slots,
    /// How many of them, the first ones, are read at every switch.
    at_switch: usize,
}

/// A boundary tick's readings on one owner CPU.
#[derive(Debug)]
struct Boundary {
    tick: u64,
    slots: Slots,
    readings: Vec<Reading>,
    /// Raw counts by owner since the last boundary, for each slot.
    exact: Vec<HashMap<Who, u64>>,
}

/// One owner CPU.
#[derive(Debug, Default)]
struct OwnerCpu {
    cpu: u32,
    /// By first slot: those of now and those before the last change.
    layouts: Vec<Known>,
    /// Whether it owns any now.
    active: bool,
    next_tick: Option<u64>,
    sequence: Option<u64>,
    boundaries: VecDeque<Boundary>,
    /// CPUs whose counters it was given, with the first tick that they did not read.
    heirs_of: Vec<(u32, u64)>,
}

/// All owner CPUs and all counters.
#[derive(Debug)]
pub struct Owners {
    cpus: BTreeMap<u32, OwnerCpu>,
    /// The counters.
    pub division: Division,
    index_of: HashMap<u32, usize>,
    tick_ns: u64,
    window_ns: u64,
    start_tick: u64,
    stop_tick: Option<u64>,
    astray: bool,
    /// When each counter that does not count stopped, ns.
    stopped_at: HashMap<usize, u64>,
    clock: Snapshot,
}

impl Owners {
    /// The opened counters, before their first reading.
    pub fn new(setup: &Setup<'_>) -> Self {
        let placed = setup.layouts.values().flat_map(|layout| &layout.counters);
        let ids: Vec<u32> = placed.map(|placed| placed.id).collect();
        let division = Division::new(setup.plan, &ids, setup.start_tick, setup.methods);
        let index_of = division.tracks.iter().enumerate().map(|(at, track)| (track.counter.id, at));
        let mut owners = Self {
            cpus: BTreeMap::new(),
            index_of: index_of.collect(),
            division,
            tick_ns: setup.plan.tick_ns,
            window_ns: setup.plan.window_ns,
            start_tick: setup.start_tick,
            stop_tick: None,
            astray: false,
            stopped_at: HashMap::new(),
            clock: setup.clock,
        };
        owners.lay_out(setup.layouts);
        // Ticks count from the first.
        for cpu in owners.cpus.values_mut() {
            cpu.next_tick = Some(setup.start_tick);
        }
        owners
    }

    fn lay_out(&mut self, layouts: &BTreeMap<u32, Layout>) {
        for cpu in self.cpus.values_mut() {
            // What was sent before the change before this one has long been read.
            let old = cpu.layouts.len().saturating_sub(1);
            cpu.layouts.drain(..old);
            cpu.active = layouts.contains_key(&cpu.cpu);
        }
        for (&cpu, layout) in layouts {
            let index = |id| self.index_of.get(&id).copied().unwrap_or(usize::MAX);
            let slots = layout.counters.iter().map(|placed| (index(placed.id), placed.base));
            let owner = self.cpus.entry(cpu).or_default();
            (owner.cpu, owner.active) = (cpu, true);
            owner.layouts.push(Known {
                first: layout.first,
                slots: slots.collect(),
                at_switch: layout.at_switch as usize,
            });
        }
    }

    /// The recording ends with this tick.
    pub const fn stop_at(&mut self, tick: u64) {
        self.stop_tick = Some(tick);
    }

    /// See [`super::Timeline::last_counts`].
    pub fn last_counts(
        &mut self,
        counts: &[(u32, Count)],
        now: u64,
        mut readings: Option<&mut readings::Builder>,
    ) {
        let tick = self.stop_tick.unwrap_or(now / self.tick_ns);
        for &(id, count) in counts {
            let index = self.index_of.get(&id);
            let track = index.and_then(|&index| self.division.tracks.get_mut(index));
            if let Some(track) = track {
                let Count { value, enabled, running } = count;
                track.last_count = Some(Reading::Counted { value, enabled, running });
                if let Some(readings) = &mut readings {
                    stop_row(track, track.counter.cpu, tick, now, count, readings);
                }
            }
        }
    }

    /// Whether every owner CPU has got past this tick.
    pub fn have(&self, tick: u64) -> bool {
        let mut active = self.cpus.values().filter(|cpu| cpu.active);
        active.all(|cpu| cpu.next_tick.is_some_and(|next| next > tick))
    }

    /// Whether a counter could not be read where it was thought to be, since this was last asked.
    pub const fn take_astray(&mut self) -> bool {
        mem::replace(&mut self.astray, false)
    }

    /// Takes a change of who reads what, at `now`.
    pub fn follow(
        &mut self,
        change: &Change,
        now: u64,
        mut readings: Option<&mut readings::Builder>,
        ledger: &mut Ledger,
    ) {
        for &(id, count) in &change.stopped {
            self.stopped(id, count, now, readings.as_deref_mut(), ledger);
        }
        let Some(layouts) = &change.layouts else {
            return;
        };
        let before: HashMap<usize, u32> = self.placed().collect();
        self.lay_out(layouts);
        let after: Vec<(usize, u32)> = self.placed().collect();
        for (index, cpu) in after {
            self.place(index, before.get(&index).copied(), cpu, now, ledger);
        }
        for cpu in self.cpus.values_mut().filter(|cpu| !cpu.active) {
            // When it comes back its ticks count from there.
            cpu.next_tick = None;
        }
    }

    /// A counter stopped with all it had counted.
    fn stopped(
        &mut self,
        id: u32,
        count: Count,
        now: u64,
        readings: Option<&mut readings::Builder>,
        ledger: &mut Ledger,
    ) {
        let Some(&index) = self.index_of.get(&id) else {
            return;
        };
        let owner = self.placed().find(|(placed, _)| *placed == index).map(|(_, cpu)| cpu);
        let next_tick = owner.and_then(|cpu| self.cpus.get(&cpu)?.next_tick);
        let Count { value, enabled, running } = count;
        if let Some(track) = self.division.tracks.get_mut(index) {
            let tick = next_tick.unwrap_or(now / self.tick_ns);
            track.end(tick, Reading::Counted { value, enabled, running });
            if let Some(readings) = readings {
                stop_row(track, owner.unwrap_or(track.counter.cpu), tick, now, count, readings);
            }
            ledger.stopped(now, owner.unwrap_or(track.counter.cpu), id, None);
            self.stopped_at.insert(index, now);
        }
    }

    /// A counter that `old` read, if any, is read by `cpu` now.
    fn place(&mut self, index: usize, old: Option<u32>, cpu: u32, now: u64, ledger: &mut Ledger) {
        let Some(track) = self.division.tracks.get_mut(index) else {
            return;
        };
        if let Some(since) = self.stopped_at.remove(&index) {
            track.part();
            track.place(now / self.tick_ns);
            ledger.stopped(now, cpu, track.counter.id, Some(now.saturating_sub(since)));
            return;
        }
        if old == Some(cpu) {
            return;
        }
        track.part();
        track.place(now / self.tick_ns);
        // One that nobody could read for a while was its plan's CPU's.
        let old = old.unwrap_or(track.counter.cpu);
        let next_tick = self.cpus.get(&old).and_then(|old| old.next_tick);
        let since = next_tick.unwrap_or(now / self.tick_ns);
        if let Some(heir) = self.cpus.get_mut(&cpu)
            && !heir.heirs_of.contains(&(old, since))
        {
            heir.heirs_of.push((old, since));
        }
    }

    /// The counters and the CPUs that read them.
    fn placed(&self) -> impl Iterator<Item = (usize, u32)> {
        let active = self.cpus.values().filter(|cpu| cpu.active);
        active.flat_map(|cpu| {
            let slots = cpu.layouts.last().map(|known| Rc::clone(&known.slots));
            let indices: Vec<usize> =
                slots.iter().flat_map(|slots| slots.iter().map(|(index, _)| *index)).collect();
            indices.into_iter().map(move |index| (index, cpu.cpu))
        })
    }

    /// Makes the readings of a sample go on from what their counters had counted before they were
    /// opened again. `false` if nobody knows what it is of.
    pub fn adjust(&self, sample: &mut Sample) -> bool {
        let Some(slots) = self.slots(sample) else {
            return false;
        };
        for (reading, (_, base)) in sample.readings.iter_mut().zip(slots.iter()) {
            if let Reading::Counted { value, enabled, running } = *reading {
                let Count { value, enabled, running } =
                    Count { value, enabled, running }.after(*base);
                *reading = Reading::Counted { value, enabled, running };
            }
        }
        true
    }

    fn known(&self, sample: &Sample) -> Option<&Known> {
        let layouts = &self.cpus.get(&sample.cpu)?.layouts;
        let known = layouts.iter().rev().find(|known| known.first == sample.first)?;
        let len = sample.readings.len();
        let part = sample.trigger == Trigger::Sched && len == known.at_switch;
        (len == known.slots.len() || part).then_some(known)
    }

    fn slots(&self, sample: &Sample) -> Option<&Slots> {
        self.known(sample).map(|known| &known.slots)
    }

    /// Whether the owner of the count before this sample matters.
    pub fn wants_who(&self, sample: &Sample) -> bool {
        self.known(sample).is_some_and(|known| known.at_switch > 0)
    }

    /// Takes a sample; `who` owns the counts since the one before it. Its rows go to `readings`.
    pub fn sample(
        &mut self,
        sample: Sample,
        who: Option<Who>,
        readings: Option<&mut readings::Builder>,
        ledger: &mut Ledger,
    ) {
        let tick = sample.begin / self.tick_ns;
        if tick < self.start_tick {
            return;
        }
        let is_boundary = tick == self.start_tick
            || (tick * self.tick_ns).is_multiple_of(self.window_ns)
            || self.stop_tick == Some(tick);
        let known = self.known(&sample).map(|known| (Rc::clone(&known.slots), known.at_switch));
        let Some((slots, at_switch)) = known else {
            return;
        };
        let Some(cpu) = self.cpus.get_mut(&sample.cpu) else {
            return;
        };
        let lost = cpu.sequence.map_or(0, |last| sample.sequence.saturating_sub(last + 1));
        cpu.sequence = Some(sample.sequence);
        if lost > 0 {
            ledger.add(Cause::LostSample, sample.begin, 0, Some(cpu.cpu), None, lost);
        }
        let who = who.map(|who| if lost > 0 { Who::Unknown } else { who });
        if let Some(readings) = readings {
            self.rows(&sample, &slots, at_switch, who, readings);
        }
        let Some(cpu) = self.cpus.get_mut(&sample.cpu) else {
            return;
        };
        if let Some(who) = who {
            for (&(index, _), reading) in slots.iter().zip(&sample.readings).take(at_switch) {
                if let Some(track) = self.division.tracks.get_mut(index) {
                    track.count(*reading, who);
                }
            }
        }
        if sample.trigger != Trigger::Timer {
            return;
        }
        let again = cpu.tick(tick, self.tick_ns, self.stop_tick, sample.begin, ledger);
        for (&(index, _), reading) in slots.iter().zip(&sample.readings) {
            if let Reading::Failed(_) = reading
                && self.division.tracks.get(index).is_some_and(|track| track.astray(Some(*reading)))
            {
                self.astray = true;
            }
        }
        if !again {
            for (&(index, _), reading) in slots.iter().zip(&sample.readings) {
                if let Some(track) =
                    self.division.tracks.get_mut(index).filter(|track| track.learns)
                {
                    track.ticks.push_back((tick, *reading));
                }
            }
        }
        if is_boundary && !again {
            let take = |&(index, _): &(usize, Count)| {
                self.division.tracks.get_mut(index).map(|track| mem::take(&mut track.exact))
            };
            let exact = slots.iter().map(take).map(Option::unwrap_or_default).collect();
            cpu.boundaries.push_back(Boundary { tick, slots, readings: sample.readings, exact });
        }
    }

    /// Closes the window that ends with `tick`.
    pub fn close(
        &mut self,
        tick: u64,
        times: &window::Times,
        moved: Vec<Moved>,
        labels: &mut Labels<'_>,
        fabric: &mut fabric::Builder,
        ledger: &mut Ledger,
    ) {
        let window = Close {
            tick,
            tick_ns: self.tick_ns,
            clock: self.clock,
            is_last: self.stop_tick == Some(tick),
            moved,
        };
        let mut found = Boundaries::new();
        let tracks = &mut self.division.tracks;
        for cpu in self.cpus.values_mut() {
            if window.is_last {
                cpu.give_back(tick, tracks);
            }
            let Some(boundary) = cpu.take_boundary(tick, self.start_tick, tracks) else {
                continue;
            };
            let each = boundary.slots.iter().zip(boundary.readings).zip(boundary.exact);
            for ((&(index, _), reading), counts) in each {
                // While a counter moves, two CPUs may have tried to read it.
                let (best, sum) = found.entry(index).or_insert((reading, HashMap::new()));
                if matches!(reading, Reading::Counted { .. }) {
                    *best = reading;
                }
                add(sum, counts);
            }
        }
        self.division.close(&window, found, times, labels, fabric, ledger);
    }

    /// Rows of `readings`; the first `at_switch` counters were `who`'s.
    fn rows(
        &self,
        sample: &Sample,
        slots: &Slots,
        at_switch: usize,
        who: Option<Who>,
        builder: &mut readings::Builder,
    ) {
        let process = who.map(Who::word);
        for (place, ((index, _), reading)) in slots.iter().zip(&sample.readings).enumerate() {
            let Some(track) = self.division.tracks.get(*index) else { continue };
            let (value, times, error) = match *reading {
                Reading::Counted { value, enabled, running } => {
                    (Some(value), readings::times(enabled, running), None)
                }
                Reading::Failed(errno) => (None, (None, None), Some(errno)),
            };
            builder.append(&readings::Row {
                mono_ns: sample.begin as i64,
                tick: (sample.begin / self.tick_ns) as i64,
                counter: track.counter.id as i32,
                cpu: sample.cpu as i32,
                value,
                enabled: times.0,
                running: times.1,
                width_ns: (sample.end - sample.begin) as i32,
                trigger: sample.trigger.name(),
                error,
                pid: Some(sample.task.pid as i32),
                tid: Some(sample.task.tid as i32),
                cgroup_id: Some(sample.task.cgroup_id),
                process: process.as_deref().filter(|_| place < at_switch),
            });
        }
    }
}

/// The row of `readings` for what a counter had counted when it stopped.
fn stop_row(
    track: &Track,
    cpu: u32,
    tick: u64,
    now: u64,
    count: Count,
    builder: &mut readings::Builder,
) {
    let times = readings::times(count.enabled, count.running);
    builder.append(&readings::Row {
        mono_ns: now as i64,
        tick: tick as i64,
        counter: track.counter.id as i32,
        cpu: cpu as i32,
        value: Some(count.value),
        enabled: times.0,
        running: times.1,
        width_ns: 0,
        trigger: readings::STOP,
        error: None,
        pid: None,
        tid: None,
        cgroup_id: None,
        process: None,
    });
}

impl OwnerCpu {
    /// A tick came. Enters those that did not; `true` if it is not the first of its number.
    fn tick(
        &mut self,
        tick: u64,
        tick_ns: u64,
        stop_tick: Option<u64>,
        time: u64,
        ledger: &mut Ledger,
    ) -> bool {
        for (cpu, since) in self.heirs_of.drain(..) {
            let missing = tick.saturating_sub(since);
            ledger.moved(time, cpu, self.cpu, missing, tick_ns);
        }
        let expected = self.next_tick.unwrap_or(tick);
        if tick > expected && stop_tick.is_none_or(|stop| expected <= stop) {
            let missing = tick - expected;
            let span = missing * tick_ns;
            ledger.add(Cause::LateTick, time, span, Some(self.cpu), None, missing);
        }
        self.next_tick = Some(expected.max(tick + 1));
        tick < expected
    }

    /// What was counted until a boundary after the last tick is still to be given: if the last tick
    /// came too late to be read, the count at the end stands in, and that has it.
    fn give_back(&mut self, last_tick: u64, tracks: &mut [Track]) {
        while let Some(after) = self.boundaries.pop_back_if(|its| its.tick > last_tick) {
            for (&(index, _), counts) in after.slots.iter().zip(after.exact) {
                if let Some(track) = tracks.get_mut(index) {
                    add(&mut track.exact, counts);
                }
            }
        }
    }

    /// The boundary of `tick`, if it came. Counts of a boundary that was never asked for belong
    /// to the next.
    fn take_boundary(
        &mut self,
        tick: u64,
        start_tick: u64,
        tracks: &mut [Track],
    ) -> Option<Boundary> {
        while let Some(first) = self.boundaries.front() {
            if first.tick > tick {
                return None;
            }
            let first = self.boundaries.pop_front()?;
            if first.tick == tick {
                return Some(first);
            }
            let each = first.slots.iter().zip(first.readings).zip(first.exact);
            for ((&(index, _), reading), counts) in each {
                let Some(track) = tracks.get_mut(index) else { continue };
                if first.tick != start_tick {
                    add(&mut track.carried_counts, counts);
                } else if matches!(reading, Reading::Counted { .. }) {
                    track.last = (start_tick, reading);
                }
            }
        }
        None
    }
}
