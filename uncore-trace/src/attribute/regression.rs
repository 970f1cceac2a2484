//! `regression`, `misses` and `ports`: traffic per CPU time, miss or byte at a port of each owner,
//! learnt from how the counts of ticks vary with the owners' use ([`super::learner`]).
//!
//! The count of each tick of a window is divided in proportion to rate x use. So the shares and the
//! baseline sum to the count; the baseline is `unattributed`. An owner has one rate on near CPUs
//! and one on far CPUs, and its share is the sum of both.
//!
//! # Confidence
//!
//! The probability that a share `s` is within 10 % of the truth, `tanh(0.1 pi / sqrt(12 v))`
//! (errors are logistic), times the part of the window in which the counter ran, times
//! [`CALIBRATION`]. `v`, the variance of the relative error, is the sum of
//!
//! - the uncertainty of the learnt rates: `g' C g`, with `C` the covariance of their logarithms and
//!   `g` the gradient of `ln s`. It is large for owners that always run together, since only their
//!   sum is known. `C` is as if errors were independent beyond the longest scale of the sums, so it
//!   has the factor by which the autocorrelation of the residuals there makes a mean less sure, as
//!   far as it is not the prior that says the rate ([`Learner::learnt_factor`]);
//! - how rates differ just now: the variance of their deviations in this block;
//! - `w (1 - p) / p`, with `p` the share's part of the count: errors of the whole count that are
//!   given to one owner;
//! - the variation of traffic around rate x use in the window: the part of the count's variance
//!   that this owner's traffic and that of the others share;
//! - `(u / 2(1 - u))^2`, with `u` the baseline's part of the count, times the part of the prior
//!   variance of the baseline that the ticks have not removed: where they do not tell the baseline
//!   from owners that never pause, owners caused between none and all of it;
//! - `e^2 (1 - p) / p`, with `e` what owners may have caused of the baseline of a minute, as a part
//!   of the counts ([`crate::schema::fabric::part_of_somebody`]): the probability that an owner
//!   caused it is its part;
//! - for what a device moves, the variance that the confidence of an owner's share in the device's
//!   own counter says, and `(1 - p)^2` with its part `p` of the device's bytes, for all of its owners
//!   have the same rate; for what requests move, the variance of the memory in which their bytes are;
//! - what the residuals of the ticks say against the model
//!   ([`super::learner::MisfitVariances`]): the variance of a change that all rates have in common,
//!   times `(1 - p)^2` with the part `p` of the owner's group, whose processes change alike; the
//!   square of the part of the bytes that comes late, times `(1 - p) / p`; and the variance with
//!   which rates change, times the part of the ticks in which the link is full, for nothing tells of
//!   such a change then;
//! - for misses, one over their number in the window;
//! - for ports, the variance that the confidence of their own shares says;
//! - for time, `(e / t)^2`, with `t` the owner's time in the window and `e` twice 15 us,
//!   because a span has two ends;
//! - for time, `(e^2 / U)^2`, at most 1, with `U` the variance of the owner's time between ticks.
//!   If `U` is no larger than what the uncertainty of tick boundaries causes, as for an owner that
//!   has a CPU without a pause, the rate is learnt from noise (regression dilution; Fuller,
//!   "Measurement Error Models", 1987, 1.1).
//!
//! Each has a factor ([`Weights`] and the constants after it). Of these only errors of the learnt
//! rates last: the confidence of a cgroup's sum over a longer time is that of `g' C g` for the sum
//! of all columns of the cgroup, so that errors between processes cancel, that of the baseline, that
//! of late bytes, and [`MODEL_VARIANCE`].

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

use foldhash::HashMap;

use super::columns;
use super::confidence::{MODEL_VARIANCE, variance_of, within_tenth};
use super::device_bytes::DeviceDirections;
use super::division_method::{DivisionInput, DivisionMethod};
use super::history::{Histories, History};
use super::learner::{DividedCount, Effort, FAR_LOG_SD, Learner, Observation, Variance};
use super::measured_part::MeasuredPart;
use super::method::Method;
use super::misfit::Misfit;
use super::near_rates::NearRates;
use super::port_confidence::PortConfidence;
use super::predictor::Predictor;
use super::residency::{add_residency, residency_shares};
use super::share::{Share, add_unattributed, confident_value};
use super::sibling_cost::ContrastSums;
use super::traffic_source::TrafficSource;
use super::window_parts::{OwnerPart, WindowParts};
use crate::entries::{Owner, Relief};

