//! How rates differ just now.
//!
//! The learnt rates are corrected in three stages ([`STAGES`]), each around the last: by the counts
//! of some seconds, of some tenths of a second, and of the block itself. In each, a rate is
//! expected to differ by a normal deviation. How large it is, is learnt from the blocks before (an
//! EM step for its variance), but a stage never expects less than
//! [`Stage::min_prior_sd`]: where counts
//! tell little, they say little of the deviation.

use std::collections::VecDeque;

use super::super::columns::BASELINE;
use super::super::history::{GramKey, History, LONG_BLOCK_LEN};
use super::super::matrix::{DenseMatrix, IterationLimits, conjugate_gradient, dot_product};
use super::super::predictor::Predictor;
use super::fit::GroupCorrection;
use super::posterior::RateSolution;

/// Counts from which rates are corrected.
#[derive(Debug)]
struct Stage {
    /// Number of blocks that are taken together.
    length: u64,
    /// Weights of these by their distance.
    weights: &'static [f64],
    /// Factor for the variance of a tick, because errors of neighbouring ticks are correlated.
    autocorrelation_factor: f64,
    /// Least prior standard deviation of a rate per CPU time, relative to the rate.
    min_time_prior_sd: f64,
}

impl Stage {
    /// Least prior standard deviation of a rate. Bytes per miss, or per byte at a port, differ less
    /// than bytes per time.
    fn min_prior_sd(&self, predictor: Predictor) -> f64 {
        match predictor {
            Predictor::Time => self.min_time_prior_sd,
            Predictor::Misses | Predictor::Ports => WITNESS_SD_RATIO * self.min_time_prior_sd,
        }
    }
}

/// Prior standard deviation of a rate per miss or byte, relative to that of a rate per CPU time.
const WITNESS_SD_RATIO: f64 = 0.4;

/// The stages. Weights fall by `exp(-d / 1 s)` and `exp(-d / 125 ms)`. All constants are those with
/// the smallest errors on drawn machines of 8 to 144 CPUs.
const STAGES: [Stage; 3] = [
    Stage {
        length: LONG_BLOCK_LEN,
        weights: &[1.0, 0.6, 0.37, 0.22, 0.14],
        autocorrelation_factor: 16.0,
        min_time_prior_sd: 0.5,
    },
    Stage {
        length: 1,
        weights: &[1.0, 0.67, 0.3, 0.08],
        autocorrelation_factor: 4.0,
        min_time_prior_sd: 0.3,
    },
    Stage { length: 1, weights: &[1.0], autocorrelation_factor: 4.0, min_time_prior_sd: 0.1 },
];

/// Largest prior standard deviation.
const MAX_PRIOR_SD: f64 = 1.0;

/// Gain of the prior standard deviation, per block.
const PRIOR_SD_GAIN: f64 = 0.1;

/// The prior is learnt from a block if its counts have information on so many rates.
const MIN_INFORMATION: f64 = 0.3;

/// Prior standard deviation of the rate of a device's bytes, relative to that of an owner's CPU time:
/// as for other counted bytes ([`Stage::min_prior_sd`]).
const DEVICE_SD_RATIO: f64 = WITNESS_SD_RATIO;

/// Least rate in a block, relative to the learnt rate.
const MIN_RATE_RATIO: f64 = 0.15;

/// When a correction is solved.
const CORRECTION_LIMITS: IterationLimits =
    IterationLimits { iterations: 25, residual_fraction: 1e-5 };

/// Largest information of a block on a rate, relative to that of its prior: sums of f32 have 24 bits.
const MAX_INFORMATION: f64 = 1e6;

/// Least relative variance of a group's use within a block that tells it from others.
const MIN_USE_VARIANCE: f64 = 0.25;

/// Groups of more columns are not compared with others: it takes the square of their number.
const MAX_COMPARED_COLUMNS: usize = 32;

/// Products of use and count in a block, each weighed by one over what is expected of the tick.
#[derive(Debug)]
pub(super) struct BlockCounts {
    /// Number of the block.
    pub number: u64,
    /// By slot.
    pub products: Vec<f64>,
}

