//! The use of one set of CPUs in each tick: the predictors from which learners explain counts.
//!
//! The use of an owner is CPU time or, if witnesses are read, misses or bytes at ports ([`Use`]).
//! One [`History`] of each serves all counters that see the same CPUs ([`Histories`]): who ran is
//! summed once for all of them. It holds the last ticks only, and a bounded number of columns
//! ([`super::columns`]).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;

use super::calibration::{Used, calibrate};
use super::cgroups::cgroup;
use super::columns::{self, BASELINE, Columns, REST};
use super::ports::Said;
use super::solve::SquareMatrix;
use super::sums::{Design, Row, by_place};
use super::symmetric::{RowBatch, SymmetricMatrix};
use crate::entries::Owner;

/// Forgetting factor for a source's use, per review of 100 ms: the memory is about 10 s.
const LEFT: f64 = 0.99;

/// The smallest use for a column, in ticks of one CPU.
const LEAST_TIME: f64 = 2.0;

/// A source is forgotten below this use, in ticks of one CPU or misses. Where sources are many, those
/// are forgotten that cannot keep a column.
const GONE: f64 = 0.05;

/// Gain per tick of the moving averages of a source's use.
const SPREAD_GAIN: f64 = 0.002;

/// Length of blocks whose rates are corrected together, ns.
const BLOCK_NS: u64 = 100_000_000;

/// Counts are read some ten microseconds after the tick boundary at which time is divided. This is
/// the uncertainty of an owner's time, ns.
const EDGE_NS: f64 = 15_000.0;

/// Number of blocks of a long block.
pub(super) const LONG: u64 = 5;

/// Number of long blocks before and after one that tell about its rates.
const AROUND: u64 = 4;

/// A possible cause of traffic: an owner, on near or on far CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct TrafficSource {
    /// The owner.
    pub owner: Owner,
    /// Whether it ran on CPUs of another socket.
    pub is_far: bool,
}

/// The predictor of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// CPU time, in ticks of one CPU. The rate of an owner is not known in advance.
    Time,
    /// Counts of witnesses, such as last-level cache misses. The rates of owners are expected to be
    /// similar.
    Misses,
    /// Bytes at ports, which [`super::ports`] divides among owners. The rates of owners are
    /// expected to be nearly the same.
    Ports,
}

/// The use of a source in a tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Number of the source.
    pub source: u32,
    /// The place of its column.
    pub column: u16,
    /// The amount.
    pub amount: f32,
}

/// The state of a source.
#[derive(Clone, Debug)]
struct SourceState {
    number: u32,
    /// Use in about the last 10 s.
    used: f64,
    /// The last tick in which it ran.
    last: u64,
    column: u16,
    spread: Spread,
}

/// Moving averages of a source's use per tick and of its square.
#[derive(Clone, Debug, Default)]
struct Spread {
    ticks: f64,
    mean: f64,
    square: f64,
    /// The tick of the last update.
    at: u64,
}

impl Spread {
    /// Adds the use of `tick`. The use of the ticks between the last update and `tick` was 0.
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

/// The use of one set of CPUs.
#[derive(Debug)]
pub struct Histories {
    /// CPU time.
    pub time: History,
    /// Misses, if each CPU has a witness and a method learns from them.
    pub misses: Option<History>,
    /// Bytes at ports, if ports count each CPU and a method learns from them. Its last tick is the
    /// last that all ports have divided.
    pub ports: Option<History>,
    /// How sure the ports are, for windows that are not divided yet.
    pub said: BTreeMap<u64, Said>,
}

impl Histories {
    /// Empty histories for ticks of `tick_ns`.
    pub fn new(tick_ns: u64, has_misses: bool) -> Self {
        let misses = has_misses.then(|| History::new(Use::Misses, tick_ns));
        let time = History::new(Use::Time, tick_ns);
        Self { time, misses, ports: None, said: BTreeMap::new() }
    }

    /// The same with bytes at ports.
    pub(super) fn with_ports(self) -> Self {
        let ports = History::new(Use::Ports, self.time.tick_ns);
        Self { ports: Some(ports), ..self }
    }

