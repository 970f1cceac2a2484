//! How rates differ just now.
//!
//! The learnt rates are corrected in three stages ([`STAGES`]), each around the last: by the counts
//! of some seconds, of some tenths of a second, and of the block itself. In each, a rate is expected
//! to differ by a normal deviation. How large it is, is learnt from the blocks before (an EM step
//! for its variance), but a stage never expects less than [`Stage::least`]: where counts tell
//! little, they say little of the deviation.

use std::collections::{BTreeMap, VecDeque};

use super::super::history::{History, Length, Use};
use super::super::solve::{dot, mirror};
use super::solve::Solution;

/// Counts from which rates are corrected.
#[derive(Debug)]
struct Stage {
    /// Length of blocks.
    length: Length,
    /// Weight of a block by its distance.
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
    Stage { length: Length::Long, weights: &[1.0, 0.6, 0.37, 0.22, 0.14], alike: 16.0, least: 0.5 },
    Stage { length: Length::Short, weights: &[1.0, 0.67, 0.3, 0.08], alike: 4.0, least: 0.3 },
    Stage { length: Length::Short, weights: &[1.0], alike: 4.0, least: 0.1 },
];

/// Largest expected deviation.
const MOST: f64 = 1.0;

/// Gain of the expected deviation, per block.
const GAIN: f64 = 0.1;

/// The deviation is learnt from a block if its counts tell of this many rates.
const TOLD: f64 = 0.3;

/// Least rate in a block, as a part of the learnt one.
const LEAST: f64 = 0.15;

/// Iterations of the conjugate gradient method.
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
    /// Adds a tick.
    pub(super) fn add(&mut self, row: &[(u16, f64)], count: f64) {
        let most = row.last().map_or(0, |(place, _)| usize::from(*place) + 1);
        if self.products.len() < most {
            self.products.resize(most, 0.0);
        }
        for (place, amount) in row {
            self.products[usize::from(*place)] += amount * count;
        }
    }

    /// A place has a new column.
    pub(super) fn clear(&mut self, place: usize) {
        self.products.get_mut(place).into_iter().for_each(|its| *its = 0.0);
    }
}

/// The counts of the last blocks, by length.
pub(super) type Counts = [VecDeque<BlockCounts>; 2];

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
    /// The long block that it is in, and its rates, of the active places.
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
    /// The part of its group in the count.
    pub group: f64,
}

impl Variance {
    /// Of a place that nothing is known of.
    pub(in super::super) const UNKNOWN: Self =
        Self { learnt: 1.0, now: 1.0, of_group: 1.0, group: 0.0 };
}

