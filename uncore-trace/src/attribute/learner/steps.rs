//! Steps of rates from block to block: most are near 0 and few are large.
//!
//! A step has a Student distribution with one degree of freedom and scale [`STEP`] x the rate: a
//! normal distribution whose precision is learnt by expectation maximisation, from the step and its
//! uncertainty. The uncertainty is that of each column alone, with its information divided by its
//! variance inflation factor to account for the other columns.
//!
//! If a column jumps, another column that always runs with it may have jumped instead. So a jump is
//! allowed to both, in proportion to a power of their correlation.

use std::collections::VecDeque;

use super::blocks::{Block, STEP};
use super::prior::{Expected, Kind, Prior};

/// A block whose mean of weight x error^2 exceeds this may follow a jump of all rates.
const MISFIT: f64 = 3.0;

/// The step that is allowed there at first, relative to the rate.
const JUMP: f64 = 0.1;

/// A step of at least this part of the rate is a jump.
const LEAST_JUMP: f64 = 0.1;

/// Among correlated columns it is not known which one jumped. This is the power of the squared
/// correlation by which a jump is allowed to other columns, and by which their variance grows.
/// Chosen on simulated schedules and on mixes of the lab.
const SHARED: i32 = 4;
const UNCERTAIN: i32 = 2;

/// What is known about the columns before the rates of blocks are solved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns<'a> {
    /// The kind of each column.
    pub kinds: &'a [Kind],
    /// The prior of their rates.
    pub expected: Expected,
    /// The prior from older blocks.
    pub prior: &'a Prior,
    /// Variance inflation factor of each column.
    pub inflation: &'a [f64],
    /// How likely each column is confused with each other.
    pub alike: &'a Alike,
}

/// Computes the precisions of steps from the last rates. Those of the blocks before `improved` are
/// kept.
#[expect(clippy::needless_range_loop, reason = "several vectors are walked side by side")]
pub(super) fn renew(
    blocks: &mut VecDeque<Block>,
    columns: Columns<'_>,
    improved: usize,
    pass: usize,
) {
    let Columns { kinds, expected, .. } = columns;
    let n = kinds.len();
    let from = improved.saturating_sub(1);
    if pass == 0 {
        for at in from.max(1)..blocks.len() {
            if blocks[at].misfit() > MISFIT {
                let block = &mut blocks[at - 1];
                for place in 0..n {
                    if kinds[place] == Kind::Near {
                        let size = JUMP * block.rate[place].max(0.1);
                        block.step[place] = block.step[place].min(1.0 / (size * size));
                    }
                }
            }
        }
        return;
    }
    let marginal = Marginal::of(blocks, columns);
    let count = blocks.len();
    for place in 0..n {
        let sum: f64 = blocks.iter().map(|block| block.rate[place]).sum();
        let level = (sum / count as f64).max(0.1 * expected.mode(kinds[place]));
        let least = (STEP * level).powi(2);
        for at in from..count.saturating_sub(1) {
            let step = blocks[at + 1].rate[place] - blocks[at].rate[place];
            let (here, next) = (at * n + place, (at + 1) * n + place);
            let together = marginal.factor[here] * marginal.variance[next];
            let uncertain = marginal.variance[here] + marginal.variance[next] - 2.0 * together;
            blocks[at].step[place] = 2.0 / (least + step * step + uncertain.max(0.0));
        }
    }
    share_jumps(blocks, columns, from, SHARED);
}

/// How likely columns are confused with each other: their squared correlations.
#[derive(Debug)]
pub(super) struct Alike {
    n: usize,
    squares: Vec<f64>,
}

impl Alike {
    /// From the covariance of constant rates, `n` numbers per row.
    pub(super) fn of(covariance: &[f64], n: usize) -> Self {
        let variance: Vec<f64> = (0..n).map(|at| covariance[at * n + at]).collect();
        let squares = covariance.chunks_exact(n).zip(&variance).flat_map(|(row, own)| {
            row.iter().zip(&variance).map(move |(both, other)| both * both / (own * other))
        });
        Self { n, squares: squares.collect() }
    }
}

