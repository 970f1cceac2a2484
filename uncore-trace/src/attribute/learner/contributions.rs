//! Counts divided by rates, summed over the ticks of a window.

use super::super::columns::BASELINE;
use super::super::history::History;
use super::super::use_entry::UseEntry;
use super::super::use_row::SlotAmount;
use super::block_rates::{BlockRates, Variance};
use super::observation::Observation;
use crate::entries::Owner;

/// The amounts that owners have of a count, in no order; an owner may have several.
pub(in super::super) type OwnerAmounts = Vec<(Owner, f64)>;

/// A count, divided.
#[derive(Debug)]
pub struct DividedCount {
    /// The last tick of the count.
    pub tick: u64,
    /// The amounts of owners; `None` if the counter did not count all the time.
    pub amounts: Option<OwnerAmounts>,
}

impl DividedCount {
    /// Divides a count in proportion to use, where no rates are known.
    pub(super) fn divide_by_use(observation: &Observation, history: &History) -> Self {
        let entries = || {
            (observation.after_tick + 1..=observation.last_tick)
                .flat_map(|tick| history.tick_entries(tick))
                .filter(|entry| !history.columns().is_device_slot(usize::from(entry.slot)))
        };
        let total_use: f64 = entries().map(|entry| f64::from(entry.amount)).sum();
        let entry_amount = |entry: &UseEntry| {
            let owner = history.source_of_number(entry.source)?.owner;
            Some((owner, observation.count * f64::from(entry.amount) / total_use))
        };
        let all_unattributed = || vec![(Owner::Unattributed, observation.count)];
        let amounts = if total_use > 0.0 {
            entries().filter_map(entry_amount).collect()
        } else {
            all_unattributed()
        };
        Self { tick: observation.last_tick, amounts: Some(amounts) }
    }
}

/// The amounts of columns in the counts of some ticks, by slot.
#[derive(Debug, Default)]
pub(in super::super) struct Contributions {
    /// Amounts of the counts.
    pub value: Vec<f64>,
    /// The variance that a column's traffic adds to the counts.
    pub noise: Vec<f64>,
    /// Relative variances of the amounts.
    pub variance: Vec<Variance>,
    /// The sum of the counts for which there were no rates.
    pub unknown: f64,
    /// Whether the counter was restarted: what was counted before belongs to other owners.
    pub restarts: bool,
}

impl Contributions {
    /// Removes all amounts of counts from before a restart.
    pub(super) fn restart_counts(&mut self) {
        *self = Self { restarts: true, ..Self::default() };
    }

    /// Divides a count in proportion to rate x use. The variance of a tick's count is
    /// `tick_variance`, times the square of the expected count. Returns the expected count.
    pub(super) fn add_count(
        &mut self,
        observation: &Observation,
        history: &History,
        block_rates: &BlockRates,
        tick_variance: f64,
        owner_amounts: Option<&mut OwnerAmounts>,
    ) -> f64 {
        let rate_of_slot =
            |slot: u16| block_rates.rates.get(usize::from(slot)).copied().unwrap_or(0.0);
        let slot_count = history.columns().len();
        if self.value.len() < slot_count {
            self.value.resize(slot_count, 0.0);
            self.noise.resize(slot_count, 0.0);
        }
        let rows = || {
            (observation.after_tick + 1..=observation.last_tick)
                .map(|tick| history.row_by_slot(tick))
        };
        let (mut sum, mut squares, mut noise) = (0.0, 0.0, 0.0);
        for SlotAmount { slot, amount } in rows().flatten() {
            let expected = rate_of_slot(*slot) * f64::from(*amount);
            sum += expected;
            squares += expected * expected;
        }
        for tick in observation.after_tick + 1..=observation.last_tick {
            noise += tick_variance * history.relative_size(tick).powi(2);
        }
        if sum <= 0.0 || !sum.is_finite() {
            return sum;
        }
        let scale = observation.count / sum;
        let noise = noise / squares;
        for SlotAmount { slot, amount } in rows().flatten() {
            let expected = rate_of_slot(*slot) * f64::from(*amount);
            self.value[usize::from(*slot)] += scale * expected;
            self.noise[usize::from(*slot)] += noise * expected * expected;
        }
        if let Some(amounts) = owner_amounts {
            let entry_amount = |entry: &UseEntry| {
                let owner = history.source_of_number(entry.source)?.owner;
                Some((owner, scale * rate_of_slot(entry.slot) * f64::from(entry.amount)))
            };
            let entries = (observation.after_tick + 1..=observation.last_tick)
                .flat_map(|tick| history.tick_entries(tick));
            let baseline =
                rate_of_slot(BASELINE) * (observation.last_tick - observation.after_tick) as f64;
            amounts.push((Owner::Unattributed, scale * baseline));
            amounts.extend(entries.filter_map(entry_amount));
        }
        sum
    }
}
