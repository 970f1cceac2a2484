//! Learns each owner's traffic per unit of use from the counts of the ticks before and after a
//! window. The use is CPU time or counted misses ([`Use`]).
//!
//! Count of a tick = baseline + sum over sources of rate x use. Rates follow a random walk over
//! blocks of [`BLOCK_NS`]; most of its steps are near 0 and few are large ([`steps`]). The variance
//! of a tick is the sum of the variances of the sources' traffic ([`noise`]). The rates of all
//! blocks of the last [`SPAN_NS`] are solved together ([`system`]), starting from the last
//! solution. Older ticks are the prior of the first of these blocks ([`prior`]). At the end, what
//! ticks do not determine is moved toward the prior mean of rates ([`shift`]).

mod blocks;
mod noise;
mod part;
mod prior;
mod shift;
mod steps;
mod system;

use std::collections::{HashMap, VecDeque};

use self::blocks::{Block, DesignRow, Observation};
use self::noise::Noise;
pub(super) use self::part::{Contribution, Contributions};
use self::prior::{Expected, Kind, Prior};
use self::shift::{Shift, Together};
use self::system::System;
use super::history::{BASELINE, FAR_REST, History, REST, TrafficSource, Use};

/// Length of a block, ns; rates are constant within it. The second constant is its minimum in
/// ticks.
const BLOCK_NS: u64 = 20_000_000;
const BLOCK_TICKS: u64 = 10;

/// The span whose rates are solved together, ns.
const SPAN_NS: u64 = 2_500_000_000;

/// Nothing is learnt from a count over a longer time, ns: its use would have to be kept until it is
/// read.
const LONGEST_NS: u64 = 1_000_000_000;

/// Number of ticks before rates are used.
const LEARN: u64 = 100;

/// The places of the columns [`BASELINE`], [`REST`] and [`FAR_REST`], and their kinds.
const FIXED: [(u32, Kind); 3] =
    [(BASELINE, Kind::Baseline), (REST, Kind::Near), (FAR_REST, Kind::Far)];

/// The place of [`REST`].
const REST_PLACE: usize = 1;

/// With fewer blocks than this, rates come from little data.
const FIRST: usize = 25;

/// Number of columns at which the solver gets its full iterations; with twice as many it gets half.
const CROWD: usize = 48;

/// Memory of the sums of all blocks, bytes. With many columns fewer blocks are solved together.
const MEMORY: usize = 8 << 20;

/// The unit of rates changes when the count per use differs from it by this factor.
const UNIT: f64 = 4.0;

/// Gain of the mean count, per solution.
const MEAN_GAIN: f64 = 0.2;

/// Number of removed sources whose rates are remembered.
const REMEMBERED: usize = 256;

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

/// Limits of the iterations of a solution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Iterations {
    /// Largest number of times that steps and bounds are renewed.
    pub passes: usize,
    /// The solution has converged when rates change by less than this part.
    pub settled: f64,
    /// Iterations of the solver per pass.
    pub solver: usize,
    /// Iterations of the noise model.
    pub noise: usize,
    /// Number of repetitions of the whole.
    pub rounds: usize,
}

/// The rates of one counter.
#[derive(Debug)]
pub(super) struct Learner {
    by: Use,
    /// Length of a block in ticks.
    block_ticks: u64,
    /// Number of blocks that are solved together.
    span: usize,
    /// Longest count that is learnt from, in ticks.
    longest: u64,
    /// Count per unit of use that is the unit of rates; 0 until it is known.
    unit: f64,
    /// The use of the baseline in a tick: 1, or the misses of a tick when the first were seen. It
    /// keeps the baseline's rate at the scale of the other rates.
    always: f64,
    effort: Effort,
    /// The column of each place in a vector of rates; `None` for a free place.
    columns: Vec<Option<u32>>,
    kinds: Vec<Kind>,
    places: HashMap<u32, usize>,
    /// Counts that are not divided yet, oldest first, preceded by those of blocks that are still
    /// being improved.
    observations: VecDeque<Observation>,
    /// Index of the first of these that is not divided.
    divided: usize,
    /// Index of the first of these that has no block.
    placed: usize,
    /// Total number of ticks.
    ticks: u64,
    blocks: VecDeque<Block>,
    prior: Prior,
    noise: Noise,
    shift: Shift,
    together: Together,
    remembered: HashMap<TrafficSource, (f64, f64)>,
    /// Parts that were divided since they were last taken.
    contributions: Contributions,
    /// Whether the next count covers time that was not observed, so that nothing is learnt from it.
    skips: bool,
    /// The tick at which the next count begins, if ticks before it were not read.
    pending: Option<u64>,
}

