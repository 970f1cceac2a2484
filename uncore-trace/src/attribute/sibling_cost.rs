//! What a busy sibling thread costs: the hardware threads of a core share it, so each moves less
//! in the same time while the others run.
//!
//! Time beside a busy sibling counts `1 - f`. There is one `f` for each set of CPUs that counters
//! see: where only some cores have threads, as on hybrid machines, it is that of these. It is found
//! at the minimum of the squared residuals of the ticks. Let `b` be an owner's time beside a busy
//! sibling, `a` its time as it counts now, and `r` its rate. If `f` is wrong by `d`, then rates are
//! right on average over the ratio of `b` to `a`, and a tick differs from what is expected by
//!
//! ```text
//! -d x sum over owners of r (b - a sum(b) / sum(a))
//! ```
//!
//! the contrast. So `d` is the regression of the residuals on the contrast (Gauss-Newton). What
//! lasts longer than [`GROUP_TICKS`] is left out of both, because phases of the traffic last, and
//! so is what goes with the expected count: a busy machine has busy siblings, and its links slow
//! all of their users down.
//!
//! Errors of rates are alike for a while and in all counters. So the variance of the cost is that of
//! independent errors times their dispersion: how much more the costs of spans of [`SPAN_REVIEWS`]
//! differ than independent errors would make them (Wedderburn 1974, "Quasi-Likelihood
//! Functions"). The cost is less by what chance explains of it.

use super::use_entry::UseEntry;

/// Number of ticks whose mean is left out.
const GROUP_TICKS: usize = 8;

/// Forgetting factor per review of 100 ms for the use of slots: the memory is about 10 s, as for
/// that of sources.
const USE_FORGETTING_FACTOR: f64 = 0.99;

/// Forgetting factor per review of 100 ms for the cost: the memory is a minute, as for rates.
const COST_FORGETTING_FACTOR: f64 = 1.0 - 1.0 / 600.0;

/// Number of reviews whose costs are taken together: rates are corrected by the counts of about a
/// second before and after, so the errors of reviews within it are alike.
const SPAN_REVIEWS: usize = 10;

/// Prior standard deviation of the cost, around 0: any value from 0 to 1 is plausible.
const PRIOR_SD: f64 = 0.5;

/// Least part of a sum of squares that has to be left when what goes with the expected count is
/// taken away.
const MIN_LEFT: f64 = 1e-6;

/// Largest cost: a thread beside a busy sibling does something.
const MAX_COST: f64 = 0.9;

/// Sums over the ticks of one counter, of deviations within groups of ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct ContrastSums {
    /// Residual by contrast.
    pub cross: f64,
    /// Squared contrast.
    pub contrast_squares: f64,
    /// Squared residual.
    pub residual_squares: f64,
    /// Number of deviations that are free.
    pub freedom: f64,
}

/// A tick of one counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContrastTick {
    /// The count less what is expected of it.
    pub residual: f64,
    /// The contrast.
    pub contrast: f64,
    /// What is expected.
    pub expected: f64,
}

/// The residuals and contrasts of one counter.
#[derive(Debug, Default)]
pub(super) struct ContrastFit {
    open_ticks: Vec<ContrastTick>,
    sums: ContrastSums,
    /// What is expected, by residual, by contrast and squared.
    expected_by_residual: f64,
    expected_by_contrast: f64,
    expected_squares: f64,
}

impl ContrastFit {
    /// Adds a tick, in any unit.
    pub(super) fn add_tick(&mut self, tick: ContrastTick) {
        self.open_ticks.push(tick);
        if self.open_ticks.len() < GROUP_TICKS {
            return;
        }
        let n = GROUP_TICKS as f64;
        let mean =
            |value: fn(&ContrastTick) -> f64| self.open_ticks.iter().map(value).sum::<f64>() / n;
        let mean_residual = mean(|tick| tick.residual);
        let mean_contrast = mean(|tick| tick.contrast);
        let mean_expected = mean(|tick| tick.expected);
        for ContrastTick { residual, contrast, expected } in self.open_ticks.drain(..) {
            let (residual, contrast) = (residual - mean_residual, contrast - mean_contrast);
            let expected = expected - mean_expected;
            self.sums.cross += residual * contrast;
            self.sums.contrast_squares += contrast * contrast;
            self.sums.residual_squares += residual * residual;
            self.expected_by_residual += expected * residual;
            self.expected_by_contrast += expected * contrast;
            self.expected_squares += expected * expected;
        }
        self.sums.freedom += n - 1.0;
    }

