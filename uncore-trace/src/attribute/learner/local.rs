//! How rates differ just now.
//!
//! The learnt rates are corrected in three stages ([`STAGES`]), each around the last: by the counts
//! of some seconds, of some tenths of a second, and of the block itself. In each, a rate is expected
//! to differ by a normal deviation. How large it is, is learnt from the blocks before (an EM step
//! for its variance), but a stage never expects less than [`Stage::least`]: where counts tell
//! little, they say little of the deviation.

use std::collections::{BTreeMap, VecDeque};

use super::super::history::{History, LONG, Use};
use super::super::solve::{SquareMatrix, conjugate_gradient, dot_product};
use super::solve::Solution;

/// Counts from which rates are corrected.
#[derive(Debug)]
struct Stage {
    /// Number of blocks that are taken together.
    length: u64,
    /// Weight of these by their distance.
    weights: &'static [f64],
    /// Factor for the variance of a tick: errors of neighbouring ticks are alike.
    alike: f64,
    /// Least expected deviation of a rate of time, as a part of it.
    least: f64,
}

impl Stage {
    /// Least expected deviation of a rate. Bytes per miss, or per byte at a port, differ less than
    /// bytes per time.
    fn least(&self, by: Use) -> f64 {
        match by {
            Use::Time => self.least,
            Use::Misses | Use::Ports => 0.4 * self.least,
        }
    }
}

/// The stages. Weights fall by `exp(-d / 1 s)` and `exp(-d / 125 ms)`. All constants are those with the
/// smallest errors on drawn machines of 8 to 144 CPUs.
const STAGES: [Stage; 3] = [
    Stage { length: LONG, weights: &[1.0, 0.6, 0.37, 0.22, 0.14], alike: 16.0, least: 0.5 },
    Stage { length: 1, weights: &[1.0, 0.67, 0.3, 0.08], alike: 4.0, least: 0.3 },
    Stage { length: 1, weights: &[1.0], alike: 4.0, least: 0.1 },
];

/// Largest expected deviation.
const MOST: f64 = 1.0;

/// Gain of the expected deviation, per block.
const GAIN: f64 = 0.1;

/// The deviation is learnt from a block if its counts tell of this many rates.
const TOLD: f64 = 0.3;

/// Least rate in a block, as a part of the learnt one.
const LEAST: f64 = 0.15;

/// Most iterations of the conjugate gradient method.
const ITERATIONS: usize = 25;

/// It has converged when the squared residual is this part of the first.
const SETTLED: f64 = 1e-5;

/// Products of use and count in a block, each weighed by one over what is expected of the tick.
#[derive(Debug)]
pub(super) struct BlockCounts {
    /// Number of the block.
    pub number: u64,
    /// By place.
    pub products: Vec<f64>,
}

impl BlockCounts {
    /// A place has a new column.
    pub(super) fn clear(&mut self, place: usize) {
        self.products.get_mut(place).into_iter().for_each(|its| *its = 0.0);
    }
}

/// Expected deviations, by stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spreads([f64; 3]);

impl Spreads {
    /// Those of a beginning.
    pub(super) fn new(by: Use) -> Self {
        Self(STAGES.each_ref().map(|stage| stage.least(by)))
    }
}

/// The rates in a block.
#[derive(Debug)]
pub(super) struct Local {
    /// The block.
    pub number: u64,
    /// The long block that it is in, and its rates by place.
    long: (u64, Vec<f64>),
    /// By place.
    pub rates: Vec<f64>,
    /// By place.
    pub variance: Vec<Variance>,
}

/// Variances of relative errors, by cause.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Variance {
    /// Of a column's part of the count: the learnt rates.
    pub learnt: f64,
    /// Of a column's part of the count: how rates differ just now.
    pub now: f64,
    /// Of the part of its group, near and far and with all processes: the learnt rates.
    pub of_group: f64,
}

