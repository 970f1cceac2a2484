//! Sums over ticks from which rates are learnt: normal equations at four time scales.
//!
//! What rates do not explain of a count lasts: phases, drift, devices. Errors of neighbouring ticks
//! are alike, and least squares over ticks would take them for independent. So the ticks are split
//! by time scale: differences within 8 ticks, of means of 8 within 64, of means of 64 within 512,
//! and means of 512. Each scale has sums of its own, and the variance of its errors weighs it.
//!
//! Who ran is the same for all counters that see a set of CPUs, so its sums ([`Design`]) are made
//! once. A counter adds the products with its counts ([`CountSums`]). Old ticks are forgotten
//! exponentially, so neither memory nor work grows with the recording.

use std::sync::{Arc, OnceLock};

use super::matrix::DenseMatrix;
use super::use_row::{ScaledRow, SlotAmount, UseRow};

/// Number of means of a group, which becomes one mean of the next scale.
pub(super) const GROUP_LEN: usize = 8;

/// Number of scales.
pub(super) const SCALES: usize = 4;

/// Time constant of the memory of rates, in ticks.
pub(super) const MEMORY: f64 = 60_000.0;

/// What remains of a sum after some ticks.
pub(super) fn remaining_part(ticks: u64) -> f64 {
    libm::exp(-(ticks as f64) / MEMORY)
}

/// The forgetting factor of the sums for one group of the longest scale.
fn forgetting_factor() -> f64 {
    remaining_part(GROUP_LEN.pow(3) as u64)
}

/// Least expected count of a tick, relative to the mean: the errors of a quiet tick are not small
/// in the same proportion.
const MIN_SIZE: f64 = 0.1;

/// Gain of the mean of what is expected of a tick.
const MEAN_GAIN: f64 = 1e-3;

/// The mean of some ticks.
#[derive(Clone, Debug)]
pub(super) struct TickMean {
    row: UseRow,
    /// The expected count of these ticks, relative to the mean count.
    size: f64,
}

/// Some means of one scale that make one of the next.
#[derive(Clone, Debug)]
pub(super) struct MeanGroup {
    scale: usize,
    means: Vec<TickMean>,
    /// Weight of a squared error.
    weight: f64,
}

/// Adds a row to a dense vector.
pub(super) fn add_row(vector: &mut Vec<f64>, row: &[SlotAmount], weight: f64) {
    let width = row.last().map_or(0, |entry| usize::from(entry.slot) + 1);
    if vector.len() < width {
        vector.resize(width, 0.0);
    }
    for SlotAmount { slot, amount } in row {
        vector[usize::from(*slot)] += weight * f64::from(*amount);
    }
}

/// The count that rates by slot make expect.
pub(super) fn expected_count(rates: &[f64], row: &[SlotAmount]) -> f64 {
    let rate = |slot: u16| rates.get(usize::from(slot)).copied().unwrap_or(0.0);
    row.iter().map(|entry| rate(entry.slot) * f64::from(entry.amount)).sum()
}

/// The sums of the design matrix of one set of CPUs.
#[derive(Clone, Debug, Default)]
pub(super) struct DesignSums {
    /// By scale: the Gram matrix, weighed.
    pub gram: [DenseMatrix<f64>; SCALES],
    /// By scale: the sum of squared deviations of each slot's use.
    pub squared_deviations: [Vec<f64>; SCALES],
    /// By scale: the number of deviations that are free.
    pub degrees_of_freedom: [f64; SCALES],
    /// Use of each slot.
    pub total_use: Vec<f64>,
    /// Number of ticks.
    pub ticks: f64,
}

impl DesignSums {
    fn add_group(&mut self, group: &MeanGroup) {
        let MeanGroup { scale, ref means, weight } = *group;
        let size = GROUP_LEN.pow(scale as u32) as f64;
        let use_rows: Vec<_> = means
            .iter()
            .map(|mean| ScaledRow { row: Arc::clone(&mean.row), factor: 1.0 })
            .collect();
        let mut rows = DenseMatrix::from_use(&use_rows);
        let is_last = scale + 1 == SCALES;
        let deviations_of_scale = &mut self.squared_deviations[scale];
        let n = rows.column_count();
        deviations_of_scale.resize(n.max(deviations_of_scale.len()), 0.0);
        for (slot, squared) in deviations_of_scale[..n].iter_mut().enumerate() {
            let sum: f64 = rows.column_mut(slot).map(|amount| *amount).sum();
            let mean = if is_last { 0.0 } else { sum / means.len() as f64 };
            for amount in rows.column_mut(slot) {
                *amount -= mean;
                *squared += *amount * *amount * size;
            }
        }
        rows.scale_by(weight.sqrt());
        self.gram[scale].add_products(&rows);
        self.degrees_of_freedom[scale] += means.len() as f64 - f64::from(!is_last);
    }

