//! The rates of a counter from its sums: the maximum of the posterior.
//!
//! The prior is log-normal and hierarchical. The rate of a group is expected around the mean of all
//! groups, that of a process around its group's, and that of an owner on far CPUs around a part of
//! its rate on near ones, of which the counter of the memory near to those CPUs knows most for a
//! group. The maximum is found by Newton's method for the logarithms of the rates, so they stay
//! positive. The variance of the errors at each time scale weighs its sums.

use super::super::columns::{ColumnKind, ColumnSubject, RateColumn, RateColumns};
use super::super::device_bytes::DeviceDirections;
use super::super::history::DEVICE_UNIT;
use super::super::matrix::{
    DenseMatrix, InverseFactor, IterationLimits, conjugate_gradient, dot_product,
};
use super::super::near_rates::{NearRates, find_surest};
use super::super::predictor::Predictor;
use super::super::sums::{CountSums, DesignSums, SCALES};
use crate::schema::fabric::{BASELINE_LOG_SD, BASELINE_MEDIAN};

/// Expected rate of a far owner relative to a near one. Linux allocates a task's memory on its own
/// node (`Documentation/admin-guide/mm/numa_memory_policy.rst`, Linux 7.2).
pub(super) const FAR: f64 = 0.05;

/// Prior standard deviation of the logarithm of the bytes that a counter counts for each byte of a
/// device, of which one is expected. A cache that takes what a device writes (`DDIO`) and reads of
/// lines that are written in part make it a half or two.
const DEVICE_LOG_SD: f64 = std::f64::consts::LN_2;

/// Prior standard deviation of the logarithm of a rate on far CPUs, or in another memory.
pub(in super::super) const FAR_LOG_SD: f64 = 1.8;

/// Least variance of the errors of a scale, as a part of that of the shortest.
const MIN_ERROR_RATIO: f64 = 0.3;

/// Time is divided some 15 us beside the readings of counts. What an owner's use differs by no more
/// than this, in ticks of one CPU that it runs on, teaches nothing.
const EDGE_TICKS: f64 = 0.03;

/// Longest step of the logarithm of a rate.
const LONGEST_STEP: f64 = 1.0;

/// The rates have converged when their log rates change by less than this.
const CONVERGED_CHANGE: f64 = 1e-3;

/// Number of iterations after which the weights of the scales are computed anew.
const REWEIGH_INTERVAL: usize = 4;

/// Iterations after which the information on each rate is estimated, if no rate was known before.
const INFORMATION_STEPS: [usize; 2] = [4, 20];

/// When the equations of a step are solved. A step need not be exact, because the next one begins
/// with an exact slope (Dembo, Eisenstat and Steihaug 1982, "Inexact Newton Methods").
const STEP_LIMITS: IterationLimits = IterationLimits { iterations: 60, residual_fraction: 1e-4 };

/// Prior standard deviation of a log rate.
fn prior_sd(predictor: Predictor, kind: ColumnKind) -> f64 {
    match (predictor, kind) {
        (_, ColumnKind::Baseline) => BASELINE_LOG_SD,
        (Predictor::Time, ColumnKind::Group) => 1.6,
        (Predictor::Time, ColumnKind::Process) => 0.7,
        (Predictor::Misses, ColumnKind::Group) => 0.5,
        (Predictor::Misses, ColumnKind::Process) => 0.3,
        (Predictor::Ports, ColumnKind::Group) => 0.2,
        (Predictor::Ports, ColumnKind::Process) => 0.1,
        (_, ColumnKind::Far) => FAR_LOG_SD,
        (_, ColumnKind::Device) => DEVICE_LOG_SD,
    }
}

/// The expected rate of a column of a device whose rate is not expected around that of another
/// column: one byte a byte in all counters of the memory.
pub(super) fn expected_device_rate(column: &RateColumn, devices: DeviceDirections) -> f64 {
    let near_rate = DEVICE_UNIT * devices.expected_ratio();
    if column.is_far() { FAR * near_rate } else { near_rate }
}

