//! The rates of cgroups that the hardware measured, which are expected also while it measures
//! others.
//!
//! A cgroup's measured rate is the quotient of sums over the windows in which it was measured and
//! which rates divided: its bytes, made linear like counts, and its use. It enters the equations of
//! the rates as one observation: with its use of the last minute, its columns together have this
//! rate. The variance of this observation is that of the rates of single windows around their mean.
//! So it does not become smaller with more windows: a rate that changes from window to window may be
//! another one now. A few windows may agree by chance, so it is not less than the mean variance of
//! all measured cgroups. The variance of what the monitor and the counter disagree by comes on top.
//! Like the sums of ticks, a measured rate is forgotten with the time constant
//! [`MEMORY`](super::super::sums::MEMORY).

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::HashMap;

use super::super::cgroups::cgroup_of_owner;
use super::super::columns::{MAX_COLUMNS, RateColumns};
use super::super::confidence::MODEL_VARIANCE;
use super::super::measured_part::MeasuredPart;
use super::super::sums::remaining_part;
use super::super::traffic_source::TrafficSource;
use super::posterior::{FAR, RateMeasurement};

/// Fewer degrees of freedom say nothing of a variance. That of two windows is a little less than one,
/// because sums forget.
const MIN_DEGREES_OF_FREEDOM: f64 = 0.5;

/// An observation of less than this part of its first precision is forgotten.
const MIN_WEIGHT: f64 = 0.01;

/// Squared relative deviations of the rates of windows from their means.
#[derive(Debug, Default)]
struct SquaredDeviations {
    sum: f64,
    degrees_of_freedom: f64,
}

impl SquaredDeviations {
    /// The variance; `None` if there are too few windows.
    fn variance(&self) -> Option<f64> {
        let is_known = self.degrees_of_freedom >= MIN_DEGREES_OF_FREEDOM;
        is_known.then(|| self.sum / self.degrees_of_freedom)
    }
}

/// What was measured of a cgroup. Sums over windows, of which older ones count less.
#[derive(Debug, Default)]
struct MeasuredRate {
    /// The last tick at which it was measured, by the id of the cgroup or of one below it.
    tick_by_cgroup: BTreeMap<u64, u64>,
    windows: f64,
    value: f64,
    amount: f64,
    /// Sum of value x value / use.
    squares: f64,
    /// Sum of value x variance of its measurement.
    value_by_variance: f64,
    last_tick: u64,
}

/// What was measured, by the path of the cgroup.
#[derive(Debug, Default)]
pub(super) struct MeasuredRates(BTreeMap<Arc<str>, MeasuredRate>);

/// What remains at a tick of what was measured up to another one.
fn weight_at(tick: u64, last_tick: u64) -> f64 {
    remaining_part(tick.saturating_sub(last_tick))
}

/// The use on near CPUs that makes expect as much.
fn near_amount(amount: f64, is_far: bool) -> f64 {
    if is_far { FAR * amount } else { amount }
}

impl MeasuredRate {
    fn add_window(&mut self, part: &MeasuredPart, amount: f64, tick: u64) {
        let memory = weight_at(tick, self.last_tick);
        for (sum, addend) in [
            (&mut self.windows, 1.0),
            (&mut self.value, part.value),
            (&mut self.amount, amount),
            (&mut self.squares, part.value * part.value / amount),
            (&mut self.value_by_variance, part.value * part.variance),
        ] {
            *sum = *sum * memory + addend;
        }
        self.last_tick = tick;
    }

    /// Forgets cgroups that were measured long ago; where there are more than columns, also those
    /// that were measured before others.
    fn forget_cgroups(&mut self, tick: u64) {
        self.tick_by_cgroup.retain(|_, last_tick| weight_at(tick, *last_tick) >= MIN_WEIGHT);
        let excess = self.tick_by_cgroup.len().saturating_sub(MAX_COLUMNS);
        if excess > 0 {
            let mut ticks: Vec<u64> = self.tick_by_cgroup.values().copied().collect();
            ticks.sort_unstable();
            let oldest_kept = ticks.get(excess).copied().unwrap_or_default();
            self.tick_by_cgroup.retain(|_, last_tick| *last_tick >= oldest_kept);
        }
    }

    fn squared_deviations(&self) -> SquaredDeviations {
        if self.value <= 0.0 {
            return SquaredDeviations::default();
        }
        let relative_variance = self.squares * self.amount / (self.value * self.value) - 1.0;
        SquaredDeviations {
            sum: self.windows * relative_variance.max(0.0),
            degrees_of_freedom: self.windows - 1.0,
        }
    }