impl Local {
    /// Corrects the learnt rates for the block of a tick. `error` is the variance of a tick, and
    /// `last` has the rates of the block before it, if they were learnt at the same time.
    pub(super) fn find(
        tick: u64,
        solution: &Solution,
        (counts, history): (&Counts, &History),
        error: f64,
        spreads: &mut Spreads,
        last: Option<Self>,
    ) -> Self {
        let active = &solution.active;
        let learnt: Vec<f64> = active.iter().map(|place| solution.rates[*place]).collect();
        let mut correct = |stage: usize, around: &[f64]| {
            let spread = &mut spreads.0[stage];
            let stage = &STAGES[stage];
            let number = history.block_of(tick, stage.length);
            let problem = Problem::new(number, stage, active, (counts, history));
            problem.correct(around, &learnt, (stage, history.kind(), error), spread)
        };
        let long = history.block_of(tick, Length::Long);
        let slow = match last.filter(|last| last.long.0 == long) {
            Some(last) => last.long.1,
            None => correct(0, &learnt).0,
        };
        let (fast, _) = correct(1, &slow);
        let (own, now) = correct(2, &fast);
        let mut rates = solution.rates.clone();
        active.iter().zip(&own).for_each(|(place, rate)| rates[*place] = *rate);
        let number = history.block_of(tick, Length::Short);
        let variance = variances(number, solution, &own, &now, history);
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
    let (active, n) = (&solution.active, solution.active.len());
    let block = history.blocks(Length::Short).find(|block| block.number == number);
    let used = |place: usize| block.and_then(|block| block.products.row(place).first()).copied();
    let expected: Vec<f64> =
        active.iter().zip(rates).map(|(place, rate)| rate * used(*place).unwrap_or(0.0)).collect();
    let all: f64 = expected.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let parts: Vec<f64> = expected.iter().map(|its| its / all).collect();
    let covariance = &solution.covariance;
    let common: Vec<f64> = covariance.chunks_exact(n.max(1)).map(|row| dot(row, &parts)).collect();
    let of_all = dot(&common, &parts);
    let now_of_all: f64 = now.iter().zip(&parts).map(|(its, part)| its * part * part).sum();
    // The variance of a sum's logarithm: the gradient of each of its parts is its part of the sum.
    let of_group = |members: &[usize]| {
        let whole: f64 = members.iter().map(|at| parts[*at]).sum();
        if whole <= 0.0 {
            return None;
        }
        let (mut own, mut with_all) = (0.0, 0.0);
        for at in members {
            let row = &covariance[at * n..][..n];
            own += parts[*at] * members.iter().map(|its| row[*its] * parts[*its]).sum::<f64>();
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
        let group = members.iter().map(|at| parts[*at]).sum();
        for at in members {
            let learnt = covariance[at * n + at] - 2.0 * common[*at] + of_all;
            let now = now[*at] * (1.0 - 2.0 * parts[*at]) + now_of_all;
            variance[active[*at]] = Variance {
                learnt: learnt.max(0.0),
                now: now.max(0.0),
                of_group: of_group.unwrap_or(learnt).max(0.0),
                group,
            };
        }
    }
    variance
}

/// Weighed products of the blocks around one: of use and use, `n` numbers per row, and of use and
/// count.
struct Problem {
    matrix: Vec<f64>,
    right: Vec<f64>,
}

impl Problem {
    fn new(
        number: u64,
        stage: &Stage,
        active: &[usize],
        (counts, history): (&Counts, &History),
    ) -> Self {
        let n = active.len();
        let (mut matrix, mut right) = (vec![0.0; n * n], vec![0.0; n]);
        let weight = |its: u64| stage.weights.get(its.abs_diff(number) as usize).copied();
        for block in history.blocks(stage.length) {
            let Some(weight) = weight(block.number) else { continue };
            for (at, place) in active.iter().enumerate() {
                let row = block.products.row(*place);
                if row.is_empty() {
                    continue;
                }
                for (to, other) in matrix[at * n..][..=at].iter_mut().zip(active) {
                    *to += weight * row[*other];
                }
            }
        }
        for block in &counts[stage.length as usize] {
            let Some(weight) = weight(block.number) else { continue };
            for (to, place) in right.iter_mut().zip(active) {
                *to += weight * block.products.get(*place).copied().unwrap_or(0.0);
            }
        }
        mirror(&mut matrix, n);
        Self { matrix, right }
    }

    /// The corrected rates, and the variance of their deviations. Improves the expected deviation.
    fn correct(
        mut self,
        around: &[f64],
        learnt: &[f64],
        (stage, by, error): (&Stage, Use, f64),
        spread: &mut f64,
    ) -> (Vec<f64>, Vec<f64>) {
        let n = around.len();
        // In units of the expected deviation of each rate and of the error.
        let unit = (stage.alike * error).sqrt();
        let scale: Vec<f64> = around.iter().map(|rate| *spread * rate / unit).collect();
        let rest: Vec<f64> = (0..n)
            .map(|at| {
                let row = &self.matrix[at * n..][..n];
                let expected = dot(row, around);
                (self.right[at] - expected) * scale[at] / unit
            })
            .collect();
        for (at, row) in self.matrix.chunks_exact_mut(n.max(1)).enumerate() {
            row.iter_mut().zip(&scale).for_each(|(its, other)| *its *= other * scale[at]);
            row[at] += 1.0;
        }
        let moved = conjugate_gradient(&self.matrix, &rest);
        let variance: Vec<f64> = (0..n).map(|at| 1.0 / self.matrix[at * n + at]).collect();
        let own = around.iter().zip(&moved).zip(learnt);
        let own =
            own.map(|((rate, moved), learnt)| (rate * (1.0 + *spread * moved)).max(LEAST * learnt));
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

/// Solves `matrix x = right`; the matrix is symmetric and at least the identity.
fn conjugate_gradient(matrix: &[f64], right: &[f64]) -> Vec<f64> {
    let n = right.len();
    let diagonal: Vec<f64> = (0..n).map(|at| matrix[at * n + at]).collect();
    let lessen = |rest: &[f64]| -> Vec<f64> {
        rest.iter().zip(&diagonal).map(|(its, diagonal)| its / diagonal).collect()
    };
    let mut found = vec![0.0; n];
    let mut rest = right.to_vec();
    let mut eased = lessen(&rest);
    let mut along = eased.clone();
    let mut size = dot(&rest, &eased);
    let least = SETTLED * size;
    for _ in 0..ITERATIONS {
        if size <= least || !size.is_finite() {
            break;
        }
        let moved: Vec<f64> = matrix.chunks_exact(n.max(1)).map(|row| dot(row, &along)).collect();
        let step = size / dot(&along, &moved).max(f64::MIN_POSITIVE);
        for at in 0..n {
            found[at] += step * along[at];
            rest[at] -= step * moved[at];
        }
        eased = lessen(&rest);
        let next = dot(&rest, &eased);
        let gain = next / size;
        along.iter_mut().zip(&eased).for_each(|(along, eased)| *along = eased + gain * *along);
        size = next;
    }
    found
}