/// The prior of a log rate.
#[derive(Clone, Copy, Debug)]
struct RatePrior {
    /// Index of the parent.
    parent: Option<usize>,
    /// Prior mean of the log rate, relative to the parent's, or to the mean of all leading rates.
    offset: f64,
    /// Prior mean of the log rate, if it depends on no other rate.
    own_mean: Option<f64>,
    /// Prior precision: one over the prior variance.
    precision: f64,
    /// Whether the log rate counts for the mean of all leading rates.
    is_leading: bool,
}

/// The rates that maximize the posterior.
#[derive(Clone, Debug, Default)]
pub(super) struct RateSolution {
    /// Rates by slot. A slot without a column keeps the rate of its last column.
    pub rates: Vec<f64>,
    /// Residual variance of a tick by scale, as if errors were independent, relative to the
    /// square of what is expected of it.
    pub residual_variances: [f64; SCALES],
    /// The part of the counts that is the baseline.
    pub baseline_part: f64,
    /// Slots that have a column, ascending.
    pub active_slots: Vec<usize>,
    /// Posterior covariance of their log rates.
    pub covariance: DenseMatrix<f32>,
    /// Slots that were given another column since.
    pub renewed_slots: Vec<usize>,
    /// By slot: information on the log rate, `1 / (1 + posterior / prior variance)`; 0 if none.
    pub information: Vec<f64>,
}

impl RateSolution {
    /// The posterior variance of a log rate as a part of its prior variance.
    fn unknown_part(&self, slot: usize) -> f64 {
        let information = self.information.get(slot).copied().unwrap_or(0.0);
        if information > 0.0 { (1.0 / information - 1.0).clamp(0.0, 1.0) } else { 1.0 }
    }

    /// By how much the posterior variance of a log rate is larger if that of the errors is `factor`
    /// times as large as was thought. What the prior says stays the same: where counts say nothing,
    /// this is 1.
    pub(super) fn variance_factor(&self, slot: usize, factor: f64) -> f64 {
        factor / (1.0 + (factor - 1.0) * self.unknown_part(slot))
    }

    /// [`Self::unknown_part`] if the variance of the errors is `factor` times as large.
    pub(super) fn inflated_unknown_part(&self, slot: usize, factor: f64) -> f64 {
        self.unknown_part(slot) * self.variance_factor(slot, factor)
    }
}

/// A measured weighted sum of rates: that of rates times factors is 1.
#[derive(Debug)]
pub(super) struct RateMeasurement {
    /// Factors by slot.
    pub factors: Vec<(usize, f64)>,
    /// One over the variance.
    pub precision: f64,
}

/// The posterior of the log rates, with the active slots numbered without gaps.
struct RatePosterior<'a> {
    sums: &'a DesignSums,
    counts: &'a CountSums,
    active_slots: &'a [usize],
    priors: Vec<RatePrior>,
    /// By scale: whether a column's use varies enough. Misses are read some time before or after
    /// counts, so those of a tick may be in the next one: the shortest scale tells nothing of them.
    is_informative: [Vec<bool>; SCALES],
}

/// What the rates of a counter are learnt for.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateModel {
    /// The use that rates are per.
    pub predictor: Predictor,
    /// The devices whose bytes it counts.
    pub devices: DeviceDirections,
}

/// What the priors of rates are made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct PriorBasis<'a> {
    /// What the rates are learnt for.
    pub model: RateModel,
    /// The columns.
    pub columns: &'a RateColumns,
    /// What counters of other sockets have learnt of time on CPUs near to them.
    pub peer_rates: &'a [&'a NearRates],
}

/// How thoroughly rates are solved this time.
#[derive(Clone, Copy, Debug)]
pub(super) struct SolveOptions {
    /// The largest number of Newton steps.
    pub max_steps: usize,
    /// Whether the covariance of the last solution is kept.
    pub keeps_covariance: bool,
}

