//! Learns each owner's traffic per unit of use from the counts of ticks. The use is CPU time or
//! counted misses, or bytes at ports ([`Use`]).
//!
//! Count of a tick = baseline + sum over columns of rate x use. Rates are learnt from the last
//! minute ([`solve`]), from sums that all counters of a set of CPUs share
//! ([`super::sums`]). In each block of 100 ms they are corrected by the counts around it
//! ([`local`]). A link that is nearly full counts less ([`bend`]). A count is divided in proportion to rate x use.

mod bend;
mod local;
mod part;
mod solve;

use std::collections::VecDeque;

use self::bend::Bend;
pub(super) use self::local::Variance;
use self::local::{BlockCounts, Local, Spreads};
pub(super) use self::part::{Contributions, Parted};
use self::solve::Solution;
use super::history::{History, Use};
use super::sums::{Counts, add_row, expected};
use crate::entries::Relief;

/// Nothing is learnt from a count over a longer time, ns: its use would have to be kept until it is
/// read.
const LONGEST_NS: u64 = 1_000_000_000;

/// Least of [`LONGEST_NS`], in ticks.
const LONGEST_TICKS: u64 = 10;

/// Number of ticks before rates are used.
const LEARN: u64 = 100;

/// Rates are found anew when this part of the ticks is new, and after this time.
const YOUNG: u64 = 4;
const SELDOM_NS: u64 = 2_000_000_000;

/// While a recorder is late, rates are found so many times less often.
const LESS_OFTEN: u64 = 8;

/// The covariance is found anew after this number of such times.
const VARIED: u64 = 5;

/// How thoroughly rates are solved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// As a recording does: start from the last solution
    #[default]
    Live,
    /// Improve the solution until it stays the same
    Full,
}

impl Effort {
    /// The value on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Full => "full",
        }
    }
}

/// A count of one or more ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    /// The tick at which it begins, exclusive.
    pub from: u64,
    /// Its last tick.
    pub to: u64,
    /// The count.
    pub count: f64,
    /// Whether it covers time in which the counter did not count: nothing is learnt from it.
    pub restarts: bool,
}

/// The variance of a tick around what the rates of its block make expect, relative to the square of
/// that.
#[derive(Debug, Default)]
struct Noise {
    rests: Vec<f64>,
    variance: f64,
}

impl Noise {
    /// Number of ticks whose mean is left out: only what differs within them is noise.
    const TICKS: usize = 8;

    /// Gain per tick.
    const GAIN: f64 = 5e-4;

    /// Least variance, as a part of that around the learnt rates.
    const LEAST: f64 = 0.02;

    /// Adds the difference between the count of some ticks and what is expected of them.
    fn add(&mut self, rest: f64, ticks: u64) {
        if ticks != 1 {
            self.rests.clear();
            return;
        }
        self.rests.push(rest);
        if self.rests.len() < Self::TICKS {
            return;
        }
        let n = Self::TICKS as f64;
        let mean = self.rests.iter().sum::<f64>() / n;
        let squares: f64 = self.rests.iter().map(|rest| (rest - mean).powi(2)).sum();
        self.rests.clear();
        let variance = squares / (n - 1.0);
        let gain = if self.variance > 0.0 { n * Self::GAIN } else { 1.0 };
        self.variance += gain * (variance - self.variance);
    }

    /// The variance; `most` is that around the learnt rates.
    fn of(&self, most: f64) -> f64 {
        if self.variance > 0.0 { self.variance.clamp(Self::LEAST * most, most) } else { most }
    }
}

/// The rates of one counter.
#[derive(Debug)]
pub(super) struct Learner {
    by: Use,
    effort: Effort,
    /// Longest count that is learnt from, in ticks.
    longest: u64,
    /// [`SELDOM_NS`] in ticks.
    seldom: u64,
    /// Counts that are not divided yet, oldest first.
    observations: VecDeque<Observation>,
    /// Counts that nothing was learnt from yet, oldest first.
    fresh: VecDeque<Observation>,
    counts: Counts,
    /// The next tick to learn from; 0: none yet.
    next: u64,
    /// What was taken for the counts of ticks that were not read.
    assumed: f64,
    /// Number of ticks learnt from.
    ticks: u64,
    /// The number of the column of each place.
    numbers: Vec<Option<u64>>,
    solution: Solution,
    /// The number of ticks at which they were found, and their covariance.
    solved: u64,
    varied: u64,
    blocks: VecDeque<BlockCounts>,
    spreads: Spreads,
    noise: Noise,
    bend: Bend,
    /// The rates of the block that was divided last.
    local: Option<Local>,
    /// Parts that were divided since they were last taken.
    contributions: Contributions,
    /// If they are kept: the parts of each count that was divided since they were last taken.
    parted: Option<Vec<Parted>>,
    /// Whether the next count covers time that was not observed, so that nothing is learnt from it.
    skips: bool,
    /// The tick at which the next count begins, if ticks before it were not read.
    pending: Option<u64>,
    /// The last tick whose count was divided.
    divided: u64,
    /// What is left out.
    relief: Relief,
}

