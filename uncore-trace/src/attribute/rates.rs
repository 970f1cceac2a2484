//! What each column of a [`super::design::Design`] makes per tick of CPU time, learnt from one count
//! after the other, for one memory.
//!
//! A Kalman filter of a regression whose rates move (West and Harrison, "Bayesian Forecasting and
//! Dynamic Models", 2nd edition, 1997, chapter 4): rates and their covariance are carried from tick
//! to tick, the covariance grows by what rates may have changed meanwhile, and each count takes
//! out of it what it tells. No rate is below 0, but what is carried on is the estimate without that
//! bound, or what was learnt later would be added to what it was not learnt beside. The bound comes
//! in as often as rates are needed ([`Rates::settle`]): rates that would be negative are taken to
//! be 0, and the others to be what they are expected to be then.

use super::design::{BASELINE, Row, WIDTH};

/// How far a rate moves about its long-term value, and at least, in mean rates: a standard
/// deviation.
const MOVES: (f64, f64) = (1.5, 0.3);

/// The same for the baseline, the second in mean counts.
const BASELINE_MOVES: (f64, f64) = (0.5, 0.03);

/// Standard deviation of a rate before anything was seen, in mean rates.
const RATE_PRIOR: f64 = 3.0;

/// The baseline before anything was seen and its standard deviation, in mean counts.
const BASELINE_PRIOR: (f64, f64) = (0.01, 0.02);

/// What a long-term rate drifts by in a second, a standard deviation, in its own size.
const DRIFT: f64 = 0.02;

/// Relative error of a count that is not explained: at first, least and most, as squares.
const NOISE: (f64, f64, f64) = (0.01, 1e-6, 100.0);

/// The variance of a count grows with this power of what is expected of it: between that of a sum
/// of independent requests (1) and that of one rate that differs (2).
const NOISE_POWER: f64 = 1.5;

/// How fast it follows what is seen, per tick.
const NOISE_GAIN: f64 = 0.005;

/// Counts below this part of the mean count have the error of that part.
const NOISE_FLOOR: f64 = 0.05;

/// Levels that a regression has in mind while its rates are found, all moving averages.
#[derive(Clone, Copy, Debug)]
pub struct Levels {
    /// Count of a tick.
    pub count: f64,
    /// Count per tick of CPU time.
    pub rate: f64,
}

/// How long what was learnt holds.
#[derive(Clone, Copy, Debug)]
pub enum Memory<'a> {
    /// For ever, but for a slow drift; seconds since the last count.
    Long(f64),
    /// Rates go back to the long-term ones: `kept` is what is left of a difference since the last
    /// count.
    Short {
        /// Long-term rates.
        long: &'a [f64; WIDTH],
        /// From 0 to 1.
        kept: f64,
    },
}

/// Rates and how uncertain they are.
#[derive(Clone, Debug)]
pub struct Rates {
    /// Counts per tick of CPU time, by column, none negative, as they were last settled.
    pub per_tick: [f64; WIDTH],
    /// Their covariance, row by row, `WIDTH` to a row.
    covariance: Vec<f64>,
    /// Both without the bound, after the last count.
    free: [f64; WIDTH],
    free_covariance: Vec<f64>,
    /// Variance of a count's relative error.
    pub noise: f64,
}

impl Rates {
    /// Before the first count: all alike.
    pub fn new(levels: Levels) -> Self {
        let none = vec![0.0; WIDTH * WIDTH];
        let mut new = Self {
            per_tick: [0.0; WIDTH],
            covariance: none.clone(),
            free: [0.0; WIDTH],
            free_covariance: none,
            noise: NOISE.0,
        };
        (0..WIDTH).for_each(|column| new.reset(column, levels));
        new
    }

    /// Another owner has this column.
    pub fn reset(&mut self, column: usize, levels: Levels) {
        let (first, deviation) = match column {
            BASELINE => (BASELINE_PRIOR.0 * levels.count, BASELINE_PRIOR.1 * levels.count),
            _ => (levels.rate, RATE_PRIOR * levels.rate),
        };
        for covariance in [&mut self.covariance, &mut self.free_covariance] {
            for other in 0..WIDTH {
                covariance[column * WIDTH + other] = 0.0;
                covariance[other * WIDTH + column] = 0.0;
            }
            covariance[column * WIDTH + column] = deviation * deviation;
        }
        (self.per_tick[column], self.free[column]) = (first, first);
    }

    /// Covariance of two columns' rates.
    pub fn covariance(&self, one: usize, other: usize) -> f64 {
        self.covariance[one * WIDTH + other]
    }

    /// Variance of a tick's relative error where `count` is expected.
    pub fn noise_of(&self, count: f64, levels: Levels) -> f64 {
        let expected = count.max(NOISE_FLOOR * levels.count);
        self.noise * (levels.count / expected).powf(2.0 - NOISE_POWER)
    }