/// Finds the rates, from those of `previous`; `None` if nothing was counted.
pub(super) fn solve_rates(
    sums: &DesignSums,
    counts: &CountSums,
    measurements: &[RateMeasurement],
    basis: &PriorBasis<'_>,
    previous: &RateSolution,
    options: SolveOptions,
) -> Option<RateSolution> {
    let mean = counts.sum / sums.ticks;
    if mean <= 0.0 || !mean.is_finite() {
        return None;
    }
    let PriorBasis { model, columns, .. } = *basis;
    let is_active = |slot: &usize| {
        columns.get(*slot).is_some_and(|column| {
            column.device().is_none_or(|traffic| model.devices.contain(traffic.direction))
        })
    };
    let active_slots: Vec<usize> = (0..columns.len()).filter(is_active).collect();
    let posterior = RatePosterior::new(sums, counts, basis, &active_slots);
    let mut log_rates = posterior.initial_log_rates(previous, mean);
    let (mut residual_variances, mut equations) = ([0.0; SCALES], NormalEquations::default());
    // The information on each rate, which weighs it in the mean of all leading rates.
    let mut information: Vec<f64> = active_slots
        .iter()
        .map(|slot| previous.information.get(*slot).copied().unwrap_or(1.0))
        .collect();
    let is_first = previous.rates.is_empty();
    for step in 0..options.max_steps {
        let rates: Vec<f64> = log_rates.iter().map(|log_rate| libm::exp(*log_rate)).collect();
        if step == 0 || is_first && step % REWEIGH_INTERVAL == 0 {
            residual_variances = posterior.residual_variances(&rates);
            equations = posterior.weigh_equations(&residual_variances, measurements);
        }
        let likelihood_gradient = equations.likelihood_gradient(&rates);
        let gradient = posterior.gradient(&log_rates, &likelihood_gradient, &information);
        let correction = posterior.newton_step(&rates, &equations, &likelihood_gradient, &gradient);
        let largest_change =
            correction.iter().fold(0.0f64, |magnitude, component| magnitude.max(component.abs()));
        if !largest_change.is_finite() {
            return None;
        }
        let step_length = (LONGEST_STEP / largest_change.max(1e-9)).min(1.0);
        for (log_rate, correction_of_rate) in log_rates.iter_mut().zip(&correction) {
            *log_rate += step_length * correction_of_rate;
        }
        if is_first && INFORMATION_STEPS.contains(&step) {
            let variances =
                InverseFactor::factorize(posterior.hessian(&rates, &equations))?.inverse_diagonal();
            for (known, (variance, prior)) in
                information.iter_mut().zip(variances.into_iter().zip(&posterior.priors))
            {
                *known = 1.0 / (1.0 + variance * prior.precision);
            }
        }
        if largest_change < CONVERGED_CHANGE
            && (!is_first || step + 1 >= REWEIGH_INTERVAL.min(options.max_steps))
        {
            break;
        }
    }
    let rates: Vec<f64> = log_rates.iter().map(|log_rate| libm::exp(*log_rate)).collect();
    let covariance = if options.keeps_covariance {
        posterior.reorder_covariance(previous)
    } else {
        InverseFactor::factorize(posterior.hessian(&rates, &equations))?.invert()
    };
    // Stored ticks may refer to slots that are free: these keep their rates.
    let mut all_rates = previous.rates.clone();
    all_rates.resize(columns.len(), 0.0);
    for (slot, rate) in active_slots.iter().zip(&rates) {
        all_rates[*slot] = *rate;
    }
    let mut all_information = vec![0.0; columns.len()];
    for (index, slot) in active_slots.iter().enumerate() {
        let variance = f64::from(covariance.entry(index, index));
        all_information[*slot] = 1.0 / (1.0 + variance * posterior.priors[index].precision);
    }
    Some(RateSolution {
        rates: all_rates,
        residual_variances,
        baseline_part: rates.first().map_or(0.0, |baseline| baseline / mean),
        active_slots,
        covariance,
        renewed_slots: Vec::new(),
        information: all_information,
    })
}

