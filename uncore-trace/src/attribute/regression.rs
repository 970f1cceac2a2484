//! `regression`: what each owner makes per unit of CPU time, learnt from how the counts of ticks
//! differ when others run.
//!
//! Count of a tick = baseline + sum over owners of rate x time on the CPUs that the counter sees,
//! by recursive non-negative least squares ([`super::rates`]) over all owners that have a column
//! ([`super::design`]); owners beyond the 32 that ran most share one rate. Rates hold for as long as
//! they hold: four memories, of 0.15 s, 1.5 s, 15 s and without end, learn side by side, and each
//! counts by how well it predicted the last counts (Bayesian model averaging with forgetting; Raftery
//! et al., "Online Prediction Under Model Uncertainty via Dynamic Model Averaging", 2010). Steady
//! owners are known ever better, and one that changes is noticed within some ten ticks.
//!
//! A window's count is divided in proportion to the sum of rate x time over its ticks, every ten
//! at most with the rates as they were right after them, so the parts and the baseline sum to it; the
//! baseline is `unattributed`. Where ticks do not tell owners apart the prior decides: every owner
//! has the same rate, give or take three times that rate (which is `residency`, without idle time),
//! and the baseline is a hundredth or three of the mean count. CPUs that never idle leave the
//! baseline undetermined: there it stays at that.
//!
//! # Confidence
//!
//! The chance that a share `s` is within 10 % of the truth, `tanh(0.1 pi / sqrt(12 v))` (errors have
//! a logistic distribution), times the part of the window in which the counter ran, times [`CALIBRATION`].
//! `v`, the variance of the relative error, is the sum, over the memories by their weight, of
//!
//! - what rates are uncertain by: `g' C g`, with `C` their covariance and `g` the derivative of
//!   `ln s` by the rates. Owners that always run together have large ones, since only their sum is
//!   known, and so has one whose rate changed just now;
//! - what traffic differs by from rate x time within the window: `W (1 - s) / n`, with `W` the
//!   variance of a tick's relative error and `n` the ticks of the window;
//! - what the memories differ by among each other,
//!
//! and of two more:
//!
//! - `(e / t)^2`, with `t` the time it ran in the window and `e` twice [`EDGE_NS`], for a time has
//!   two ends;
//! - `(e^2 / U)^2`, with `U` the variance of its time from tick to tick, and at most 1: where that
//!   is no more than what the edges of ticks make of it, as for who has a CPU without a pause, a rate
//!   is learnt from errors, and nobody knows what it is (regression dilution; Fuller, "Measurement
//!   Error Models", 1987, 1.1).

use super::confidence::within_tenth;
use super::design::{BASELINE, Design, REST, Row, WIDTH};
use super::rates::{Levels, Memory, Rates};
use super::residency::residency;
use super::{Attribution, Method, Share, Window, leave_rest, trust};
use crate::log::Owner;

/// Ticks that only give the levels with which rates begin.
const FIRST: u64 = 64;

/// Ticks before rates are used.
const LEARN: u64 = 192;

/// The memories, s; the last is without end.
const MEMORIES: [f64; 4] = [0.15, 1.5, 15.0, f64::INFINITY];

/// The long one.
const LONG: usize = MEMORIES.len() - 1;

/// Forgetting factor per count, of the weights of the memories.
const FORGET: f64 = 0.98;

/// Ticks after which rates are settled, if no window ends before.
const STEP: f64 = 10.0;

/// How fast levels follow, per tick.
const LEVEL_GAIN: f64 = 0.002;

/// Of the shares that the model is sure of, this part is right: rates that are held at 0 make others
/// look surer than they are, and causes may move in step. Measured on the lab's mixes, three seeds,
/// in windows of 1, 10 and 100 ms.
const CALIBRATION: f64 = 0.94;

/// Counts are read some ten microseconds after the tick that time is divided at: what an owner ran
/// for is not known better, ns.
const EDGE_NS: f64 = 15_000.0;