impl BlockCounts {
    /// Forgets the products of a slot that has a new column.
    pub(super) fn clear_slot(&mut self, slot: usize) {
        self.products.get_mut(slot).into_iter().for_each(|product| *product = 0.0);
    }
}

/// Prior standard deviations of relative rates, by stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct PriorScales([f64; 3]);

impl PriorScales {
    /// The scales before anything was learnt.
    pub(super) fn new(predictor: Predictor) -> Self {
        Self(STAGES.each_ref().map(|stage| stage.min_prior_sd(predictor)))
    }

    /// The prior variance of a rate around the learnt one.
    pub(super) fn variance(&self) -> f64 {
        self.0.iter().map(|sd| sd * sd).sum()
    }
}

/// The rates in a block.
#[derive(Debug)]
pub(super) struct BlockRates {
    /// The block.
    pub number: u64,
    /// The number of the long block that it is in, and the rates of that by slot.
    long_block: (u64, Vec<f64>),
    /// Rates by slot.
    pub rates: Vec<f64>,
    /// Variances by slot.
    pub variance: Vec<Variance>,
}

/// Variances of relative errors, by cause.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Variance {
    /// Of a column's part of the count: the learnt rates.
    pub learnt: f64,
    /// Of a column's part of the count: how rates differ at the moment.
    pub momentary: f64,
    /// Of the part of its group, near and far and with all processes: the learnt rates.
    pub group_learnt: f64,
}

impl Variance {
    /// The variance of a slot that nothing is known of.
    pub(in super::super) const UNKNOWN: Self =
        Self { learnt: 1.0, momentary: 1.0, group_learnt: 1.0 };

    /// Moves it towards a target by the fraction `weight` of the difference.
    pub(in super::super) fn move_towards(&mut self, target: &Self, weight: f64) {
        let Self { learnt, momentary: momentary_value, group_learnt: group_value } = self;
        for (value, target_value) in [
            (learnt, target.learnt),
            (momentary_value, target.momentary),
            (group_value, target.group_learnt),
        ] {
            *value += weight * (target_value - *value);
        }
    }
}

/// What the rates of a block are corrected by.
#[derive(Clone, Copy, Debug)]
pub(super) struct CorrectionBasis<'a> {
    /// The learnt rates.
    pub solution: &'a RateSolution,
    /// The use.
    pub history: &'a History,
    /// The counts.
    pub counts: &'a VecDeque<BlockCounts>,
    /// The variance of a tick around what the rates of its block make expect, relative to the
    /// square of that.
    pub tick_variance: f64,
}

impl BlockRates {
    /// The learnt rates, not corrected, for a block. Their prior scales are `prior_scales`.
    pub(super) fn from_learnt(
        number: u64,
        solution: &RateSolution,
        history: &History,
        prior_scales: &PriorScales,
    ) -> Self {
        let rates = solution.rates.clone();
        let momentary = (0..rates.len())
            .map(|slot| prior_scales.variance() * slot_sd_ratio(history, slot).powi(2));
        let momentary: Vec<f64> = momentary.collect();
        let variance = relative_variances(number, solution, &rates, &momentary, history);
        // No block follows it whose slow rates are the same.
        Self { number, long_block: (u64::MAX, Vec::new()), rates, variance }
    }