impl<'a> RatePosterior<'a> {
    fn new(
        sums: &'a DesignSums,
        counts: &'a CountSums,
        basis: &PriorBasis<'_>,
        active_slots: &'a [usize],
    ) -> Self {
        let PriorBasis { model, columns, peer_rates } = *basis;
        let index = |slot: u16| active_slots.binary_search(&usize::from(slot)).ok();
        let baseline_mean = libm::log(BASELINE_MEDIAN * counts.sum / sums.ticks);
        let priors = active_slots.iter().filter_map(|slot| columns.get(*slot)).map(|column| {
            // Processes have in common what their cgroup has, so they stay below it.
            let is_root =
                matches!(column.subject, ColumnSubject::Group(_)) || column.parent.is_none();
            let peer_rate = (column.is_far() && is_root)
                .then(|| find_surest(peer_rates, &column.subject))
                .flatten();
            let parent = column.parent.and_then(index).filter(|_| peer_rate.is_none());
            let sd = prior_sd(model.predictor, column.kind);
            let own_mean = match column.kind {
                ColumnKind::Baseline => Some(baseline_mean),
                _ if column.device().is_some() && parent.is_none() => {
                    Some(libm::log(expected_device_rate(column, model.devices)))
                }
                _ => peer_rate.map(|near| near.log_rate + libm::log(FAR)),
            };
            let variance =
                peer_rate.map_or(sd * sd, |near| FAR_LOG_SD * FAR_LOG_SD + near.variance);
            RatePrior {
                parent,
                offset: if column.kind == ColumnKind::Far { libm::log(FAR) } else { 0.0 },
                own_mean,
                precision: variance.recip(),
                is_leading: own_mean.is_none()
                    && column.kind != ColumnKind::Far
                    && parent.is_none(),
            }
        });
        let value_at = |values: &[f64], slot: usize| values.get(slot).copied().unwrap_or(0.0);
        let is_informative = std::array::from_fn(|scale| {
            active_slots
                .iter()
                .map(|slot| {
                    let edge_variance = match model.predictor {
                        _ if columns.is_device_slot(*slot) => 0.0,
                        Predictor::Time => {
                            EDGE_TICKS * EDGE_TICKS * value_at(&sums.total_use, *slot) / sums.ticks
                        }
                        Predictor::Misses | Predictor::Ports => 0.0,
                    };
                    let use_variance = value_at(&sums.squared_deviations[scale], *slot)
                        / sums.degrees_of_freedom[scale].max(1.0);
                    let is_measured = model.predictor != Predictor::Misses || scale > 0;
                    is_measured
                        && (*slot == 0 || scale + 1 == SCALES || use_variance > edge_variance)
                })
                .collect()
        });
        Self { sums, counts, active_slots, priors: priors.collect(), is_informative }
    }

    fn total_use(&self, index: usize) -> f64 {
        self.sums.total_use.get(self.active_slots[index]).copied().unwrap_or(0.0)
    }

    /// Log rates to begin with.
    fn initial_log_rates(&self, previous: &RateSolution, mean: f64) -> Vec<f64> {
        let n = self.active_slots.len();
        let is_leading = |index: &usize| self.priors[*index].is_leading;
        let leading_use: f64 = (1..n).filter(is_leading).map(|index| self.total_use(index)).sum();
        let mean_log_rate =
            libm::log(mean * self.sums.ticks / leading_use.max(1e-9 * self.sums.ticks));
        let mut log_rates = vec![f64::NAN; n];
        for (log_rate, prior) in log_rates.iter_mut().zip(&self.priors) {
            *log_rate = prior.own_mean.unwrap_or(f64::NAN);
        }
        for (log_rate, slot) in log_rates.iter_mut().zip(self.active_slots) {
            if let Some(rate) = previous.rates.get(*slot).filter(|rate| **rate > 0.0) {
                *log_rate = libm::log(*rate);
            }
        }
        // Parents first: a column is at most two below a group.
        for _ in 0..3 {
            for index in 1..n {
                let RatePrior { parent, offset, .. } = self.priors[index];
                if log_rates[index].is_nan() {
                    log_rates[index] =
                        parent.map_or(mean_log_rate, |parent| log_rates[parent]) + offset;
                }
            }
        }
        log_rates
            .iter_mut()
            .filter(|unknown_log| unknown_log.is_nan())
            .for_each(|log| *log = mean_log_rate);
        log_rates
    }

