//! How well the model fits a counter: tests of the residuals of its ticks.
//!
//! Each compares two sums that are equal on average where the model holds.
//!
//! - **Bytes come late.** Where they come with the CPU time, a residual tells as much of the use
//!   before it as of the use after it, whatever the phases and drifts of rates are: time has no
//!   direction there. Bytes that come a step later are missed in the step of their use and are too
//!   many in the next one. So residuals are regressed on the difference of what was expected a step
//!   before and a step after. Steps are of 8, 64 and 512 ticks.
//! - **Tenants change together.** A block's rates differ from the learnt ones by `c` for each group
//!   of columns, which has the part `p` of the count. If groups change on their own, the square of
//!   the whole change, `(sum p c)^2`, is on average `sum (p c)^2`, whatever each group's variance.
//!   Were there no common change, the ratio of both sums would be that of a chi-square variable to
//!   its degrees of freedom, which are the blocks over the factor by which their autocorrelation
//!   makes a mean less sure. What the square is more comes from a change that all have in common.

use std::collections::VecDeque;

use super::super::statistics::ONE_IN_A_THOUSAND;
use super::super::sums::MEMORY;

/// Number of means of one step that make one of the next.
const STEP_RATIO: usize = 8;

/// Number of steps.
const STEPS: usize = 3;

/// Standard errors beyond which a test is taken for true: three tests of hundreds of counters give
/// one false note in a thousand recordings.
const MIN_DEVIATION: f64 = 5.0;

/// A recording says that bytes come late if at least this fraction of them does.
const MIN_LATE: f64 = 0.05;

/// A recording says that tenants change together if more than this fraction of the variance of
/// their rates is common.
const MIN_COMMON: f64 = 0.5;

/// Least number of groups of columns of a block.
const MIN_GROUPS: usize = 3;

/// Largest autocorrelation of the residuals: what lasts longer than the memory of the rates is in
/// the rates.
const MAX_AUTOCORRELATION: f64 = 0.9;

/// The ratio of a chi-square variable to its degrees of freedom that is as rare as this deviate of
/// the standard normal distribution (Wilson and Hilferty 1931).
fn chi_square_ratio(freedom: f64, deviate: f64) -> f64 {
    if freedom <= 0.0 {
        return f64::INFINITY;
    }
    let variance = 2.0 / (9.0 * freedom);
    (1.0 - variance + deviate * variance.sqrt()).max(0.0).powi(3)
}

/// By how much the variance of a mean is larger than for independent errors, if they are those of a
/// first-order autoregressive process with these sums of products and squares over `count` errors.
/// A few errors say little of it: the correlation is less by its standard error (Bartlett 1946).
fn inflation_factor(cross: f64, squares: f64, count: f64) -> f64 {
    if squares <= 0.0 || count <= 0.0 {
        return 1.0;
    }
    let correlation = (cross / squares - count.sqrt().recip()).clamp(0.0, MAX_AUTOCORRELATION);
    (1.0 + correlation) / (1.0 - correlation)
}

/// A tick, or the mean of some ticks.
#[derive(Clone, Copy, Debug, Default)]
struct FitMean {
    /// What is expected.
    expected: f64,
    /// The count less that.
    residual: f64,
}

/// The mean of [`STEP_RATIO`] means that is being made.
#[derive(Debug, Default)]
struct OpenMean {
    sums: FitMean,
    count: usize,
}

impl OpenMean {
    /// Adds a mean. Returns that of all, if it is complete.
    fn add_mean(&mut self, mean: FitMean) -> Option<FitMean> {
        self.sums.expected += mean.expected;
        self.sums.residual += mean.residual;
        self.count += 1;
        if self.count < STEP_RATIO {
            return None;
        }
        let n = STEP_RATIO as f64;
        let FitMean { expected, residual } = std::mem::take(self).sums;
        Some(FitMean { expected: expected / n, residual: residual / n })
    }
}

/// Sums of one step.
#[derive(Debug, Default)]
struct StepSums {
    /// The mean of the next step.
    next_mean: OpenMean,
    /// The last three means.
    last_means: VecDeque<FitMean>,
    /// Residual by difference of the use before and after it, squared difference, and the square of
    /// their product.
    cross: f64,
    squares: f64,
    cross_squares: f64,
    /// Number of residuals, their squares, and residual by the one before it.
    residuals: f64,
    residual_squares: f64,
    residual_cross: f64,
}

