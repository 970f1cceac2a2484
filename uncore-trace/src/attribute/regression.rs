//! `regression`: what each owner makes per unit of CPU time, learnt from how the counts of ticks
//! differ when others run.
//!
//! Count of a tick = baseline + sum over owners of rate x time on the CPUs that the counter sees,
//! by non-negative least squares over a moving span of ticks ([`super::design`]). A window's count
//! is divided in proportion to rate x time, so the parts and the baseline sum to it; the baseline
//! is `unattributed`. Owners beyond the 32 that ran most share one rate.
//!
//! Where ticks do not tell owners apart the data say nothing, and a prior decides, weak enough that
//! a few dozen ticks overrule it: every owner has the same rate, give or take three times that
//! rate (which is `residency`, without idle time), and the baseline is some hundredths of the mean
//! count. CPUs that never idle leave the baseline undetermined: there it stays at that.
//!
//! # Confidence
//!
//! The chance that a share `s` is within 10 % of the truth, `erf(0.1 / sqrt(2 v))`, times the part
//! of the window in which the counter ran. `v`, the variance of the relative error, is the sum of
//!
//! - what rates are uncertain by: `V g' C g`, with `C` the inverse of the regularised sums of
//!   products, `g` the derivative of `ln s` by the rates, and `V` the variance of a tick's error;
//! - what traffic differs by from rate x time within the window: `W (1 - s) / (q Y^2)`, `q` the sum
//!   of all shares squared. `W` is the variance of the window's sum, or the square by which its
//!   count `Y` differs from the prediction if that is larger: nobody knows whose the difference
//!   is, so each owner is taken to differ by the same part of its own.
//!
//! Errors are those of predictions, made before a tick entered the span, so what changes within the
//! span counts. They are added up over 1, 8 and 64 ticks, and the largest variance per tick counts,
//! so errors that go on from tick to tick do not average out. Owners that always run together have
//! large `g' C g`, since only their sum is known.

use std::collections::VecDeque;

use super::{
    Attribution, Method, Share, Window,
    confidence::within_tenth,
    design::{BASELINE, Design, REST, Row, UNITS, WIDTH},
    residency::residency,
    solve::{inverse, nnls},
};
use crate::align::who::Who;

/// Time without which there are no rates, ns.
const LEARN_NS: u64 = 300_000_000;

/// And ticks without which there are none: eight for each owner that may have its own.
const LEARN_TICKS: u64 = 256;

/// Standard deviation of a rate before anything was seen, in mean rates.
const RATE_PRIOR: f64 = 3.0;

/// Mean and standard deviation of the baseline before anything was seen, in mean counts: those of
/// the absolute value of a normal variable of standard deviation 0.05.
const BASELINE_PRIOR: (f64, f64) = (0.040, 0.030);

/// Errors are not taken to be smaller than this part of the mean count.
const LEAST_ERROR: f64 = 1e-3;

/// Ticks over which errors are added up.
const BLOCKS: [usize; 3] = [1, 8, 64];

/// Ticks over which the variance of errors is averaged.
const MEMORY: f64 = 1000.0;

/// No more than this part of the span may lack readings of its own.
const MOST_IMPUTED: f64 = 0.2;

/// One counter's rates.
#[derive(Debug, Default)]
pub struct Regression {
    /// Count of each tick of the span but the last `pending`, and whether it was read.
    counts: VecDeque<(f64, bool)>,
    /// Last ticks whose count is not known yet.
    pending: usize,
    imputed: usize,
    /// Sums of products of columns and counts, and of counts.
    products: Vec<f64>,
    sum: f64,
    squares: f64,
    generation: u64,
    fits: u64,
    errors: Errors,
    fit: Option<Fit>,
}

/// Rates, per unit of time.
#[derive(Debug)]
struct Fit {
    generation: u64,
    rates: Vec<f64>,
    /// Covariance of the rates per variance of a tick's error.
    covariance: Vec<f64>,
}

/// Errors of prediction.
#[derive(Debug, Default)]
struct Errors {
    variance: [f64; BLOCKS.len()],
    sums: [(usize, f64); BLOCKS.len()],
}

impl Errors {
    fn seed(variance: f64) -> Self {
        Self { variance: [variance; BLOCKS.len()], sums: Default::default() }
    }

    fn add(&mut self, error: f64) {
        for ((block, sum), variance) in BLOCKS.iter().zip(&mut self.sums).zip(&mut self.variance) {
            sum.0 += 1;
            sum.1 += error;
            if sum.0 == *block {
                let ticks = *block as f64;
                *variance += ticks / MEMORY * (sum.1 * sum.1 / ticks - *variance);
                *sum = (0, 0.0);
            }
        }
    }

    fn variance(&self) -> f64 {
        self.variance.iter().copied().fold(0.0, f64::max)
    }
}