    /// Residual variance by scale: `|y - X r|^2 / degrees of freedom`, with use `X`, counts `y`.
    fn residual_variances(&self, rates: &[f64]) -> [f64; SCALES] {
        let variance_of_scale = |scale: usize| {
            let (sums, counts) = (&self.sums.gram[scale], &self.counts.use_by_count[scale]);
            let mut rates_by_slot = vec![0.0; sums.column_count()];
            let mut rates_by_counts = 0.0;
            for (rate, slot) in rates.iter().zip(self.active_slots) {
                rates_by_counts += rate * counts.get(*slot).copied().unwrap_or(0.0);
                rates_by_slot.get_mut(*slot).into_iter().for_each(|entry| *entry = *rate);
            }
            let rates_by_gram = dot_product(&sums.multiply_vector(&rates_by_slot), &rates_by_slot);
            let count_squares = self.counts.count_squares[scale];
            (count_squares - 2.0 * rates_by_counts + rates_by_gram)
                .max(1e-12 * count_squares + 1e-30)
                / self.sums.degrees_of_freedom[scale].max(1.0)
        };
        let variances: [f64; SCALES] = std::array::from_fn(variance_of_scale);
        variances.map(|variance| variance.max(MIN_ERROR_RATIO * variances[0]).max(1e-12))
    }

    /// The normal equations: the sums of all scales, each divided by its residual variance, and
    /// what was measured of rates.
    fn weigh_equations(
        &self,
        residual_variances: &[f64; SCALES],
        measurements: &[RateMeasurement],
    ) -> NormalEquations {
        let n = self.active_slots.len();
        let (mut gram, mut rhs) = (DenseMatrix::<f64>::zero(n, n), vec![0.0; n]);
        let slot_count = self.active_slots.last().map_or(0, |last_slot| last_slot + 1);
        // By scale and slot: the weight of its use, 0 if it says nothing.
        let weights: [Vec<f64>; SCALES] = std::array::from_fn(|scale| {
            let mut weight_by_slot = vec![0.0; slot_count];
            let slots = self.active_slots.iter().zip(&self.is_informative[scale]);
            let informative_slots = slots.filter(|(_, is_informative)| **is_informative);
            let weight = residual_variances[scale].recip();
            informative_slots.for_each(|(slot, _)| weight_by_slot[*slot] = weight);
            weight_by_slot
        });
        let mut sums_by_slot = vec![0.0; slot_count];
        for (index, slot) in self.active_slots.iter().enumerate() {
            sums_by_slot.fill(0.0);
            for (scale, weights) in weights.iter().enumerate().filter(|(_, all)| all[*slot] > 0.0) {
                let use_by_count = self.counts.use_by_count[scale].get(*slot);
                rhs[index] += weights[*slot] * use_by_count.copied().unwrap_or(0.0);
                let entries = self.sums.gram[scale].row(*slot).iter().zip(weights);
                for (sum, (entry, weight)) in sums_by_slot.iter_mut().zip(entries) {
                    *sum += weight * entry;
                }
            }
            for (entry, column_slot) in gram.row_mut(index).iter_mut().zip(self.active_slots) {
                *entry = sums_by_slot[*column_slot];
            }
        }
        for measurement in measurements {
            let factors: Vec<(usize, f64)> = measurement
                .factors
                .iter()
                .filter_map(|(slot, factor)| {
                    Some((self.active_slots.binary_search(slot).ok()?, *factor))
                })
                .collect();
            for (index, factor) in &factors {
                let weighed = measurement.precision * factor;
                rhs[*index] += weighed;
                for (other_index, other_factor) in &factors {
                    gram.row_mut(*index)[*other_index] += weighed * other_factor;
                }
            }
        }
        let approximate_gram = gram.to_f32();
        NormalEquations { gram, approximate_gram, rhs }
    }