impl StepSums {
    /// Adds a mean. Returns that of the next step, if it is complete.
    fn add_mean(&mut self, mean: FitMean, forgetting_factor: f64) -> Option<FitMean> {
        self.last_means.push_back(mean);
        if self.last_means.len() > 3 {
            self.last_means.pop_front();
        }
        if let (Some(before), Some(middle), Some(after)) =
            (self.last_means.front(), self.last_means.get(1), self.last_means.get(2))
        {
            let difference = before.expected - after.expected;
            let product = middle.residual * difference;
            self.cross = forgetting_factor * self.cross + product;
            self.squares = forgetting_factor * self.squares + difference * difference;
            self.cross_squares = forgetting_factor * self.cross_squares + product * product;
        }
        if let Some(before) = self.last_means.iter().rev().nth(1) {
            let residual = mean.residual;
            self.residuals = forgetting_factor * self.residuals + 1.0;
            self.residual_squares = forgetting_factor * self.residual_squares + residual * residual;
            self.residual_cross =
                forgetting_factor * self.residual_cross + residual * before.residual;
        }
        self.next_mean.add_mean(mean)
    }

    /// The part of the bytes that comes a step later, and its standard errors from 0. A part `l`
    /// makes a residual of `l (before - now)`, half of which is in the difference.
    fn late_part(&self) -> (f64, f64) {
        if self.squares <= 0.0 || self.cross_squares <= 0.0 {
            return (0.0, 0.0);
        }
        (2.0 * self.cross / self.squares, self.cross / self.cross_squares.sqrt())
    }
}

/// The tests of one counter.
#[derive(Debug, Default)]
pub(super) struct ModelFit {
    /// The mean of the shortest step.
    first_mean: OpenMean,
    steps: [StepSums; STEPS],
    blocks: f64,
    /// Sum of the squares of the whole change of a block, and of what they would be if groups
    /// changed alone.
    common_squares: f64,
    own_squares: f64,
    /// Sum over blocks of what a common change of variance 1 adds to the first of these.
    common_weight: f64,
    /// The whole change of the last block, and the sum of products of successive ones.
    last_change: f64,
    common_cross: f64,
}

/// How the rates of a group of columns differ in a block from the learnt ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupCorrection {
    /// The expected part of the group in the block's count, which weighs it.
    pub expected: f64,
    /// The relative correction of this part.
    pub relative_change: f64,
}

impl ModelFit {
    /// Adds a tick: what is expected of it, and its residual.
    pub(super) fn add_tick(&mut self, expected: f64, residual: f64) {
        let mut mean = self.first_mean.add_mean(FitMean { expected, residual });
        let mut ticks = STEP_RATIO as f64;
        for step in &mut self.steps {
            let Some(step_mean) = mean else { return };
            mean = step.add_mean(step_mean, libm::exp(-ticks / MEMORY));
            ticks *= STEP_RATIO as f64;
        }
    }

    /// Adds a block of so many ticks: its groups of columns that can be told apart. Few groups do
    /// not tell a common change from their own.
    pub(super) fn add_block(&mut self, corrections: &[GroupCorrection], ticks: u64) {
        let weights: f64 = corrections.iter().map(|group| group.expected).sum();
        if weights <= 0.0 || corrections.len() < MIN_GROUPS {
            return;
        }
        let (mut change, mut own_squares, mut concentration) = (0.0, 0.0, 0.0);
        for group in corrections {
            let part = group.expected / weights;
            change += part * group.relative_change;
            own_squares += (part * group.relative_change).powi(2);
            concentration += part * part;
        }
        let forgetting_factor = libm::exp(-(ticks as f64) / MEMORY);
        self.blocks = forgetting_factor * self.blocks + 1.0;
        self.common_squares = forgetting_factor * self.common_squares + change * change;
        self.own_squares = forgetting_factor * self.own_squares + own_squares;
        self.common_cross = forgetting_factor * self.common_cross + change * self.last_change;
        self.last_change = change;
        self.common_weight = forgetting_factor * self.common_weight + (1.0 - concentration);
    }

    /// The part of the bytes that comes late; 0 unless the test is sure.
    pub(super) fn late_part(&self) -> f64 {
        let sure = self
            .steps
            .iter()
            .map(StepSums::late_part)
            .filter(|(part, deviation)| *deviation > MIN_DEVIATION && *part > MIN_LATE);
        sure.fold(0.0, |largest, (part, _)| largest.max(part))
    }

    /// How many blocks tell as much as an independent one: as [`Self::autocorrelation_factor`].
    fn change_factor(&self) -> f64 {
        inflation_factor(self.common_cross, self.common_squares, self.blocks)
    }

    /// The variance of a relative change that all columns have in common; 0 unless the test is sure.
    pub(super) fn common_variance(&self) -> f64 {
        let least_ratio = chi_square_ratio(self.blocks / self.change_factor(), ONE_IN_A_THOUSAND);
        if self.common_squares > least_ratio * self.own_squares && self.common_weight > 0.0 {
            (self.common_squares - self.own_squares) / self.common_weight
        } else {
            0.0
        }
    }