    /// Adds bytes at ports in a tick by source. The flag says whether they are complete; if not,
    /// the rest comes with the next tick.
    pub(super) fn push_ports(
        &mut self,
        tick: u64,
        used: BTreeMap<TrafficSource, f64>,
        whole: bool,
    ) {
        let Some(history) = &mut self.ports else { return };
        history.push_amounts(tick, used.into_iter());
        if !whole {
            history.leave_part();
        }
    }

    /// Adds a tick in which a virtual machine ran whose misses are not counted.
    pub(super) fn push_blind(&mut self, tick: u64, times: &[(TrafficSource, u64)]) {
        self.time.push(tick, times);
        if let Some(history) = &mut self.misses {
            history.push(tick, &[]);
            history.blind.push_back(tick);
        }
    }

    /// Adds a tick: nanoseconds and, if used, misses by source, each source at most once. The flag
    /// with the misses says whether they are complete; if not, the rest comes with the next tick.
    pub(super) fn push(
        &mut self,
        tick: u64,
        times: &[(TrafficSource, u64)],
        misses: impl FnOnce() -> (Vec<(TrafficSource, u64)>, bool),
    ) {
        self.time.push(tick, times);
        let Some(history) = &mut self.misses else { return };
        let (misses, is_whole) = misses();
        history.push(tick, &misses);
        if !is_whole {
            history.leave_part();
        }
    }

    /// The history of a kind of use, if there is one.
    pub(super) const fn of(&self, kind: Use) -> Option<&History> {
        match kind {
            Use::Time => Some(&self.time),
            Use::Misses => self.misses.as_ref(),
            Use::Ports => self.ports.as_ref(),
        }
    }

    /// Assigns columns to the sources with the largest use, and calibrates misses.
    pub(super) fn review(&mut self) {
        if let Some(misses) = &mut self.misses {
            let first = misses.reviewed;
            let of = |tick| {
                let mut used = Used::new();
                if misses.is_blind(tick..=tick) {
                    return used;
                }
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
        self.ports.iter_mut().for_each(History::review);
        self.time.review();
    }

    /// All methods know the ticks that were reviewed. `profiles` has what their rates for a kind of use
    /// make expect of a tick.
    pub(super) fn told(&mut self, profiles: impl Fn(Use) -> Vec<Vec<f64>>) {
        self.time.told(&profiles(Use::Time));
        self.misses.iter_mut().for_each(|misses| misses.told(&profiles(Use::Misses)));
        self.ports.iter_mut().for_each(|ports| ports.told(&profiles(Use::Ports)));
    }

    /// Drops the ticks before `before`.
    pub(super) fn forget(&mut self, before: u64) {
        self.time.forget(before);
        self.misses.iter_mut().for_each(|misses| misses.forget(before));
        self.ports.iter_mut().for_each(|ports| ports.forget(before));
        self.said.retain(|tick, _| *tick >= before);
    }
}

/// The ticks of one set of CPUs, for one kind of use.
#[derive(Debug)]
pub struct History {
    kind: Use,
    tick_ns: u64,
    known: HashMap<TrafficSource, SourceState, RandomState>,
    sources: HashMap<u32, TrafficSource, RandomState>,
    next: u32,
    /// The tick of the first row.
    first: u64,
    rows: VecDeque<Box<[Entry]>>,
    /// The same by place, with the baseline.
    by_place: VecDeque<Row>,
    /// What is expected of each of these ticks, as a part of the mean; only of reviewed ones.
    sizes: VecDeque<f32>,
    /// Ticks whose use is incomplete: the rest is in a later tick. Ascending.
    parts: VecDeque<u64>,
    /// Ticks in which there was use that no witness counts. Ascending.
    blind: VecDeque<u64>,
    /// Columns are assigned in the rows before this tick.
    reviewed: u64,
    columns: Columns,
    /// Use of all sources in about the last 10 s.
    used: f64,
    design: Design,
    blocks: VecDeque<Block>,
    shared: Mutex<Shared>,
}

/// The use in the ticks of a block, each weighed by one over what is expected of it.
#[derive(Debug)]
pub(super) struct Block {
    /// Its last tick, divided by the length of a block, rounded up.
    pub number: u64,
    /// Products of use and use.
    pub products: SymmetricMatrix<f32>,
}

/// What all counters of a set of CPUs need, made when the first one asks.
#[derive(Debug, Default)]
struct Shared {
    /// Sums of blocks, by the key of [`History::around`].
    around: HashMap<(usize, u64), Arc<SquareMatrix>, RandomState>,
    /// By first and last tick.
    windows: BTreeMap<(u64, u64), Arc<WindowUse>>,
}

/// The use of an owner in a window, on near or on far CPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnerUse {
    /// The owner.
    pub source: TrafficSource,
    /// The place of its column.
    pub column: u16,
    /// The amount.
    pub amount: f64,
    /// The part of what its use varies that the edges of ticks explain, 0 to 1; 0 for witnesses.
    pub unseen: f64,
}

/// The use in a window.
#[derive(Debug)]
pub(super) struct WindowUse {
    /// By cgroup, then by owner.
    pub of: Vec<OwnerUse>,
    /// Amounts by place.
    pub by_place: Vec<f64>,
}

impl History {
    /// An empty history for ticks of `tick_ns`.
    fn new(kind: Use, tick_ns: u64) -> Self {
        Self {
            kind,
            tick_ns,
            known: HashMap::default(),
            sources: HashMap::default(),
            next: 1,
            first: 0,
            rows: VecDeque::new(),
            by_place: VecDeque::new(),
            sizes: VecDeque::new(),
            parts: VecDeque::new(),
            blind: VecDeque::new(),
            reviewed: 0,
            columns: Columns::new(),
            used: 0.0,
            design: Design::default(),
            blocks: VecDeque::new(),
            shared: Mutex::default(),
        }
    }