/// The part of shares that are correct if the model is certain of them: hidden causes may
/// correlate.
const CALIBRATION: f64 = 0.96;

/// Factors from model variances to actual errors. `docs/accuracy.md` says how they were fitted.
#[derive(Clone, Copy, Debug)]
struct Weights {
    /// For how rates differ just now.
    momentary: f64,
    /// Variance of errors of the whole count that one owner gets, relative to the count.
    whole_count: f64,
}

impl Weights {
    /// The weights for a predictor.
    const fn for_predictor(predictor: Predictor) -> Self {
        match predictor {
            Predictor::Time => Self { momentary: 2.2, whole_count: 0.0005 },
            Predictor::Misses => Self { momentary: 6.0, whole_count: 0.0 },
            Predictor::Ports => Self { momentary: 2.2, whole_count: 0.0 },
        }
    }
}

/// Factor for the noise of ticks.
const NOISE_FACTOR: f64 = 0.5;

/// Factor for the part that the edges of ticks have in what the use varies.
const EDGE_FACTOR: f64 = 0.15;

/// Factor for the confidence among owners that share a column.
const SHARED_FACTOR: f64 = 0.7;

/// Shares below this fraction of the count are treated as if they had this fraction.
const MIN_FRACTION: f64 = 0.01;

/// The variance of the part of an owner's bytes that is in the memory of its own socket, or with
/// `is_far` in that of another one, relative to what is expected. It is that of the rates on far
/// CPUs: a twentieth, within a factor of 6. So up to 0.3 are in another memory, and the part in the
/// own one is less by a quarter.
const fn placement_variance(is_far: bool) -> f64 {
    if is_far { FAR_LOG_SD * FAR_LOG_SD } else { 0.25 * 0.25 }
}

/// The variance of the relative error of all shares if the part `unattributed` of the count is the
/// baseline, and nothing says how much of it owners caused: of 0 to all of it, so the owners' shares
/// are too small by up to `u / (1 - u)`, half of which is taken for the standard deviation.
fn baseline_variance(unattributed: f64) -> f64 {
    let part = unattributed.clamp(0.0, 1.0);
    if part < 1.0 { (0.5 * part / (1.0 - part)).powi(2) } else { f64::INFINITY }
}

/// The rates of one counter.
#[derive(Debug)]
pub(super) struct Regression {
    predictor: Predictor,
    learner: Learner,
    /// The parts of the window that is to be divided next.
    window_parts: WindowParts,
    /// What was measured of it.
    measured_parts: Vec<MeasuredPart>,
}

impl Regression {
    /// A method for ticks of `tick_ns`.
    pub(super) fn new(predictor: Predictor, tick_ns: u64, effort: Effort) -> Self {
        Self {
            predictor,
            learner: Learner::new(predictor, tick_ns, effort),
            window_parts: WindowParts::default(),
            measured_parts: Vec::new(),
        }
    }

    /// Learns from bytes of devices in these directions, too.
    pub(super) fn using_devices(mut self, devices: DeviceDirections) -> Self {
        self.learner.use_devices(devices);
        self
    }

    /// Keeps the division of each tick's count.
    pub(super) fn keeping_divided_counts(mut self) -> Self {
        self.learner.keep_divided_counts();
        self
    }

    /// Number of the parts that are kept of the window that is to be divided next.
    #[cfg(test)]
    pub(super) const fn kept_parts(&self) -> usize {
        self.window_parts.owners.len()
    }