    fn apply_forgetting(&mut self) {
        let factor = forgetting_factor();
        self.gram.iter_mut().for_each(|gram| gram.scale_by(factor));
        self.squared_deviations.iter_mut().flatten().for_each(|squared| *squared *= factor);
        self.degrees_of_freedom.iter_mut().for_each(|degrees| *degrees *= factor);
        self.total_use.iter_mut().for_each(|amount| *amount *= factor);
        self.ticks *= factor;
    }

    fn clear_slot(&mut self, slot: usize) {
        self.gram.iter_mut().for_each(|gram| gram.clear_row_and_column(slot));
        for spread in &mut self.squared_deviations {
            spread.get_mut(slot).into_iter().for_each(|squared| *squared = 0.0);
        }
        self.total_use.get_mut(slot).into_iter().for_each(|amount| *amount = 0.0);
    }
}

/// Sums the amounts of each slot. The sort is stable, so sums do not depend on its algorithm.
pub(super) fn sum_by_slot(amounts: impl Iterator<Item = (u16, f64)>) -> UseRow {
    let mut row: Vec<(u16, f64)> = amounts.collect();
    row.sort_by_key(|(slot, _)| *slot);
    row.dedup_by(|current, sum| {
        let is_same_slot = current.0 == sum.0;
        if is_same_slot {
            sum.1 += current.1;
        }
        is_same_slot
    });
    row.into_iter().map(|(slot, amount)| SlotAmount { slot, amount: amount as f32 }).collect()
}

/// The mean of means.
fn mean_of_means(means: &[TickMean]) -> TickMean {
    let weight = 1.0 / means.len().max(1) as f64;
    let row = sum_by_slot(means.iter().flat_map(|mean| {
        mean.row.iter().map(|entry| (entry.slot, f64::from(entry.amount) * weight))
    }));
    TickMean { row, size: means.iter().map(|mean| mean.size).sum::<f64>() * weight }
}

fn make_group(scale: usize, means: Vec<TickMean>) -> MeanGroup {
    let size = mean_of_means(&means).size;
    MeanGroup { scale, means, weight: GROUP_LEN.pow(scale as u32) as f64 / (size * size) }
}

/// Who ran: the sums of all counters that see a set of CPUs.
#[derive(Debug, Default)]
pub(super) struct Design {
    sums: DesignSums,
    /// By scale: means that do not make a group yet.
    open_means: [Vec<TickMean>; SCALES - 1],
    /// Groups that not all counters have added yet.
    groups: Vec<MeanGroup>,
    /// The rates, by slot, from which the count of a tick is expected.
    profile: Vec<f64>,
    mean_expected: f64,
    /// Number of ticks so far.
    tick_count: u64,
    /// [`Design::add_open_means`] of the ticks so far, once a counter has asked for it.
    young_sums: OnceLock<(DesignSums, Vec<MeanGroup>)>,
}

impl Design {
    /// The expected count of a tick, relative to the mean.
    pub(super) fn next_relative_size(&mut self, row: &[SlotAmount]) -> f64 {
        let expected = expected_count(&self.profile, row);
        self.tick_count += 1;
        self.mean_expected +=
            (expected - self.mean_expected) * MEAN_GAIN.max(1.0 / self.tick_count as f64);
        if self.mean_expected > 0.0 { (expected / self.mean_expected).max(MIN_SIZE) } else { 1.0 }
    }

    /// Adds a tick.
    pub(super) fn push(&mut self, row: UseRow, size: f64) {
        self.young_sums.take();
        add_row(&mut self.sums.total_use, &row, 1.0);
        self.sums.ticks += 1.0;
        let mut scale_mean = TickMean { row, size };
        for scale in 0..SCALES {
            let Some(open_means) = self.open_means.get_mut(scale) else {
                self.keep_group(make_group(scale, vec![scale_mean]));
                self.sums.apply_forgetting();
                break;
            };
            open_means.push(scale_mean);
            if open_means.len() < GROUP_LEN {
                break;
            }
            let means = std::mem::take(open_means);
            scale_mean = mean_of_means(&means);
            self.keep_group(make_group(scale, means));
        }
    }

    fn keep_group(&mut self, group: MeanGroup) {
        self.sums.add_group(&group);
        self.groups.push(group);
    }

    /// The groups since the last [`Design::clear_groups`].
    pub(super) fn groups(&self) -> &[MeanGroup] {
        &self.groups
    }

    /// Forgets the groups so far, because all counters have added them.
    pub(super) fn clear_groups(&mut self) {
        self.groups.clear();
    }

    /// Sets the rates from which the count of a tick is expected.
    pub(super) fn set_profile(&mut self, profile: Vec<f64>) {
        let expected_sum: f64 =
            self.sums.total_use.iter().zip(&profile).map(|(amount, rate)| amount * rate).sum();
        if self.sums.ticks > 0.0 && expected_sum > 0.0 {
            self.mean_expected = expected_sum / self.sums.ticks;
            self.profile = profile;
        }
    }