/// One counter's rates.
#[derive(Debug)]
pub(super) struct Regression {
    ticks: u64,
    levels: Levels,
    models: Vec<Model>,
    /// Which owner each column had.
    born: [u64; WIDTH],
    /// Use since the last count, and in how many ticks.
    pending: (Row, f64),
    /// Use within the window.
    used: Row,
    /// Use that has not been given counts yet.
    step: Row,
    /// How much the use of each column differs from tick to tick.
    spread: Spread,
    /// Ticks since rates were settled.
    unsettled: f64,
}

/// One memory.
#[derive(Debug)]
struct Model {
    rates: Rates,
    log_weight: f64,
    /// Counts by column within the window.
    given: Row,
}

impl Default for Regression {
    fn default() -> Self {
        Self {
            ticks: 0,
            levels: Levels { count: 0.0, rate: 0.0 },
            models: Vec::new(),
            born: [0; WIDTH],
            pending: ([0.0; WIDTH], 0.0),
            used: [0.0; WIDTH],
            step: [0.0; WIDTH],
            spread: Spread::default(),
            unsettled: 0.0,
        }
    }
}

/// Mean and variance of each column's use of a tick, moving averages.
#[derive(Debug)]
struct Spread {
    ticks: Row,
    mean: Row,
    variance: Row,
}

impl Default for Spread {
    fn default() -> Self {
        Self { ticks: [0.0; WIDTH], mean: [0.0; WIDTH], variance: [0.0; WIDTH] }
    }
}

impl Spread {
    fn take(&mut self, row: &Row, ticks: f64, width: usize) {
        for (column, used) in row.iter().enumerate().take(width) {
            self.ticks[column] += ticks;
            let gain = (LEVEL_GAIN * ticks).max(ticks / self.ticks[column]).min(1.0);
            let off = used / ticks - self.mean[column];
            self.mean[column] += gain * off;
            self.variance[column] += gain * ((1.0 - gain) * off * off - self.variance[column]);
        }
    }

    fn reset(&mut self, column: usize) {
        for row in [&mut self.ticks, &mut self.mean, &mut self.variance] {
            row[column] = 0.0;
        }
    }

    /// The part of how a column's use differs that may be nothing but the edges of ticks, where use is
    /// not known better than by `edge` ticks.
    fn of_edges(&self, column: usize, edge: f64) -> f64 {
        let variance = self.variance[column];
        if variance > 0.0 { (edge * edge / variance).min(1.0) } else { 1.0 }
    }
}

impl Attribution for Regression {
    fn tick(&mut self, design: &Design, count: Option<f64>) {
        add(&mut self.pending.0, design.row());
        self.pending.1 += 1.0;
        if let Some(count) = count {
            let (row, ticks) = std::mem::replace(&mut self.pending, ([0.0; WIDTH], 0.0));
            self.level(&row, count / ticks, ticks);
            self.follow(design);
            self.take(design, &row, count, ticks);
        }
    }

    fn divide(&mut self, window: &Window<'_>) -> (Method, Vec<Share>) {
        let by_time = residency(window.total, window.time, window.own_cpu, window.running);
        if let Some(design) = window.design {
            if self.unsettled > 0.0 {
                self.settle(design.width());
            }
            self.give();
        }
        let shares = window.design.and_then(|design| self.shares(design, window));
        for model in &mut self.models {
            model.given = [0.0; WIDTH];
        }
        self.used = [0.0; WIDTH];
        match shares {
            Some(shares) if 2.0 * trust(&shares) > trust(&by_time) => (Method::Regression, shares),
            _ => (Method::Residency, by_time),
        }
    }
}

fn add(sum: &mut Row, row: &Row) {
    sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
}

impl Regression {
    /// Levels follow the counts.
    fn level(&mut self, row: &Row, count: f64, ticks: f64) {
        self.ticks += ticks as u64;
        let gain = LEVEL_GAIN.max(1.0 / self.ticks as f64) * ticks;
        let gain = gain.min(1.0);
        let busy: f64 = row.iter().skip(REST).sum::<f64>() / ticks;
        self.levels.count += gain * (count - self.levels.count);
        if busy > 0.0 {
            self.levels.rate += gain * (count / busy.max(0.1) - self.levels.rate);
        }
    }

