//! Who used the CPUs in each tick, for one set of CPUs: what learners explain counts by.
//!
//! One [`History`] serves all counters that see the same CPUs. It holds the last ticks only. Memory is
//! bounded by their number and by [`OWN`], the sources that have a rate of their own; all others share
//! one rate for near and one for far CPUs.

use std::collections::{HashMap, VecDeque};

use crate::log::Owner;

/// The column of what is always there, whatever runs: devices, refresh, systems that are not seen.
pub(super) const BASELINE: u32 = 0;

/// The column of all sources on near CPUs that have none of their own.
pub(super) const REST: u32 = 1;

/// The same for far CPUs.
pub(super) const FAR_REST: u32 = 2;

/// Sources with a column of their own, at most.
const OWN: usize = 128;

/// Part of a source's use that is left after a review, each 100 ms: the memory is about 2 s.
const LEFT: f64 = 0.95;

/// A source gets a column of its own from this much use on, in ticks of one CPU.
const LEAST: f64 = 2.0;

/// The same, as a part of the use of all.
const LEAST_PART: f64 = 2e-3;

/// Below this use a source has no column of its own any longer.
const GONE: f64 = 0.05;

/// How fast mean and variance of a source's time follow, per tick.
const SPREAD_GAIN: f64 = 0.002;

/// What can cause traffic: an owner, on near or on far CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// Who.
    pub owner: Owner,
    /// On CPUs of another socket.
    pub is_far: bool,
}

/// A source's time in a tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Number of the source.
    pub source: u32,
    /// Its column: its own number, [`REST`] or [`FAR_REST`].
    pub column: u32,
    /// Time, in ticks of one CPU.
    pub time: f32,
}

/// What is known of a source.
#[derive(Clone, Debug)]
struct Known {
    number: u32,
    /// Use in the last 2 s or so, in ticks of one CPU.
    used: f64,
    /// The last tick it ran in.
    last: u64,
    has_column: bool,
    spread: Spread,
}

/// Mean and mean square of a source's time in a tick, moving averages.
#[derive(Clone, Debug, Default)]
struct Spread {
    ticks: f64,
    mean: f64,
    square: f64,
    /// The tick they were last brought up to.
    at: u64,
}

impl Spread {
    /// Takes the time of `tick`; in the ticks since the last one it did not run.
    fn take(&mut self, tick: u64, time: f64) {
        if self.ticks > 0.0 {
            let idle = tick.saturating_sub(self.at + 1) as f64;
            let begun = 1.0 / SPREAD_GAIN;
            let left = if self.ticks + idle <= begun {
                self.ticks / (self.ticks + idle)
            } else {
                (-idle * SPREAD_GAIN).exp()
            };
            self.ticks += idle;
            self.mean *= left;
            self.square *= left;
        }
        self.ticks += 1.0;
        let gain = SPREAD_GAIN.max(1.0 / self.ticks);
        self.mean += gain * (time - self.mean);
        self.square += gain * (time * time - self.square);
        self.at = tick;
    }

    fn variance(&self) -> f64 {
        self.square - self.mean * self.mean
    }
}

/// The ticks of one set of CPUs.
#[derive(Debug)]
pub struct History {
    tick_ns: u64,
    known: HashMap<Source, Known>,
    sources: HashMap<u32, Source>,
    next: u32,
    /// The tick of the first row.
    first: u64,
    rows: VecDeque<Box<[Entry]>>,
    /// The same of all sources together.
    used: f64,
    /// Rows before this tick have their columns.
    reviewed: u64,
}

impl History {
    /// Before the first tick, all of this length, ns.
    pub fn new(tick_ns: u64) -> Self {
        Self {
            tick_ns,
            known: HashMap::new(),
            sources: HashMap::new(),
            next: FAR_REST + 1,
            first: 0,
            rows: VecDeque::new(),
            used: 0.0,
            reviewed: 0,
        }
    }

    /// Length of a tick, ns.
    pub const fn tick_ns(&self) -> u64 {
        self.tick_ns
    }

