//! What a counter counts for each miss of each owner, and without any: non-negative least squares
//! over windows, of which the older count less.
//!
//! Counts and misses are taken in their means, so that every rate is 1 if all owners have the same
//! and there is no rest. That is the prior too: the deviation of rates from each other is learnt along
//! with them (a random effect, by expectation and maximisation: Dempster, Laird, Rubin, "Maximum
//! Likelihood from Incomplete Data via the EM Algorithm" (1977)), from what is assumed before anything
//! was seen. Memory is bounded: [`OWNERS`] owners have a rate of their own, all others share one.

use std::collections::BTreeMap;

use super::solve::{inverse, nnls};
use crate::log::Owner;

/// Owners with a rate of their own.
const OWNERS: usize = 24;

/// The column of what is there without misses.
pub(super) const REST: usize = 0;

/// The column of all owners without one of their own.
const OTHERS: usize = 1;

const WIDTH: usize = OWNERS + 2;

/// Time after which a window counts a third, ns: the span of `regression`.
const MEMORY_NS: f64 = 2e9;

/// How often rates are computed anew, ns.
const REFRESH_NS: u64 = 100_000_000;

/// Variance of rates before anything was seen: 64 bytes a line, and up to as many again where each
/// line that comes in pushes a changed one out. Evenly spread over that, the standard deviation is
/// 0.19 of the mean.
const SPREAD: f64 = 0.19 * 0.19;

/// Owners that overrule it.
const SPREAD_OWNERS: f64 = 1.0;

/// Standard deviation of the rest before anything was seen, in mean counts: what is in the count
/// although CPUs alone cause it, such as translation tables that are walked.
const REST_DEVIATION: f64 = 0.03;

/// How often it is believed against what was learnt.
const REST_TIMES: f64 = 1.0;

/// Windows that differ for the same reason, one after the other: tasks run for some windows on end.
const ALIKE: f64 = 1.0;

/// Windows are not taken to differ by less than this part of the count.
const LEAST_ERROR: f64 = 1e-3;

/// Variance of shares per variance that the least squares compute, which know of no rate that cannot be
/// negative. Measured on the simulation.
const KNOWN: f64 = 0.7;

/// A column whose owner has less than this part of the misses is given to another.
const LEAST_SHARE: f64 = 1e-4;

/// A window: misses by column and the count, both in their means.
#[derive(Debug)]
pub(super) struct Row {
    /// By column; that of the rest is 1.
    pub units: [f64; WIDTH],
    /// The count.
    pub count: f64,
    misses: f64,
    mean_misses: f64,
    mean_count: f64,
    /// Misses by owner.
    owners: Vec<(Owner, f64)>,
}

impl Row {
    /// Misses in their mean.
    pub(super) fn relative(&self, misses: f64) -> f64 {
        misses / self.mean_misses
    }
}

/// One counter's rates. Sums are over windows.
#[derive(Debug)]
pub(super) struct Rates {
    windows: f64,
    misses: f64,
    counts: f64,
    /// Of the squares of counts, and of products of columns with each other and with counts.
    squares: f64,
    gram: Vec<f64>,
    products: Vec<f64>,
    /// The owner of each column from [`OTHERS`] on.
    columns: BTreeMap<Owner, usize>,
    free: Vec<usize>,
    since_ns: u64,
    /// Variance of rates, and of the rest.
    spread: f64,
    rest: f64,
    fit: Fit,
}

/// What was learnt last.
#[derive(Debug)]
struct Fit {
    rates: [f64; WIDTH],
    covariance: Vec<f64>,
    /// Variance of a window.
    window: f64,
}

/// What rates say of one window.
#[derive(Debug)]
pub(super) struct Prediction<'a> {
    fit: &'a Fit,
    /// Of each column, what its rate has in common with the sum of all.
    common: Vec<f64>,
    of_sum: f64,
    /// Variance of a window.
    pub window: f64,
}

impl Prediction<'_> {
    /// Variance of the relative error of a share of `all`, from what rates are uncertain by.
    pub(super) fn of_share(&self, column: usize, rate: f64, all: f64) -> f64 {
        let own = self.fit.covariance[column * WIDTH + column] / (rate * rate);
        let of_all = self.of_sum / (all * all);
        KNOWN * (own - 2.0 * self.common[column] / (rate * all) + of_all).max(0.0)
    }
}