    /// The kind of use.
    pub const fn kind(&self) -> Use {
        self.kind
    }

    /// Length of a tick, ns.
    pub const fn tick_ns(&self) -> u64 {
        self.tick_ns
    }

    /// The uncertainty of an owner's time, in ticks: a span has two ends.
    pub(super) fn edge(&self) -> f64 {
        2.0 * EDGE_NS / self.tick_ns as f64
    }

    /// The source with this number, as long as a stored tick refers to it.
    pub(super) fn source(&self, number: u32) -> Option<TrafficSource> {
        self.sources.get(&number).copied()
    }

    /// The last tick.
    pub(super) fn last(&self) -> u64 {
        (self.first + self.rows.len() as u64).saturating_sub(1)
    }

    /// The use in a tick, by source; empty if the tick was dropped.
    pub(super) fn row(&self, tick: u64) -> &[Entry] {
        let at = tick.checked_sub(self.first).and_then(|at| self.rows.get(at as usize));
        at.map_or(&[], |row| row)
    }

    /// The use in a tick by place, with the baseline; empty if the tick was dropped.
    pub(super) fn by_place(&self, tick: u64) -> &[(u16, f32)] {
        let at = tick.checked_sub(self.first).and_then(|at| self.by_place.get(at as usize));
        at.map_or(&[], |row| row)
    }

    /// The use of each source in a tick.
    fn used(&self, tick: u64) -> impl Iterator<Item = (TrafficSource, f64)> {
        let row = self.row(tick).iter();
        row.filter_map(|entry| Some((self.source(entry.source)?, f64::from(entry.amount))))
    }

    /// Replaces the amounts of a tick that was not reviewed yet.
    fn replace(&mut self, tick: u64, used: impl Iterator<Item = (TrafficSource, f64)>) {
        let known = &self.known;
        let entry = |(source, amount): (TrafficSource, f64)| {
            let known = known.get(&source).filter(|_| amount > 0.0)?;
            Some(Entry { source: known.number, column: known.column, amount: amount as f32 })
        };
        let row: Box<[Entry]> = used.filter_map(entry).collect();
        let Some(at) = tick.checked_sub(self.first).map(|at| at as usize) else { return };
        if let (Some(of_tick), Some(places)) = (self.rows.get_mut(at), self.by_place.get_mut(at)) {
            *places = by_column(&row);
            *of_tick = row;
        }
    }