    /// The sums since the last call, of what `expected` does not explain of both (the theorem of
    /// Frisch and Waugh 1933).
    pub(super) fn take_sums(&mut self) -> ContrastSums {
        let open_ticks = std::mem::take(&mut self.open_ticks);
        let Self { sums, expected_by_residual, expected_by_contrast, expected_squares, .. } =
            std::mem::replace(self, Self { open_ticks, ..Self::default() });
        if expected_squares <= 0.0 {
            return sums;
        }
        let contrast_slope = expected_by_contrast / expected_squares;
        let unexplained = ContrastSums {
            cross: sums.cross - contrast_slope * expected_by_residual,
            contrast_squares: sums.contrast_squares - contrast_slope * expected_by_contrast,
            residual_squares: sums.residual_squares
                - expected_by_residual * expected_by_residual / expected_squares,
            freedom: (sums.freedom - 1.0).max(0.0),
        };
        // A counter that counts nothing has residuals that are minus what is expected: what is left
        // is rounding.
        let is_left = |left: f64, all: f64| left > MIN_LEFT * all;
        if is_left(unexplained.residual_squares, sums.residual_squares)
            && is_left(unexplained.contrast_squares, sums.contrast_squares)
        {
            unexplained
        } else {
            ContrastSums::default()
        }
    }
}

/// What counts say of the cost.
#[derive(Clone, Copy, Debug, Default)]
struct CostSums {
    /// Sum of the information.
    information: f64,
    /// Sum of the information times the cost that it says.
    weighted_cost: f64,
}

impl CostSums {
    fn add_sums(&mut self, added: Self) {
        self.information += added.information;
        self.weighted_cost += added.weighted_cost;
    }

    fn scale_sums(&mut self, factor: f64) {
        self.information *= factor;
        self.weighted_cost *= factor;
    }
}

/// Sums over spans, by which their costs are compared.
#[derive(Clone, Copy, Debug, Default)]
struct SpanSums {
    count: f64,
    costs: CostSums,
    /// The square of the weighted cost of each over its information.
    weighted_squares: f64,
}

impl SpanSums {
    fn add_span(&mut self, span: CostSums) {
        let forgetting_factor = COST_FORGETTING_FACTOR.powi(SPAN_REVIEWS as i32);
        self.count *= forgetting_factor;
        self.costs.scale_sums(forgetting_factor);
        self.weighted_squares *= forgetting_factor;
        if span.information > 0.0 {
            self.count += 1.0;
            self.costs.add_sums(span);
            self.weighted_squares += span.weighted_cost * span.weighted_cost / span.information;
        }
    }

    /// The variance of spans around this cost, over that of independent errors. It is 1 until spans
    /// say otherwise, which counts as one of them.
    fn dispersion(&self, cost: f64) -> f64 {
        let CostSums { information, weighted_cost } = self.costs;
        let squares =
            self.weighted_squares - 2.0 * cost * weighted_cost + cost * cost * information;
        (1.0 + squares.max(0.0)) / (1.0 + (self.count - 1.0).max(0.0))
    }
}

/// The use of a slot in about the last 10 s.
#[derive(Clone, Copy, Debug, Default)]
struct SlotUse {
    amount: f64,
    beside_busy: f64,
}

/// The cost of one set of CPUs.
#[derive(Debug, Default)]
pub(super) struct SiblingCost {
    cost: f64,
    costs: CostSums,
    /// The same of the open span, and the number of its reviews.
    open_span: CostSums,
    span_reviews: usize,
    spans: SpanSums,
    use_by_slot: Vec<SlotUse>,
    /// Whether any CPU has a sibling that was busy.
    is_observed: bool,
}

impl SiblingCost {
    /// The cost `f`.
    pub(super) const fn cost(&self) -> f64 {
        self.cost
    }

    /// Whether there was time beside a busy sibling.
    pub(super) const fn is_observed(&self) -> bool {
        self.is_observed
    }

    /// Adds the use of a reviewed tick.
    pub(super) fn add_tick(&mut self, entries: &[UseEntry]) {
        for entry in entries {
            let slot = usize::from(entry.slot);
            if self.use_by_slot.len() <= slot {
                self.use_by_slot.resize(slot + 1, SlotUse::default());
            }
            self.use_by_slot[slot].amount += f64::from(entry.amount);
            self.use_by_slot[slot].beside_busy += f64::from(entry.beside_busy);
            self.is_observed |= entry.beside_busy > 0.0;
        }
    }

    /// Forgets a slot that has a new column.
    pub(super) fn clear_slot(&mut self, slot: usize) {
        if let Some(slot_use) = self.use_by_slot.get_mut(slot) {
            *slot_use = SlotUse::default();
        }
    }

    /// The contrast of a tick, by rates of slots.
    pub(super) fn contrast(&self, entries: &[UseEntry], rates: &[f64]) -> f64 {
        let entry_contrast = |entry: &UseEntry| {
            let slot = usize::from(entry.slot);
            let SlotUse { amount, beside_busy } =
                self.use_by_slot.get(slot).copied().unwrap_or_default();
            let ratio = if amount > 0.0 { beside_busy / amount } else { 0.0 };
            rates.get(slot).copied().unwrap_or(0.0)
                * (f64::from(entry.beside_busy) - f64::from(entry.amount) * ratio)
        };
        entries.iter().map(entry_contrast).sum()
    }