impl Default for Rates {
    fn default() -> Self {
        let mut rates = Self {
            windows: 0.0,
            misses: 0.0,
            counts: 0.0,
            squares: 0.0,
            gram: vec![0.0; WIDTH * WIDTH],
            products: vec![0.0; WIDTH],
            columns: BTreeMap::new(),
            free: (OTHERS + 1..WIDTH).rev().collect(),
            since_ns: 0,
            spread: SPREAD,
            rest: REST_DEVIATION * REST_DEVIATION,
            fit: Fit { rates: [1.0; WIDTH], covariance: vec![0.0; WIDTH * WIDTH], window: 0.0 },
        };
        rates.fit.rates[REST] = 0.0;
        for column in 0..WIDTH {
            rates.fit.covariance[column * WIDTH + column] = rates.prior(column, 1.0).1;
        }
        rates
    }
}

impl Rates {
    /// A window's misses, each owner at most once, and its count. Owners get columns, as long as there
    /// are any.
    pub(super) fn row(&mut self, owners: &[(Owner, f64)], count: f64) -> Row {
        let misses: f64 = owners.iter().map(|(_, misses)| misses).sum();
        for &(who, own) in owners {
            if own >= LEAST_SHARE * misses
                && !self.columns.contains_key(&who)
                && let Some(column) = self.vacant(own / misses)
            {
                self.columns.insert(who, column);
            }
        }
        let n = self.windows;
        let mean = |sum: f64, own: f64| if n > 0.0 && sum > 0.0 { sum / n } else { own };
        let mut row = Row {
            units: [0.0; WIDTH],
            count: 0.0,
            misses,
            mean_misses: mean(self.misses, misses),
            mean_count: mean(self.counts, count),
            owners: owners.to_vec(),
        };
        row.count = count / row.mean_count;
        row.units[REST] = 1.0;
        for &(who, own) in owners {
            row.units[self.column(who)] += row.relative(own);
        }
        row
    }

    /// A column for an owner with this share.
    fn vacant(&mut self, share: f64) -> Option<usize> {
        if let Some(column) = self.free.pop() {
            return Some(column);
        }
        let part = |column: usize| self.gram[column] / self.misses;
        let (&who, &column) =
            self.columns.iter().min_by(|a, b| part(*a.1).total_cmp(&part(*b.1)))?;
        // One that is rarely seen has as good a claim as one that is seen for the first time.
        if part(column) * self.windows > share {
            return None;
        }
        self.columns.remove(&who);
        self.merge(column);
        Some(column)
    }

    /// Gives a column's past to all those without one: sums are as if it had always been theirs.
    fn merge(&mut self, column: usize) {
        let at = |row: usize, column: usize| row * WIDTH + column;
        for other in 0..WIDTH {
            self.gram[at(OTHERS, other)] += self.gram[at(column, other)];
        }
        for other in 0..WIDTH {
            self.gram[at(other, OTHERS)] += self.gram[at(other, column)];
        }
        self.products[OTHERS] += self.products[column];
        self.products[column] = 0.0;
        for other in 0..WIDTH {
            self.gram[at(column, other)] = 0.0;
            self.gram[at(other, column)] = 0.0;
            self.fit.covariance[at(column, other)] = 0.0;
            self.fit.covariance[at(other, column)] = 0.0;
        }
        let (centre, variance) = self.prior(column, 1.0 - self.fit.rates[REST]);
        self.fit.rates[column] = centre;
        self.fit.covariance[at(column, column)] = variance;
    }

    /// The column of an owner.
    pub(super) fn column(&self, who: Owner) -> usize {
        self.columns.get(&who).copied().unwrap_or(OTHERS)
    }

    /// What a column counts, in its mean.
    pub(super) const fn rate(&self, column: usize) -> f64 {
        self.fit.rates[column]
    }

    /// Variance of the relative error within a column of an owner who has this part of it.
    pub(super) fn within(&self, column: usize, part: f64) -> f64 {
        if column == OTHERS { self.spread * (1.0 - part).max(0.0) } else { 0.0 }
    }

    /// Mean and variance of a rate before anything was seen, if rates are `mean` on average.
    fn prior(&self, column: usize, mean: f64) -> (f64, f64) {
        match column {
            REST => (0.0, self.rest),
            _ => (mean, self.spread * mean * mean),
        }
    }