    /// The part of the variance of a source's use between ticks that the uncertainty of tick
    /// boundaries can explain, if each is known to `edge`; 0 to 1.
    fn of_edges(&self, source: TrafficSource, edge: f64) -> f64 {
        let variance = self.known.get(&source).map_or(0.0, |known| known.spread.variance());
        if variance > 0.0 { (edge * edge / variance).min(1.0) } else { 1.0 }
    }

    /// Adds a tick: nanoseconds or misses by source, each source at most once. Idle time is left
    /// out, because it explains nothing; misses of an idle CPU are kept.
    fn push(&mut self, tick: u64, used: &[(TrafficSource, u64)]) {
        let (unit, explains_idle) = match self.kind {
            Use::Time => (1.0 / self.tick_ns as f64, false),
            Use::Misses | Use::Ports => (1.0, true),
        };
        let told = |(who, _): &&(TrafficSource, u64)| explains_idle || who.owner != Owner::Idle;
        let amount = |&(source, amount): &(TrafficSource, u64)| (source, amount as f64 * unit);
        self.push_amounts(tick, used.iter().filter(told).map(amount));
    }

    /// Adds a tick: amounts by source, each source at most once.
    fn push_amounts(&mut self, tick: u64, used: impl Iterator<Item = (TrafficSource, f64)>) {
        if self.rows.is_empty() {
            (self.first, self.reviewed) = (tick, tick);
        }
        // Ticks without data.
        while self.first + (self.rows.len() as u64) < tick {
            self.rows.push_back(Box::default());
            self.by_place.push_back(by_column(&[]));
        }
        let told = used.filter(|(_, amount)| *amount > 0.0);
        let row = told.map(|(source, amount)| self.entry(tick, source, amount));
        let row: Box<[Entry]> = row.collect();
        self.by_place.push_back(by_column(&row));
        self.rows.push_back(row);
    }

    /// Notes that the use of the last tick is incomplete; the rest comes in a later tick.
    fn leave_part(&mut self) {
        self.parts.push_back(self.last());
    }

    /// Whether all use up to the end of the tick is known.
    pub(super) fn is_whole(&self, tick: u64) -> bool {
        self.parts.binary_search(&tick).is_err()
    }

    /// Whether there was use in these ticks that no witness counts.
    pub(super) fn is_blind(&self, ticks: RangeInclusive<u64>) -> bool {
        let first = self.blind.partition_point(|tick| tick < ticks.start());
        self.blind.get(first).is_some_and(|tick| ticks.contains(tick))
    }

    fn entry(&mut self, tick: u64, source: TrafficSource, amount: f64) -> Entry {
        let (next, sources, columns) = (&mut self.next, &mut self.sources, &self.columns);
        let known = self.known.entry(source).or_insert_with(|| {
            // Numbers are used again after 2^32 sources; 0 is that of the baseline.
            while sources.contains_key(next) {
                *next = next.checked_add(1).unwrap_or(1);
            }
            let number = *next;
            *next = next.checked_add(1).unwrap_or(1);
            sources.insert(number, source);
            let spread = Spread::default();
            SourceState { number, used: 0.0, last: tick, column: columns.place(source), spread }
        });
        known.used += amount;
        known.last = tick;
        known.spread.take(tick, amount);
        Entry { source: known.number, column: known.column, amount: amount as f32 }
    }

