//! Resolves what ticks do not determine: shifts of rates that change no count by more than a
//! systematic error would.
//!
//! For tenants that never pause, or that always run together, the counts do not determine who
//! causes how much: their fitted rates follow the smallest error of the model. So the rates of all
//! blocks are shifted by one vector toward their prior means. The shift is limited to what the
//! counts would not show beside an error of a few percent that is the same in all ticks.

use std::collections::VecDeque;

use super::super::solve::Factor;
use super::blocks::{Block, DesignRow};
use super::prior::{Expected, Kind};
use super::system::System;

/// Iterations of Newton's method.
const ITERATIONS: usize = 6;

/// Lower limit of a rate after the shift.
const LEAST: f64 = 1e-4;

/// Time constant of the averages over ticks, ns.
const MEMORY_NS: f64 = 3e9;

/// Moving average of amount x amount for each pair of columns.
#[derive(Debug, Default)]
pub(super) struct Together {
    n: usize,
    sums: Vec<f64>,
    /// Sum of the weights of ticks.
    weights: f64,
    /// Number of ticks since the weights were reset to 1.
    ticks: f64,
}

impl Together {
    /// Adds a count over ticks of this length.
    pub(super) fn add(&mut self, row: &DesignRow, places: usize, tick_ns: u64) {
        if places > self.n {
            let mut sums = vec![0.0; places * places];
            for (from, to) in
                self.sums.chunks_exact(self.n.max(1)).zip(sums.chunks_exact_mut(places))
            {
                to[..self.n].copy_from_slice(from);
            }
            (self.sums, self.n) = (sums, places);
        }
        // Increasing the weight of new ticks is cheaper than scaling old ones down, until numbers
        // grow large.
        let mut weight = (self.ticks * tick_ns as f64 / MEMORY_NS).min(100.0).exp();
        if weight > 1e6 {
            self.sums.iter_mut().for_each(|sum| *sum /= weight);
            self.weights /= weight;
            (self.ticks, weight) = (0.0, 1.0);
        }
        for (one, amount) in row.iter() {
            let sums = &mut self.sums[one * self.n..][..self.n];
            for (other, its) in row.iter() {
                sums[other] += weight * amount * its;
            }
        }
        self.weights += weight * row.ticks();
        self.ticks += row.ticks();
    }

    /// Assigns this place to another column.
    pub(super) fn reset(&mut self, place: usize) {
        if place < self.n {
            for other in 0..self.n {
                self.sums[place * self.n + other] = 0.0;
                self.sums[other * self.n + place] = 0.0;
            }
        }
    }

    /// The mean products, `n` numbers per row.
    fn mean(&self, n: usize) -> Vec<f64> {
        let mut mean = vec![0.0; n * n];
        for (from, to) in self.sums.chunks_exact(self.n.max(1)).zip(mean.chunks_exact_mut(n)) {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = from / self.weights);
        }
        mean
    }
}

/// Places of a row, their amounts, and the standard deviations of their traffic.
fn deviations(row: &DesignRow, block: &Block) -> Vec<(usize, f64, f64)> {
    let of = |(at, amount): (usize, f64)| (at, amount, amount * block.variance[at].sqrt());
    row.iter().map(of).collect()
}

/// The shift of each place, and its uncertainty.
#[derive(Debug, Default)]
pub(super) struct Shift {
    by: Vec<f64>,
    /// Covariance of the shift, `n` numbers per row.
    covariance: Vec<f64>,
    /// Correlations of constant rates.
    correlation: Vec<f64>,
    n: usize,
}

impl Shift {
    /// Assigns this place to another column.
    pub(super) fn reset(&mut self, place: usize) {
        if place < self.n {
            self.by[place] = 0.0;
            for other in 0..self.n {
                for at in [place * self.n + other, other * self.n + place] {
                    self.covariance[at] = 0.0;
                    self.correlation[at] = 0.0;
                }
            }
            self.correlation[place * self.n + place] = 1.0;
        }
    }

    /// Changes the unit of rates.
    pub(super) fn scale(&mut self, factor: f64) {
        self.by.iter_mut().for_each(|by| *by *= factor);
        self.covariance.iter_mut().for_each(|its| *its *= factor * factor);
    }

    /// The shifted rate of a place.
    pub(super) fn rate(&self, block: &Block, place: usize) -> f64 {
        let by = self.by.get(place).copied().unwrap_or(0.0);
        (block.rate[place] - by).max(LEAST.min(block.rate[place]))
    }

    /// Covariances of the rates of two places in a block: from steps, and from the shift.
    pub(super) fn covariances(&self, block: &Block, one: usize, other: usize) -> [f64; 2] {
        let n = self.n;
        if one >= n || other >= n {
            return [if one == other { block.variance[one] } else { 0.0 }, 0.0];
        }
        let deviation = (block.variance[one] * block.variance[other]).sqrt();
        [self.correlation[one * n + other] * deviation, self.covariance[one * n + other]]
    }

