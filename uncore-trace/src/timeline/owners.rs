//! The owner CPUs: which counters each reads, which ticks came, and the readings of boundary ticks
//! until their window is closed.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    mem,
};

use super::{
    Setup,
    counter::{Close, Track, add},
    loss::{Cause, Ledger},
    sink::Labels,
    window,
};
use crate::{
    align::{clock::Snapshot, who::Who},
    drain::{Reading, Sample, Trigger},
    plan::Counter,
    tables::{fabric, readings},
};

/// A boundary tick's readings on one owner CPU.
#[derive(Debug)]
struct Boundary {
    tick: u64,
    readings: Vec<Reading>,
    /// Raw counts by owner since the last boundary, for each slot.
    exact: Vec<HashMap<Who, u64>>,
}

/// One owner CPU.
#[derive(Debug)]
struct OwnerCpu {
    cpu: u32,
    counters: Vec<Track>,
    next_tick: Option<u64>,
    sequence: Option<u64>,
    previous: Option<Vec<Reading>>,
    exact: Vec<HashMap<Who, u64>>,
    boundaries: VecDeque<Boundary>,
}

/// All owner CPUs.
#[derive(Debug)]
pub struct Owners {
    cpus: BTreeMap<u32, OwnerCpu>,
    tick_ns: u64,
    window_ns: u64,
    start_tick: u64,
    stop_tick: Option<u64>,
    exact: bool,
    clock: Snapshot,
}

impl Owners {
    /// The opened counters, before their first reading.
    pub fn new(setup: &Setup<'_>) -> Self {
        let sets = window::sets(setup);
        let by_id: HashMap<u32, &Counter> =
            setup.plan.counters.iter().map(|counter| (counter.id, counter)).collect();
        let track = |id: &u32| {
            let counter: Counter = (*by_id.get(id)?).clone();
            let seen: Vec<u32> = counter.sees.iter().collect();
            let set = sets.iter().position(|set| *set == seen)?;
            Some(Track::new(counter, set))
        };
        let owner = |(&cpu, ids): (&u32, &Vec<u32>)| {
            let counters: Vec<Track> = ids.iter().filter_map(track).collect();
            let exact = counters.iter().map(|_| HashMap::new()).collect();
            let owner = OwnerCpu {
                cpu,
                counters,
                next_tick: None,
                sequence: None,
                previous: None,
                exact,
                boundaries: VecDeque::new(),
            };
            (cpu, owner)
        };
        Self {
            cpus: setup.slots.iter().map(owner).collect(),
            tick_ns: setup.plan.tick_ns,
            window_ns: setup.plan.window_ns,
            start_tick: setup.start_tick,
            stop_tick: None,
            exact: setup.exact,
            clock: setup.clock,
        }
    }

    /// The recording ends with this tick.
    pub const fn stop_at(&mut self, tick: u64) {
        self.stop_tick = Some(tick);
    }

    /// Whether every owner CPU has got past this tick.
    pub fn have(&self, tick: u64) -> bool {
        self.cpus.values().all(|cpu| cpu.next_tick.is_some_and(|next| next > tick))
    }

    /// Whether the owner of the count before this sample matters.
    pub fn wants_who(&self, sample: &Sample) -> bool {
        self.exact
            && self
                .cpus
                .get(&sample.cpu)
                .is_some_and(|cpu| cpu.counters.iter().any(|track| track.counter.per_cpu))
    }

    /// Takes a sample; `who` owns the counts since the one before it.
    pub fn sample(&mut self, sample: Sample, who: Option<Who>, ledger: &mut Ledger) {
        let tick = sample.begin / self.tick_ns;
        if tick < self.start_tick {
            return;
        }
        let is_boundary = tick == self.start_tick
            || (tick * self.tick_ns).is_multiple_of(self.window_ns)
            || self.stop_tick == Some(tick);
        let (tick_ns, start_tick, stop_tick) = (self.tick_ns, self.start_tick, self.stop_tick);
        let Some(cpu) = self.cpus.get_mut(&sample.cpu) else {
            return;
        };
        let lost = cpu.sequence.map_or(0, |last| sample.sequence.saturating_sub(last + 1));
        cpu.sequence = Some(sample.sequence);
        if lost > 0 {
            ledger.add(Cause::LostSample, sample.begin, 0, Some(cpu.cpu), None, lost);
        }
        if let Some(who) = who {
            cpu.count(&sample, if lost > 0 { Who::Unknown } else { who });
        }
        if sample.trigger != Trigger::Timer {
            return;
        }
        let expected = cpu.next_tick.unwrap_or(start_tick);
        if tick > expected && stop_tick.is_none_or(|stop| expected <= stop) {
            let missing = tick - expected;
            ledger.add(
                Cause::LateTick,
                sample.begin,
                missing * tick_ns,
                Some(cpu.cpu),
                None,
                missing,
            );
        }
        let again = tick < expected;
        cpu.next_tick = Some(expected.max(tick + 1));
        if is_boundary && !again {
            let exact = cpu.exact.iter_mut().map(mem::take).collect();
            cpu.boundaries.push_back(Boundary { tick, readings: sample.readings, exact });
        }
    }