    /// The observation that it makes, if columns have used CPUs; its precision is not reduced yet.
    fn measure_columns(
        &self,
        columns: &RateColumns,
        total_use: &[f64],
        mean_variance: f64,
    ) -> Option<RateMeasurement> {
        let column_use = |slot: usize| {
            let column = columns.get(slot)?;
            column.cgroup().filter(|id| self.tick_by_cgroup.contains_key(id))?;
            Some((slot, *total_use.get(slot)?, column.is_far()))
        };
        let used: Vec<_> = (0..columns.len()).filter_map(column_use).collect();
        let sum: f64 = used.iter().map(|(_, amount, is_far)| near_amount(*amount, *is_far)).sum();
        let expected = sum * self.value / self.amount;
        let own_variance = self.squared_deviations().variance().unwrap_or(0.0);
        let variance = own_variance.max(mean_variance) + self.value_by_variance / self.value;
        (expected > 0.0 && variance.is_finite()).then(|| RateMeasurement {
            factors: used.iter().map(|(slot, amount, _)| (*slot, amount / expected)).collect(),
            precision: variance.max(MODEL_VARIANCE).recip(),
        })
    }
}

impl MeasuredRates {
    /// Adds what was measured of a window that ends at `tick`, with the use of owners in it.
    pub(super) fn add_window(
        &mut self,
        parts: Vec<MeasuredPart>,
        owner_use: impl Iterator<Item = (TrafficSource, f64)>,
        tick: u64,
    ) {
        let cgroups = (0..).zip(&parts).flat_map(|(index, part): (usize, _)| {
            part.cgroup_ids.iter().map(move |cgroup_id| (*cgroup_id, index))
        });
        let part_by_cgroup: HashMap<u64, usize> = cgroups.collect();
        let mut amounts = vec![0.0; parts.len()];
        for (source, amount) in owner_use {
            let cgroup_id = cgroup_of_owner(&source.owner);
            if let Some(index) = cgroup_id.and_then(|id| part_by_cgroup.get(&id)) {
                amounts[*index] += near_amount(amount, source.is_far);
            }
        }
        for (part, amount) in parts.into_iter().zip(amounts) {
            if amount > 0.0 && part.value >= 0.0 && part.variance.is_finite() {
                let rate = self.0.entry(Arc::clone(&part.cgroup)).or_default();
                rate.add_window(&part, amount, tick);
                rate.tick_by_cgroup.extend(part.cgroup_ids.iter().map(|id| (*id, tick)));
                rate.forget_cgroups(tick);
            }
        }
    }