impl Attribution for Regression {
    fn tick(&mut self, design: &Design, count: Option<f64>) {
        if let Some(row) = design.left() {
            self.forget(design, &row);
        }
        self.pending = (self.pending + 1).min(design.len());
        if let Some(count) = count {
            self.enter(design, count);
        }
    }

    fn divide(&mut self, window: &Window<'_>) -> (Method, Vec<Share>) {
        let by_time = residency(window.total, window.time, window.own_cpu, window.running);
        match window.design.and_then(|design| self.shares(design, window)) {
            Some(shares) if trust(&shares) > trust(&by_time) => (Method::Regression, shares),
            _ => (Method::Residency, by_time),
        }
    }

    /// Computes rates if they are due and the counts of the span known.
    fn learn(&mut self, design: &Design) {
        if self.fits == design.fits() || self.pending > 0 {
            return;
        }
        self.fits = design.fits();
        if self.generation != design.generation() {
            self.rebuild(design);
        }
        self.fit = self.solve(design);
    }
}

/// How much of the count is said with confidence.
fn trust(shares: &[Share]) -> f64 {
    shares.iter().map(|share| share.value * f64::from(share.confidence)).sum()
}

impl Regression {
    /// A tick left the span.
    fn forget(&mut self, design: &Design, row: &Row) {
        // Of a tick that is pending still, nothing was entered.
        if self.counts.len() + self.pending < design.len() {
            return;
        }
        if let Some((count, read)) = self.counts.pop_front() {
            self.imputed -= usize::from(!read);
            if self.generation == design.generation() {
                self.weigh(row, -count);
            }
            self.sum -= count;
            self.squares -= count * count;
        }
    }

    fn weigh(&mut self, row: &Row, count: f64) {
        self.products.resize(WIDTH, 0.0);
        for &column in &row.columns {
            self.products[column] += row.units[column] * count;
        }
    }

    /// The count of the last ticks together: as it was predicted, in proportion, where they are
    /// several.
    fn enter(&mut self, design: &Design, count: f64) {
        let ticks = std::mem::take(&mut self.pending);
        let rows: Vec<Row> = (0..ticks).rev().filter_map(|back| design.row(back)).collect();
        let predicted: Vec<f64> = rows.iter().map(|row| self.predict(design, row)).collect();
        let sum: f64 = predicted.iter().sum();
        if self.fit.as_ref().is_some_and(|fit| fit.generation == design.generation()) {
            // One error, and none of the ticks without a reading.
            self.errors.add(count - sum);
        }
        for (row, predicted) in rows.iter().zip(predicted) {
            let part = if sum > 0.0 { predicted / sum } else { 1.0 / ticks as f64 };
            let (count, read) = (count * part, ticks == 1);
            self.counts.push_back((count, read));
            self.imputed += usize::from(!read);
            self.sum += count;
            self.squares += count * count;
            if self.generation == design.generation() {
                self.weigh(row, count);
            }
        }
    }

    fn predict(&self, design: &Design, row: &Row) -> f64 {
        let fit = self.fit.as_ref().filter(|fit| fit.generation == design.generation());
        fit.map_or(0.0, |fit| {
            row.columns.iter().map(|&column| row.units[column] * fit.rates[column]).sum()
        })
    }

    /// Makes the sums again: the columns have another meaning.
    fn rebuild(&mut self, design: &Design) {
        self.generation = design.generation();
        self.products = vec![0.0; WIDTH];
        let counts: Vec<f64> = self.counts.iter().map(|(count, _)| *count).collect();
        for (back, count) in counts.iter().rev().enumerate() {
            if let Some(row) = design.row(back) {
                self.weigh(&row, *count);
            }
        }
        self.sum = counts.iter().sum();
        self.squares = counts.iter().map(|count| count * count).sum();
    }

    fn solve(&mut self, design: &Design) -> Option<Fit> {
        let ticks = self.counts.len();
        let least = (LEARN_NS / design.tick_ns()).max(LEARN_TICKS) as usize;
        if ticks < least || self.imputed as f64 > MOST_IMPUTED * ticks as f64 {
            return None;
        }
        let gram = design.gram();
        let mean = self.sum / ticks as f64;
        // The baseline's row of products is the time of each column, in units of a tick.
        let units = |column: usize| gram[column] / f64::from(UNITS);
        let time: f64 = (REST..WIDTH).map(units).sum();
        if mean <= 0.0 || time <= 0.0 {
            return None;
        }
        let rate = self.sum / time;
        let floor = (LEAST_ERROR * mean).powi(2);
        let first = self.fit.is_none();
        let variance = if first {
            // Nothing is known of errors yet: all that differs from the mean may be one.
            (self.squares / ticks as f64 - mean * mean).max(floor)
        } else {
            self.errors.variance().max(floor)
        };
        let fit = self.fit_with(design, rate, mean, variance)?;
        if !first {
            return Some(fit);
        }
        let within = self.residual(gram, &fit.rates).max(floor);
        self.errors = Errors::seed(within);
        self.fit_with(design, rate, mean, within)
    }