    /// Forgets the sums of a slot that has a new column.
    pub(super) fn clear_slot(&mut self, slot: usize) {
        self.young_sums.take();
        self.sums.clear_slot(slot);
        for mean in self.open_means.iter_mut().flatten() {
            mean.row =
                mean.row.iter().filter(|entry| usize::from(entry.slot) != slot).copied().collect();
        }
        self.profile.get_mut(slot).into_iter().for_each(|rate| *rate = 0.0);
    }

    /// The sums, in a young recording with the means that do not make a group yet; and the groups
    /// made of these.
    pub(super) fn with_open_means(&self) -> (&DesignSums, &[MeanGroup]) {
        if self.sums.degrees_of_freedom[SCALES - 1] >= 3.0 {
            return (&self.sums, &[]);
        }
        let (sums, groups) = self.young_sums.get_or_init(|| self.add_open_means());
        (sums, groups)
    }

    /// The sums with the means that do not make a group yet, and the groups made of these.
    fn add_open_means(&self) -> (DesignSums, Vec<MeanGroup>) {
        let mut sums = self.sums.clone();
        let mut groups = Vec::new();
        // The rest of a scale makes a mean of the next, whose weight is as if it were whole.
        let mut partial_mean: Option<TickMean> = None;
        for scale in 0..SCALES {
            let mut means = self.open_means.get(scale).cloned().unwrap_or_default();
            means.extend(partial_mean.take());
            if means.is_empty() {
                continue;
            }
            partial_mean = Some(mean_of_means(&means));
            if means.len() > 1 || scale + 1 == SCALES {
                let group = make_group(scale, means);
                sums.add_group(&group);
                groups.push(group);
            }
        }
        (sums, groups)
    }
}

/// The sums of products with the counts of one counter.
#[derive(Clone, Debug, Default)]
pub(super) struct CountSums {
    /// By scale: weighed products of use and count.
    pub use_by_count: [Vec<f64>; SCALES],
    /// By scale: weighed sum of squared counts.
    pub count_squares: [f64; SCALES],
    /// The sum of the counts.
    pub sum: f64,
    open_counts: [Vec<f64>; SCALES - 1],
}

impl CountSums {
    /// Adds the count of the next tick; `groups` are those of the design that it may end.
    pub(super) fn push_count(&mut self, count: f64, groups: &mut std::slice::Iter<'_, MeanGroup>) {
        self.sum += count;
        let mut mean_count = count;
        for scale in 0..SCALES {
            let Some(open_counts) = self.open_counts.get_mut(scale) else {
                if let Some(group) = groups.next() {
                    self.add_group(group, &[mean_count]);
                }
                self.apply_forgetting();
                break;
            };
            open_counts.push(mean_count);
            if open_counts.len() < GROUP_LEN {
                break;
            }
            let counts = std::mem::take(open_counts);
            mean_count = counts.iter().sum::<f64>() / GROUP_LEN as f64;
            if let Some(group) = groups.next() {
                self.add_group(group, &counts);
            }
        }
    }

    fn add_group(&mut self, group: &MeanGroup, counts: &[f64]) {
        let is_last = group.scale + 1 == SCALES;
        let mean = if is_last { 0.0 } else { counts.iter().sum::<f64>() / counts.len() as f64 };
        for (use_mean, count) in group.means.iter().zip(counts) {
            let deviation = count - mean;
            add_row(&mut self.use_by_count[group.scale], &use_mean.row, group.weight * deviation);
            self.count_squares[group.scale] += group.weight * deviation * deviation;
        }
    }

    fn apply_forgetting(&mut self) {
        let factor = forgetting_factor();
        self.use_by_count.iter_mut().flatten().for_each(|product| *product *= factor);
        self.count_squares.iter_mut().for_each(|square| *square *= factor);
        self.sum *= factor;
    }

    /// Forgets the products of a slot that has a new column.
    pub(super) fn clear_slot(&mut self, slot: usize) {
        for products in &mut self.use_by_count {
            products.get_mut(slot).into_iter().for_each(|product| *product = 0.0);
        }
    }

    /// The sums with the groups of [`Design::with_open_means`].
    pub(super) fn with_groups(&self, groups: &[MeanGroup]) -> std::borrow::Cow<'_, Self> {
        if groups.is_empty() {
            return std::borrow::Cow::Borrowed(self);
        }
        let mut sums = self.clone();
        let mut partial_mean: Option<f64> = None;
        let mut groups = groups.iter();
        for scale in 0..SCALES {
            let mut counts = self.open_counts.get(scale).cloned().unwrap_or_default();
            counts.extend(partial_mean.take());
            if counts.is_empty() {
                continue;
            }
            partial_mean = Some(counts.iter().sum::<f64>() / counts.len() as f64);
            if (counts.len() > 1 || scale + 1 == SCALES)
                && let Some(group) = groups.next()
            {
                sums.add_group(group, &counts);
            }
        }
        std::borrow::Cow::Owned(sums)
    }
}
