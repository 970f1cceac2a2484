//! Readings to windows: what each counter counted between two boundary ticks, and whose it was.
//!
//! A window of a counter ends with the reading of its boundary tick. Where that reading is
//! missing the window goes on to the next boundary that has one: a row then covers more than one
//! interval and says so in `window_ns`. Nothing is interpolated.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    mem,
};

use super::{
    Setup,
    loss::{Cause, Ledger},
    sink::Labels,
    window,
};
use crate::{
    align::{clock::Snapshot, who::Who},
    attribute::{Method, Share, exact, residency},
    drain::{Comm, Reading, Sample, Trigger},
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

/// One opened counter.
#[derive(Debug)]
struct Track {
    counter: Counter,
    /// Index of the set of CPUs that it sees.
    set: usize,
    /// The boundary at which its window began.
    last: Option<(u64, Reading)>,
    /// Time and raw counts by owner of the window's intervals so far, where it goes on.
    carried_time: HashMap<Who, u64>,
    carried_counts: HashMap<Who, u64>,
    failing: bool,
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

/// What a counter counted in a window.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Delta {
    /// In the counter's unit, scaled for multiplexing; `None` if it never ran.
    total: Option<f64>,
    /// Factor from a raw count to the unit, multiplexing included.
    factor: f64,
    /// Time running / time enabled.
    running: f32,
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
            Some(Track {
                set: sets.iter().position(|set| *set == seen)?,
                counter,
                last: None,
                carried_time: HashMap::new(),
                carried_counts: HashMap::new(),
                failing: false,
            })
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

/// The window that is closed.
struct Close {
    tick: u64,
    tick_ns: u64,
    clock: Snapshot,
    is_exact: bool,
    is_last: bool,
}

impl Track {
    #[expect(clippy::too_many_arguments, reason = "one call site; a struct would only rename them")]
    fn close(
        &mut self,
        window: &Close,
        reading: Option<Reading>,
        time: &[(Who, u64)],
        counts: HashMap<Who, u64>,
        labels: &mut Labels<'_>,
        fabric: &mut fabric::Builder,
        ledger: &mut Ledger,
    ) {
        let now = window.tick * window.tick_ns;
        let (cpu, id) = (Some(self.counter.cpu), Some(self.counter.id));
        if self.last.is_some() {
            add(&mut self.carried_time, time.iter().copied());
            add(&mut self.carried_counts, counts);
        }
        let after = match reading {
            Some(after @ Reading::Counted { .. }) => {
                self.failing = false;
                after
            }
            missing => {
                if let Some(Reading::Failed(errno)) = missing
                    && !self.failing
                {
                    self.failing = true;
                    let error = std::io::Error::from_raw_os_error(errno);
                    ledger.explain(Cause::ReadFailed, now, id, &error.to_string());
                }
                if missing.is_none() {
                    ledger.add(Cause::NoBoundary, now, window.tick_ns, cpu, id, 1);
                }
                if window.is_last {
                    self.unread(window, labels, fabric);
                }
                return;
            }
        };
        let last = self.last.replace((window.tick, after));
        let mut time: Vec<_> = mem::take(&mut self.carried_time).into_iter().collect();
        let mut counts: Vec<_> = mem::take(&mut self.carried_counts).into_iter().collect();
        let Some((from, before)) = last else {
            return;
        };
        let Some(delta) = delta(before, after, self.counter.scale) else {
            return;
        };
        if delta.total.is_none() {
            let span = (window.tick - from) * window.tick_ns;
            ledger.add(Cause::NotScheduled, now, span, cpu, id, 1);
        }
        time.sort_unstable();
        counts.sort_unstable();
        let (method, shares) = self.shares(window, delta, &time, &counts);
        self.rows(window, from, delta, method, &shares, labels, fabric);
    }

    fn shares(
        &self,
        window: &Close,
        delta: Delta,
        time: &[(Who, u64)],
        counts: &[(Who, u64)],
    ) -> (Method, Vec<Share>) {
        match delta.total {
            Some(total) if total > 0.0 => {
                if window.is_exact && self.counter.per_cpu {
                    (Method::Exact, exact(counts, delta.factor, delta.running))
                } else {
                    let own_cpu = self.counter.per_cpu;
                    (Method::Residency, residency(total, time, own_cpu, delta.running))
                }
            }
            _ => (Method::None, Vec::new()),
        }
    }

    /// A row for the end of a recording whose last window never got its reading.
    fn unread(&self, window: &Close, labels: &mut Labels<'_>, fabric: &mut fabric::Builder) {
        let Some((from, _)) = self.last else {
            return;
        };
        let delta = Delta { total: None, factor: 1.0, running: 0.0 };
        self.rows(window, from, delta, Method::None, &[], labels, fabric);
    }

    /// One row an owner; a window in which nothing was counted, or the counter did not run, is
    /// one row that nobody owns.
    #[expect(clippy::too_many_arguments, reason = "as for close")]
    fn rows(
        &self,
        window: &Close,
        from: u64,
        delta: Delta,
        method: Method,
        shares: &[Share],
        labels: &mut Labels<'_>,
        fabric: &mut fabric::Builder,
    ) {
        let mono_ns = (window.tick * window.tick_ns) as i64;
        let counter = &self.counter;
        let mut append = |who: Who, value: Option<f64>, confidence: Option<f32>| {
            let own = match who {
                Who::Task { comm, .. } => comm,
                _ => Comm::default(),
            };
            let label = labels.of(who, &own);
            fabric.append(&fabric::Row {
                ts: window.clock.wall(mono_ns),
                mono_ns,
                window_ns: ((window.tick - from) * window.tick_ns) as i64,
                socket: counter.socket,
                cpu: counter.cpu as i32,
                group: &counter.group,
                pmu: &counter.pmu,
                event: &counter.event,
                filter: &counter.filter,
                unit: &counter.unit,
                owner: who.owner(),
                pid: label.pid,
                comm: label.comm.as_deref(),
                cgroup_id: label.cgroup_id,
                cgroup: label.cgroup,
                value,
                total: delta.total,
                running: delta.running,
                method: method.name(),
                confidence,
            });
        };
        if shares.is_empty() {
            append(Who::Unknown, delta.total, None);
        }
        for share in shares {
            append(share.who, Some(share.value), Some(share.confidence));
        }
    }
}

fn add(sum: &mut HashMap<Who, u64>, parts: impl IntoIterator<Item = (Who, u64)>) {
    for (who, part) in parts {
        *sum.entry(who).or_default() += part;
    }
}

/// What was counted between two readings: perf's scaling, count x enabled / running
/// (tools/lib/perf/evsel.c, `perf_counts_values__scale`).
fn delta(before: Reading, after: Reading, scale: f64) -> Option<Delta> {
    let (
        Reading::Counted { value: value0, enabled: enabled0, running: running0 },
        Reading::Counted { value: value1, enabled: enabled1, running: running1 },
    ) = (before, after)
    else {
        return None;
    };
    let value = value1.saturating_sub(value0);
    let enabled = enabled1.saturating_sub(enabled0);
    let running = running1.saturating_sub(running0);
    if running == 0 || enabled == 0 {
        return Some(Delta { total: None, factor: scale, running: 0.0 });
    }
    let factor = if running == enabled { scale } else { scale * enabled as f64 / running as f64 };
    let part = (running as f64 / enabled as f64).min(1.0) as f32;
    Some(Delta { total: Some(value as f64 * factor), factor, running: part })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn counted(value: u64, enabled: u64, running: u64) -> Reading {
        Reading::Counted { value, enabled, running }
    }

    #[test]
    fn a_multiplexed_count_is_scaled() {
        let delta = delta(counted(100, 1000, 500), counted(150, 2000, 1000), 32.0).unwrap();
        assert_eq!(delta.total, Some(50.0 * 32.0 * 2.0));
        assert!((delta.running - 0.5).abs() < 1e-6);
    }

    #[test]
    fn never_scheduled_is_not_zero() {
        let delta = delta(counted(100, 1000, 500), counted(100, 2000, 500), 1.0).unwrap();
        assert_eq!(delta.total, None);
        assert!(delta.running.abs() < f32::EPSILON);
    }

    #[test]
    fn really_nothing_is_zero() {
        let delta = delta(counted(100, 1000, 1000), counted(100, 2000, 2000), 1.0).unwrap();
        assert_eq!(delta.total, Some(0.0));
    }
}