/// Where a column jumps, allows a jump to columns that are confused with it.
fn share_jumps(blocks: &mut VecDeque<Block>, columns: Columns<'_>, from: usize, power: i32) {
    let Columns { kinds, expected, alike, .. } = columns;
    for at in from..blocks.len().saturating_sub(1) {
        let jump = |(place, kind): (usize, &Kind)| {
            let (here, next) = (blocks[at].rate[place], blocks[at + 1].rate[place]);
            let (step, level) = (next - here, 0.5 * (here + next));
            let jumps = step.abs() > LEAST_JUMP * level.max(0.1 * expected.mode(*kind));
            jumps.then_some((place, step * step))
        };
        let jumps: Vec<(usize, f64)> = kinds.iter().enumerate().filter_map(jump).collect();
        for (place, row) in alike.squares.chunks_exact(alike.n).enumerate() {
            let others = jumps.iter().filter(|(other, _)| *other != place);
            let more: f64 = others.map(|(other, square)| row[*other].powi(power) * square).sum();
            let step = &mut blocks[at].step[place];
            *step /= 1.0 + more * *step;
        }
    }
}

/// Computes the variances of rates.
pub(super) fn vary(blocks: &mut VecDeque<Block>, columns: Columns<'_>) {
    let steps: Vec<Vec<f64>> = blocks.iter().map(|block| block.step.clone()).collect();
    share_jumps(blocks, columns, 0, UNCERTAIN);
    let marginal = Marginal::of(blocks, columns);
    for (block, step) in blocks.iter_mut().zip(steps) {
        block.step = step;
    }
    let n = columns.kinds.len();
    for (block, variance) in blocks.iter_mut().zip(marginal.variance.chunks_exact(n)) {
        block.variance.copy_from_slice(variance);
    }
}

/// For each block and place.
struct Marginal {
    variance: Vec<f64>,
    /// Covariance with the next block, divided by the variance of that block.
    factor: Vec<f64>,
}

impl Marginal {
    #[expect(clippy::needless_range_loop, reason = "several vectors are walked side by side")]
    fn of(blocks: &VecDeque<Block>, columns: Columns<'_>) -> Self {
        let Columns { kinds, expected, prior, inflation, .. } = columns;
        let (n, count) = (kinds.len(), blocks.len());
        let mut own = vec![0.0; count * n];
        for (at, block) in blocks.iter().enumerate() {
            let from = at * n;
            for place in 0..n {
                let rate = block.rate[place];
                own[from + place] = expected.strength(kinds[place]) / (rate * rate);
            }
            block.diagonal(|place, value| own[from + place] += value / inflation[place]);
            if at == 0 {
                for place in 0..prior.len() {
                    own[place] += prior.at(place, place) / inflation[place];
                }
            }
        }
        // Information from the blocks before and after, through the steps in between.
        let mut variance = own.clone();
        let mut before = vec![0.0; n];
        let mut forward = vec![0.0; count * n];
        for at in 0..count {
            for place in 0..n {
                let here = at * n + place;
                let known = own[here] + before[place];
                forward[here] = known;
                let step = blocks[at].step[place];
                before[place] = step * known / (step + known);
            }
        }
        let mut after = vec![0.0; n];
        let mut factor = vec![0.0; count * n];
        for at in (0..count).rev() {
            for place in 0..n {
                let here = at * n + place;
                variance[here] = 1.0 / (forward[here] + after[place]);
                if at + 1 < count {
                    let step = blocks[at].step[place];
                    factor[here] = step / (step + forward[here]);
                }
                if at > 0 {
                    let step = blocks[at - 1].step[place];
                    let known = own[here] + after[place];
                    after[place] = step * known / (step + known);
                }
            }
        }
        Self { variance, factor }
    }
}