    /// By how much the variance of what is learnt is larger than for independent errors of the
    /// longest step: that of the mean of a first-order autoregressive process.
    pub(super) fn autocorrelation_factor(&self) -> f64 {
        let [.., longest] = &self.steps;
        inflation_factor(longest.residual_cross, longest.residual_squares, longest.residuals)
    }

    /// Whether most of what rates change is common to all columns.
    pub(super) fn change_together(&self) -> bool {
        self.common_variance() > 0.0
            && self.common_squares - self.own_squares > MIN_COMMON * self.common_squares
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::tests::split_mix::SplitMix;

    /// The fit where a part `late` of the bytes comes `lag` ticks after the use.
    fn fit_of_late(late: f64, lag: usize) -> ModelFit {
        let mut random = SplitMix(11);
        let mut fit = ModelFit::default();
        // The use stays the same for some ticks, as that of a process that runs for a while.
        let mut used = Vec::new();
        while used.len() < 40_000 {
            let level = 50.0 + 100.0 * random.next_unit();
            used.extend(std::iter::repeat_n(level, 1 + random.next_below(40)));
        }
        for tick in lag..used.len() {
            let count = (1.0 - late) * used[tick] + late * used[tick - lag];
            fit.add_tick(used[tick], count * (1.0 + 0.1 * random.next_normal()) - used[tick]);
        }
        fit
    }

    #[test]
    fn bytes_that_come_late_are_found() {
        for lag in [10, 60] {
            let late = fit_of_late(0.3, lag).late_part();
            assert!((0.1..0.5).contains(&late), "{lag}: {late}");
        }
        assert!(fit_of_late(0.0, 0).late_part() < 1e-12);
    }

    /// The fit where 20 columns change on their own by `own`, and together by `common`.
    fn fit_of_changes(own: f64, common: f64) -> ModelFit {
        let mut random = SplitMix(13);
        let mut fit = ModelFit::default();
        for _ in 0..600 {
            let together = common * random.next_normal();
            let mut draw_change = || together + own * random.next_normal();
            let changes = (1..=20).map(|column| correct_group(f64::from(column), draw_change()));
            fit.add_block(&changes.collect::<Vec<_>>(), 100);
        }
        fit
    }

    const fn correct_group(expected: f64, relative_change: f64) -> GroupCorrection {
        GroupCorrection { expected, relative_change }
    }

    #[test]
    fn changes_in_common_are_found() {
        let apart = fit_of_changes(0.4, 0.0);
        assert!(!apart.change_together() && apart.common_variance() <= 0.0);
        let together = fit_of_changes(0.2, 0.4);
        assert!(together.change_together());
        let variance = together.common_variance();
        assert!((variance - 0.16).abs() < 0.02, "{variance}");
    }

    #[test]
    fn changes_of_one_large_group_are_not_common() {
        let mut random = SplitMix(19);
        let mut fit = ModelFit::default();
        for _ in 0..600 {
            let small = (0..20).map(|_| correct_group(1.0, 0.05 * random.next_normal()));
            let mut groups: Vec<GroupCorrection> = small.collect();
            groups.push(correct_group(60.0, 0.5 * random.next_normal()));
            fit.add_block(&groups, 100);
        }
        assert!(fit.common_variance() <= 0.0 && !fit.change_together());
    }

    #[test]
    fn one_draw_in_a_thousand_is_rarer() {
        // Tables of the chi-square distribution: 32.909 of 12, 59.703 of 30.
        assert!((chi_square_ratio(12.0, ONE_IN_A_THOUSAND) - 32.909 / 12.0).abs() < 0.02);
        assert!((chi_square_ratio(30.0, ONE_IN_A_THOUSAND) - 59.703 / 30.0).abs() < 0.01);
    }

    #[test]
    fn errors_that_last_make_the_variance_larger() {
        let mut random = SplitMix(17);
        let (mut apart, mut lasting) = (ModelFit::default(), ModelFit::default());
        let mut level = 0.0;
        for tick in 0..200_000 {
            if tick % 5000 == 0 {
                level = random.next_normal();
            }
            let noise = random.next_normal();
            apart.add_tick(100.0, noise);
            lasting.add_tick(100.0, noise + level);
        }
        assert!(apart.autocorrelation_factor() < 1.5, "{}", apart.autocorrelation_factor());
        assert!(lasting.autocorrelation_factor() > 5.0, "{}", lasting.autocorrelation_factor());
    }
}