    /// The shares of a window's count; `None` if nothing was learnt to divide it.
    pub(super) fn learnt_shares(&mut self, window: &DivisionInput<'_>) -> Option<Vec<Share>> {
        let measured_parts = std::mem::take(&mut self.measured_parts);
        let history = window.histories?.history_of(self.predictor)?;
        self.learner.divide_counts(history, window.end_tick);
        let contributions = self.learner.take_contributions();
        let after_tick = window.begin_tick(history.tick_ns());
        self.window_parts.add_piece(&contributions, history, after_tick, window.end_tick);
        let divided_parts = std::mem::take(&mut self.window_parts);
        if !measured_parts.is_empty() && divided_parts.are_whole() {
            let counted = Observation {
                after_tick,
                last_tick: window.end_tick,
                count: window.total,
                restarts: false,
            };
            self.learner.learn_measured(measured_parts, divided_parts.cpu_use(), &counted);
        }
        self.learner
            .is_ready()
            .then(|| self.window_shares(&divided_parts, history, window))
            .flatten()
    }
}

impl DivisionMethod for Regression {
    fn observe_tick(&mut self, tick: u64, count: Option<f64>, _histories: &Histories) {
        self.learner.observe_count(tick, count);
    }

    fn note_restart(&mut self) {
        self.learner.note_restart();
    }

    fn learn_ticks(&mut self, histories: &Histories) {
        if let Some(history) = histories.history_of(self.predictor) {
            self.learner.learn_counts(history);
        }
    }

    fn solve_rates(&mut self, histories: &Histories, peer_rates: &[&NearRates]) {
        if let Some(history) = histories.history_of(self.predictor) {
            self.learner.update_rates(history, peer_rates);
        }
    }

    fn near_rates(&self, histories: &Histories) -> NearRates {
        let is_by_time = self.predictor == Predictor::Time;
        if is_by_time {
            self.learner.near_rates(histories.time.columns())
        } else {
            NearRates::default()
        }
    }

    fn set_relief(&mut self, relief: Relief) {
        self.learner.set_relief(relief);
    }

    fn rate_profile(&self, asked_predictor: Predictor) -> Option<Vec<f64>> {
        (asked_predictor == self.predictor).then(|| self.learner.rate_profile()).flatten()
    }

    fn misfits(&self) -> Vec<Misfit> {
        self.learner.misfits()
    }

    fn take_contrasts(&mut self) -> Option<ContrastSums> {
        (self.predictor == Predictor::Time).then(|| self.learner.take_contrasts())
    }

    fn divide_ticks(&mut self, histories: &Histories, begin_tick: u64, last_tick: u64) {
        let Some(history) = histories.history_of(self.predictor) else { return };
        self.learner.divide_counts(history, last_tick);
        // A count that begins before and ends after `last_tick` is in the next piece.
        let end = self.learner.divided_tick();
        if end > self.window_parts.piece_begin_tick(begin_tick) {
            let contributions = self.learner.take_contributions();
            self.window_parts.add_piece(&contributions, history, begin_tick, end);
        }
    }

    fn take_divided_counts(&mut self) -> Vec<DividedCount> {
        self.learner.take_divided_counts()
    }

    fn oldest_needed_tick(&self) -> u64 {
        self.learner.oldest_needed_tick()
    }

    fn skip_window(&mut self, histories: Option<&Histories>, end_tick: u64) {
        if let Some(history) = histories.and_then(|histories| histories.history_of(self.predictor))
        {
            self.learner.divide_counts(history, end_tick);
        }
        self.learner.take_contributions();
        self.window_parts = WindowParts::default();
        self.measured_parts.clear();
    }

    fn note_measured(&mut self, parts: Vec<MeasuredPart>) {
        self.measured_parts = parts;
    }

    fn divide_window(&mut self, window: &DivisionInput<'_>) -> (Method, Vec<Share>) {
        let by_time = residency_shares(window.total, window);
        match self.learnt_shares(window) {
            Some(shares) if 2.0 * confident_value(&shares) > confident_value(&by_time) => {
                (Method::Regression, shares)
            }
            _ => (Method::Residency, by_time),
        }
    }
}

/// Variances of the relative error of a share, by cause.
#[derive(Clone, Copy, Debug, Default)]
struct ShareVariances {
    /// Uncertainty of the rates.
    rates: f64,
    /// Variation of traffic around rate x use.
    noise: f64,
    /// Uncertainty of the use.
    use_error: f64,
    /// The use hardly varies between ticks.
    edge: f64,
    /// Errors of the whole count.
    whole_count: f64,
    /// The error of the baseline.
    baseline: f64,
    /// Errors that the model does not know of: those of a window, and those that last.
    misfit: f64,
    lasting_misfit: f64,
    /// Uncertainty of the rates of its group.
    group_rates: f64,
    /// Uncertainty of the use of its group over a longer time.
    lasting: f64,
    /// Whose bytes a device moved: in a window, and over a longer time.
    device_owner: f64,
    lasting_device_owner: f64,
}

