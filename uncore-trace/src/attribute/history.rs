//! Who used the CPUs of one set in each tick: what learners explain counts by.
//!
//! What an owner uses is CPU time or, where witnesses are read, misses ([`Use`]). One [`History`] of each
//! serves all counters that see the same CPUs ([`Histories`]). It holds the last ticks only. Memory is
//! bounded by their number and by [`OWN`], the sources that have a rate of their own; all others share
//! one rate for near and one for far CPUs.

use std::collections::{HashMap, VecDeque};

use super::calibration::{Used, calibrate};
use crate::entries::Owner;

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

/// A source gets a column of its own from this part of the use of all on.
const LEAST_PART: f64 = 2e-3;

/// The same for time, in ticks of one CPU.
const LEAST_TIME: f64 = 2.0;

/// A source that uses less than this part of what it needs for a column has none any longer.
const GONE_PART: f64 = 0.025;

/// How fast mean and variance of a source's use follow, per tick.
const SPREAD_GAIN: f64 = 0.002;

/// What can cause traffic: an owner, on near or on far CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Source {
    /// Who.
    pub owner: Owner,
    /// On CPUs of another socket.
    pub is_far: bool,
}

/// What counts are explained by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// CPU time, in ticks of one CPU. What an owner makes in a tick is not known before.
    Time,
    /// What witnesses count, such as misses of the last cache. An owner is expected to make about as much
    /// of each as others do.
    Misses,
}

/// What a source used in a tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Number of the source.
    pub source: u32,
    /// Its column: its own number, [`REST`] or [`FAR_REST`].
    pub column: u32,
    /// How much.
    pub amount: f32,
}

/// What is known of a source.
#[derive(Clone, Debug)]
struct Known {
    number: u32,
    /// Use in the last 2 s or so.
    used: f64,
    /// The last tick it ran in.
    last: u64,
    has_column: bool,
    spread: Spread,
}

/// Mean and mean square of a source's use in a tick, moving averages.
#[derive(Clone, Debug, Default)]
struct Spread {
    ticks: f64,
    mean: f64,
    square: f64,
    /// The tick they were last brought up to.
    at: u64,
}

impl Spread {
    /// Takes the use of `tick`; in the ticks since the last one there was none.
    fn take(&mut self, tick: u64, amount: f64) {
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
        self.mean += gain * (amount - self.mean);
        self.square += gain * (amount * amount - self.square);
        self.at = tick;
    }

    fn variance(&self) -> f64 {
        self.square - self.mean * self.mean
    }
}

/// What was used of one set of CPUs.
#[derive(Debug)]
pub struct Histories {
    /// CPU time.
    pub time: History,
    /// Misses, where each CPU has a witness and a method learns from them.
    pub misses: Option<History>,
}

impl Histories {
    /// Before the first tick, all of this length, ns.
    pub fn new(tick_ns: u64, has_misses: bool) -> Self {
        let misses = has_misses.then(|| History::new(Use::Misses, tick_ns));
        Self { time: History::new(Use::Time, tick_ns), misses }
    }

    /// Adds a tick: nanoseconds and, where they are used, misses by source, each at most once. With the misses
    /// comes whether they are all; if not, some of the tick come with the next.
    pub(super) fn push(
        &mut self,
        tick: u64,
        times: &[(Source, u64)],
        misses: impl FnOnce() -> (Vec<(Source, u64)>, bool),
    ) {
        self.time.push(tick, times);
        let Some(history) = &mut self.misses else { return };
        let (misses, is_whole) = misses();
        history.push(tick, &misses);
        if !is_whole {
            history.leave_part();
        }
    }

    /// That of a kind of use, where there is one.
    pub(super) const fn of(&self, kind: Use) -> Option<&History> {
        match kind {
            Use::Time => Some(&self.time),
            Use::Misses => self.misses.as_ref(),
        }
    }

    /// Gives columns to the sources that use most, and calibrates misses.
    pub(super) fn review(&mut self) {
        if let Some(misses) = &mut self.misses {
            let first = misses.reviewed;
            let of = |tick| {
                let mut used = Used::new();
                for (source, time) in self.time.used(tick) {
                    used.entry(source).or_default().0 = time;
                }
                for (source, missed) in misses.used(tick) {
                    used.entry(source).or_default().1 = missed;
                }
                used
            };
            let mut ticks: Vec<Used> = (first..=misses.last()).map(of).collect();
            calibrate(&mut ticks);
            for (tick, used) in (first..).zip(ticks) {
                misses
                    .replace(tick, used.into_iter().map(|(source, (_, missed))| (source, missed)));
            }
            misses.review();
        }
        self.time.review();
    }

    /// Drops the ticks before this one.
    pub(super) fn forget(&mut self, before: u64) {
        self.time.forget(before);
        self.misses.iter_mut().for_each(|misses| misses.forget(before));
    }
}

/// The ticks of one set of CPUs, by one kind of use.
#[derive(Debug)]
pub struct History {
    kind: Use,
    tick_ns: u64,
    known: HashMap<Source, Known>,
    sources: HashMap<u32, Source>,
    next: u32,
    /// The tick of the first row.
    first: u64,
    rows: VecDeque<Box<[Entry]>>,
    /// Ticks whose use is not known as a whole: the rest is in a later one. Ascending.
    parts: VecDeque<u64>,
    /// The same of all sources together.
    used: f64,
    /// Rows before this tick have their columns.
    reviewed: u64,
}