    /// Takes a count of `ticks` ticks; `used` is their use by column, of those of the first `width`
    /// that were used. Returns the logarithm of how likely that count was, but for a constant.
    pub fn take(
        &mut self,
        used: &[(usize, f64)],
        count: f64,
        ticks: f64,
        width: usize,
        levels: Levels,
        memory: Memory<'_>,
    ) -> f64 {
        self.age(width, levels, memory);
        let mut gain = [0.0; WIDTH];
        for &(column, use_of) in used {
            // Symmetric: its row is its column, and lies together.
            let own = &self.free_covariance[column * WIDTH..column * WIDTH + width];
            for (gain, covariance) in gain.iter_mut().zip(own) {
                *gain += covariance * use_of;
            }
        }
        let of = |values: &[f64; WIDTH]| -> f64 {
            used.iter().map(|&(column, use_of)| values[column] * use_of).sum()
        };
        let of_rates = of(&gain).max(0.0);
        let size = (of(&self.per_tick) / ticks).max(NOISE_FLOOR * levels.count);
        let square = size.powf(NOISE_POWER) * levels.count.powf(2.0 - NOISE_POWER);
        // Errors of several ticks are taken to be independent of each other.
        let variance = of_rates + self.noise * square * ticks;
        if variance <= 0.0 || !variance.is_finite() {
            return 0.0;
        }
        let error = count - of(&self.free);
        for (rate, gain) in self.free.iter_mut().zip(&gain).take(width) {
            *rate += gain * error / variance;
        }
        for (row, &of_row) in self.free_covariance.chunks_exact_mut(WIDTH).zip(&gain).take(width) {
            let part = of_row / variance;
            for (covariance, gain) in row.iter_mut().zip(&gain).take(width) {
                *covariance -= part * gain;
            }
        }
        let seen = ((error * error - of_rates) / (square * ticks)).clamp(0.0, NOISE.2);
        self.noise = (self.noise + NOISE_GAIN * (seen - self.noise)).max(NOISE.1);
        -0.5 * (variance.ln() + error * error / variance)
    }

    /// Rates and their covariance under the condition that none is negative, one after the other,
    /// from the one that is most surely 0.
    pub fn settle(&mut self, width: usize) {
        self.per_tick = self.free;
        self.covariance.copy_from_slice(&self.free_covariance);
        for _ in 0..width {
            let variance = |column: usize| self.covariance[column * WIDTH + column];
            let below = (0..width).filter(|&at| self.per_tick[at] < 0.0 && variance(at) > 0.0);
            let sure = |at: &usize| self.per_tick[*at] / variance(*at).sqrt();
            let Some(column) = below.min_by(|one, other| sure(one).total_cmp(&sure(other))) else {
                break;
            };
            self.condition(column, width);
        }
        for rate in &mut self.per_tick {
            *rate = rate.max(0.0);
        }
    }

    /// The rate of `column` is 0.
    fn condition(&mut self, column: usize, width: usize) {
        let own: Row = std::array::from_fn(|other| self.covariance[column * WIDTH + other]);
        let (rate, variance) = (self.per_tick[column], own[column]);
        for other in 0..width {
            let part = own[other] / variance;
            self.per_tick[other] -= part * rate;
            let row = &mut self.covariance[other * WIDTH..other * WIDTH + width];
            for (covariance, own) in row.iter_mut().zip(&own) {
                *covariance -= part * own;
            }
        }
        self.per_tick[column] = 0.0;
        for other in 0..width {
            self.covariance[column * WIDTH + other] = 0.0;
            self.covariance[other * WIDTH + column] = 0.0;
        }
    }

    /// Rates may have changed since the last count.
    fn age(&mut self, width: usize, levels: Levels, memory: Memory<'_>) {
        match memory {
            Memory::Long(seconds) => {
                let drift = DRIFT * DRIFT * seconds;
                for column in 0..width {
                    let size = match column {
                        BASELINE => BASELINE_PRIOR.0 * levels.count,
                        _ => MOVES.1 * levels.rate,
                    };
                    let size = self.per_tick[column].max(size);
                    self.free_covariance[column * WIDTH + column] += drift * size * size;
                }
            }
            Memory::Short { long, kept } => {
                let left = kept * kept;
                for column in 0..width {
                    let rate = &mut self.free[column];
                    *rate = kept * *rate + (1.0 - kept) * long[column];
                    let row = &mut self.free_covariance[column * WIDTH..column * WIDTH + width];
                    for covariance in row.iter_mut() {
                        *covariance *= left;
                    }
                    let (of_itself, least) = match column {
                        BASELINE => (BASELINE_MOVES.0, BASELINE_MOVES.1 * levels.count),
                        _ => (MOVES.0, MOVES.1 * levels.rate),
                    };
                    let moves = (of_itself * long[column]).max(least);
                    row[column] += (1.0 - left) * moves * moves;
                }
            }
        }
    }
}