    /// A length of time in ticks.
    pub fn ticks(&self, ns: u64) -> f64 {
        ns as f64 / self.tick_ns as f64
    }

    /// The source with this number, while one of the ticks has it.
    pub(super) fn source(&self, number: u32) -> Option<Source> {
        self.sources.get(&number).copied()
    }

    /// The last tick.
    pub(super) fn last(&self) -> u64 {
        (self.first + self.rows.len() as u64).saturating_sub(1)
    }

    /// Who ran in a tick; empty for a tick that was forgotten.
    pub(super) fn row(&self, tick: u64) -> &[Entry] {
        let at = tick.checked_sub(self.first).and_then(|at| self.rows.get(at as usize));
        at.map_or(&[], |row| row)
    }

    /// The part of how a source's time differs from tick to tick that may be nothing but the edges of
    /// ticks, where time is not known better than by `edge` ticks; 0 to 1.
    pub(super) fn of_edges(&self, source: Source, edge: f64) -> f64 {
        let variance = self.known.get(&source).map_or(0.0, |known| known.spread.variance());
        if variance > 0.0 { (edge * edge / variance).min(1.0) } else { 1.0 }
    }

    /// Adds a tick: nanoseconds by source, each at most once. Idle time explains nothing.
    pub fn push(&mut self, tick: u64, times: &[(Source, u64)]) {
        if self.rows.is_empty() {
            (self.first, self.reviewed) = (tick, tick);
        }
        // Ticks that were not seen.
        while self.first + (self.rows.len() as u64) < tick {
            self.rows.push_back(Box::default());
        }
        let ran = times.iter().filter(|(who, ns)| who.owner != Owner::Idle && *ns > 0);
        let row: Box<[Entry]> = ran.map(|&(source, ns)| self.entry(tick, source, ns)).collect();
        self.rows.push_back(row);
    }

    fn entry(&mut self, tick: u64, source: Source, ns: u64) -> Entry {
        let time = ns as f64 / self.tick_ns as f64;
        let next = &mut self.next;
        let sources = &mut self.sources;
        let known = self.known.entry(source).or_insert_with(|| {
            let number = *next;
            *next += 1;
            sources.insert(number, source);
            let spread = Spread::default();
            Known { number, used: 0.0, last: tick, has_column: false, spread }
        });
        known.used += time;
        self.used += time;
        known.last = tick;
        known.spread.take(tick, time);
        let column = match (known.has_column, source.is_far) {
            (true, _) => known.number,
            (false, true) => FAR_REST,
            (false, false) => REST,
        };
        Entry { source: known.number, column, time: time as f32 }
    }

    /// Gives columns to the sources that use most; learners see ticks after this only. A source that
    /// has one keeps it until another uses twice as much.
    pub(super) fn review(&mut self) {
        let all = self.used;
        self.used *= LEFT;
        let mut waiting: Vec<(f64, Source)> = Vec::new();
        let mut own: Vec<(f64, Source)> = Vec::new();
        for (source, known) in &mut self.known {
            known.has_column &= known.used >= GONE;
            if known.has_column {
                own.push((known.used, *source));
            } else if known.used >= LEAST.max(LEAST_PART * all) {
                waiting.push((known.used, *source));
            }
            known.used *= LEFT;
        }
        own.sort_unstable_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        waiting.sort_unstable_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        let mut free = OWN.saturating_sub(own.len());
        let mut least = own.into_iter();
        for (used, source) in waiting {
            if free > 0 {
                free -= 1;
            } else {
                match least.next() {
                    Some((least, loses)) if 2.0 * least < used => self.set_column(loses, false),
                    _ => break,
                }
            }
            self.set_column(source, true);
        }
        let from = self.reviewed.saturating_sub(self.first) as usize;
        let columns: HashMap<u32, bool> =
            self.known.values().map(|known| (known.number, known.has_column)).collect();
        for entry in self.rows.iter_mut().skip(from).flatten() {
            let has_column = columns.get(&entry.source).copied().unwrap_or(false);
            let is_far = self.sources.get(&entry.source).is_some_and(|source| source.is_far);
            entry.column = match (has_column, is_far) {
                (true, _) => entry.source,
                (false, true) => FAR_REST,
                (false, false) => REST,
            };
        }
        self.reviewed = self.first + self.rows.len() as u64;
    }