    /// Corrects the learnt rates for the block of a tick. `previous` has the rates of the block
    /// before it, if they were learnt at the same time.
    pub(super) fn correct_learnt(
        tick: u64,
        basis: &CorrectionBasis<'_>,
        prior_scales: &mut PriorScales,
        previous: Option<Self>,
    ) -> Self {
        let CorrectionBasis { solution, history, counts, tick_variance } = *basis;
        let number = history.block_of(tick);
        let learnt_rates = &solution.rates;
        let mut correct_stage = |stage_index: usize, center_rates: &[f64]| {
            let stage = &STAGES[stage_index];
            let middle = number.div_ceil(stage.length);
            let weight = |block: u64| {
                let distance = block.div_ceil(stage.length).abs_diff(middle);
                stage.weights.get(distance as usize).copied()
            };
            let gram = history.gram_around(GramKey { stage_index, middle }, weight);
            let mut rhs_of_blocks = vec![0.0; gram.column_count()];
            for block in counts {
                let Some(weight) = weight(block.number) else { continue };
                rhs_of_blocks
                    .iter_mut()
                    .zip(&block.products)
                    .for_each(|(entry, product)| *entry += weight * product);
            }
            let sd_ratios =
                (0..gram.column_count()).map(|slot| slot_sd_ratio(history, slot)).collect();
            let problem = CorrectionProblem {
                gram: &gram,
                rhs: rhs_of_blocks,
                sd_ratios,
                error_variance: stage.autocorrelation_factor * tick_variance,
                min_prior_sd: stage.min_prior_sd(history.predictor()),
            };
            let prior_scale = &mut prior_scales.0[stage_index];
            problem.solve_correction(center_rates, learnt_rates, prior_scale)
        };
        let long_number = number.div_ceil(LONG_BLOCK_LEN);
        let slow_rates = match previous.filter(|last_block| last_block.long_block.0 == long_number)
        {
            Some(same_long) => same_long.long_block.1,
            None => correct_stage(0, learnt_rates).0,
        };
        let (fast_rates, _) = correct_stage(1, &slow_rates);
        let (rates, momentary_variance) = correct_stage(2, &fast_rates);
        let variance = relative_variances(number, solution, &rates, &momentary_variance, history);
        Self { number, long_block: (long_number, slow_rates), rates, variance }
    }

    /// The corrections of the groups of columns, without the baseline. The processes of a group
    /// change together, and say nothing of others.
    ///
    /// Groups whose use hardly varies in the block are left out: the counts tell their sum only, so
    /// each of them has a part of the same correction.
    pub(super) fn group_corrections(
        &self,
        solution: &RateSolution,
        history: &History,
    ) -> Vec<GroupCorrection> {
        let Some(block) = history.block(self.number) else { return Vec::new() };
        let baseline = usize::from(BASELINE);
        let indexes = group_indexes(solution, history);
        let is_compared = |group: &&[(usize, usize)]| {
            group.first().is_some_and(|(slot, _)| {
                *slot != baseline && !history.columns().is_device_slot(*slot)
            })
        };
        let products = &block.products;
        let product = |first: usize, second: usize| f64::from(products.entry(first, second));
        let ticks = product(baseline, baseline);
        let rate_at = |rates: &[f64], slot: usize| rates.get(slot).copied().unwrap_or(0.0);
        let correction = |group: &[(usize, usize)]| {
            let slots: Vec<usize> =
                group.iter().map(|(_, index)| solution.active_slots[*index]).collect();
            let learnt = |slot: usize| rate_at(&solution.rates, slot);
            let expected: f64 =
                slots.iter().map(|slot| product(*slot, baseline) * learnt(*slot)).sum();
            if slots.len() > MAX_COMPARED_COLUMNS || expected <= 0.0 {
                return None;
            }
            let squares_of_column = |slot: usize| {
                let with_column = slots.iter().map(|other| product(slot, *other) * learnt(*other));
                learnt(slot) * with_column.sum::<f64>()
            };
            let squares: f64 = slots.iter().map(|slot| squares_of_column(*slot)).sum();
            let relative_variance = squares * ticks / (expected * expected) - 1.0;
            let change: f64 = slots
                .iter()
                .map(|slot| {
                    product(*slot, baseline) * (rate_at(&self.rates, *slot) - learnt(*slot))
                })
                .sum();
            (relative_variance >= MIN_USE_VARIANCE)
                .then_some(GroupCorrection { expected, relative_change: change / expected })
        };
        split_groups(&indexes).filter(is_compared).filter_map(correction).collect()
    }
}