impl Learner {
    /// A learner for ticks of `tick_ns`.
    pub(super) fn new(by: Use, tick_ns: u64, effort: Effort) -> Self {
        Self {
            by,
            effort,
            longest: (LONGEST_NS / tick_ns).max(LONGEST_TICKS),
            seldom: (SELDOM_NS / tick_ns).max(1),
            observations: VecDeque::new(),
            fresh: VecDeque::new(),
            counts: Counts::default(),
            next: 0,
            assumed: 0.0,
            ticks: 0,
            numbers: Vec::new(),
            solution: Solution::default(),
            solved: 0,
            varied: 0,
            blocks: VecDeque::new(),
            spreads: Spreads::new(by),
            noise: Noise::default(),
            bend: Bend::default(),
            local: None,
            contributions: Contributions::default(),
            parted: None,
            skips: false,
            pending: None,
            divided: 0,
            relief: Relief::None,
        }
    }

    /// Takes the count since the last count; `tick` is the last tick of it. `None` if there is no
    /// reading at its end.
    pub(super) fn observe(&mut self, tick: u64, count: Option<f64>) {
        let from = *self.pending.get_or_insert(tick.saturating_sub(1));
        let Some(count) = count else {
            if tick - from >= self.longest {
                (self.pending, self.skips) = (None, true);
            }
            return;
        };
        self.pending = None;
        let restarts = std::mem::take(&mut self.skips);
        let one = Observation { from, to: tick, count, restarts };
        self.observations.push_back(one);
        self.fresh.push_back(one);
    }

    /// Sets what is left out from now on.
    pub(super) fn relieve(&mut self, relief: Relief) {
        self.relief = relief;
        self.local = None;
    }

    /// Notes that the counter was restarted: its next count covers time in which it did not count.
    pub(super) const fn restart(&mut self) {
        self.skips = true;
    }

    /// Whether rates are known.
    pub(super) fn is_ready(&self) -> bool {
        self.ticks >= LEARN && !self.solution.rates.is_empty()
    }

    /// Adds the counts of the ticks that were reviewed since the last call.
    ///
    /// A tick that was not read counts as what its use makes expect, which teaches nothing, and the
    /// next count has the rest.
    pub(super) fn learn(&mut self, history: &History) {
        self.follow(history);
        let mut groups = history.design().groups().iter();
        let first = if self.next == 0 { history.first() } else { self.next };
        for tick in first..history.reviewed() {
            while self.fresh.front().is_some_and(|one| one.to < tick) {
                self.fresh.pop_front();
            }
            let row = history.by_place(tick);
            let read = self.fresh.pop_front_if(|one| one.to == tick);
            let count = if let Some(Observation { from, to, count, restarts: false }) = read {
                let ticks = (to - from).max(1);
                let columns = self.solution.active.len() as u64;
                if ticks == 1 && columns > 0 && self.ticks > bend::TICKS_PER_COLUMN * columns {
                    self.bend.add(self.expected(row), count);
                }
                let straight = self.bend.straighten(count, ticks);
                (straight - std::mem::take(&mut self.assumed)).max(0.0)
            } else {
                let expected = self.expected(row);
                self.assumed = if read.is_some() { 0.0 } else { self.assumed + expected };
                expected
            };
            self.ticks += 1;
            self.counts.push(count, &mut groups);
            let number = history.block_of(tick);
            if self.blocks.back().is_none_or(|block| block.number < number) {
                self.blocks.push_back(BlockCounts { number, products: Vec::new() });
            }
            if let Some(block) = self.blocks.back_mut() {
                add_row(&mut block.products, row, count / history.size(tick));
            }
        }
        self.next = history.reviewed();
    }

    /// Forgets what places knew that have a new column. Until the next solution, its rate is that of
    /// the place where the use was before.
    fn follow(&mut self, history: &History) {
        let columns = history.columns();
        self.numbers.resize(columns.len(), None);
        let rates = &mut self.solution.rates;
        if !rates.is_empty() {
            rates.resize(columns.len(), 0.0);
        }
        let mut new = Vec::new();
        for (place, known) in self.numbers.iter_mut().enumerate() {
            // Stored ticks may refer to a place without a column: it keeps what it knows.
            let Some(column) = columns.get(place) else { continue };
            if known.replace(column.number) != Some(column.number) {
                self.counts.clear(place);
                self.blocks.iter_mut().for_each(|block| block.clear(place));
                rates.get_mut(place).into_iter().for_each(|rate| *rate = 0.0);
                self.local = None;
                self.solution.renewed.push(place);
                new.push(place);
            }
        }
        for place in new {
            let rate = |at: u16| rates.get(usize::from(at)).copied().unwrap_or(0.0);
            let first = columns.before(place, |at| rate(at) > 0.0).map_or(0.0, rate);
            rates.get_mut(place).into_iter().for_each(|rate| *rate = first);
        }
    }