impl Learner {
    /// A learner for ticks of `tick_ns`.
    pub(super) fn new(by: Use, tick_ns: u64, effort: Effort) -> Self {
        let block_ticks = (BLOCK_NS / tick_ns).max(BLOCK_TICKS);
        Self {
            by,
            block_ticks,
            span: (SPAN_NS / (block_ticks * tick_ns)).clamp(10, 400) as usize,
            longest: (LONGEST_NS / tick_ns).max(BLOCK_TICKS),
            unit: 0.0,
            always: 1.0,
            effort,
            columns: FIXED.iter().map(|(column, _)| Some(*column)).collect(),
            kinds: FIXED.iter().map(|(_, kind)| *kind).collect(),
            places: FIXED.iter().zip(0..).map(|((column, _), place)| (*column, place)).collect(),
            observations: VecDeque::new(),
            divided: 0,
            placed: 0,
            ticks: 0,
            blocks: VecDeque::new(),
            prior: Prior::default(),
            noise: Noise::default(),
            shift: Shift::default(),
            together: Together::default(),
            remembered: HashMap::new(),
            contributions: Contributions::default(),
            skips: false,
            pending: None,
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
        let row = DesignRow::default();
        let one = Observation { from, to: tick, count, restarts, weight: 0.0, row };
        self.observations.push_back(one);
        self.ticks += 1;
    }

    /// Notes that the counter was restarted: its next count covers time in which it did not count.
    pub(super) const fn restart(&mut self) {
        self.skips = true;
    }

    /// Whether rates are known.
    pub(super) fn is_ready(&self) -> bool {
        self.ticks >= LEARN && !self.blocks.is_empty()
    }

    /// Learns from the counts since the last call.
    pub(super) fn solve(&mut self, history: &History) {
        if self.unit <= 0.0 && !self.begin(history) {
            return;
        }
        let first_new = self.blocks.len();
        self.place(history);
        if self.blocks.is_empty() {
            return;
        }
        self.rescale();
        // The last block may have new counts as well.
        let improved = self.improved().min(first_new.saturating_sub(1));
        let iterations = self.iterations(first_new);
        let expected = self.expected();
        for _ in 0..iterations.rounds {
            self.fill(improved);
            let system = System::solve(
                &mut self.blocks,
                &self.prior,
                &self.kinds,
                expected,
                iterations,
                improved,
            );
            if let Some(system) = system {
                self.shift.find(&system, &self.together, &self.blocks, &self.kinds, expected);
            }
            self.fit(improved, iterations.noise);
        }
        self.drop_old();
    }

    /// The expectation of rates before any count.
    fn expected(&self) -> Expected {
        Expected { by: self.by, mean_count: self.noise.mean_count, always: self.always }
    }

    fn iterations(&self, first_new: usize) -> Iterations {
        // The cost of an iteration grows with the square of the columns.
        let crowd = (self.columns.len() / CROWD).clamp(1, 2);
        let at_first = first_new < FIRST.min(self.span / 2);
        match self.effort {
            Effort::Live if at_first => {
                Iterations { passes: 3, settled: 1e-3, solver: 8, noise: 6, rounds: 3 }
            }
            Effort::Live => Iterations {
                passes: 5 / crowd,
                settled: 1e-3,
                solver: 6 / crowd,
                noise: 6,
                rounds: 1,
            },
            Effort::Full => {
                Iterations { passes: 12, settled: 1e-4, solver: 12, noise: 10, rounds: 2 }
            }
        }
    }

    /// Sets the unit of rates; `false` if nothing was counted yet.
    fn begin(&mut self, history: &History) -> bool {
        let (mut counts, mut used, mut ticks) = (0.0, 0.0, 0.0);
        for one in &self.observations {
            counts += one.count;
            ticks += (one.to - one.from) as f64;
            for tick in one.from + 1..=one.to {
                let near = |column| history.source(column).is_none_or(|source| !source.is_far);
                let row = history.row(tick).iter();
                used += row
                    .filter(|entry| entry.column != FAR_REST && near(entry.source))
                    .map(|entry| f64::from(entry.amount))
                    .sum::<f64>();
            }
        }
        let used = least_use(self.by, used, ticks);
        if ticks < 64.0 || counts <= 0.0 || used <= 0.0 {
            // Nothing can be learnt from a counter whose counts are 0.
            if ticks >= 64.0 && self.divided == self.observations.len() {
                self.observations.clear();
                self.divided = 0;
            }
            return false;
        }
        self.unit = counts / used;
        if self.by == Use::Misses {
            self.always = used / ticks;
        }
        self.noise = Noise::new(counts / ticks / self.unit);
        true
    }

    /// The first block that is still being improved: the one of the first undivided tick.
    fn improved(&self) -> usize {
        let divided = self.observations.get(self.divided).map_or(u64::MAX, |one| one.to);
        let number = self.block_of(divided);
        self.blocks
            .iter()
            .position(|block| block.number >= number)
            .unwrap_or(self.blocks.len())
            .saturating_sub(1)
    }

    const fn block_of(&self, tick: u64) -> u64 {
        tick.saturating_sub(1) / self.block_ticks
    }

    /// Assigns blocks to new counts, and places to new columns.
    fn place(&mut self, history: &History) {
        let before = self.blocks.len();
        while let Some(one) = self.observations.get(self.placed) {
            if one.to > history.last() {
                break;
            }
            let (from, to, number) = (one.from, one.to, self.block_of(one.to));
            let ran = (from + 1..=to).flat_map(|tick| history.row(tick));
            let ran: Vec<(usize, f32)> =
                ran.map(|entry| (self.place_of(entry.column, history), entry.amount)).collect();
            if let Some(one) = self.observations.get_mut(self.placed) {
                one.row = DesignRow::of(to - from, self.always, ran.into_iter());
                if !one.restarts {
                    self.together.add(&one.row, self.columns.len(), history.tick_ns());
                }
            }
            if self.blocks.back().is_none_or(|block| block.number < number) {
                let n = self.columns.len();
                let block = match self.blocks.back() {
                    Some(last) => last.next(number),
                    None => self.first_block(number, n),
                };
                self.blocks.push_back(block);
            }
            self.placed += 1;
        }
        let (kinds, expected) = (&self.kinds, self.expected());
        for block in self.blocks.iter_mut().skip(before.saturating_sub(1)) {
            block.steps_of(kinds, expected);
        }
    }

    fn first_block(&self, number: u64, n: usize) -> Block {
        let expected = self.expected();
        Block::new(number, (0..n).map(|at| expected.mode(self.kinds[at])).collect())
    }

    /// The place of a column; a new one if it has none.
    fn place_of(&mut self, column: u32, history: &History) -> usize {
        if let Some(place) = self.places.get(&column) {
            return *place;
        }
        let source = history.source(column);
        let is_far = source.is_some_and(|source| source.is_far);
        let kind = if is_far { Kind::Far } else { Kind::Near };
        let free = self.columns.iter().position(Option::is_none);
        let place = free.unwrap_or(self.columns.len());
        if free.is_none() {
            self.columns.push(None);
            self.kinds.push(kind);
        }
        self.columns[place] = Some(column);
        self.kinds[place] = kind;
        self.places.insert(column, place);
        let expected = self.expected();
        let known = source.and_then(|source| self.remembered.remove(&source));
        let (rate, variance) = known.unwrap_or((expected.mode(kind), 0.0));
        for block in &mut self.blocks {
            block.reset(place, rate, kind, expected);
        }
        self.prior.reset(place, rate, variance);
        self.noise.reset(place);
        self.shift.reset(place);
        self.together.reset(place);
        place
    }

    /// Keeps rates near 1: their unit follows the count per use, and the mean count follows the
    /// counts.
    fn rescale(&mut self) {
        let (mut counts, mut used, mut ticks) = (0.0, 0.0, 0.0);
        for one in self.observations.iter().take(self.placed).filter(|one| !one.restarts) {
            counts += one.count / self.unit;
            ticks += one.row.ticks();
            let near = one.row.iter().skip(1).filter(|(at, _)| self.kinds[*at] != Kind::Far);
            used += near.map(|(_, amount)| amount).sum::<f64>();
        }
        let used = least_use(self.by, used, ticks);
        if counts <= 0.0 || used <= 0.0 {
            return;
        }
        let mean = &mut self.noise.mean_count;
        *mean += MEAN_GAIN * (counts / ticks - *mean);
        let factor = counts / used;
        if !(1.0 / UNIT..=UNIT).contains(&factor) {
            self.unit *= factor;
            self.blocks.iter_mut().for_each(|block| block.scale(1.0 / factor));
            self.prior.scale(1.0 / factor);
            self.noise.scale(1.0 / factor);
            self.shift.scale(1.0 / factor);
            for (rate, variance) in self.remembered.values_mut() {
                *rate /= factor;
                *variance /= factor * factor;
            }
        }
    }

    /// Sums up the counts of the blocks from `improved` on.
    fn fill(&mut self, improved: usize) {
        let Some(first) = self.blocks.get(improved).map(|block| block.number) else { return };
        for block in self.blocks.iter_mut().skip(improved) {
            block.clear();
        }
        let (block_ticks, unit) = (self.block_ticks, self.unit);
        let mut at = improved;
        for one in self.observations.iter_mut().take(self.placed) {
            let number = one.to.saturating_sub(1) / block_ticks;
            if number < first || one.restarts {
                continue;
            }
            while self.blocks.get(at).is_some_and(|block| block.number < number) {
                at += 1;
            }
            let Some(block) = self.blocks.get_mut(at) else { break };
            one.weight = 1.0 / self.noise.variance(&one.row, &block.rate);
            block.add(&one.row, one.count / unit, one.weight);
        }
    }

    /// Fits the noise model to the residuals.
    fn fit(&mut self, improved: usize, iterations: usize) {
        let Some(first) = self.blocks.get(improved).map(|block| block.number) else { return };
        let mut at = improved;
        self.noise.begin(self.columns.len());
        for one in self.observations.iter().take(self.placed) {
            let number = self.block_of(one.to);
            if number < first || one.restarts {
                continue;
            }
            while self.blocks.get(at).is_some_and(|block| block.number < number) {
                at += 1;
            }
            let Some(block) = self.blocks.get(at) else { break };
            let row = &one.row;
            let expected: f64 = row.iter().map(|(at, amount)| block.rate[at] * amount).sum();
            let leverage = one.weight * self.shift.leverage(row, block);
            self.noise.add(row, &block.rate, one.count / self.unit - expected, leverage);
        }
        self.noise.fit(iterations);
    }

    /// Moves blocks beyond the span into the prior of the first one.
    fn drop_old(&mut self) {
        let n = self.columns.len();
        let span = self.span.min(MEMORY / (n * n * size_of::<f32>()));
        let over = self.blocks.len().saturating_sub(span);
        // Blocks that are still being improved stay.
        let over = over.min(self.improved());
        if over > 0 {
            let expected = self.expected();
            self.prior.take(&self.blocks, over, &self.kinds, expected);
            self.blocks.drain(..over);
        }
        let keep_from = self.blocks.get(self.improved()).map_or(0, |block| block.number);
        let divided = self.observations.iter().take(self.divided);
        let gone = divided.take_while(|one| self.block_of(one.to) < keep_from).count();
        self.observations.drain(..gone);
        self.divided -= gone;
        self.placed = self.placed.saturating_sub(gone);
    }

    /// Frees the places of columns that no block has any more, and remembers their rates.
    pub(super) fn tidy(&mut self, history: &History) {
        let mut used = vec![false; self.columns.len()];
        used[..FIXED.len()].fill(true);
        for block in &self.blocks {
            block.active().iter().for_each(|at| used[*at] = true);
        }
        for (place, used) in used.into_iter().enumerate() {
            let Some(column) = self.columns[place].filter(|_| !used) else { continue };
            if let (Some(source), Some(block)) = (history.source(column), self.blocks.back()) {
                if self.remembered.len() >= REMEMBERED {
                    self.remembered.clear();
                }
                let variance = self.prior.variance(place);
                self.remembered.insert(source, (block.rate[place], variance));
            }
            self.places.remove(&column);
            self.columns[place] = None;
            self.prior.reset(place, 0.0, 0.0);
        }
    }

    /// Divides the counts of the ticks up to `to`.
    pub(super) fn advance(&mut self, history: &History, to: u64) {
        let mut at = 0;
        let Some(block_of_first) = self.blocks.front().map(|block| block.number) else {
            // Without rates nothing is divided.
            while self.observations.get(self.divided).is_some_and(|one| one.to <= to) {
                self.divided += 1;
            }
            return;
        };
        while let Some(one) = self.observations.get(self.divided) {
            if one.to > to {
                break;
            }
            let number = self.block_of(one.to).max(block_of_first);
            while at + 1 < self.blocks.len() && self.blocks[at].number < number {
                at += 1;
            }
            if one.restarts {
                self.contributions.clear();
            } else {
                let block = &self.blocks[at];
                let counted = one.count / self.unit;
                self.contributions.add(
                    one,
                    history,
                    &self.places,
                    block,
                    &self.shift,
                    &self.noise,
                    (counted, self.always),
                );
            }
            self.divided += 1;
        }
        self.contributions.at = self.blocks.get(at).map_or(0, |block| block.number);
    }

    /// The parts that were divided since the last call.
    pub(super) fn take_contributions(&mut self) -> Contributions {
        std::mem::take(&mut self.contributions)
    }

    /// Covariances of the rates of two places in a block, from the last solution: that of steps,
    /// and that of what counts do not determine.
    pub(super) fn covariances(&self, block: u64) -> impl Fn(usize, usize) -> [f64; 2] {
        let block = self.blocks.iter().rev().find(|its| its.number <= block);
        let block = block.or(self.blocks.front());
        move |one, other| block.map_or([0.0; 2], |block| self.shift.covariances(block, one, other))
    }

    /// The place of a column; that of [`REST`] if it has none.
    pub(super) fn place_of_column(&self, column: u32) -> usize {
        self.places.get(&column).copied().unwrap_or(REST_PLACE)
    }

    /// The oldest tick that is still needed.
    pub(super) fn needs(&self) -> u64 {
        let first = self.observations.front().map(|one| one.from);
        first.or(self.pending).unwrap_or(u64::MAX)
    }
}

/// The smallest use from which a rate is computed: nearly idle CPUs say nothing about the rates of
/// busy ones.
fn least_use(by: Use, used: f64, ticks: f64) -> f64 {
    match by {
        Use::Time => used.max(0.1 * ticks),
        Use::Misses => used,
    }
}