impl ShareVariances {
    /// Adds the uncertainty of the use of an owner in the window.
    fn with_use_error(
        self,
        history: &History,
        owner_part: &OwnerPart,
        port_confidence: Option<&PortConfidence>,
    ) -> Self {
        let OwnerPart { source, amount, edge_fraction: edge, .. } = *owner_part;
        if source.device.is_some() {
            return self;
        }
        match history.predictor() {
            Predictor::Time => {
                let edges = history.edge_ticks();
                Self {
                    use_error: (edges / amount).powi(2),
                    edge: EDGE_FACTOR * edge * edge,
                    ..self
                }
            }
            Predictor::Misses => Self { use_error: 1.0 / amount, ..self },
            Predictor::Ports => {
                let (window_confidence, lasting) = port_confidence
                    .map_or((0.0, 0.0), |confidences| confidences.mean_of_owner(source.owner));
                let measure = variance_of(window_confidence / CALIBRATION);
                let lasting = (variance_of(lasting) - MODEL_VARIANCE).max(0.0);
                Self { use_error: measure, lasting, ..self }
            }
        }
    }

    /// The probability that the share is within 10 %.
    fn confidence(self) -> f64 {
        let variance = self.rates
            + self.noise
            + self.use_error
            + self.edge
            + self.whole_count
            + self.baseline
            + self.misfit
            + self.device_owner;
        CALIBRATION * within_tenth(variance)
    }

    /// The probability that the sum of the shares of its group over a longer time is within 10 %.
    fn lasting(self) -> f64 {
        within_tenth(
            self.group_rates
                + self.lasting
                + self.baseline
                + self.lasting_misfit
                + self.lasting_device_owner
                + MODEL_VARIANCE,
        )
    }
}

/// The sum of two shares of an owner. The sure one does not make the other one sure: whatever the
/// correlation of their errors, the standard deviation of the sum is at most the sum of both.
fn add_correlated(share: &Share, addend: &Share, total: f64) -> Share {
    let value = share.value + addend.value;
    if value <= 0.0 {
        return *share;
    }
    let standard_deviation = |summand: &Share, confidence: f32| {
        if summand.value <= 0.0 {
            return 0.0;
        }
        // It is between nothing and the whole count.
        let largest_error = (total - summand.value).max(summand.value) / value;
        (summand.value / value * variance_of(f64::from(confidence)).sqrt()).min(largest_error)
    };
    let combine = |first: f32, second: f32| {
        let sum = standard_deviation(share, first) + standard_deviation(addend, second);
        (within_tenth(sum * sum) as f32).min(first.max(second))
    };
    Share {
        value,
        confidence: combine(share.confidence, addend.confidence),
        lasting: combine(share.lasting, addend.lasting),
        ..*share
    }
}

impl ShareVariances {
    /// Adds the uncertainty of where an owner's bytes of a device are: the rate is that of all owners.
    fn with_placement(self, source: TrafficSource) -> Self {
        if source.device.is_none() {
            return self;
        }
        let placement = placement_variance(source.is_far);
        Self { device_owner: placement, lasting_device_owner: placement, ..self }
    }

    /// The shares of the owners of a device's part `value` of the count, which have these shares of
    /// what the device moved. What is left is unattributed there, too.
    fn share_by_owners(self, value: f64, running: f32, owners: &[Share]) -> Vec<Share> {
        let moved: f64 = owners.iter().map(|owner_share| owner_share.value).sum();
        let owner_part = |owner_share: &Share| {
            // All owners have the rate of the device, though the bytes of some may be in the memory
            // of another socket.
            let others = ((1.0 - owner_share.value / moved).max(0.0)).powi(2);
            let uncertain = Self {
                device_owner: others + variance_of(f64::from(owner_share.confidence)),
                lasting_device_owner: others + variance_of(f64::from(owner_share.lasting)),
                ..self
            };
            Share {
                lasting: uncertain.lasting() as f32 * running,
                ..Share::new(
                    owner_share.owner,
                    value * owner_share.value / moved,
                    uncertain.confidence() as f32 * running,
                )
            }
        };
        let is_known = |owner_share: &&Share| {
            owner_share.value > 0.0 && owner_share.owner != Owner::Unattributed
        };
        owners.iter().filter(is_known).map(owner_part).collect()
    }
}