    /// What they say of the rates of columns with this use up to `tick`.
    pub(super) fn measure_columns(
        &mut self,
        columns: &RateColumns,
        total_use: &[f64],
        tick: u64,
    ) -> Vec<RateMeasurement> {
        self.0.retain(|_, rate| {
            rate.forget_cgroups(tick);
            !rate.tick_by_cgroup.is_empty()
        });
        let deviations = self.0.values().map(MeasuredRate::squared_deviations);
        let all_deviations =
            deviations.fold(SquaredDeviations::default(), |all, own| SquaredDeviations {
                sum: all.sum + own.sum,
                degrees_of_freedom: all.degrees_of_freedom + own.degrees_of_freedom,
            });
        let Some(mean_variance) = all_deviations.variance() else { return Vec::new() };
        let measure = |rate: &MeasuredRate| {
            let weight = weight_at(tick, rate.last_tick);
            let observation = rate.measure_columns(columns, total_use, mean_variance)?;
            Some(RateMeasurement { precision: weight * observation.precision, ..observation })
        };
        self.0.values().filter_map(measure).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::sums::MEMORY;
    use super::super::super::traffic_source::SourceUse;
    use super::*;
    use crate::drain::Comm;
    use crate::entries::Owner;

    /// Ticks between two windows.
    const WINDOW: u64 = 100;

    fn source(cgroup_id: u64, is_far: bool) -> TrafficSource {
        let owner = Owner::Task { pid: cgroup_id as u32, comm: Comm::default(), cgroup_id };
        TrafficSource::from_cpus(owner, is_far)
    }

    /// The columns of three cgroups, of which the first also runs on far CPUs, and their use.
    fn columns() -> (RateColumns, Vec<f64>) {
        let mut columns = RateColumns::new();
        let used = [(1, false, 30.0), (1, true, 40.0), (2, false, 20.0), (3, false, 20.0)]
            .map(|(cgroup_id, is_far, amount)| SourceUse::new(source(cgroup_id, is_far), amount));
        columns.assign_columns(&used, 2.0, 1..=WINDOW);
        let mut total_use = vec![0.0; columns.len()];
        for used in used {
            total_use[usize::from(columns.slot_of_source(used.source))] = used.amount;
        }
        (columns, total_use)
    }

    /// Windows of a cgroup that used `amount` in each.
    fn add_windows(rates: &mut MeasuredRates, cgroup_id: u64, amount: f64, values: &[f64]) {
        for (window, value) in (1..).zip(values) {
            let part = MeasuredPart {
                cgroup: format!("/{cgroup_id}").into(),
                cgroup_ids: vec![cgroup_id],
                value: *value,
                variance: 0.0,
            };
            let owner_use = [(source(cgroup_id, false), amount), (source(9, false), 7.0)];
            rates.add_window(vec![part], owner_use.into_iter(), window * WINDOW);
        }
    }

    #[test]
    fn a_measured_rate_is_expected_of_all_columns_of_its_cgroup() {
        let (columns, total_use) = columns();
        let mut rates = MeasuredRates::default();
        add_windows(&mut rates, 1, 10.0, &[80.0, 120.0].repeat(20));
        let observations = rates.measure_columns(&columns, &total_use, 40 * WINDOW);
        let [observation] = observations.as_slice() else { panic!("{observations:?}") };
        let slots = [false, true].map(|is_far| columns.slot_of_source(source(1, is_far)));
        let rate_of = |slot| if slot == usize::from(slots[1]) { 10.0 * FAR } else { 10.0 };
        let expected = observation.factors.iter().map(|(slot, factor)| rate_of(*slot) * factor);
        assert!((expected.sum::<f64>() - 1.0).abs() < 1e-3, "{observation:?}");
        assert_eq!(observation.factors.len(), 2);
        // The windows differ by a fifth from their mean.
        assert!((observation.precision * 0.04 - 1.0).abs() < 0.05, "{observation:?}");
    }

    #[test]
    fn windows_in_which_a_cgroup_moved_nothing_count() {
        let (columns, total_use) = columns();
        let mut rates = MeasuredRates::default();
        add_windows(&mut rates, 2, 10.0, &[0.0, 100.0].repeat(20));
        let observations = rates.measure_columns(&columns, &total_use, 40 * WINDOW);
        // 20 ticks of 5 each.
        let factors: Vec<f64> =
            observations.iter().flat_map(|seen| &seen.factors).map(|(_, factor)| *factor).collect();
        let [factor] = factors.as_slice() else { panic!("{observations:?}") };
        assert!((factor * 5.0 - 1.0).abs() < 0.01, "{factor}");
        add_windows(&mut rates, 3, 10.0, &[0.0; 40]);
        assert_eq!(rates.measure_columns(&columns, &total_use, 40 * WINDOW).len(), 1);
    }

    #[test]
    fn cgroups_that_come_and_go_are_bounded() {
        let mut rates = MeasuredRates::default();
        for window in 1..=2 * MAX_COLUMNS as u64 {
            let part = MeasuredPart {
                cgroup: "/jobs".into(),
                cgroup_ids: vec![window],
                value: 100.0,
                variance: 0.0,
            };
            let owner_use = [(source(window, false), 10.0)];
            rates.add_window(vec![part], owner_use.into_iter(), window * WINDOW);
        }
        let cgroups: Vec<u64> =
            rates.0.values().flat_map(|rate| rate.tick_by_cgroup.keys().copied()).collect();
        let newest = MAX_COLUMNS as u64 + 1..=2 * MAX_COLUMNS as u64;
        assert_eq!(cgroups, newest.collect::<Vec<_>>());
    }

    #[test]
    fn a_cgroup_without_a_column_keeps_what_was_measured() {
        let (columns, total_use) = columns();
        let mut rates = MeasuredRates::default();
        add_windows(&mut rates, 1, 10.0, &[80.0, 120.0].repeat(2));
        assert!(rates.measure_columns(&RateColumns::new(), &[], 4 * WINDOW).is_empty());
        assert_eq!(rates.measure_columns(&columns, &total_use, 4 * WINDOW).len(), 1);
    }

    #[test]
    fn windows_that_agree_by_chance_are_no_surer_than_those_of_others() {
        let (columns, total_use) = columns();
        let mut rates = MeasuredRates::default();
        add_windows(&mut rates, 2, 10.0, &[100.0]);
        assert!(rates.measure_columns(&columns, &total_use, WINDOW).is_empty());
        add_windows(&mut rates, 1, 10.0, &[50.0, 150.0].repeat(20));
        add_windows(&mut rates, 2, 10.0, &[100.0; 2]);
        add_windows(&mut rates, 3, 10.0, &[10.0, 190.0]);
        let observations = rates.measure_columns(&columns, &total_use, 40 * WINDOW);
        let precisions: Vec<f64> =
            observations.iter().map(|observation| observation.precision).collect();
        assert!(precisions[1] < 1.2 * precisions[0], "{precisions:?}");
        assert!(precisions[2] < 0.5 * precisions[0], "{precisions:?}");
    }

    #[test]
    fn what_was_measured_long_ago_is_forgotten() {
        let (columns, total_use) = columns();
        let mut rates = MeasuredRates::default();
        add_windows(&mut rates, 1, 10.0, &[80.0, 120.0].repeat(2));
        let mut precision_after = |ticks: u64| {
            let observations = rates.measure_columns(&columns, &total_use, 4 * WINDOW + ticks);
            observations.first().map(|observation| observation.precision)
        };
        let first = precision_after(0).unwrap();
        let later = precision_after(MEMORY as u64).unwrap();
        assert!((later / first - libm::exp(-1.0)).abs() < 1e-6, "{later} {first}");
        assert_eq!(precision_after(5 * MEMORY as u64), None);
    }
}
