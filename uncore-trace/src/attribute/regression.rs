//! `regression` and `misses`: what each owner makes per unit of CPU time or per miss, learnt from how the
//! counts of ticks differ when others run or miss ([`super::learner`]).
//!
//! The count of each tick of a window is divided by the rates of its use: each owner gets what its
//! rate makes expect, and of the difference to the count what is expected of it given the count: in
//! proportion to the covariance of its traffic with all. So the parts and the baseline sum to the count; the baseline is `unattributed`. An owner
//! has one rate on near CPUs and one on far CPUs, and its share is the sum of both.
//!
//! # Confidence
//!
//! The chance that a share `s` is within 10 % of the truth, `tanh(0.1 pi / sqrt(12 v))` (errors have
//! a logistic distribution), times the part of the window in which the counter ran, times [`CALIBRATION`].
//! `v`, the variance of the relative error, is the sum of
//!
//! - what rates are uncertain by: `g' C g`, with `C` their covariance and `g` the derivative of `ln s` by the
//!   rates. Owners that always run together have large ones, since only their sum is known, and so has
//!   one whose rate changed just now. `C` is the sum of that of steps and that of the shift, each with a
//!   weight ([`Weights`]);
//! - `w (1 - p) / p`, with `p` the part of the count that the share is: errors of the whole count that are
//!   given to one owner;
//! - what traffic differs by from rate x use within the window: of the variance of the count, the
//!   part that this owner's traffic and that of the others have in common;
//! - of misses, one over their number in the window;
//! - of time, `(e / t)^2`, with `t` the time it ran in the window and `e` twice [`EDGE_NS`], for a time
//!   has two ends;
//! - of time, `(e^2 / U)^2`, with `U` the variance of its time from tick to tick, and at most 1: where that
//!   is no more than what the edges of ticks make of it, as for who has a CPU without a pause, a rate
//!   is learnt from errors, and nobody knows what it is (regression dilution; Fuller, "Measurement
//!   Error Models", 1987, 1.1).

use std::collections::BTreeMap;

use super::confidence::within_tenth;
use super::history::{Histories, History, Source, Use};
use super::learner::{Effort, Learner, Part, Parts};
use super::residency::residency;
use super::{Attribution, Method, Share, Window, leave_rest, trust};
use crate::entries::Owner;

/// Of the shares that the model is sure of, this part is right: causes may move in step.
const CALIBRATION: f64 = 0.96;

/// How much larger errors are than what they are computed from. `docs/accuracy.md` says how it was fitted.
#[derive(Clone, Copy, Debug)]
struct Weights {
    /// Of the covariance of rates that step from block to block: blocks err together.
    steps: f64,
    /// Of the covariance of what counts cannot tell.
    shift: f64,
    /// Of the noise of ticks: it is alike in ticks that follow each other.
    noise: f64,
    /// Variance of errors of the whole count that one owner gets, as a part of the count.
    whole: f64,
}

impl Weights {
    /// For rates of this kind of use. A prior binds rates of misses in each block.
    const fn of(by: Use) -> Self {
        match by {
            Use::Time => Self { steps: 6.0, shift: 1.6, noise: 4.0, whole: 0.001 },
            Use::Misses => Self { steps: 0.1, shift: 0.3, noise: 4.0, whole: 0.002 },
        }
    }
}

/// Owners with less of the count are not said more of.
const LEAST_PART: f64 = 0.01;

/// Counts are read some ten microseconds after the tick that time is divided at: what an owner ran
/// for is not known better, ns.
const EDGE_NS: f64 = 15_000.0;

/// One counter's rates.
#[derive(Debug)]
pub(super) struct Regression {
    by: Use,
    learner: Learner,
}

impl Regression {
    /// For ticks of this length, ns.
    pub(super) fn new(by: Use, tick_ns: u64, effort: Effort) -> Self {
        Self { by, learner: Learner::new(by, tick_ns, effort) }
    }

    /// The parts of a window's count; `None` where nothing was learnt that divides it.
    pub(super) fn learnt(&mut self, window: &Window<'_>) -> Option<Vec<Share>> {
        let history = window.histories?.of(self.by)?;
        self.learner.advance(history, window.to);
        let parts = self.learner.take_parts();
        self.learner.is_ready().then(|| self.shares(&parts, history, window)).flatten()
    }
}

impl Attribution for Regression {
    fn tick(&mut self, tick: u64, count: Option<f64>, _histories: &Histories) {
        self.learner.observe(tick, count);
    }

    fn restart(&mut self) {
        self.learner.restart();
    }

    fn solve(&mut self, histories: &Histories) {
        if let Some(history) = histories.of(self.by) {
            self.learner.solve(history);
        }
    }

    fn advance(&mut self, histories: &Histories, to: u64) {
        if let Some(history) = histories.of(self.by) {
            self.learner.advance(history, to);
            self.learner.tidy(history);
        }
    }

    fn needs(&self) -> u64 {
        self.learner.needs()
    }

    fn skip(&mut self, histories: Option<&Histories>, to: u64) {
        if let Some(history) = histories.and_then(|histories| histories.of(self.by)) {
            self.learner.advance(history, to);
        }
        self.learner.take_parts();
    }

