//! What each column of a [`super::design::Design`] makes per tick of CPU time, learnt from one count
//! after the other, for one memory.
//!
//! A Kalman filter of a regression whose rates move (West and Harrison, "Bayesian Forecasting and
//! Dynamic Models", 2nd edition, 1997, chapter 4): rates and their covariance are carried from tick
//! to tick, the covariance grows by what rates may have changed meanwhile, and each count takes
//! out of it what it tells. No rate is below 0, but what is carried on is the estimate without that
//! bound, or what was learnt later would be added to what it was not learnt beside. The bound comes
//! in as often as rates are needed ([`Rates::settle`]): rates that would be negative are taken to
//! be 0, and the others to be what they are expected to be then. What that takes out of the
//! covariance is kept as a few rows of a pivoted Cholesky factor beside it, so it costs their number
//! and not the matrix.

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

/// How fast it follows what is seen, per tick.
const NOISE_GAIN: f64 = 0.005;

/// Counts below this part of the mean count have the error of that part.
const NOISE_FLOOR: f64 = 0.05;

/// A variance of which this little is left is only rounding.
const ROUNDING: f64 = 1e-12;

/// Levels that a regression has in mind while its rates are found, all moving averages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Levels {
    /// Count of a tick.
    pub count: f64,
    /// Count per tick of CPU time.
    pub rate: f64,
}

/// How long what was learnt holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Memory<'a> {
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
pub(super) struct Rates {
    /// Counts per tick of CPU time, by column, none negative, as they were last settled.
    pub per_tick: [f64; WIDTH],
    /// Without the bound, after the last count.
    free: Row,
    /// Their covariance, `WIDTH` to a row; symmetric, so only what is not left of the diagonal.
    covariance: Vec<f64>,
    /// For each rate that was last held at 0, what that tells of the others: the sum of their
    /// squares, as a matrix, comes off the covariance.
    held: Vec<Row>,
    /// Variance of a count's relative error.
    pub noise: f64,
}

impl Rates {
    /// Before the first count: all alike.
    pub(super) fn new(levels: Levels) -> Self {
        let mut new = Self {
            per_tick: [0.0; WIDTH],
            free: [0.0; WIDTH],
            covariance: vec![0.0; WIDTH * WIDTH],
            held: Vec::new(),
            noise: NOISE.0,
        };
        (0..WIDTH).for_each(|column| new.reset(column, levels));
        new
    }

    /// Another owner has this column.
    pub(super) fn reset(&mut self, column: usize, levels: Levels) {
        let (first, deviation) = match column {
            BASELINE => (BASELINE_PRIOR.0 * levels.count, BASELINE_PRIOR.1 * levels.count),
            _ => (levels.rate, RATE_PRIOR * levels.rate),
        };
        for other in 0..WIDTH {
            self.covariance[place(column, other)] = 0.0;
        }
        for held in &mut self.held {
            held[column] = 0.0;
        }
        self.covariance[place(column, column)] = deviation * deviation;
        (self.per_tick[column], self.free[column]) = (first, first);
    }

    /// Variance of a tick's relative error where `count` is expected.
    pub(super) fn noise_of(&self, count: f64, levels: Levels) -> f64 {
        let expected = count.max(NOISE_FLOOR * levels.count);
        self.noise * square(expected, levels) / (expected * expected)
    }

    /// Takes a count of `ticks` ticks; `used` is their use by column, of those of the first `width`
    /// that were used. Returns the logarithm of how likely that count was, but for a constant.
    pub(super) fn take(
        &mut self,
        used: &[(usize, f64)],
        count: f64,
        ticks: f64,
        width: usize,
        levels: Levels,
        memory: Memory<'_>,
    ) -> f64 {
        let Aged { left, moves } = self.age(width, levels, memory);
        let mut gain = [0.0; WIDTH];
        for &(column, use_of) in used {
            let (above, own) = (0..column, &self.covariance[column * WIDTH..][column..width]);
            for other in above {
                gain[other] += self.covariance[other * WIDTH + column] * left * use_of;
            }
            for (gain, covariance) in gain[column..].iter_mut().zip(own) {
                *gain += covariance * left * use_of;
            }
            gain[column] += moves[column] * use_of;
        }
        let of = |values: &[f64; WIDTH]| -> f64 {
            used.iter().map(|&(column, use_of)| values[column] * use_of).sum()
        };
        let of_rates = of(&gain).max(0.0);
        let size = (of(&self.per_tick) / ticks).max(NOISE_FLOOR * levels.count);
        let square = square(size, levels);
        // Errors of several ticks are taken to be independent of each other.
        let variance = of_rates + self.noise * square * ticks;
        let tells = variance > 0.0 && variance.is_normal();
        let weight = if tells { variance.recip() } else { 0.0 };
        let rows = self.covariance.chunks_exact_mut(WIDTH).take(width).enumerate();
        for ((column, row), moved) in rows.zip(moves) {
            let part = gain[column] * weight;
            let row = &mut row[column..width];
            for (covariance, gain) in row.iter_mut().zip(&gain[column..]) {
                *covariance = left * *covariance - part * gain;
            }
            row[0] += moved;
        }
        if !tells {
            return 0.0;
        }
        let error = count - of(&self.free);
        for (rate, gain) in self.free.iter_mut().zip(&gain).take(width) {
            *rate += gain * error * weight;
        }
        let seen = ((error * error - of_rates) / (square * ticks)).clamp(0.0, NOISE.2);
        self.noise = (self.noise + NOISE_GAIN * (seen - self.noise)).max(NOISE.1);
        -0.5 * (variance.ln() + error * error * weight)
    }