    /// Assigns columns to the sources with the largest use, and sums up the ticks since the last
    /// review. Learners see ticks only after this.
    pub(super) fn review(&mut self) {
        let mut amount: Vec<(TrafficSource, f64)> =
            self.known.iter().map(|(source, known)| (*source, known.used)).collect();
        amount.sort_unstable_by_key(|(source, _)| *source);
        self.used = amount.iter().map(|(_, used)| used).sum();
        let least = match self.kind {
            Use::Time => LEAST_TIME,
            Use::Misses | Use::Ports => 0.0,
        };
        for place in self.columns.review(&amount, least, (self.first, self.last())) {
            self.design.clear(usize::from(place));
            self.blocks.iter_mut().for_each(|block| block.products.clear_row_and_column(usize::from(place)));
        }
        self.shared().around.clear();
        let mut columns: HashMap<u32, u16, RandomState> = HashMap::default();
        for (source, known) in &mut self.known {
            known.used *= LEFT;
            known.column = self.columns.place(*source);
            columns.insert(known.number, known.column);
        }
        let mut rows = RowBatch::default();
        let from = self.reviewed.saturating_sub(self.first) as usize;
        for at in from..self.rows.len() {
            let mut moved = false;
            for entry in &mut self.rows[at] {
                let column = columns.get(&entry.source).copied().unwrap_or(REST);
                moved |= column != entry.column;
                entry.column = column;
            }
            if moved {
                self.by_place[at] = by_column(&self.rows[at]);
            }
            let row = Arc::clone(&self.by_place[at]);
            let size = self.design.size(&row);
            self.sizes.push_back(size as f32);
            let number = self.block_of(self.first + at as u64);
            if self.blocks.back().is_none_or(|block| block.number < number) || rows.is_full() {
                self.add_to_block(&mut rows);
                if self.blocks.back().is_none_or(|block| block.number < number) {
                    self.blocks.push_back(Block { number, products: SymmetricMatrix::default() });
                }
            }
            rows.push(&row, size.powf(-0.5));
            self.design.push(row, size);
        }
        self.add_to_block(&mut rows);
        self.reviewed = self.first + self.rows.len() as u64;
    }

    fn add_to_block(&mut self, rows: &mut RowBatch<f32>) {
        if let Some(block) = self.blocks.back_mut() {
            block.products.add_products(rows, 1.0);
        }
    }