    /// The change of the log rates in a Newton step. The gradient makes the curvature larger,
    /// where it says that rates are too large: then the posterior is less curved than it looks.
    fn newton_step(
        &self,
        rates: &[f64],
        equations: &NormalEquations,
        likelihood_gradient: &[f64],
        gradient: &[f64],
    ) -> Vec<f64> {
        let n = rates.len();
        let mut diagonal_terms: Vec<f64> =
            likelihood_gradient.iter().map(|rate_gradient| rate_gradient.max(0.0)).collect();
        for (index, prior) in self.priors.iter().enumerate() {
            diagonal_terms[index] += prior.precision;
            if let Some(parent) = prior.parent {
                diagonal_terms[parent] += prior.precision;
            }
        }
        let product = |x: &[f64], product_vector: &mut [f64]| {
            let scaled: Vec<f32> =
                x.iter().zip(rates).map(|(x_i, rate)| (x_i * rate) as f32).collect();
            let products = equations.approximate_gram.multiply_vector(&scaled);
            for i in 0..n {
                product_vector[i] = f64::from(products[i]) * rates[i] + diagonal_terms[i] * x[i];
            }
            for (index, prior) in self.priors.iter().enumerate() {
                if let Some(parent) = prior.parent {
                    product_vector[index] -= prior.precision * x[parent];
                    product_vector[parent] -= prior.precision * x[index];
                }
            }
        };
        let diagonal: Vec<f64> = (0..n)
            .map(|i| equations.gram.entry(i, i) * rates[i] * rates[i] + diagonal_terms[i])
            .collect();
        let rhs: Vec<f64> = gradient.iter().map(|component| -component).collect();
        conjugate_gradient(product, &diagonal, rhs, STEP_LIMITS)
    }

    /// The covariance of an earlier solution, for the active slots. What was not known
    /// then has its prior variance.
    fn reorder_covariance(&self, previous: &RateSolution) -> DenseMatrix<f32> {
        let is_unchanged = |slot: &&usize| !previous.renewed_slots.contains(slot);
        let previous_indexes = self.active_slots.iter().map(|slot| {
            Some(slot)
                .filter(is_unchanged)
                .and_then(|active_slot| previous.active_slots.binary_search(active_slot).ok())
        });
        let indexes_before: Vec<Option<usize>> = previous_indexes.collect();
        let n = self.active_slots.len();
        let mut covariance = DenseMatrix::zero(n, n);
        for (index, previous_index) in indexes_before.iter().enumerate() {
            let row = covariance.row_mut(index);
            let Some(known_index) = previous_index else {
                row[index] = self.priors[index].precision.recip() as f32;
                continue;
            };
            let previous_row = previous.covariance.row(*known_index);
            for (entry, column_index) in row.iter_mut().zip(&indexes_before) {
                *entry = column_index.map_or(0.0, |previous_column| previous_row[previous_column]);
            }
        }
        covariance
    }

    /// Gradient of minus the logarithm of the posterior.
    fn gradient(
        &self,
        log_rates: &[f64],
        likelihood_gradient: &[f64],
        information: &[f64],
    ) -> Vec<f64> {
        let n = log_rates.len();
        let leading = || (1..n).filter(|index| self.priors[*index].is_leading);
        let information_sum: f64 = leading().map(|index| information[index]).sum();
        let leading_mean =
            leading().map(|index| information[index] * log_rates[index]).sum::<f64>()
                / information_sum.max(1e-9);
        let mut gradient = likelihood_gradient.to_vec();
        for index in 0..n {
            let RatePrior { parent, offset, own_mean, precision: prior_precision, .. } =
                self.priors[index];
            let prior_mean = match parent {
                Some(parent) => log_rates[parent] + offset,
                None => own_mean.unwrap_or(leading_mean + offset),
            };
            let prior_gradient = (log_rates[index] - prior_mean) * prior_precision;
            gradient[index] += prior_gradient;
            if let Some(parent) = parent {
                gradient[parent] -= prior_gradient;
            }
        }
        gradient
    }