    /// The covariance of each place's traffic with the total of a row, from the uncertainty of
    /// rates.
    pub(super) fn common(&self, row: &DesignRow, block: &Block) -> Vec<f64> {
        let n = self.n;
        let places = deviations(row, block);
        let of_place = |&(one, amount, deviation): &(usize, f64, f64)| {
            if one >= n {
                return deviation * deviation;
            }
            let correlations = &self.correlation[one * n..][..n];
            let covariances = &self.covariance[one * n..][..n];
            let known = places.iter().filter(|(other, ..)| *other < n);
            let (steps, shift) =
                known.fold((0.0, 0.0), |(steps, shift), (other, its, deviation)| {
                    (steps + correlations[*other] * deviation, shift + covariances[*other] * its)
                });
            deviation * steps + amount * shift
        };
        places.iter().map(of_place).collect()
    }

    /// The variance of a predicted count, from the uncertainty of rates.
    pub(super) fn leverage(&self, row: &DesignRow, block: &Block) -> f64 {
        let n = self.n;
        let places = deviations(row, block);
        let known = || places.iter().filter(|(at, ..)| *at < n);
        let of_place = |(one, _, deviation): &(usize, f64, f64)| {
            let correlations = &self.correlation[one * n..][..n];
            deviation * known().map(|(other, _, its)| correlations[*other] * its).sum::<f64>()
        };
        known().map(of_place).sum()
    }

    /// Computes the shift for the rates of a solution.
    #[expect(clippy::needless_range_loop, reason = "several vectors are walked side by side")]
    pub(super) fn find(
        &mut self,
        system: &System,
        together: &Together,
        blocks: &VecDeque<Block>,
        kinds: &[Kind],
        expected: Expected,
    ) {
        let n = system.n;
        let place = |one: usize, other: usize| one * n + other;
        self.correlation = vec![0.0; n * n];
        for one in 0..n {
            for other in 0..n {
                let of = |at: usize| system.covariance[place(at, at)];
                let both = (of(one) * of(other)).sqrt();
                self.correlation[place(one, other)] =
                    if both > 0.0 { system.covariance[place(one, other)] / both } else { 0.0 };
            }
        }
        if self.n != n {
            self.by.resize(n, 0.0);
            self.n = n;
        }
        let scale = expected.systematic().powi(-2);
        let information: Vec<f64> = together.mean(n).iter().map(|mean| mean * scale).collect();
        // The square separates what the counts determine clearly from what they do not.
        let mut told = vec![0.0; n * n];
        for (row, told) in information.chunks_exact(n).zip(told.chunks_exact_mut(n)) {
            for (part, other) in row.iter().zip(information.chunks_exact(n)) {
                told.iter_mut().zip(other).for_each(|(told, other)| *told += part * other);
            }
        }
        for at in 0..n {
            told[place(at, at)] += 0.1;
        }
        let known = |at: usize| expected.known(kinds[at]);
        let count = blocks.len() as f64;
        let least: Vec<f64> = (0..n)
            .map(|at| blocks.iter().map(|block| block.rate[at]).fold(f64::MAX, f64::min))
            .collect();
        for at in 0..n {
            self.by[at] = self.by[at].min(0.8 * least[at]);
        }
        let mut found = None;
        for _ in 0..ITERATIONS {
            let mut curvature = told.clone();
            let mut slope = vec![0.0; n];
            for at in 0..n {
                let row = &told[at * n..][..n];
                slope[at] = -row.iter().zip(&self.by).map(|(told, by)| told * by).sum::<f64>();
                let (mut first, mut second) = (0.0, 0.0);
                for block in blocks {
                    let inverse = 1.0 / (block.rate[at] - self.by[at]).max(1e-9);
                    first += inverse;
                    second += inverse * inverse;
                }
                slope[at] -= known(at) * (first / count - 1.0 / expected.mode(kinds[at]));
                let steep = second.max(first / expected.mode(kinds[at]));
                curvature[place(at, at)] += known(at) * steep / count;
            }
            let Some(factor) = Factor::of(&curvature, n) else { return };
            factor.solve(&mut slope);
            let mut part: f64 = 1.0;
            for at in 0..n {
                let room = least[at] - self.by[at];
                if slope[at] > 0.8 * room {
                    part = part.min(0.8 * room / slope[at]);
                }
            }
            for at in 0..n {
                self.by[at] += part * slope[at];
            }
            found = Some(factor);
        }
        if let Some(factor) = found {
            self.covariance = factor.inverse();
        }
    }
}