    /// Closes the window that ends with `tick`.
    pub fn close(
        &mut self,
        tick: u64,
        times: &window::Times,
        labels: &mut Labels<'_>,
        fabric: &mut fabric::Builder,
        ledger: &mut Ledger,
    ) {
        let (tick_ns, start_tick, clock, is_exact) =
            (self.tick_ns, self.start_tick, self.clock, self.exact);
        let is_last = self.stop_tick == Some(tick);
        for cpu in self.cpus.values_mut() {
            let mut boundary = cpu.take_boundary(tick, start_tick);
            for (slot, track) in cpu.counters.iter_mut().enumerate() {
                let time = times.get(track.set).map(Vec::as_slice).unwrap_or_default();
                let (reading, counts) =
                    boundary.as_mut().map_or((None, HashMap::new()), |boundary| {
                        let counts = boundary.exact.get_mut(slot).map(mem::take);
                        (boundary.readings.get(slot).copied(), counts.unwrap_or_default())
                    });
                let window = Close { tick, tick_ns, clock, is_exact, is_last };
                track.close(&window, reading, time, counts, labels, fabric, ledger);
            }
        }
    }

    /// Rows of `readings`.
    pub fn rows(&self, sample: &Sample, tick_ns: u64, builder: &mut readings::Builder) {
        let tick = sample.begin / tick_ns;
        let Some(cpu) = self.cpus.get(&sample.cpu).filter(|_| tick >= self.start_tick) else {
            return;
        };
        for (track, reading) in cpu.counters.iter().zip(&sample.readings) {
            let (value, times, error) = match *reading {
                Reading::Counted { value, enabled, running } => {
                    (Some(value), readings::times(enabled, running), None)
                }
                Reading::Failed(errno) => (None, (None, None), Some(errno)),
            };
            builder.append(&readings::Row {
                mono_ns: sample.begin as i64,
                tick: tick as i64,
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
            });
        }
    }
}

impl OwnerCpu {
    /// Adds the counts since the previous sample to their owner.
    fn count(&mut self, sample: &Sample, who: Who) {
        if let Some(previous) = &self.previous {
            let pairs = previous.iter().zip(&sample.readings).zip(&mut self.exact);
            for ((before, after), counts) in pairs {
                if let (
                    Reading::Counted { value: before, .. },
                    Reading::Counted { value: after, .. },
                ) = (before, after)
                {
                    *counts.entry(who).or_default() += after.saturating_sub(*before);
                }
            }
        } else {
            // The first sample is where counting starts.
            self.exact.iter_mut().for_each(HashMap::clear);
        }
        self.previous = Some(sample.readings.clone());
    }

    /// The boundary of `tick`, if it came. Counts of a boundary that was never asked for belong
    /// to the next.
    fn take_boundary(&mut self, tick: u64, start_tick: u64) -> Option<Boundary> {
        while let Some(first) = self.boundaries.front() {
            if first.tick > tick {
                return None;
            }
            let first = self.boundaries.pop_front()?;
            if first.tick == tick {
                return Some(first);
            }
            if first.tick == start_tick {
                for (track, reading) in self.counters.iter_mut().zip(&first.readings) {
                    if matches!(reading, Reading::Counted { .. }) {
                        track.last = Some((start_tick, *reading));
                    }
                }
            } else {
                for (track, counts) in self.counters.iter_mut().zip(first.exact) {
                    add(&mut track.carried_counts, counts);
                }
            }
        }
        None
    }
}