    /// Columns that have another owner begin anew.
    fn follow(&mut self, design: &Design) {
        let changed = (0..WIDTH).filter(|&column| self.born[column] != design.born()[column]);
        for column in changed {
            let levels = self.levels;
            for model in &mut self.models {
                model.rates.reset(column, levels);
                model.given[column] = 0.0;
            }
            self.used[column] = 0.0;
            self.step[column] = 0.0;
            self.spread.reset(column);
        }
        self.born = *design.born();
    }

    fn take(&mut self, design: &Design, row: &Row, count: f64, ticks: f64) {
        if self.models.is_empty() {
            if self.ticks >= FIRST && self.levels.rate > 0.0 {
                let rates = Rates::new(self.levels);
                let model =
                    |_| Model { rates: rates.clone(), log_weight: 0.0, given: [0.0; WIDTH] };
                self.models = MEMORIES.iter().map(model).collect();
            }
            return;
        }
        let (width, levels) = (design.width(), self.levels);
        self.spread.take(row, ticks, width);
        let seconds = design.tick_ns() as f64 * 1e-9 * ticks;
        let ran: Vec<(usize, f64)> = row
            .iter()
            .enumerate()
            .take(width)
            .filter(|(_, used)| **used > 0.0)
            .map(|(column, used)| (column, *used))
            .collect();
        let long = self.models.get(LONG).map_or([0.0; WIDTH], |model| model.rates.per_tick);
        for (model, memory_s) in self.models.iter_mut().zip(MEMORIES) {
            let memory = if memory_s.is_finite() {
                Memory::Short { long: &long, kept: (-seconds / memory_s).exp() }
            } else {
                Memory::Long(seconds)
            };
            let told = model.rates.take(&ran, count, ticks, width, levels, memory);
            model.log_weight = FORGET * model.log_weight + told;
        }
        add(&mut self.used, row);
        add(&mut self.step, row);
        self.unsettled += ticks;
        if self.unsettled >= STEP {
            self.settle(width);
            self.give();
        }
    }

    fn settle(&mut self, width: usize) {
        self.unsettled = 0.0;
        for model in &mut self.models {
            model.rates.settle(width);
        }
    }

    /// Counts for the use since the last.
    fn give(&mut self) {
        let step = std::mem::replace(&mut self.step, [0.0; WIDTH]);
        for model in &mut self.models {
            let each = model.given.iter_mut().zip(&model.rates.per_tick).zip(&step);
            for ((given, rate), used) in each {
                *given += rate * used;
            }
        }
    }

    /// Divides a window by the rates, if there are any.
    fn shares(&self, design: &Design, window: &Window<'_>) -> Option<Vec<Share>> {
        if self.models.is_empty() || self.ticks < LEARN {
            return None;
        }
        let mut used = [0.0; WIDTH];
        used[BASELINE] = design.ticks(window.len_ns);
        let owners: Vec<(Owner, usize, f64)> = window
            .time
            .iter()
            .filter(|(who, ns)| *who != Owner::Idle && *ns > 0)
            .map(|&(who, ns)| (who, design.column(who), design.ticks(ns)))
            .collect();
        for &(_, column, ticks) in &owners {
            used[column] += ticks;
        }
        let (parts, variance) = self.parts(&used, design.width())?;
        let edges = 2.0 * EDGE_NS / design.tick_ns() as f64;
        let mut shares = Vec::with_capacity(owners.len() + 1);
        for (who, column, ticks) in owners {
            let within = ticks / used[column];
            let part = parts[column] * within;
            let value = window.total * part;
            if who == Owner::Unattributed || value <= 0.0 {
                continue;
            }
            let edge = edges / ticks;
            let of_part = variance[column] / parts[column].powi(2);
            let unseen = self.spread.of_edges(column, edges);
            let mut confidence =
                CALIBRATION * within_tenth(of_part + edge * edge + unseen * unseen);
            if column == REST && within < 1.0 {
                // Within the lump it is residency again.
                confidence *= 0.2 * within;
            }
            shares.push(Share { who, value, confidence: confidence as f32 * window.running });
        }
        leave_rest(&mut shares, window.total);
        Some(shares)
    }