/// Adds shares of devices to those of the same owners in a count of `total`.
fn add_by_owner(shares: &mut Vec<Share>, added_shares: Vec<Share>, total: f64) {
    if added_shares.is_empty() {
        return;
    }
    let mut indexes: HashMap<Owner, usize> =
        shares.iter().enumerate().map(|(index, share)| (share.owner, index)).collect();
    for added in added_shares {
        match indexes.entry(added.owner) {
            Entry::Occupied(known) => {
                let share = shares.get_mut(*known.get()).into_iter();
                share.for_each(|share| *share = add_correlated(share, &added, total));
            }
            Entry::Vacant(unknown) => {
                unknown.insert(shares.len());
                shares.push(added);
            }
        }
    }
}

impl Regression {
    /// The shares of a window by its parts, if there are any. Counts for which there were no rates
    /// are divided by time.
    fn window_shares(
        &self,
        window_parts: &WindowParts,
        history: &History,
        window: &DivisionInput<'_>,
    ) -> Option<Vec<Share>> {
        let &WindowParts { value, noise, unknown, .. } = window_parts;
        if value <= 0.0 {
            return None;
        }
        let total =
            if unknown > 0.0 { window.total * value / (value + unknown) } else { window.total };
        let port_confidence =
            window.histories.and_then(|histories| histories.port_confidence.get(&window.end_tick));
        let weights = Weights::for_predictor(self.predictor);
        let misfit = self.learner.misfit_variances();
        let known_parts = window_parts
            .owners
            .iter()
            .filter(|owner_part| owner_part.source.owner != Owner::Unattributed);
        let attributed: f64 = known_parts.map(|owner_part| owner_part.value).sum();
        let baseline = baseline_variance(1.0 - attributed / value) * misfit.unknown_baseline;
        let group_slot =
            |owner_part: &OwnerPart| history.columns().group_slot(usize::from(owner_part.slot));
        let mut group_fractions: BTreeMap<usize, f64> = BTreeMap::new();
        if misfit.common > 0.0 {
            for owner_part in &window_parts.owners {
                *group_fractions.entry(group_slot(owner_part)).or_default() +=
                    owner_part.value / value;
            }
        }
        let device_shares =
            window.histories.and_then(|histories| histories.device_shares.get(&window.end_tick));
        let mut shares: Vec<Share> = Vec::with_capacity(window_parts.owners.len() + 1);
        let mut shares_by_devices: Vec<Share> = Vec::new();
        for owner_part in &window_parts.owners {
            let (owner, fraction) = (owner_part.source.owner, owner_part.value / value);
            if fraction <= 0.0 || !fraction.is_finite() || owner == Owner::Unattributed {
                continue;
            }
            let Variance { learnt, momentary, group_learnt, .. } = owner_part.variance;
            let noise_variance =
                owner_part.noise * (1.0 - owner_part.noise / noise.max(1e-300)).max(0.0);
            let share = fraction.max(1e-9);
            let common = if misfit.common > 0.0 {
                let group_fraction =
                    group_fractions.get(&group_slot(owner_part)).copied().unwrap_or(share);
                misfit.common * (1.0 - group_fraction).max(0.0).powi(2)
            } else {
                0.0
            };
            let others = (1.0 - share).max(0.0) / share.max(MIN_FRACTION);
            let learnt_factor = self.learner.learnt_factor(usize::from(owner_part.slot));
            let uncertain = ShareVariances {
                rates: learnt_factor * learnt + weights.momentary * (momentary + misfit.full_link),
                noise: NOISE_FACTOR * noise_variance / (share * value).powi(2).max(1e-300),
                whole_count: weights.whole_count * others,
                baseline,
                misfit: common + (misfit.late + misfit.of_somebody) * others,
                lasting_misfit: misfit.late * others,
                group_rates: learnt_factor * group_learnt,
                ..ShareVariances::default()
            };
            let uncertain = uncertain.with_use_error(history, owner_part, port_confidence);
            if let Some(traffic) = owner_part.source.device
                && owner == Owner::Device
                && let Some(owners) = device_shares.and_then(|known| known.shares_of(traffic))
            {
                let value = total * fraction;
                shares_by_devices.extend(uncertain.share_by_owners(value, window.running, owners));
                continue;
            }
            let uncertain = uncertain.with_placement(owner_part.source);
            let mut confidence = uncertain.confidence();
            let mut lasting = uncertain.lasting();
            // Among owners that share a column, this is residency again.
            let is_of_device = owner_part.source.device.is_some();
            if owner_part.column_fraction < 0.999 && !is_of_device {
                confidence *= SHARED_FACTOR * owner_part.column_fraction;
                if columns::is_shared_slot(owner_part.slot) {
                    lasting *= SHARED_FACTOR * owner_part.column_fraction;
                }
            }
            let share = Share {
                lasting: lasting as f32 * window.running,
                ..Share::new(owner, total * fraction, confidence as f32 * window.running)
            };
            match shares.last_mut() {
                _ if is_of_device => shares_by_devices.push(share),
                Some(previous) if previous.owner == owner => previous.add_share(&share),
                _ => shares.push(share),
            }
        }
        add_by_owner(&mut shares, shares_by_devices, window.total);
        if unknown > 0.0 {
            add_residency(&mut shares, window.total - total, window);
        }
        add_unattributed(&mut shares, window.total);
        Some(shares)
    }
}