    fn set_column(&mut self, source: Source, has_column: bool) {
        if let Some(known) = self.known.get_mut(&source) {
            known.has_column = has_column;
        }
    }

    /// Drops the ticks before this one.
    pub(super) fn forget(&mut self, before: u64) {
        while self.first < before && self.rows.pop_front().is_some() {
            self.first += 1;
        }
        let first = self.first;
        let sources = &mut self.sources;
        self.known.retain(|_, known| {
            let keeps = known.last >= first || known.used >= GONE;
            if !keeps {
                sources.remove(&known.number);
            }
            keeps
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 1_000_000;

    const fn near(number: u32) -> Source {
        Source { owner: Owner::Irq(number), is_far: false }
    }

    fn run(history: &mut History, ticks: u64, times: &[(Source, u64)]) {
        for _ in 0..ticks {
            let tick = history.first + history.rows.len() as u64;
            history.push(tick, times);
            if tick.is_multiple_of(100) {
                history.review();
                history.forget(tick.saturating_sub(2000));
            }
        }
    }

    fn own(history: &History, tick: u64) -> Vec<u32> {
        let of = |entry: &Entry| {
            let source = history.source(entry.source).unwrap();
            let Owner::Irq(number) = source.owner else { panic!("{source:?}") };
            number
        };
        let row = history.row(tick).iter();
        let mut own: Vec<u32> = row.filter(|entry| entry.column == entry.source).map(of).collect();
        own.sort_unstable();
        own
    }

    #[test]
    fn who_uses_most_has_a_column_and_keeps_it() {
        let mut history = History::new(TICK);
        let all: Vec<_> = (0..200).map(|at| (near(at), TICK / 4 + u64::from(at))).collect();
        run(&mut history, 1001, &all);
        let first = own(&history, 900);
        assert_eq!(first.len(), OWN);
        // A little more is no reason to learn anew, much more is.
        let more: Vec<_> = (0..200).map(|at| (near(at), TICK / 4 + 200 - u64::from(at))).collect();
        run(&mut history, 5000, &more);
        assert_eq!(own(&history, 5900), first);
        run(&mut history, 5000, &[&all[..], &[(near(777), TICK)]].concat());
        assert!(own(&history, 10_900).contains(&777));
        assert_eq!(own(&history, 10_900).len(), OWN);
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let mut history = History::new(TICK);
        run(
            &mut history,
            201,
            &[(near(1), TICK), (Source { owner: Owner::Idle, is_far: false }, TICK)],
        );
        assert_eq!(own(&history, 150), [1]);
        run(&mut history, 20_000, &[(near(2), TICK)]);
        assert_eq!(history.known.len(), 1);
        assert_eq!(history.sources.len(), 1);
        assert!(history.rows.len() <= 2101);
    }

    #[test]
    fn only_time_that_differs_by_more_than_its_edges_tells() {
        let mut history = History::new(TICK);
        let edge = 0.03;
        assert!(history.of_edges(near(1), edge) > 0.99);
        for tick in 0..1000 {
            let odd = tick % 2;
            history
                .push(tick, &[(near(1), odd * TICK), (near(2), TICK * 97 / 100 + odd * TICK / 33)]);
        }
        assert!(history.of_edges(near(1), edge) < 0.01);
        assert!(history.of_edges(near(2), edge) > 0.99);
    }

    #[test]
    fn ticks_that_were_not_seen_are_empty() {
        let mut history = History::new(TICK);
        history.push(5, &[(near(1), TICK)]);
        history.push(8, &[(near(1), TICK)]);
        assert_eq!([4, 5, 6, 8, 9].map(|tick| history.row(tick).len()), [0, 1, 0, 1, 0]);
        assert_eq!(history.last(), 8);
    }
}