    /// Mean square of what the rates do not explain of the span.
    fn residual(&self, gram: &[f64], rates: &[f64]) -> f64 {
        let squares: f64 = (0..WIDTH)
            .map(|j| {
                let row: f64 = (0..WIDTH).map(|k| gram[j * WIDTH + k] * rates[k]).sum();
                rates[j] * (row - 2.0 * self.products[j])
            })
            .sum();
        let free = self.counts.len().saturating_sub(WIDTH).max(1);
        ((self.squares + squares) / free as f64).max(0.0)
    }

    fn fit_with(&self, design: &Design, rate: f64, mean: f64, variance: f64) -> Option<Fit> {
        let gram = design.gram();
        let used: Vec<usize> =
            (0..WIDTH).filter(|&column| gram[column * WIDTH + column] > 0.0).collect();
        let n = used.len();
        let (mut a, mut b, mut x) = (vec![0.0; n * n], vec![0.0; n], vec![0.0; n]);
        let old = self.fit.as_ref().filter(|fit| fit.generation == self.generation);
        for (row, &j) in used.iter().enumerate() {
            for (column, &k) in used.iter().enumerate() {
                a[row * n + column] = gram[j * WIDTH + k];
            }
            let (centre, deviation) = match j {
                BASELINE => {
                    let (centre, deviation) = BASELINE_PRIOR;
                    (centre * mean / f64::from(UNITS), deviation * mean / f64::from(UNITS))
                }
                _ => (rate, RATE_PRIOR * rate),
            };
            let weight = variance / (deviation * deviation);
            a[row * n + row] += weight;
            b[row] = self.products[j] + weight * centre;
            x[row] = old.map_or(0.0, |old| old.rates[j]);
        }
        nnls(&a, &b, &mut x);
        let inverse = inverse(&a, n)?;
        let mut rates = vec![0.0; WIDTH];
        let mut covariance = vec![0.0; WIDTH * WIDTH];
        for (row, &j) in used.iter().enumerate() {
            rates[j] = x[row];
            for (column, &k) in used.iter().enumerate() {
                covariance[j * WIDTH + k] = inverse[row * n + column];
            }
        }
        let finite = rates.iter().chain(&covariance).all(|value| value.is_finite());
        finite.then_some(Fit { generation: self.generation, rates, covariance })
    }

    /// Divides a window by the rates, if there are any.
    fn shares(&self, design: &Design, window: &Window<'_>) -> Option<Vec<Share>> {
        let fit = self.fit.as_ref().filter(|fit| fit.generation == design.generation())?;
        let owners: Vec<(Who, usize, f64)> = window
            .time
            .iter()
            .filter(|(who, ns)| *who != Who::Idle && *ns > 0)
            .map(|&(who, ns)| (who, design.column(who), design.units(ns)))
            .collect();
        let mut units = [0.0; WIDTH];
        units[BASELINE] = design.units(window.len_ns);
        for &(_, column, time) in &owners {
            units[column] += time;
        }
        let predicted: f64 = units.iter().zip(&fit.rates).map(|(time, rate)| time * rate).sum();
        if predicted <= 0.0 || !predicted.is_finite() {
            return None;
        }
        let variance = self.errors.variance();
        // What each column's rate has in common with the sum of all.
        let common: Vec<f64> = (0..WIDTH)
            .map(|j| (0..WIDTH).map(|k| fit.covariance[j * WIDTH + k] * units[k]).sum())
            .collect();
        let of_sum: f64 = units.iter().zip(&common).map(|(time, common)| time * common).sum();
        let ticks = units[BASELINE] / f64::from(UNITS);
        let own = (variance * ticks).max((window.total - predicted).powi(2));
        let of_all = |column: usize| (units[column] * fit.rates[column] / predicted).powi(2);
        let spread: f64 = (0..WIDTH).map(of_all).sum();
        let mut shares = Vec::with_capacity(owners.len() + 1);
        let mut given = 0.0;
        for (who, column, time) in owners {
            let rate = fit.rates[column];
            let part = rate * time / predicted;
            let value = window.total * part;
            if who == Who::Unknown || value <= 0.0 {
                continue;
            }
            let of_rate = fit.covariance[column * WIDTH + column] / (rate * rate)
                - 2.0 * common[column] / (rate * predicted)
                + of_sum / (predicted * predicted);
            let of_window = own * (1.0 - part).max(0.0) / (spread * window.total * window.total);
            let mut confidence = within_tenth(variance * of_rate.max(0.0) + of_window);
            if column == REST {
                // Within the lump it is residency again.
                let part = time / units[REST];
                confidence *= if part < 1.0 { 0.2 * part } else { 1.0 };
            }
            given += value;
            shares.push(Share { who, value, confidence: confidence as f32 * window.running });
        }
        let rest = window.total - given;
        if rest > window.total * 1e-12 {
            shares.push(Share { who: Who::Unknown, value: rest, confidence: 0.0 });
        }
        Some(shares)
    }
}