    fn divide(&mut self, window: &Window<'_>) -> (Method, Vec<Share>) {
        let by_time = residency(window.total, window.time, window.own_cpu, window.running);
        match self.learnt(window) {
            Some(shares) if 2.0 * trust(&shares) > trust(&by_time) => (Method::Regression, shares),
            _ => (Method::Residency, by_time),
        }
    }
}

/// Variances of the relative error of a share, by what they come from.
#[derive(Clone, Copy, Debug, Default)]
struct Uncertain {
    /// Rates are not known better.
    rates: f64,
    /// Traffic differs from rate x use.
    noise: f64,
    /// What was used is not known better.
    measure: f64,
    /// It hardly differs from tick to tick.
    unseen: f64,
    /// Errors of the whole count are its own.
    whole: f64,
}

impl Uncertain {
    /// With what `amount`, used by a source in the window, is uncertain by.
    fn with_measure(self, history: &History, source: Source, amount: f64) -> Self {
        match history.kind() {
            Use::Time => {
                let edges = 2.0 * EDGE_NS / history.tick_ns() as f64;
                let unseen = history.of_edges(source, edges);
                Self { measure: (edges / amount).powi(2), unseen: unseen * unseen, ..self }
            }
            Use::Misses => Self { measure: 1.0 / amount, ..self },
        }
    }

    /// The chance that the share is within 10 %.
    fn confidence(self) -> f64 {
        let all = self.rates + self.noise + self.measure + self.unseen + self.whole;
        CALIBRATION * within_tenth(all)
    }
}

/// What a source has of a window.
struct Found {
    source: u32,
    place: usize,
    part: Part,
}

impl Regression {
    /// Divides a window by its parts, if there are any.
    fn shares(&self, parts: &Parts, history: &History, window: &Window<'_>) -> Option<Vec<Share>> {
        let mut found: Vec<Found> = parts
            .of
            .iter()
            .map(|(source, part)| {
                let place = self.learner.place_of_column(part.column);
                Found { source: *source, place, part: *part }
            })
            .collect();
        found.sort_unstable_by_key(|found| found.source);
        let value: f64 = found.iter().map(|found| found.part.value).sum();
        if value <= 0.0 || !value.is_finite() {
            return None;
        }
        let uncertain = self.uncertain(&found, parts.at);
        // By owner: value, and the sum over its sources of value x confidence.
        let mut owners: BTreeMap<Owner, (f64, f64)> = BTreeMap::new();
        for (one, variance) in found.iter().zip(uncertain) {
            if one.part.value <= 0.0 {
                continue;
            }
            let Some(source) = one.part.who else { continue };
            if source.owner == Owner::Unattributed {
                continue;
            }
            let share = window.total * one.part.value / value;
            let mut confidence =
                variance.with_measure(history, source, one.part.amount).confidence();
            if one.part.column != one.source {
                // Among those without a column of their own it is residency again.
                let all: f64 = found
                    .iter()
                    .filter(|other| other.part.column == one.part.column)
                    .map(|other| other.part.amount)
                    .sum();
                let within = one.part.amount / all;
                if within < 0.999 {
                    confidence *= 0.2 * within;
                }
            }
            let (value, known) = owners.entry(source.owner).or_default();
            *value += share;
            *known += share * confidence;
        }
        let mut shares: Vec<Share> = owners
            .into_iter()
            .map(|(who, (value, known))| {
                let confidence = (known / value) as f32 * window.running;
                Share { who, value, confidence }
            })
            .collect();
        leave_rest(&mut shares, window.total);
        Some(shares)
    }

    /// Variance of the relative error of each share.
    fn uncertain(&self, found: &[Found], block: u64) -> Vec<Uncertain> {
        let all: f64 = found.iter().map(|found| found.part.expected).sum();
        let all = all.max(1e-12);
        let noise: f64 = found.iter().map(|found| found.part.noise).sum();
        let value: f64 = found.iter().map(|found| found.part.value).sum();
        let weights = Weights::of(self.by);
        let covariances = self.learner.covariances(block);
        // Of each: what varies by itself, and with all.
        let varies: Vec<(f64, f64)> = found
            .iter()
            .map(|one| {
                let with = |other: &Found| {
                    let [steps, shift] = covariances(one.place, other.place);
                    let covariance = weights.steps * steps + weights.shift * shift;
                    covariance * one.part.amount * other.part.amount / (all * all)
                };
                (with(one), found.iter().map(with).sum())
            })
            .collect();
        let of_all: f64 = varies.iter().map(|(_, common)| common).sum();
        let each = found.iter().zip(varies);
        each.map(|(one, (own, common))| {
            let part = (one.part.expected / all).max(1e-9);
            let of_rates = own - 2.0 * part * common + part * part * of_all;
            let its = one.part.noise;
            let of_noise = its * (1.0 - its / noise.max(1e-300)).max(0.0);
            let share = (one.part.value / value).max(1e-9);
            Uncertain {
                rates: of_rates.max(0.0) / (part * part),
                noise: weights.noise * of_noise / (share * value).powi(2).max(1e-300),
                whole: weights.whole * (1.0 - share).max(0.0) / share.max(LEAST_PART),
                ..Uncertain::default()
            }
        })
        .collect()
    }
}