#[cfg(test)]
mod tests {
    use super::super::traffic_source::{SourceUse, TickMisses, TrafficSource};
    use super::*;
    use crate::attribute::tests::split_mix::SplitMix;

    const TICK_NS: u64 = 1_000_000;
    const WINDOW: u64 = 10;

    /// The part of the second of two owners in each window of 10 ms, and how the last was made. It
    /// begins at tick `begin` and moves three times as much per time as the first. Windows do not
    /// wait.
    fn parts(begin: u64) -> (Vec<f64>, Method) {
        let near = |number| TrafficSource::from_cpus(Owner::Irq(number), false);
        let mut random = SplitMix(7);
        let mut histories = Histories::new(TICK_NS, false);
        let mut method = Regression::new(Predictor::Time, TICK_NS, Effort::Live);
        let (mut parts, mut last) = (Vec::new(), Method::None);
        let (mut total, mut time) = (0.0, [0; 2]);
        for tick in 1..=4000 {
            let runs = [
                random.next_below(2) as u64,
                u64::from(tick >= begin) * random.next_below(2) as u64,
            ];
            let times = [0, 1].map(|at| SourceUse::new(near(at as u32), runs[at] * TICK_NS));
            let no_misses = TickMisses { by_source: Vec::new(), is_complete: true };
            histories.push(tick, &times, || no_misses);
            let count = 100.0 * runs[0] as f64 + 300.0 * runs[1] as f64;
            method.observe_tick(tick, Some(count), &histories);
            total += count;
            (0..2).for_each(|at| time[at] += runs[at] * TICK_NS);
            if tick.is_multiple_of(WINDOW) && total > 0.0 {
                let time = [(Owner::Irq(0), time[0]), (Owner::Irq(1), time[1])];
                let (method_of_window, shares) = method.divide_window(&DivisionInput {
                    total,
                    factor: 1.0,
                    running: 1.0,
                    sees_one_cpu: false,
                    len_ns: WINDOW * TICK_NS,
                    end_tick: tick,
                    time: &time,
                    counts: &[],
                    io: None,
                    histories: Some(&histories),
                });
                let second = shares.iter().find(|share| share.owner == Owner::Irq(1));
                parts.push(second.map_or(0.0, |second_share| second_share.value / total));
                last = method_of_window;
            }
            if tick.is_multiple_of(WINDOW) {
                (total, time) = (0.0, [0; 2]);
            }
            if tick.is_multiple_of(100) {
                histories.review_use();
                method.learn_ticks(&histories);
                histories.finish_review(|by| method.rate_profile(by).into_iter().collect());
                method.solve_rates(&histories, &[]);
                histories.forget_before(method.oldest_needed_tick().min(tick));
            }
        }
        (parts, last)
    }