impl Variance {
    /// Of a place that nothing is known of.
    pub(in super::super) const UNKNOWN: Self = Self { learnt: 1.0, now: 1.0, of_group: 1.0 };

    /// Moves it to another by this part of the difference.
    pub(in super::super) fn approach(&mut self, later: &Self, weight: f64) {
        let Self { learnt, now, of_group } = self;
        for (value, next) in [(learnt, later.learnt), (now, later.now), (of_group, later.of_group)]
        {
            *value += weight * (next - *value);
        }
    }
}

impl Local {
    /// The learnt rates, not corrected, for a block. They are expected to differ by `spreads`.
    pub(super) fn learnt(
        number: u64,
        solution: &Solution,
        history: &History,
        spreads: &Spreads,
    ) -> Self {
        let rates = solution.rates.clone();
        let now = spreads.0.iter().map(|spread| spread * spread).sum();
        let variance = variances(number, solution, &rates, &vec![now; rates.len()], history);
        // No block follows it whose slow rates are the same.
        Self { number, long: (u64::MAX, Vec::new()), rates, variance }
    }

    /// Corrects the learnt rates for the block of a tick. `error` is the variance of a tick, and
    /// `last` has the rates of the block before it, if they were learnt at the same time.
    pub(super) fn find(
        tick: u64,
        solution: &Solution,
        (counts, history): (&VecDeque<BlockCounts>, &History),
        error: f64,
        spreads: &mut Spreads,
        last: Option<Self>,
    ) -> Self {
        let number = history.block_of(tick);
        let learnt = &solution.rates;
        let mut correct = |at: usize, around: &[f64]| {
            let stage = &STAGES[at];
            let middle = number.div_ceil(stage.length);
            let weight = |block: u64| {
                let distance = block.div_ceil(stage.length).abs_diff(middle);
                stage.weights.get(distance as usize).copied()
            };
            let matrix = history.around((at, middle), weight);
            let mut right = vec![0.0; matrix.n];
            for block in counts {
                let Some(weight) = weight(block.number) else { continue };
                right.iter_mut().zip(&block.products).for_each(|(to, its)| *to += weight * its);
            }
            let problem = Problem { matrix: &matrix, right };
            let spread = &mut spreads.0[at];
            problem.correct(around, learnt, (stage, history.kind(), error), spread)
        };
        let long = number.div_ceil(LONG);
        let slow = match last.filter(|last| last.long.0 == long) {
            Some(last) => last.long.1,
            None => correct(0, learnt).0,
        };
        let (fast, _) = correct(1, &slow);
        let (rates, now) = correct(2, &fast);
        let variance = variances(number, solution, &rates, &now, history);
        Self { number, long: (long, slow), rates, variance }
    }
}

/// By place: variances of the relative errors of parts of the count in a block.
fn variances(
    number: u64,
    solution: &Solution,
    rates: &[f64],
    now: &[f64],
    history: &History,
) -> Vec<Variance> {
    let active = &solution.active;
    let block = history.block(number);
    let used = |place: usize| block.and_then(|block| block.products.row(place).first()).copied();
    let expected: Vec<f64> =
        active.iter().map(|place| rates[*place] * f64::from(used(*place).unwrap_or(0.0))).collect();
    let all: f64 = expected.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let parts: Vec<f64> = expected.iter().map(|its| its / all).collect();
    let covariance = &solution.covariance;
    let common = covariance.multiply_vector(&parts);
    let of_all = dot_product(&common, &parts);
    let now: Vec<f64> = active.iter().map(|place| now[*place]).collect();
    let now_of_all: f64 = now.iter().zip(&parts).map(|(its, part)| its * part * part).sum();
    let both = |one: usize, other: usize| f64::from(covariance.row(one.max(other))[one.min(other)]);
    // The variance of a sum's logarithm: the gradient of each of its parts is its part of the sum.
    let of_group = |members: &[usize]| {
        let whole: f64 = members.iter().map(|at| parts[*at]).sum();
        if whole <= 0.0 {
            return None;
        }
        let (mut own, mut with_all) = (0.0, 0.0);
        for at in members {
            own +=
                parts[*at] * members.iter().map(|its| both(*at, *its) * parts[*its]).sum::<f64>();
            with_all += parts[*at] * common[*at];
        }
        Some((own / whole - 2.0 * with_all) / whole + of_all)
    };
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, place) in active.iter().enumerate() {
        groups.entry(history.columns().root(*place)).or_default().push(at);
    }
    let mut variance = vec![Variance::UNKNOWN; solution.rates.len()];
    for members in groups.values() {
        let of_group = of_group(members);
        for at in members {
            let learnt = both(*at, *at) - 2.0 * common[*at] + of_all;
            let now = now[*at] * (1.0 - 2.0 * parts[*at]) + now_of_all;
            variance[active[*at]] = Variance {
                learnt: learnt.max(0.0),
                now: now.max(0.0),
                of_group: of_group.unwrap_or(learnt).max(0.0),
            };
        }
    }
    variance
}

