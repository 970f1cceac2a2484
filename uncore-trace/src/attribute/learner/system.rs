//! The equations for the rates of all blocks, and their solution.
//!
//! The unknowns are the rates of each block. The equations come from the counts of each block, a
//! random walk from block to block, the prior of the first block, and a barrier that keeps rates
//! positive (Newton steps on `2 k ln rate - k rate / mode`). They are solved by conjugate gradients
//! from the last solution. The preconditioner is a two-level additive Schwarz method (Toselli and
//! Widlund, "Domain Decomposition Methods", 2005, chapter 2): each column alone, which is a
//! tridiagonal system, plus a common shift of all blocks, with one equation per column. So the cost
//! is proportional to the stored sums, not to all pairs of columns in all blocks.

use std::collections::VecDeque;

use super::super::solve::Factor;
use super::Iterations;
use super::blocks::Block;
use super::prior::{Expected, Kind, Prior};
use super::steps::{self, Alike, Columns};

/// Lower limit of a rate after one pass, as a part of the rate before.
const LEAST_PART: f64 = 0.1;

/// Lower limit of a rate, as a part of the expected rate of its kind.
const FLOOR: f64 = 1e-4;

/// The solver stops when the squared error, in the norm of the preconditioner, is below this part
/// of the squared solution.
const ENOUGH: f64 = 1e-9;

/// The result of a solution.
#[derive(Debug)]
pub(super) struct System {
    /// Number of places.
    pub n: usize,
    /// Covariance of a common shift of each column, `n` numbers per row, for constant rates.
    pub covariance: Vec<f64>,
}

/// The equations. Vectors have one number for each block and place.
struct Equations<'a> {
    n: usize,
    blocks: &'a VecDeque<Block>,
    prior: &'a Prior,
    barrier: Vec<f64>,
    /// By block and place: the inverse of the pivot, and the factor for the next block.
    pivot: Vec<f64>,
    factor: Vec<f64>,
    coarse: &'a Factor,
}

impl System {
    /// Improves the rates of the blocks; `None` if the solver fails, and then rates are unchanged.
    pub(super) fn solve(
        blocks: &mut VecDeque<Block>,
        prior: &Prior,
        kinds: &[Kind],
        expected: Expected,
        iterations: Iterations,
        improved: usize,
    ) -> Option<Self> {
        let n = kinds.len();
        let count = blocks.len();
        let mut all = vec![0.0; n * n];
        for block in &*blocks {
            block.add_to(&mut all, n);
        }
        for one in 0..prior.len() {
            for other in 0..prior.len() {
                all[one * n + other] += prior.at(one, other);
            }
        }
        for block in &*blocks {
            for place in 0..n {
                let rate = block.rate[place];
                all[place * n + place] += expected.strength(kinds[place]) / (rate * rate);
            }
        }
        let coarse = Factor::of(&all, n)?;
        let covariance = coarse.inverse();
        // The variance inflation factor of each column.
        let inflation: Vec<f64> =
            (0..n).map(|at| (all[at * n + at] * covariance[at * n + at]).max(1.0)).collect();
        let alike = Alike::of(&covariance, n);
        let columns = Columns { kinds, expected, prior, inflation: &inflation, alike: &alike };
        let mut right = vec![0.0; count * n];
        let mut rates = vec![0.0; count * n];
        for pass in 0..iterations.passes {
            steps::renew(blocks, columns, improved, pass);
            right.fill(0.0);
            let mut barrier = vec![0.0; count * n];
            for (at, block) in blocks.iter().enumerate() {
                let range = at * n..(at + 1) * n;
                block.add_right(&mut right[range.clone()]);
                if at == 0 {
                    prior.add_right(&mut right[range.clone()]);
                }
                for place in 0..n {
                    let (rate, strength) = (block.rate[place], expected.strength(kinds[place]));
                    barrier[range.start + place] = strength / (rate * rate);
                    right[range.start + place] +=
                        2.0 * strength / rate - strength / expected.mode(kinds[place]);
                }
                rates[range].copy_from_slice(&block.rate);
            }
            let equations = Equations::new(n, blocks, prior, barrier, &coarse);
            equations.solve(&mut rates, &right, iterations.solver);
            if rates.iter().any(|rate| !rate.is_finite()) {
                return None;
            }
            let (mut moved, mut all) = (0.0, 0.0);
            for (block, rates) in blocks.iter_mut().zip(rates.chunks_exact(n)) {
                for ((rate, new), kind) in block.rate.iter_mut().zip(rates).zip(kinds) {
                    let new = new.max(LEAST_PART * *rate).max(FLOOR * expected.mode(*kind));
                    moved += (new - *rate).abs();
                    all += new;
                    *rate = new;
                }
            }
            if pass > 0 && moved < iterations.settled * all {
                break;
            }
        }
        steps::vary(blocks, columns);
        Some(Self { n, covariance })
    }
}