    #[test]
    fn windows_that_do_not_wait_are_divided_by_what_was_learnt() {
        let (parts, by) = parts(1);
        assert_eq!(by, Method::Regression);
        let late = &parts[parts.len() - 100..];
        let mean = late.iter().sum::<f64>() / late.len() as f64;
        assert!((mean - 0.75).abs() < 0.06, "{mean}");
    }

    #[test]
    fn who_begins_has_a_part_at_once() {
        for begin in [2005, 2405, 3005] {
            let (parts, _) = parts(begin);
            // A window of nobody has no part.
            let first = parts.len() - (4000 - begin as usize) / WINDOW as usize;
            assert!(parts[..first - 5].iter().all(|part| *part <= 0.0));
            for early in parts[first..first + 80].chunks(10) {
                let mean = early.iter().sum::<f64>() / early.len() as f64;
                assert!(mean > 0.3, "{begin}: {mean}");
            }
        }
    }

    #[test]
    fn nobody_is_sure_while_much_is_unattributed() {
        let confidence = |unattributed: f64| {
            ShareVariances {
                baseline: baseline_variance(unattributed),
                ..ShareVariances::default()
            }
            .confidence()
        };
        assert!(confidence(0.0) > 0.95 && confidence(0.05) > 0.9, "{}", confidence(0.05));
        // A quarter: the owners' shares may be a third too small.
        assert!((0.4..0.6).contains(&confidence(0.25)), "{}", confidence(0.25));
        assert!(confidence(1.0) < 1e-9 && confidence(1.5) < 1e-9);
    }

    #[test]
    fn a_sure_part_does_not_make_an_unsure_one_sure() {
        let owner = Owner::Irq(1);
        let sum = |value: f64, confidence: f32| {
            let device = Share::new(owner, 80.0, 0.9);
            add_correlated(&device, &Share::new(owner, value, confidence), 1000.0)
        };
        // Twenty that may as well be ten or forty.
        let unsure = sum(20.0, 0.1);
        assert!((0.1..0.5).contains(&unsure.confidence), "{unsure:?}");
        assert!((unsure.value - 100.0).abs() < 1e-9 && unsure.lasting < 0.5, "{unsure:?}");
        // Nor does a small part of a large one, which may be less than it is.
        let large = Share::new(owner, 990.0, 0.24);
        let with_small = add_correlated(&large, &Share::new(owner, 5.0, 0.1), 1000.0);
        assert!((0.1..=0.24).contains(&with_small.confidence), "{with_small:?}");
        // What is as sure leaves the sum as sure, and what is next to nothing changes nothing.
        assert!((sum(80.0, 0.9).confidence - 0.9).abs() < 0.01);
        assert!((sum(0.01, 0.1).confidence - 0.9).abs() < 0.01);
        assert!((sum(0.0, 0.0).confidence - 0.9).abs() < 1e-6);
    }

    #[test]
    fn a_counter_of_a_device_says_whose_its_bytes_are_and_how_sure() {
        let (first, second) = (Owner::Irq(1), Owner::Irq(2));
        let owners = [
            Share::new(first, 30.0, 0.9),
            Share::new(second, 60.0, 0.1),
            Share::new(Owner::Unattributed, 10.0, 0.0),
        ];
        let shares = ShareVariances::default().share_by_owners(1000.0, 0.5, &owners);
        let values: Vec<_> = shares.iter().map(|share| (share.owner, share.value)).collect();
        assert_eq!(values, [(first, 300.0), (second, 600.0)]);
        // The bytes of one of them may be in another memory, unless it has all.
        assert!(shares.iter().all(|share| share.confidence < 0.1), "{shares:?}");
        let alone = ShareVariances::default().share_by_owners(1000.0, 0.5, &owners[..1]);
        let confidence = f64::from(alone[0].confidence);
        assert!((confidence - 0.5 * CALIBRATION * 0.9).abs() < 1e-6, "{alone:?}");
    }
}