    /// What the use in a tick makes expect.
    fn expected(&self, row: &[(u16, f32)]) -> f64 {
        if self.solution.rates.is_empty() {
            return self.counts.sum / self.ticks.max(1) as f64;
        }
        expected(&self.solution.rates, row)
    }

    /// Number of ticks after which something is found anew: a part of all ticks, and at most some. While the
    /// recorder is late, rates that are known are found less often.
    fn due(&self, part: u64, most: u64) -> u64 {
        if self.relief >= Relief::Seldom && !self.solution.rates.is_empty() {
            (self.ticks - self.ticks / LESS_OFTEN).min(LESS_OFTEN * most)
        } else {
            part.min(most)
        }
    }

    /// Finds rates from the counts so far.
    pub(super) fn solve(&mut self, history: &History) {
        let is_known = !self.solution.rates.is_empty();
        let is_kept = is_known && self.relief >= Relief::LastRates;
        let age = self.ticks - self.solved;
        if is_kept || self.ticks < LEARN || age < self.due(self.ticks / YOUNG, self.seldom) {
            return;
        }
        self.solved = self.ticks;
        self.bend.find();
        let (sums, groups) = history.design().closed();
        let counts = self.counts.closed(&groups);
        let most = match self.effort {
            _ if self.solution.rates.is_empty() => 80,
            Effort::Live => 8,
            Effort::Full => 40,
        };
        // Rates change sooner than how well they are known.
        let age = self.ticks - self.varied;
        let keeps = age < self.due(self.ticks / 2, VARIED * self.seldom);
        let how = (most, keeps);
        let found = solve::solve_rates(&sums, &counts, history.columns(), self.by, &self.solution, how);
        if let Some(found) = found {
            self.solution = found;
            if !keeps {
                self.varied = self.ticks;
            }
        }
        self.local = None;
    }

    /// The rates over the mean count.
    pub(super) fn profile(&self) -> Option<Vec<f64>> {
        let rates = &self.solution.rates;
        let mean = self.counts.sum;
        (!rates.is_empty() && mean > 0.0).then(|| rates.iter().map(|rate| rate / mean).collect())
    }

    /// Divides the counts of the ticks up to `to`.
    pub(super) fn advance(&mut self, history: &History, to: u64) {
        while let Some(one) = self.observations.pop_front_if(|one| one.to <= to) {
            self.divided = one.to;
            if one.restarts {
                self.contributions.restart();
                if let Some(all) = &mut self.parted {
                    all.push(Parted { tick: one.to, parts: None });
                }
                continue;
            }
            if self.solution.rates.is_empty() || self.relief >= Relief::Residency {
                self.contributions.unknown += one.count;
                if let Some(all) = &mut self.parted {
                    all.push(Parted::by_use(&one, history));
                }
                continue;
            }
            let number = history.block_of(one.to);
            let error = self.noise.of(self.solution.errors[0]);
            let local = match self.local.take() {
                Some(local) if local.number == number => local,
                _ if self.relief >= Relief::LastRates => {
                    Local::learnt(number, &self.solution, history, &self.spreads)
                }
                last => {
                    let told = (&self.blocks, history);
                    Local::find(one.to, &self.solution, told, error, &mut self.spreads, last)
                }
            };
            let mut parts = self.parted.is_some().then(Vec::new);
            let expected = self.contributions.add(&one, history, &local, error, parts.as_mut());
            if let Some(all) = &mut self.parted {
                all.push(Parted { tick: one.to, parts });
            }
            let rest = (self.bend.straighten(one.count, one.to - one.from) - expected)
                / history.size(one.to);
            self.noise.add(rest, one.to - one.from);
            self.local = Some(local);
        }
        if let Some(local) = &self.local {
            self.contributions.variance.clone_from(&local.variance);
        }
        let needs = self.needs().min(self.next);
        let needed = history.needed_block(needs);
        while self.blocks.pop_front_if(|block| block.number < needed).is_some() {}
    }

    /// The parts that were divided since the last call.
    pub(super) fn take_contributions(&mut self) -> Contributions {
        std::mem::take(&mut self.contributions)
    }

    /// The last tick whose count was divided.
    pub(super) const fn divided(&self) -> u64 {
        self.divided
    }

    /// Keeps the parts of each count.
    pub(super) fn keep_parted(&mut self) {
        self.parted = Some(Vec::new());
    }

    /// The parts of each count since the last call, if they are kept.
    pub(super) fn take_parted(&mut self) -> Vec<Parted> {
        self.parted.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The oldest tick that is still needed.
    pub(super) fn needs(&self) -> u64 {
        let first = self.observations.front().map(|one| one.from);
        first.or(self.pending).unwrap_or(u64::MAX)
    }
}
