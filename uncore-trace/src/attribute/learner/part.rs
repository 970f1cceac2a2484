//! Counts divided by rates, summed over the ticks of a window.

use std::collections::HashMap;

use super::super::history::{BASELINE, History, TrafficSource};
use super::REST_PLACE;
use super::blocks::{Block, DesignRow, Observation};
use super::noise::Noise;
use super::shift::Shift;

/// The part of a source in the counts of some ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Contribution {
    /// The source; `None` for the baseline.
    pub who: Option<TrafficSource>,
    /// Its column.
    pub column: u32,
    /// Its part of the counts, in the unit of rates.
    pub value: f64,
    /// The traffic that its rate predicts.
    pub expected: f64,
    /// Its use.
    pub amount: f64,
    /// The variance that its traffic adds to the count.
    pub noise: f64,
}

/// The parts of all sources.
#[derive(Debug, Default)]
pub(in super::super) struct Contributions {
    /// By source number.
    pub of: HashMap<u32, Contribution>,
    /// The block of the last tick.
    pub at: u64,
}

impl Contributions {
    /// Removes all parts.
    pub(super) fn clear(&mut self) {
        self.of.clear();
    }

    /// Divides a count. Each part is the predicted traffic plus its expected part of the residual
    /// given the count, which is proportional to their covariance. So the parts sum to the count.
    /// None is negative.
    #[expect(clippy::too_many_arguments, reason = "the state of a learner")]
    pub(super) fn add(
        &mut self,
        one: &Observation,
        history: &History,
        places: &HashMap<u32, usize>,
        block: &Block,
        shift: &Shift,
        noise: &Noise,
        (count, always): (f64, f64),
    ) {
        let row = if one.row.iter().len() > 0 {
            one.row.clone()
        } else {
            late_row(one, always, history, places)
        };
        let mut expected = 0.0;
        let mut parts: Vec<Contribution> = row
            .iter()
            .map(|(place, amount)| {
                let rate = shift.rate(block, place);
                let noise = noise.of_place(place, rate, amount);
                expected += rate * amount;
                Contribution {
                    who: None,
                    column: BASELINE,
                    value: 0.0,
                    expected: rate * amount,
                    amount,
                    noise,
                }
            })
            .collect();
        // The covariance of each with the count.
        let common = shift.common(&row, block).into_iter();
        let gains: Vec<f64> =
            common.zip(&parts).map(|(common, part)| common + part.noise).collect();
        let variance = gains.iter().sum::<f64>().max(1e-12);
        let rest = count - expected;
        let mut sum = 0.0;
        for (part, gain) in parts.iter_mut().zip(&gains) {
            part.value = (part.expected + gain / variance * rest).max(0.0);
            sum += part.value;
        }
        let scale = if sum > 0.0 { count / sum } else { 0.0 };
        for part in &mut parts {
            part.value *= scale;
        }
        if let Some(baseline) = parts.first() {
            self.take(BASELINE, baseline, 1.0, || None);
        }
        for entry in (one.from + 1..=one.to).flat_map(|tick| history.row(tick)) {
            let place = places.get(&entry.column).copied().unwrap_or(REST_PLACE);
            let Some(part) = row.find(place).and_then(|at| parts.get(at)) else { continue };
            let part = Contribution { column: entry.column, ..*part };
            let of = f64::from(entry.amount) / part.amount;
            self.take(entry.source, &part, of, || history.source(entry.source));
        }
    }

    fn take(
        &mut self,
        source: u32,
        part: &Contribution,
        of: f64,
        who: impl Fn() -> Option<TrafficSource>,
    ) {
        let sum = self
            .of
            .entry(source)
            .or_insert_with(|| Contribution { who: who(), ..Contribution::default() });
        sum.column = part.column;
        sum.value += part.value * of;
        sum.expected += part.expected * of;
        sum.amount += part.amount * of;
        sum.noise += part.noise * of;
    }
}

/// The use during a count that has no block yet, for the known columns.
fn late_row(
    one: &Observation,
    always: f64,
    history: &History,
    places: &HashMap<u32, usize>,
) -> DesignRow {
    let ran = (one.from + 1..=one.to).flat_map(|tick| history.row(tick));
    let place = |column: &u32| places.get(column).copied().unwrap_or(REST_PLACE);
    DesignRow::of(one.to - one.from, always, ran.map(|entry| (place(&entry.column), entry.amount)))
}