    /// The part of each column in a window with this use, and its variance.
    fn parts(&self, used: &Row, width: usize) -> Option<(Row, Row)> {
        let best = self.models.iter().map(|model| model.log_weight).fold(f64::MIN, f64::max);
        let weights: Vec<f64> =
            self.models.iter().map(|model| (model.log_weight - best).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let (mut parts, mut variance, mut square) = ([0.0; WIDTH], [0.0; WIDTH], [0.0; WIDTH]);
        for (model, weight) in self.models.iter().zip(weights) {
            let weight = weight / sum;
            if weight < 1e-3 {
                continue;
            }
            let made = model.made(used, &self.used, width);
            let all: f64 = made.iter().sum();
            if all <= 0.0 || !all.is_finite() {
                return None;
            }
            let own = model.variance(used, &made, all, self.levels, width);
            for column in 0..width {
                let part = made[column] / all;
                parts[column] += weight * part;
                square[column] += weight * part * part;
                variance[column] += weight * own[column];
            }
        }
        for column in 0..width {
            variance[column] += (square[column] - parts[column] * parts[column]).max(0.0);
        }
        // Memories that were left out.
        let sum: f64 = parts.iter().sum();
        for part in &mut parts {
            *part /= sum;
        }
        (sum > 0.0).then_some((parts, variance))
    }
}

impl Model {
    /// Counts by column in a window with this use, by the rates it had in its ticks.
    fn made(&self, used: &Row, learnt: &Row, width: usize) -> Row {
        let mut made = [0.0; WIDTH];
        for column in 0..width {
            let rate = match learnt[column] {
                learnt if learnt > 0.0 => self.given[column] / learnt,
                _ => self.rates.per_tick[column],
            };
            made[column] = rate * used[column];
        }
        made
    }

    /// Variance of each column's part.
    fn variance(&self, used: &Row, made: &Row, all: f64, levels: Levels, width: usize) -> Row {
        let in_use = || (0..width).filter(|&column| used[column] > 0.0);
        // Of each column: what varies by itself, and with all.
        let varies: Vec<(usize, f64, f64)> = in_use()
            .map(|one| {
                let row = self.rates.covariances(one);
                let scaled = |other: usize| row[other] * used[one] * used[other] / (all * all);
                (one, scaled(one), in_use().map(scaled).sum())
            })
            .collect();
        let of_all: f64 = varies.iter().map(|(.., common)| common).sum();
        let ticks = used[BASELINE].max(1.0);
        let noise = self.rates.noise_of(all / ticks, levels);
        let mut variance = [0.0; WIDTH];
        for (column, own, common) in varies {
            let part = made[column] / all;
            let of_rates = own - 2.0 * part * common + part * part * of_all;
            let of_window = noise * part * part * (1.0 - part) / ticks;
            variance[column] = of_rates.max(0.0) + of_window.max(0.0);
        }
        variance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_that_differs_by_more_than_its_edges_tells() {
        let mut spread = Spread::default();
        let edge = 0.03;
        assert!(spread.of_edges(REST, edge) > 0.99);
        for tick in 0..1000 {
            let mut row = [0.0; WIDTH];
            row[REST] = f64::from(tick % 2);
            row[REST + 1] = 0.97 + 0.03 * f64::from(tick % 2);
            spread.take(&row, 1.0, WIDTH);
        }
        assert!(spread.of_edges(REST, edge) < 0.01);
        assert!(spread.of_edges(REST + 1, edge) > 0.99);
        spread.reset(REST);
        assert!(spread.of_edges(REST, edge) > 0.99);
    }
}