    /// Improves the cost by the sums of all counters of a review, which were made with this cost.
    /// Each counter weighs as much as its residuals are small.
    pub(super) fn update_cost(&mut self, sums_of_counters: impl Iterator<Item = ContrastSums>) {
        for slot_use in &mut self.use_by_slot {
            slot_use.amount *= USE_FORGETTING_FACTOR;
            slot_use.beside_busy *= USE_FORGETTING_FACTOR;
        }
        if !self.is_observed {
            return;
        }
        self.costs.scale_sums(COST_FORGETTING_FACTOR);
        for sums in sums_of_counters {
            let weight = sums.freedom / sums.residual_squares;
            if !weight.is_finite() {
                continue;
            }
            let information = weight * sums.contrast_squares;
            let weighted_cost = information * self.cost - weight * sums.cross;
            let costs = CostSums { information, weighted_cost };
            self.costs.add_sums(costs);
            self.open_span.add_sums(costs);
        }
        self.span_reviews += 1;
        if self.span_reviews == SPAN_REVIEWS {
            self.span_reviews = 0;
            self.spans.add_span(std::mem::take(&mut self.open_span));
        }
        let precision = self.costs.information + 1.0 / (PRIOR_SD * PRIOR_SD);
        let cost = self.costs.weighted_cost / precision;
        // The positive-part estimator of James and Stein (1961).
        let variance = self.spans.dispersion(cost) / precision;
        self.cost = if cost > 0.0 { (cost - variance / cost).clamp(0.0, MAX_COST) } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::tests::split_mix::SplitMix;

    /// The cost that is learnt where a busy sibling costs `cost`, with rates that are solved from the
    /// means, as a learner does.
    fn learnt_cost(cost: f64) -> f64 {
        let mut random = SplitMix(5);
        let mut sibling_cost = SiblingCost::default();
        let mut fit = ContrastFit::default();
        let rates = [100.0, 300.0];
        // Sums of each owner's count, and of its use as it counts now: rates that are right on
        // average.
        let mut sums = [(0.0, 0.0); 2];
        for tick in 0..20_000 {
            let draws: [(f64, f64); 2] = std::array::from_fn(|_| {
                let amount = random.next_unit();
                (amount, amount * random.next_unit())
            });
            let entries: [UseEntry; 2] = std::array::from_fn(|slot| UseEntry {
                source: slot as u32,
                slot: slot as u16,
                amount: (draws[slot].0 - sibling_cost.cost() * draws[slot].1) as f32,
                beside_busy: draws[slot].1 as f32,
            });
            sibling_cost.add_tick(&entries);
            let mut count = 0.0;
            let mut expected = 0.0;
            for slot in 0..2 {
                let moved = rates[slot] * (draws[slot].0 - cost * draws[slot].1);
                count += moved;
                sums[slot].0 += moved;
                sums[slot].1 += f64::from(entries[slot].amount);
                expected += sums[slot].0 / sums[slot].1 * f64::from(entries[slot].amount);
            }
            let learnt = [sums[0].0 / sums[0].1, sums[1].0 / sums[1].1];
            // Traffic of nobody.
            let noise = 10.0 * random.next_normal();
            let contrast = sibling_cost.contrast(&entries, &learnt);
            fit.add_tick(ContrastTick { residual: count + noise - expected, contrast, expected });
            if tick % 100 == 99 {
                sibling_cost.update_cost([fit.take_sums()].into_iter());
            }
        }
        sibling_cost.cost()
    }

    #[test]
    fn what_a_busy_sibling_costs_is_found() {
        for cost in [0.0, 0.2, 0.45] {
            assert!((learnt_cost(cost) - cost).abs() < 0.02, "{cost}: {}", learnt_cost(cost));
        }
    }

    #[test]
    fn a_counter_that_counts_nothing_says_nothing() {
        let mut random = SplitMix(9);
        let mut cost = SiblingCost::default();
        for _ in 0..600 {
            let mut fit = ContrastFit::default();
            for _ in 0..104 {
                let amount = 1e7 * random.next_unit();
                let entry = UseEntry {
                    source: 1,
                    slot: 0,
                    amount: amount as f32,
                    beside_busy: (amount * random.next_unit()) as f32,
                };
                cost.add_tick(&[entry]);
                let contrast = cost.contrast(&[entry], &[3.0]);
                let expected = 3.0 * f64::from(entry.amount);
                fit.add_tick(ContrastTick { residual: -expected, contrast, expected });
            }
            let sums = fit.take_sums();
            cost.update_cost([sums].into_iter());
            assert!(sums.freedom <= 0.0 && cost.cost() <= 0.0, "{sums:?} {}", cost.cost());
        }
    }

    #[test]
    fn without_siblings_there_is_no_cost() {
        let mut cost = SiblingCost::default();
        let mut fit = ContrastFit::default();
        let entry = UseEntry { source: 1, slot: 3, amount: 1.0, beside_busy: 0.0 };
        for tick in 0..1000 {
            cost.add_tick(&[entry]);
            let contrast = cost.contrast(&[entry], &[1.0; 4]);
            fit.add_tick(ContrastTick { residual: f64::from(tick % 7), contrast, expected: 1.0 });
        }
        cost.update_cost([fit.take_sums()].into_iter());
        assert!(!cost.is_observed() && cost.cost().abs() < 1e-12);
    }
}
