//! The prior of rates: from the kind of a column, and from the counts of older blocks.

use std::collections::VecDeque;

use super::super::history::Use;
use super::super::solve::inverse;
use super::blocks::Block;

/// The kind of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Traffic that is always there.
    Baseline,
    /// Owners on near CPUs.
    Near,
    /// Owners on far CPUs.
    Far,
}

/// Expected rate of a far owner relative to a near one. Linux allocates a task's memory on its own
/// node (`Documentation/admin-guide/mm/numa_memory_policy.rst`, Linux 7.2).
const FAR: f64 = 0.003;

/// Expected baseline, as a part of the mean count.
const BASELINE_PART: f64 = 0.01;

/// Strength, per block, of the barrier that keeps rates positive, for the logarithm of a rate.
const BARRIER: f64 = 1e-3;

/// The same for owners if misses are counted. The bytes per miss are known in advance, as well as
/// some ticks would tell. Devices move bytes without misses, so the prior of the baseline is not
/// stronger.
const OF_MISSES: f64 = 1.0;

/// Prior precision of the logarithm of a rate, which is one over its squared relative deviation:
/// for the baseline, near and far owners.
const KNOWN: [f64; 3] = [1.0, 1.0, 0.16];

/// The same for near owners if misses are counted: 64 bytes per line, up to as many again for
/// write-backs, and prefetches.
const KNOWN_OF_MISSES: f64 = 4.0;

/// Systematic error of the counts of ticks, relative to the mean traffic of one CPU.
const OF_CPU: f64 = 0.03;

/// The same if misses are counted, relative to the mean count.
const OF_COUNT: f64 = 0.02;

/// The expectation of rates before any count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    /// The kind of use.
    pub by: Use,
    /// Mean count of a tick, in the unit of rates.
    pub mean_count: f64,
    /// The use of the baseline in a tick.
    pub always: f64,
}

impl Expected {
    /// The expected rate of a kind of column.
    pub(super) fn mode(self, kind: Kind) -> f64 {
        match kind {
            Kind::Baseline => BASELINE_PART * self.mean_count / self.always,
            Kind::Near => 1.0,
            Kind::Far => FAR,
        }
    }

    /// The strength of the expectation in each block.
    pub(super) const fn strength(self, kind: Kind) -> f64 {
        match (self.by, kind) {
            (Use::Misses, Kind::Near | Kind::Far) => OF_MISSES,
            (Use::Misses, Kind::Baseline) | (Use::Time, _) => BARRIER,
        }
    }

    /// The strength of the expectation over all blocks, for what the counts do not determine.
    pub(super) const fn known(self, kind: Kind) -> f64 {
        match (self.by, kind) {
            (Use::Misses, Kind::Near) => KNOWN_OF_MISSES,
            _ => KNOWN[kind as usize],
        }
    }

    /// The error that is the same in the counts of all ticks, in the unit of rates.
    pub(super) fn systematic(self) -> f64 {
        match self.by {
            Use::Time => OF_CPU,
            Use::Misses => OF_COUNT * self.mean_count,
        }
    }
}

/// The prior of the first block of the span, from older blocks.
#[derive(Debug, Default)]
pub(super) struct Prior {
    n: usize,
    /// Inverse of the covariance, `n` numbers per row; empty if nothing is known.
    information: Vec<f64>,
    covariance: Vec<f64>,
    /// `information` x mean.
    vector: Vec<f64>,
}

impl Prior {
    /// Number of places that it covers.
    pub(super) const fn len(&self) -> usize {
        self.n
    }

    /// The element for two places.
    pub(super) fn at(&self, one: usize, other: usize) -> f64 {
        self.information[one * self.n + other]
    }

    /// Adds `information x rates` to `to`.
    pub(super) fn apply(&self, rates: &[f64], to: &mut [f64]) {
        for (row, to) in self.information.chunks_exact(self.n.max(1)).zip(to) {
            *to += row.iter().zip(rates).map(|(one, rate)| one * rate).sum::<f64>();
        }
    }