    /// What the rates say of a window.
    pub(super) fn prediction_of(&self, row: &Row) -> Prediction<'_> {
        let of = |column: usize| -> f64 {
            let covariance = &self.fit.covariance[column * WIDTH..][..WIDTH];
            covariance.iter().zip(&row.units).map(|(covariance, units)| covariance * units).sum()
        };
        let common: Vec<f64> = (0..WIDTH).map(of).collect();
        let of_sum = common.iter().zip(&row.units).map(|(common, units)| common * units).sum();
        Prediction { fit: &self.fit, common, of_sum, window: self.fit.window }
    }

    /// Learns from a window.
    pub(super) fn learn(&mut self, row: &Row, len_ns: u64) {
        let keep = (-(len_ns as f64) / MEMORY_NS).exp();
        let mut units = [0.0; WIDTH];
        units[REST] = 1.0;
        for &(who, misses) in &row.owners {
            units[self.column(who)] += misses;
        }
        let count = row.count * row.mean_count;
        for (j, own) in units.iter().enumerate() {
            for (k, other) in units.iter().enumerate() {
                let sum = &mut self.gram[j * WIDTH + k];
                *sum = own.mul_add(*other, *sum * keep);
            }
            self.products[j] = own.mul_add(count, self.products[j] * keep);
        }
        for (sum, new) in [
            (&mut self.windows, 1.0),
            (&mut self.misses, row.misses),
            (&mut self.counts, count),
            (&mut self.squares, count * count),
        ] {
            *sum = *sum * keep + new;
        }
        self.since_ns += len_ns;
        if self.since_ns >= REFRESH_NS {
            self.since_ns = 0;
            self.solve();
        }
    }

    #[expect(clippy::many_single_char_names, reason = "the letters of the normal equations")]
    fn solve(&mut self) {
        let n = self.windows;
        let (mean_misses, mean_count) = (self.misses / n, self.counts / n);
        let unit = |column: usize| if column == REST { 1.0 } else { mean_misses };
        let used: Vec<usize> =
            (0..WIDTH).filter(|&column| self.gram[column * WIDTH + column] > 0.0).collect();
        let k = used.len();
        let (mut gram, mut products) = (vec![0.0; k * k], vec![0.0; k]);
        for (row, &i) in used.iter().enumerate() {
            for (column, &j) in used.iter().enumerate() {
                gram[row * k + column] = self.gram[i * WIDTH + j] / (unit(i) * unit(j));
            }
            products[row] = self.products[i] / (unit(i) * mean_count);
        }
        let squares = self.squares / (mean_count * mean_count);
        let mut x: Vec<f64> = used.iter().map(|&column| self.fit.rates[column]).collect();
        let window = residual(&gram, &products, squares, &x) / n;
        let noise = ALIKE * window.max(LEAST_ERROR * LEAST_ERROR);
        let mean = 1.0 - self.fit.rates[REST];
        let (mut a, mut b) = (gram.clone(), products.clone());
        for (row, &column) in used.iter().enumerate() {
            let (centre, variance) = self.prior(column, mean.max(0.01));
            a[row * k + row] += noise / variance;
            b[row] += centre * noise / variance;
        }
        nnls(&a, &b, &mut x);
        let Some(mut covariance) = inverse(&a, k) else { return };
        for value in &mut covariance {
            *value *= noise;
        }
        let window = residual(&gram, &products, squares, &x) / n;
        if !window.is_finite() || x.iter().chain(&covariance).any(|value| !value.is_finite()) {
            return;
        }
        for (row, &i) in used.iter().enumerate() {
            self.fit.rates[i] = x[row];
            for (column, &j) in used.iter().enumerate() {
                self.fit.covariance[i * WIDTH + j] = covariance[row * k + column];
            }
        }
        self.fit.window = window.max(LEAST_ERROR * LEAST_ERROR);
        self.respread(&used);
    }

    /// Learns how far rates differ, and how large the rest can be.
    fn respread(&mut self, used: &[usize]) {
        let mean = (1.0 - self.fit.rates[REST]).max(0.01);
        let differs = |&column: &usize| {
            let uncertain = self.fit.covariance[column * WIDTH + column];
            ((self.fit.rates[column] - mean).powi(2) + uncertain) / (mean * mean)
        };
        let owners: Vec<f64> = used.iter().filter(|c| **c > OTHERS).map(differs).collect();
        let sum = SPREAD_OWNERS * SPREAD + owners.iter().sum::<f64>();
        // Their mean is known whatever they are, and says nothing of how they differ.
        let free = SPREAD_OWNERS + owners.len().saturating_sub(1) as f64;
        self.spread = (sum / free).min(1.0);
        let rest = self.fit.rates[REST].powi(2) + self.fit.covariance[REST * WIDTH + REST];
        self.rest = (REST_TIMES * REST_DEVIATION.powi(2) + rest) / (REST_TIMES + 1.0);
    }
}

/// Sum of the squares of what rates do not explain.
fn residual(gram: &[f64], products: &[f64], squares: f64, rates: &[f64]) -> f64 {
    let k = rates.len();
    let of = |j: usize| {
        let row: f64 = (0..k).map(|i| gram[j * k + i] * rates[i]).sum();
        rates[j] * (row - 2.0 * products[j])
    };
    (squares + (0..k).map(of).sum::<f64>()).max(0.0)
}