    fn shared(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the block of a tick.
    pub(super) fn block_of(&self, tick: u64) -> u64 {
        tick.div_ceil((BLOCK_NS / self.tick_ns).max(1))
    }

    /// The number of the first block that is needed to correct rates at `tick`.
    pub(super) fn needed_block(&self, tick: u64) -> u64 {
        self.block_of(tick).div_ceil(LONG).saturating_sub(AROUND + 1) * LONG + 1
    }

    /// The sum of blocks with these weights by number. `key` says which.
    pub(super) fn around(
        &self,
        key: (usize, u64),
        weight: impl Fn(u64) -> Option<f64>,
    ) -> Arc<SquareMatrix> {
        let make = || {
            let mut sum = SymmetricMatrix::<f32>::zero(self.columns.len());
            for block in &self.blocks {
                if let Some(weight) = weight(block.number) {
                    sum.add_scaled(&block.products, weight);
                }
            }
            Arc::new(SquareMatrix::from_lower(&sum))
        };
        Arc::clone(self.shared().around.entry(key).or_insert_with(make))
    }

    /// The use in the window of the ticks after `from` up to `to`.
    pub(super) fn window(&self, from: u64, to: u64) -> Arc<WindowUse> {
        let make = || Arc::new(self.use_in(from, to));
        Arc::clone(self.shared().windows.entry((from, to)).or_insert_with(make))
    }

    fn use_in(&self, from: u64, to: u64) -> WindowUse {
        let mut amounts: HashMap<(u32, u16), f64, RandomState> = HashMap::default();
        let mut by_place = vec![0.0; self.columns.len()];
        for entry in (from + 1..=to).flat_map(|tick| self.row(tick)) {
            let amount = f64::from(entry.amount);
            *amounts.entry((entry.source, entry.column)).or_default() += amount;
            if let Some(sum) = by_place.get_mut(usize::from(entry.column)) {
                *sum += amount;
            }
        }
        let edge = self.edge();
        let of = |((source, column), amount): ((u32, u16), f64)| {
            let source = self.source(source)?;
            let unseen = if self.kind == Use::Time { self.of_edges(source, edge) } else { 0.0 };
            Some(OwnerUse { source, column, amount, unseen })
        };
        let mut found: Vec<_> = amounts.into_iter().filter_map(of).collect();
        found.sort_unstable_by_key(|used| (cgroup(&used.source.owner), used.source, used.column));
        WindowUse { of: found, by_place }
    }

    /// The block with this number.
    pub(super) fn block(&self, number: u64) -> Option<&Block> {
        self.blocks.iter().find(|block| block.number == number)
    }

    /// The tick after the last that was reviewed.
    pub(super) const fn reviewed(&self) -> u64 {
        self.reviewed
    }

    /// What is expected of a reviewed tick, as a part of the mean.
    pub(super) fn size(&self, tick: u64) -> f64 {
        let at = tick.checked_sub(self.first).and_then(|at| self.sizes.get(at as usize));
        at.map_or(1.0, |size| f64::from(*size))
    }

    /// The sums.
    pub(super) const fn design(&self) -> &Design {
        &self.design
    }

    /// The first stored tick.
    pub(super) const fn first(&self) -> u64 {
        self.first
    }

    fn told(&mut self, profiles: &[Vec<f64>]) {
        self.design.told();
        let mut mean = vec![0.0; self.columns.len()];
        for profile in profiles {
            mean.iter_mut().zip(profile).for_each(|(mean, rate)| *mean += rate);
        }
        if !profiles.is_empty() {
            self.design.expect(mean);
        }
    }

    /// The columns.
    pub(super) const fn columns(&self) -> &Columns {
        &self.columns
    }

    /// Drops the ticks before `before`.
    pub(super) fn forget(&mut self, before: u64) {
        while self.first < before && self.rows.pop_front().is_some() {
            self.by_place.pop_front();
            self.sizes.pop_front();
            self.first += 1;
        }
        for ticks in [&mut self.parts, &mut self.blind] {
            while ticks.pop_front_if(|tick| *tick < before).is_some() {}
        }
        let needed = self.needed_block(self.first);
        while self.blocks.pop_front_if(|block| block.number < needed).is_some() {}
        let (first, all) = (self.first, self.used);
        self.shared().windows.retain(|(_, to), _| *to >= first);
        let sources = &mut self.sources;
        self.known.retain(|source, known| {
            let least = match source.owner {
                Owner::Task { .. } => columns::LEAST_PROCESS,
                _ => columns::LEAST_GROUP,
            };
            let gone = (columns::GONE_PART * least * all).max(GONE);
            let keeps = known.last >= first || known.used > gone;
            if !keeps {
                sources.remove(&known.number);
            }
            keeps
        });
    }
}

/// The use by column, with the baseline, which is always there.
fn by_column(entries: &[Entry]) -> Row {
    let used = entries.iter().map(|entry| (entry.column, f64::from(entry.amount)));
    by_place(std::iter::once((BASELINE, 1.0)).chain(used))
}

#[cfg(test)]
mod tests {
    use super::super::columns::FAR_REST;
    use super::*;

    const TICK: u64 = 1_000_000;

    const fn near(number: u32) -> TrafficSource {
        TrafficSource { owner: Owner::Irq(number), is_far: false }
    }

    fn run(history: &mut History, ticks: u64, times: &[(TrafficSource, u64)]) {
        for _ in 0..ticks {
            let tick = history.first + history.rows.len() as u64;
            history.push(tick, times);
            if tick.is_multiple_of(100) {
                history.review();
                history.forget(tick.saturating_sub(2000));
            }
        }
    }

    /// The owners that have columns of their own.
    fn own(history: &History, tick: u64) -> Vec<u32> {
        let of = |entry: &Entry| {
            let source = history.source(entry.source).unwrap();
            let Owner::Irq(number) = source.owner else { panic!("{source:?}") };
            number
        };
        let row = history.row(tick).iter();
        let mut own: Vec<u32> = row.filter(|entry| entry.column > FAR_REST).map(of).collect();
        own.sort_unstable();
        own
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let mut history = History::new(Use::Time, TICK);
        run(
            &mut history,
            201,
            &[(near(1), TICK), (TrafficSource { owner: Owner::Idle, is_far: false }, TICK)],
        );
        assert_eq!(own(&history, 150), [1]);
        run(&mut history, 100_000, &[(near(2), TICK)]);
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
