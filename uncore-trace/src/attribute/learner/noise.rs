//! The variance of a count: a sum over columns, and a constant.
//!
//! Variance = sum over columns of factor x rate x amount + constant. The factors maximise the
//! likelihood of the squared errors under normal errors. This is the Itakura-Saito divergence;
//! multiplicative updates keep the factors positive (Fevotte, Bertin, Durrieu, "Nonnegative Matrix
//! Factorization with the Itakura-Saito Divergence", 2009, with the square root of Fevotte and
//! Idier, 2011).

use super::blocks::DesignRow;

/// Relative standard deviation of a count before the first fit.
const FIRST: f64 = 0.3;

/// Squared errors below this part of the squared mean count are rounding errors.
const LEAST: f64 = 1e-8;

/// Lower limit of a variance, as a part of the mean squared error.
const FLOOR: f64 = 1e-4;

/// The noise model of a counter.
#[derive(Debug, Default)]
pub(super) struct Noise {
    /// Mean count of a tick, in the unit of rates.
    pub mean_count: f64,
    /// The factors by place, and the constant.
    factors: Vec<f64>,
    constant: f64,
    /// Mean squared error; 0 before the first error.
    mean: f64,
    /// For each count: where its columns begin in `places`, and its squared error.
    errors: Vec<(u32, f64)>,
    places: Vec<(u32, f64)>,
}

impl Noise {
    /// The model before the first count.
    pub(super) fn new(mean_count: f64) -> Self {
        Self { mean_count, ..Self::default() }
    }

    /// Assigns this place to another column.
    pub(super) fn reset(&mut self, place: usize) {
        let mean = self.typical();
        if self.factors.len() <= place {
            self.factors.resize(place + 1, mean);
        }
        self.factors[place] = mean;
    }

    fn typical(&self) -> f64 {
        let known = self.factors.iter().filter(|factor| **factor > 0.0);
        let (sum, n) = known.fold((0.0, 0.0), |(sum, n), factor| (sum + factor.ln(), n + 1.0));
        if n > 0.0 { f64::exp(sum / n) } else { 0.0 }
    }

    /// Changes the unit of rates.
    pub(super) fn scale(&mut self, factor: f64) {
        self.mean_count *= factor;
        self.factors.iter_mut().for_each(|its| *its *= factor);
        self.constant *= factor * factor;
        self.mean *= factor * factor;
    }

    /// The variance that the traffic of a place adds to a count.
    pub(super) fn of_place(&self, place: usize, rate: f64, amount: f64) -> f64 {
        self.factors.get(place).copied().unwrap_or(0.0) * rate.max(1e-6) * amount
    }

    /// The variance of a count.
    pub(super) fn variance(&self, row: &DesignRow, rates: &[f64]) -> f64 {
        if self.mean <= 0.0 {
            return (FIRST * self.mean_count.max(1e-9)).powi(2) * row.ticks();
        }
        let sum: f64 = row.iter().map(|(at, amount)| self.of_place(at, rates[at], amount)).sum();
        (sum + self.constant).max(FLOOR * self.mean)
    }

    /// Starts a new set of errors.
    pub(super) fn begin(&mut self, places: usize) {
        self.errors.clear();
        self.places.clear();
        let mean = self.typical();
        self.factors.resize(places, mean);
    }

    /// Adds the error of a count. `leverage` is the part of the error by which the fit followed the
    /// count.
    pub(super) fn add(&mut self, row: &DesignRow, rates: &[f64], error: f64, leverage: f64) {
        let left = (1.0 - leverage.clamp(0.0, 0.9)).max(0.1);
        let least = LEAST * self.mean_count * self.mean_count;
        self.errors.push((self.places.len() as u32, (error * error / left).max(least)));
        let part = |(at, amount): (usize, f64)| (at as u32, rates[at].max(1e-6) * amount);
        self.places.extend(row.iter().map(part));
    }

    /// Fits the factors to the errors.
    pub(super) fn fit(&mut self, iterations: usize) {
        let n = self.errors.len() as f64;
        if n == 0.0 {
            return;
        }
        let mean = self.errors.iter().map(|(_, error)| error).sum::<f64>() / n;
        if self.mean <= 0.0 {
            let sum: f64 = self.places.iter().map(|(_, part)| part).sum::<f64>() / n;
            let first = mean / (sum + 1.0);
            self.factors.fill(first);
            self.constant = first;
        }
        self.mean = mean;
        let k = self.factors.len();
        let (mut up, mut down) = (vec![0.0; k + 1], vec![0.0; k + 1]);
        for _ in 0..iterations {
            up.fill(1e-12);
            down.fill(1e-12);
            for (at, &(from, error)) in self.errors.iter().enumerate() {
                let to = self.errors.get(at + 1).map_or(self.places.len(), |next| next.0 as usize);
                let parts = &self.places[from as usize..to];
                let of = |(place, part): &(u32, f64)| self.factors[*place as usize] * part;
                let inverse = 1.0 / (parts.iter().map(of).sum::<f64>() + self.constant);
                let ratio = error * inverse * inverse;
                for (place, part) in parts {
                    up[*place as usize] += ratio * part;
                    down[*place as usize] += inverse * part;
                }
                up[k] += ratio;
                down[k] += inverse;
            }
            for (factor, (up, down)) in self.factors.iter_mut().zip(up.iter().zip(&down)) {
                if *down > 1e-9 {
                    *factor = (*factor * (up / down).sqrt()).max(1e-9);
                }
            }
            self.constant = (self.constant * (up[k] / down[k]).sqrt()).max(1e-12);
        }
    }
}