/// The prior standard deviation of the rate of a slot in a block, relative to [`PriorScales`].
fn slot_sd_ratio(history: &History, slot: usize) -> f64 {
    if history.columns().is_device_slot(slot) { DEVICE_SD_RATIO } else { 1.0 }
}

/// The indexes of active slots with the slots of their groups, ordered by group. The baseline is a
/// group.
fn group_indexes(solution: &RateSolution, history: &History) -> Vec<(usize, usize)> {
    let active_slots = solution.active_slots.iter().enumerate();
    let mut indexes: Vec<(usize, usize)> =
        active_slots.map(|(index, slot)| (history.columns().group_slot(*slot), index)).collect();
    indexes.sort_unstable();
    indexes
}

/// The parts of [`group_indexes`], one for each group.
fn split_groups(indexes: &[(usize, usize)]) -> impl Iterator<Item = &[(usize, usize)]> {
    indexes.chunk_by(|(group, _), (next_group, _)| group == next_group)
}

/// By slot: variances of the relative errors of the fractions `p` that columns have of a count.
fn relative_variances(
    number: u64,
    solution: &RateSolution,
    rates: &[f64],
    momentary_by_slot: &[f64],
    history: &History,
) -> Vec<Variance> {
    let active = &solution.active_slots;
    let block = history.block(number);
    let use_of_slot = |slot: usize| {
        block.map_or(0.0, |block| f64::from(block.products.entry(slot, usize::from(BASELINE))))
    };
    let expected: Vec<f64> = active.iter().map(|slot| rates[*slot] * use_of_slot(*slot)).collect();
    let expected_sum: f64 = expected.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let fractions: Vec<f64> = expected.iter().map(|amount| amount / expected_sum).collect();
    let covariance = &solution.covariance;
    let rounded_fractions: Vec<f32> = fractions.iter().map(|fraction| *fraction as f32).collect();
    let covariance_by_fractions: Vec<f64> =
        covariance.multiply_vector(&rounded_fractions).into_iter().map(f64::from).collect();
    let variance_of_sum = dot_product(&covariance_by_fractions, &fractions);
    let momentary: Vec<f64> = active.iter().map(|slot| momentary_by_slot[*slot]).collect();
    let momentary_of_sum: f64 = momentary
        .iter()
        .zip(&fractions)
        .map(|(momentary_variance, fraction)| momentary_variance * fraction * fraction)
        .sum();
    let covariance_of = |i: usize, j: usize| f64::from(covariance.entry(i, j));
    // The variance of a sum's logarithm: its gradient by each part is the fraction of that part.
    let group_variance = |members: &[(usize, usize)]| {
        let group_fraction: f64 = members.iter().map(|(_, i)| fractions[*i]).sum();
        if group_fraction <= 0.0 {
            return None;
        }
        let (mut within_group, mut with_sum) = (0.0, 0.0);
        for (_, i) in members {
            within_group += fractions[*i]
                * members.iter().map(|(_, j)| covariance_of(*i, *j) * fractions[*j]).sum::<f64>();
            with_sum += fractions[*i] * covariance_by_fractions[*i];
        }
        Some((within_group / group_fraction - 2.0 * with_sum) / group_fraction + variance_of_sum)
    };
    let mut variance = vec![Variance::UNKNOWN; solution.rates.len()];
    let indexes = group_indexes(solution, history);
    for members in split_groups(&indexes) {
        let variance_of_group = group_variance(members);
        for (_, i) in members {
            let learnt =
                covariance_of(*i, *i) - 2.0 * covariance_by_fractions[*i] + variance_of_sum;
            let momentary_of_column =
                momentary[*i] * (1.0 - 2.0 * fractions[*i]) + momentary_of_sum;
            variance[active[*i]] = Variance {
                learnt: learnt.max(0.0),
                momentary: momentary_of_column.max(0.0),
                group_learnt: variance_of_group.unwrap_or(learnt).max(0.0),
            };
        }
    }
    variance
}