impl<'a> Equations<'a> {
    fn new(
        n: usize,
        blocks: &'a VecDeque<Block>,
        prior: &'a Prior,
        barrier: Vec<f64>,
        coarse: &'a Factor,
    ) -> Self {
        let mut pivot = barrier.clone();
        let mut factor = vec![0.0; pivot.len()];
        let last = blocks.len() - 1;
        for (at, block) in blocks.iter().enumerate() {
            let from = at * n;
            block.diagonal(|place, value| pivot[from + place] += value);
            if at == 0 {
                for (place, pivot) in pivot.iter_mut().enumerate().take(prior.len()) {
                    *pivot += prior.at(place, place);
                }
            }
            if at < last {
                for (place, step) in block.step.iter().enumerate().take(n) {
                    pivot[from + place] += step;
                    pivot[from + n + place] += step;
                }
            }
        }
        for at in 0..=last {
            for place in 0..n {
                let here = at * n + place;
                if at > 0 {
                    let before = here - n;
                    pivot[here] -= factor[before] * blocks[at - 1].step[place];
                }
                if at < last {
                    factor[here] = blocks[at].step[place] / pivot[here];
                }
            }
        }
        for pivot in &mut pivot {
            *pivot = 1.0 / *pivot;
        }
        Self { n, blocks, prior, barrier, pivot, factor, coarse }
    }

    /// `to` = equations x `rates`.
    fn apply(&self, rates: &[f64], to: &mut [f64]) {
        let n = self.n;
        for ((to, rate), barrier) in to.iter_mut().zip(rates).zip(&self.barrier) {
            *to = barrier * rate;
        }
        self.prior.apply(&rates[..n], &mut to[..n]);
        let last = self.blocks.len() - 1;
        for (at, block) in self.blocks.iter().enumerate() {
            let from = at * n;
            block.apply(&rates[from..from + n], &mut to[from..from + n]);
            if at < last {
                for place in 0..n {
                    let here = from + place;
                    let pull = block.step[place] * (rates[here + n] - rates[here]);
                    to[here] -= pull;
                    to[here + n] += pull;
                }
            }
        }
    }

    fn precondition(&self, error: &[f64], to: &mut [f64]) {
        let n = self.n;
        to.copy_from_slice(error);
        for here in n..to.len() {
            to[here] += self.factor[here - n] * to[here - n];
        }
        for here in (0..to.len()).rev() {
            to[here] *= self.pivot[here];
            if here + n < to.len() {
                to[here] += self.factor[here] * to[here + n];
            }
        }
        let mut sums = vec![0.0; n];
        for error in error.chunks_exact(n) {
            sums.iter_mut().zip(error).for_each(|(sum, error)| *sum += error);
        }
        self.coarse.solve(&mut sums);
        for to in to.chunks_exact_mut(n) {
            to.iter_mut().zip(&sums).for_each(|(to, sum)| *to += sum);
        }
    }

    /// Conjugate gradients.
    fn solve(&self, rates: &mut [f64], right: &[f64], iterations: usize) {
        let len = rates.len();
        let (mut error, mut better) = (vec![0.0; len], vec![0.0; len]);
        let mut image = vec![0.0; len];
        self.apply(rates, &mut image);
        for ((error, right), image) in error.iter_mut().zip(right).zip(&image) {
            *error = right - image;
        }
        self.precondition(&error, &mut better);
        let mut direction = better.clone();
        let mut size = dot(&error, &better);
        let whole = dot(rates, right).abs();
        for _ in 0..iterations {
            if size.is_nan() || size <= ENOUGH * whole {
                return;
            }
            self.apply(&direction, &mut image);
            let curvature = dot(&direction, &image);
            if curvature.is_nan() || curvature <= 0.0 {
                return;
            }
            let by = size / curvature;
            for at in 0..len {
                rates[at] += by * direction[at];
                error[at] -= by * image[at];
            }
            self.precondition(&error, &mut better);
            let new = dot(&error, &better);
            let kept = new / size;
            size = new;
            for (direction, better) in direction.iter_mut().zip(&better) {
                *direction = better + kept * *direction;
            }
        }
    }
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}