    /// Adds the right-hand side to `to`.
    pub(super) fn add_right(&self, to: &mut [f64]) {
        for (to, one) in to.iter_mut().zip(&self.vector) {
            *to += one;
        }
    }

    /// Variance of the rate of a place; 0 if it is not known.
    pub(super) fn variance(&self, place: usize) -> f64 {
        self.covariance.get(place * self.n + place).copied().unwrap_or(0.0)
    }

    /// Assigns this place to another column, whose rate has this variance; 0: unknown.
    pub(super) fn reset(&mut self, place: usize, rate: f64, variance: f64) {
        if place >= self.n {
            let (before, n) = (self.n, place + 1);
            let widen = |values: &[f64]| {
                let mut all = vec![0.0; n * n];
                for row in 0..before {
                    all[row * n..][..before].copy_from_slice(&values[row * before..][..before]);
                }
                all
            };
            self.information = widen(&self.information);
            self.covariance = widen(&self.covariance);
            self.vector.resize(n, 0.0);
            self.n = n;
        }
        let n = self.n;
        // The marginal of the other places: the Schur complement.
        let own = self.information[place * n + place];
        if own > 0.0 {
            let row: Vec<f64> = self.information[place * n..][..n].to_vec();
            let right = self.vector[place];
            for one in (0..n).filter(|one| *one != place && row[*one] != 0.0) {
                let part = row[one] / own;
                let target = &mut self.information[one * n..][..n];
                target.iter_mut().zip(&row).for_each(|(target, its)| *target -= part * its);
                self.vector[one] -= part * right;
            }
        }
        for other in 0..n {
            for at in [place * n + other, other * n + place] {
                self.information[at] = 0.0;
                self.covariance[at] = 0.0;
            }
        }
        let information = if variance > 0.0 { 1.0 / variance } else { 0.0 };
        self.information[place * n + place] = information;
        self.covariance[place * n + place] = variance;
        self.vector[place] = information * rate;
    }

    /// Changes the unit of rates.
    pub(super) fn scale(&mut self, factor: f64) {
        let square = factor * factor;
        self.information.iter_mut().for_each(|its| *its /= square);
        self.covariance.iter_mut().for_each(|its| *its *= square);
        self.vector.iter_mut().for_each(|its| *its /= factor);
    }

    /// Absorbs the first `over` blocks, as if rates were constant in them, and then their steps.
    pub(super) fn take(
        &mut self,
        blocks: &VecDeque<Block>,
        over: usize,
        kinds: &[Kind],
        expected: Expected,
    ) {
        let n = kinds.len();
        if self.n < n {
            self.reset(n - 1, 0.0, 0.0);
        }
        let mut information = self.information.clone();
        let mut right = self.vector.clone();
        let mut moves = vec![0.0; n];
        for block in blocks.iter().take(over) {
            block.add_to(&mut information, n);
            block.add_right(&mut right);
            for place in 0..n {
                let (rate, barrier) =
                    (block.rate[place].max(1e-4), expected.strength(kinds[place]));
                information[place * n + place] += barrier / (rate * rate);
                right[place] += 2.0 * barrier / rate - barrier / expected.mode(kinds[place]);
                moves[place] += 1.0 / block.step[place];
            }
        }
        let Some(mut covariance) = inverse(&information, n) else { return };
        let rates: Vec<f64> = covariance
            .chunks_exact(n)
            .map(|row| row.iter().zip(&right).map(|(one, right)| one * right).sum())
            .collect();
        for place in 0..n {
            covariance[place * n + place] += moves[place];
        }
        let Some(information) = inverse(&covariance, n) else { return };
        self.vector = information
            .chunks_exact(n)
            .map(|row| row.iter().zip(&rates).map(|(one, rate)| one * rate).sum())
            .collect();
        self.information = information;
        self.covariance = covariance;
    }
}