/// Weighed products of the blocks around one, of use and use, and of use and count.
struct Problem<'a> {
    matrix: &'a SquareMatrix,
    right: Vec<f64>,
}

impl Problem<'_> {
    /// The corrected rates, and the variance of their deviations. Improves the expected deviation.
    fn correct(
        self,
        around: &[f64],
        learnt: &[f64],
        (stage, by, error): (&Stage, Use, f64),
        spread: &mut f64,
    ) -> (Vec<f64>, Vec<f64>) {
        let n = self.matrix.n;
        // Places that came after the learnt rates have none.
        let rate = |at: usize| around.get(at).copied().unwrap_or(0.0);
        // In units of the expected deviation of each rate and of the error.
        let unit = (stage.alike * error).sqrt();
        let scale: Vec<f64> = (0..n).map(|at| *spread * rate(at) / unit).collect();
        let rates: Vec<f32> = (0..n).map(|at| rate(at) as f32).collect();
        let expected = self.matrix.multiply_vector(&rates).into_iter().map(f64::from);
        let rest = self.right.iter().zip(expected).zip(&scale);
        let rest = rest.map(|((right, expected), scale)| (right - expected) * scale / unit);
        let own = |at: usize| f64::from(self.matrix.of[at * n + at]) * scale[at] * scale[at];
        let diagonal: Vec<f64> = (0..n).map(|at| own(at) + 1.0).collect();
        let product = |x: &[f64], to: &mut [f64]| {
            let scaled: Vec<f32> =
                x.iter().zip(&scale).map(|(its, scale)| (its * scale) as f32).collect();
            let products = self.matrix.multiply_vector(&scaled);
            for at in 0..n {
                to[at] = f64::from(products[at]) * scale[at] + x[at];
            }
        };
        let moved = conjugate_gradient(product, &diagonal, rest.collect(), (ITERATIONS, SETTLED));
        let variance: Vec<f64> = diagonal.iter().map(|its| its.recip()).collect();
        let own = (0..n).map(|at| {
            let least = LEAST * learnt.get(at).copied().unwrap_or(0.0);
            (rate(at) * (1.0 + *spread * moved[at])).max(least)
        });
        let (own, now) =
            (own.collect(), variance.iter().map(|its| its * *spread * *spread).collect());
        let (mut squares, mut told) = (0.0, 0.0);
        for (moved, variance) in moved.iter().zip(&variance) {
            let weight = (1.0 - variance).powi(2);
            squares += weight * (moved * moved + variance);
            told += weight;
        }
        if told > TOLD {
            let found = (*spread * (squares / told).sqrt()).clamp(stage.least(by), MOST);
            *spread += GAIN * told.min(1.0) * (found - *spread);
        }
        (own, now)
    }
}