    /// Covariances of a column's rate with all, if rates were settled after the last count.
    pub(super) fn covariances(&self, column: usize) -> Row {
        let mut row = [0.0; WIDTH];
        for (other, covariance) in row.iter_mut().enumerate().take(column) {
            *covariance = self.covariance[other * WIDTH + column];
        }
        let right = column * WIDTH + column..(column + 1) * WIDTH;
        row[column..].copy_from_slice(&self.covariance[right]);
        for held in &self.held {
            let part = held[column];
            row.iter_mut().zip(held).for_each(|(covariance, held)| *covariance -= part * held);
        }
        row
    }

    /// Rates and their covariance under the condition that none is negative, one after the other,
    /// from the one that is most surely 0.
    pub(super) fn settle(&mut self, width: usize) {
        self.per_tick = self.free;
        self.held.clear();
        let mut variance: Row = std::array::from_fn(|at| self.covariance[place(at, at)]);
        for _ in 0..width {
            let varies = |at: usize| variance[at] > ROUNDING * self.covariance[place(at, at)];
            let below = (0..width).filter(|&at| self.per_tick[at] < 0.0 && varies(at));
            let sure = |at: &usize| self.per_tick[*at] / variance[*at].sqrt();
            let Some(column) = below.min_by(|one, other| sure(one).total_cmp(&sure(other))) else {
                break;
            };
            let deviation = variance[column].sqrt();
            let by = self.per_tick[column] / deviation;
            let mut told = self.covariances(column);
            for (at, told) in told.iter_mut().enumerate() {
                // One that is held at 0 already stays there; what is left of it is rounding.
                *told = if variance[at] > 0.0 { *told / deviation } else { 0.0 };
            }
            for at in 0..width {
                self.per_tick[at] -= by * told[at];
                variance[at] -= told[at] * told[at];
            }
            (self.per_tick[column], variance[column]) = (0.0, 0.0);
            self.held.push(told);
        }
        for rate in &mut self.per_tick {
            *rate = rate.max(0.0);
        }
    }

    /// Rates may have changed since the last count: what that makes of the free ones. Returns what
    /// it makes of their covariance.
    fn age(&mut self, width: usize, levels: Levels, memory: Memory<'_>) -> Aged {
        let mut moves = [0.0; WIDTH];
        let columns = moves.iter_mut().enumerate().take(width);
        match memory {
            Memory::Long(seconds) => {
                let drift = DRIFT * DRIFT * seconds;
                for (column, moves) in columns {
                    let size = match column {
                        BASELINE => BASELINE_PRIOR.0 * levels.count,
                        _ => MOVES.1 * levels.rate,
                    };
                    let size = self.per_tick[column].max(size);
                    *moves = drift * size * size;
                }
                Aged { left: 1.0, moves }
            }
            Memory::Short { long, kept } => {
                let left = kept * kept;
                for (column, moves) in columns {
                    let rate = &mut self.free[column];
                    *rate = kept * *rate + (1.0 - kept) * long[column];
                    let (of_itself, least) = match column {
                        BASELINE => (BASELINE_MOVES.0, BASELINE_MOVES.1 * levels.count),
                        _ => (MOVES.0, MOVES.1 * levels.rate),
                    };
                    let size = (of_itself * long[column]).max(least);
                    *moves = (1.0 - left) * size * size;
                }
                Aged { left, moves }
            }
        }
    }
}

/// What time makes of a covariance.
struct Aged {
    /// What is left of it.
    left: f64,
    /// What is added to each column's variance.
    moves: Row,
}

/// What the noise of a count of this size is in proportion to. The variance of a count grows with the
/// power 1.5 of what is expected of it: between that of a sum of independent requests (1) and that
/// of one rate that differs (2).
fn square(size: f64, levels: Levels) -> f64 {
    size * (size * levels.count).sqrt()
}

/// Where the covariance of two columns is.
const fn place(one: usize, other: usize) -> usize {
    if one < other { one * WIDTH + other } else { other * WIDTH + one }
}