impl History {
    /// Before the first tick, all of this length, ns.
    fn new(kind: Use, tick_ns: u64) -> Self {
        Self {
            kind,
            tick_ns,
            known: HashMap::new(),
            sources: HashMap::new(),
            next: FAR_REST + 1,
            first: 0,
            rows: VecDeque::new(),
            parts: VecDeque::new(),
            used: 0.0,
            reviewed: 0,
        }
    }

    /// What it is of.
    pub const fn kind(&self) -> Use {
        self.kind
    }

    /// Length of a tick, ns.
    pub const fn tick_ns(&self) -> u64 {
        self.tick_ns
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

    /// What each source used in a tick.
    fn used(&self, tick: u64) -> impl Iterator<Item = (Source, f64)> {
        let row = self.row(tick).iter();
        row.filter_map(|entry| Some((self.source(entry.source)?, f64::from(entry.amount))))
    }

    /// Takes other amounts for a tick that was not reviewed yet.
    fn replace(&mut self, tick: u64, used: impl Iterator<Item = (Source, f64)>) {
        let known = &self.known;
        let entry = |(source, amount): (Source, f64)| {
            let known = known.get(&source).filter(|_| amount > 0.0)?;
            Some(Entry { source: known.number, column: REST, amount: amount as f32 })
        };
        let row: Box<[Entry]> = used.filter_map(entry).collect();
        let at = tick.checked_sub(self.first).and_then(|at| self.rows.get_mut(at as usize));
        if let Some(of_tick) = at {
            *of_tick = row;
        }
    }

    /// The part of how a source's use differs from tick to tick that may be nothing but the edges of
    /// ticks, where it is not known better than by `edge`; 0 to 1.
    pub(super) fn of_edges(&self, source: Source, edge: f64) -> f64 {
        let variance = self.known.get(&source).map_or(0.0, |known| known.spread.variance());
        if variance > 0.0 { (edge * edge / variance).min(1.0) } else { 1.0 }
    }

    /// Adds a tick: nanoseconds or misses by source, each at most once. Idle time explains nothing; misses
    /// of an idle CPU do.
    fn push(&mut self, tick: u64, used: &[(Source, u64)]) {
        if self.rows.is_empty() {
            (self.first, self.reviewed) = (tick, tick);
        }
        // Ticks that were not seen.
        while self.first + (self.rows.len() as u64) < tick {
            self.rows.push_back(Box::default());
        }
        let (unit, explains_idle) = match self.kind {
            Use::Time => (1.0 / self.tick_ns as f64, false),
            Use::Misses => (1.0, true),
        };
        let told = |(who, amount): &&(Source, u64)| {
            *amount > 0 && (explains_idle || who.owner != Owner::Idle)
        };
        let told = used.iter().filter(told);
        let row = told.map(|&(source, amount)| self.entry(tick, source, amount as f64 * unit));
        let row: Box<[Entry]> = row.collect();
        self.rows.push_back(row);
    }

    /// A part of the use of the last tick is not known yet, and will be in a later tick.
    fn leave_part(&mut self) {
        self.parts.push_back(self.last());
    }

    /// Whether all use up to the end of the tick is known.
    pub(super) fn is_whole(&self, tick: u64) -> bool {
        self.parts.binary_search(&tick).is_err()
    }

    fn entry(&mut self, tick: u64, source: Source, amount: f64) -> Entry {
        let next = &mut self.next;
        let sources = &mut self.sources;
        let known = self.known.entry(source).or_insert_with(|| {
            let number = *next;
            *next += 1;
            sources.insert(number, source);
            let spread = Spread::default();
            Known { number, used: 0.0, last: tick, has_column: false, spread }
        });
        known.used += amount;
        self.used += amount;
        known.last = tick;
        known.spread.take(tick, amount);
        let column = match (known.has_column, source.is_far) {
            (true, _) => known.number,
            (false, true) => FAR_REST,
            (false, false) => REST,
        };
        Entry { source: known.number, column, amount: amount as f32 }
    }

    /// Gives columns to the sources that use most; learners see ticks after this only. A source that
    /// has one keeps it until another uses twice as much.
    pub(super) fn review(&mut self) {
        let least = self.least();
        self.used *= LEFT;
        let mut waiting: Vec<(f64, Source)> = Vec::new();
        let mut own: Vec<(f64, Source)> = Vec::new();
        for (source, known) in &mut self.known {
            known.has_column &= known.used >= GONE_PART * least;
            if known.has_column {
                own.push((known.used, *source));
            } else if known.used >= least {
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

    /// The use from which on a source gets a column.
    fn least(&self) -> f64 {
        let least = match self.kind {
            Use::Time => LEAST_TIME,
            Use::Misses => 0.0,
        };
        (LEAST_PART * self.used).max(least)
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
        while self.parts.pop_front_if(|tick| *tick < before).is_some() {}
        let (first, gone) = (self.first, GONE_PART * self.least());
        let sources = &mut self.sources;
        self.known.retain(|_, known| {
            let keeps = known.last >= first || known.used > gone;
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
        let mut history = History::new(Use::Time, TICK);
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
        let mut history = History::new(Use::Time, TICK);
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
        let mut history = History::new(Use::Time, TICK);
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
        let mut history = History::new(Use::Time, TICK);
        history.push(5, &[(near(1), TICK)]);
        history.push(8, &[(near(1), TICK)]);
        assert_eq!([4, 5, 6, 8, 9].map(|tick| history.row(tick).len()), [0, 1, 0, 1, 0]);
        assert_eq!(history.last(), 8);
    }
}