/// The weighed normal equations of the blocks around one: use by use, and use by count.
struct CorrectionProblem<'a> {
    gram: &'a DenseMatrix<f32>,
    rhs: Vec<f64>,
    /// By slot, [`slot_sd_ratio`].
    sd_ratios: Vec<f64>,
    /// The variance of the errors of a tick, relative to the square of its expected count.
    error_variance: f64,
    /// Least prior standard deviation of a rate, relative to the rate.
    min_prior_sd: f64,
}

impl CorrectionProblem<'_> {
    /// The corrected rates, and their posterior relative variances. Improves the prior scale.
    fn solve_correction(
        self,
        center_rates: &[f64],
        learnt_rates: &[f64],
        prior_scale: &mut f64,
    ) -> (Vec<f64>, Vec<f64>) {
        let n = self.gram.column_count();
        // Slots that came after the learnt rates have none.
        let rate_of_slot = |slot: usize| center_rates.get(slot).copied().unwrap_or(0.0);
        // In units of the prior standard deviation of each rate and of that of the errors.
        // Where counts are explained exactly, more information than this cannot be solved in f32.
        let largest_square = (0..n)
            .map(|slot| {
                f64::from(self.gram.entry(slot, slot))
                    * (*prior_scale * self.sd_ratios[slot] * rate_of_slot(slot)).powi(2)
            })
            .fold(0.0, f64::max);
        let unit = self.error_variance.max(largest_square / MAX_INFORMATION).sqrt();
        let prior_sds: Vec<f64> = self.sd_ratios.iter().map(|ratio| *prior_scale * ratio).collect();
        let scale: Vec<f64> =
            (0..n).map(|slot| prior_sds[slot] * rate_of_slot(slot) / unit).collect();
        let rates: Vec<f32> = (0..n).map(|slot| rate_of_slot(slot) as f32).collect();
        let expected = self.gram.multiply_vector(&rates).into_iter().map(f64::from);
        let rhs_and_expected = self.rhs.iter().zip(expected).zip(&scale);
        let scaled_residual = rhs_and_expected
            .map(|((rhs_entry, expected), scale)| (rhs_entry - expected) * scale / unit);
        let scaled_gram_diagonal =
            |slot: usize| f64::from(self.gram.entry(slot, slot)) * scale[slot] * scale[slot];
        let diagonal: Vec<f64> = (0..n).map(|slot| scaled_gram_diagonal(slot) + 1.0).collect();
        let product = |x: &[f64], product_vector: &mut [f64]| {
            let scaled: Vec<f32> =
                x.iter().zip(&scale).map(|(x_i, scale)| (x_i * scale) as f32).collect();
            let products = self.gram.multiply_vector(&scaled);
            for i in 0..n {
                product_vector[i] = f64::from(products[i]) * scale[i] + x[i];
            }
        };
        let correction =
            conjugate_gradient(product, &diagonal, scaled_residual.collect(), CORRECTION_LIMITS);
        let variance: Vec<f64> =
            diagonal.iter().map(|diagonal_entry| diagonal_entry.recip()).collect();
        let corrected = (0..n).map(|slot| {
            let min_rate = MIN_RATE_RATIO * learnt_rates.get(slot).copied().unwrap_or(0.0);
            (rate_of_slot(slot) * (1.0 + prior_sds[slot] * correction[slot])).max(min_rate)
        });
        let (corrected_rates, relative_variance) = (
            corrected.collect(),
            variance.iter().zip(&prior_sds).map(|(entry, sd)| entry * sd * sd).collect(),
        );
        let (mut squares, mut information) = (0.0, 0.0);
        for (correction_of_rate, variance) in correction.iter().zip(&variance) {
            let weight = (1.0 - variance).powi(2);
            squares += weight * (correction_of_rate * correction_of_rate + variance);
            information += weight;
        }
        if information > MIN_INFORMATION {
            let target_scale = (*prior_scale * (squares / information).sqrt())
                .clamp(self.min_prior_sd, MAX_PRIOR_SD);
            *prior_scale += PRIOR_SD_GAIN * information.min(1.0) * (target_scale - *prior_scale);
        }
        (corrected_rates, relative_variance)
    }
}