    /// The Gauss-Newton Hessian of minus the logarithm of the posterior.
    fn hessian(&self, rates: &[f64], equations: &NormalEquations) -> DenseMatrix<f64> {
        let mut hessian = equations.gram.clone();
        for (index, prior) in self.priors.iter().enumerate() {
            for (entry, rate) in hessian.row_mut(index).iter_mut().zip(rates) {
                *entry *= rate * rates[index];
            }
            hessian.row_mut(index)[index] += prior.precision;
        }
        for (index, prior) in self.priors.iter().enumerate() {
            if let Some(parent) = prior.parent {
                hessian.row_mut(parent)[parent] += prior.precision;
                hessian.row_mut(index.max(parent))[index.min(parent)] -= prior.precision;
            }
        }
        hessian
    }
}

/// The normal equations `gram x rates = rhs`, summed over the scales.
#[derive(Debug, Default)]
struct NormalEquations {
    gram: DenseMatrix<f64>,
    /// The Gram matrix again, for products that need not be exact.
    approximate_gram: DenseMatrix<f32>,
    rhs: Vec<f64>,
}

impl NormalEquations {
    /// The gradient of minus the log likelihood by log rates: `rate x (gram x rates - rhs)`.
    fn likelihood_gradient(&self, rates: &[f64]) -> Vec<f64> {
        let gram_by_rates = self.gram.multiply_vector(rates).into_iter().zip(&self.rhs);
        gram_by_rates.zip(rates).map(|((expected, rhs), rate)| rate * (expected - rhs)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::super::columns::ColumnGroup;
    use super::super::super::near_rates::NearRate;
    use super::super::super::traffic_source::{SourceUse, TrafficSource};
    use super::*;
    use crate::drain::Comm;
    use crate::entries::Owner;

    #[test]
    fn a_peer_says_the_far_rate_of_a_cgroup_and_not_of_its_processes() {
        let source = |pid, cgroup_id, is_far| {
            let owner = Owner::Task { pid, comm: Comm::default(), cgroup_id };
            TrafficSource::from_cpus(owner, is_far)
        };
        // The first process of a cgroup has no column beside that of the cgroup.
        let sources =
            [source(1, 1, true), source(2, 1, true), source(3, 2, false), source(3, 2, true)];
        let mut columns = RateColumns::new();
        columns.assign_columns(&sources.map(|source| SourceUse::new(source, 30.0)), 2.0, 1..=9);
        let known = NearRate { log_rate: 2.0, variance: 0.5 };
        let process = ColumnSubject::Process(sources[1].owner);
        let group = |cgroup_id| ColumnSubject::Group(ColumnGroup::Cgroup(cgroup_id));
        let subjects = [group(1), group(2), process];
        let peer = NearRates(BTreeMap::from(subjects.map(|subject| (subject, known))));
        let basis = PriorBasis {
            model: RateModel { predictor: Predictor::Time, devices: DeviceDirections::default() },
            columns: &columns,
            peer_rates: &[&peer],
        };
        let active_slots: Vec<usize> = (0..columns.len()).collect();
        let (sums, counts) = (DesignSums::default(), CountSums::default());
        let posterior = RatePosterior::new(&sums, &counts, &basis, &active_slots);
        let prior_of = |source| &posterior.priors[usize::from(columns.slot_of_source(source))];
        let slot_of = |source| Some(usize::from(columns.slot_of_source(source)));

        for cgroup in [sources[0], sources[3]] {
            let prior = prior_of(cgroup);
            assert_eq!((prior.parent, prior.own_mean), (None, Some(2.0 + libm::log(FAR))));
            assert!((prior.precision.recip() - FAR_LOG_SD * FAR_LOG_SD - 0.5).abs() < 1e-9);
        }
        let process = prior_of(sources[1]);
        assert_eq!((process.parent, process.own_mean), (slot_of(sources[0]), None));
    }
}
