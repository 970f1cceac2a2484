//! Counts divided by rates, summed over the ticks of a window.

use super::super::columns::BASELINE;
use super::super::history::{Entry, History};
use super::Observation;
use super::local::{Local, Variance};
use crate::entries::Owner;

/// The parts of owners in a count, in no order; an owner may have several.
pub(in super::super) type Parts = Vec<(Owner, f64)>;

/// A count, divided.
#[derive(Debug)]
pub struct Parted {
    /// Its last tick.
    pub tick: u64,
    /// The parts; `None` if the counter did not count all the time.
    pub parts: Option<Parts>,
}

impl Parted {
    /// Divides a count in proportion to use, where no rates are known.
    pub(super) fn by_use(one: &Observation, history: &History) -> Self {
        let entries = || (one.from + 1..=one.to).flat_map(|tick| history.row(tick));
        let all: f64 = entries().map(|entry| f64::from(entry.amount)).sum();
        let part = |entry: &Entry| {
            let owner = history.source(entry.source)?.owner;
            Some((owner, one.count * f64::from(entry.amount) / all))
        };
        let nobody = || vec![(Owner::Unattributed, one.count)];
        let parts = if all > 0.0 { entries().filter_map(part).collect() } else { nobody() };
        Self { tick: one.to, parts: Some(parts) }
    }
}

/// The parts of columns in the counts of some ticks, by place.
#[derive(Debug, Default)]
pub(in super::super) struct Contributions {
    /// Parts of the counts.
    pub value: Vec<f64>,
    /// The variance that a column's traffic adds to the counts.
    pub noise: Vec<f64>,
    /// Of parts.
    pub variance: Vec<Variance>,
    /// The sum of the counts for which there were no rates.
    pub unknown: f64,
    /// Whether the counter was restarted: what was counted before belongs to other owners.
    pub restarts: bool,
}

impl Contributions {
    /// Removes all parts of counts from before a restart.
    pub(super) fn restart(&mut self) {
        *self = Self { restarts: true, ..Self::default() };
    }

    /// Divides a count in proportion to rate x use. The variance of a tick's count is `error`, times
    /// the square of what is expected of it. Returns what is expected.
    pub(super) fn add(
        &mut self,
        one: &Observation,
        history: &History,
        local: &Local,
        error: f64,
        parts: Option<&mut Parts>,
    ) -> f64 {
        let rate = |place: u16| local.rates.get(usize::from(place)).copied().unwrap_or(0.0);
        let places = history.columns().len();
        if self.value.len() < places {
            self.value.resize(places, 0.0);
            self.noise.resize(places, 0.0);
        }
        let rows = || (one.from + 1..=one.to).map(|tick| history.by_place(tick));
        let (mut sum, mut squares, mut noise) = (0.0, 0.0, 0.0);
        for (place, amount) in rows().flatten() {
            let expected = rate(*place) * f64::from(*amount);
            sum += expected;
            squares += expected * expected;
        }
        for tick in one.from + 1..=one.to {
            noise += error * history.size(tick).powi(2);
        }
        if sum <= 0.0 || !sum.is_finite() {
            return sum;
        }
        let scale = one.count / sum;
        let noise = noise / squares;
        for (place, amount) in rows().flatten() {
            let expected = rate(*place) * f64::from(*amount);
            self.value[usize::from(*place)] += scale * expected;
            self.noise[usize::from(*place)] += noise * expected * expected;
        }
        if let Some(parts) = parts {
            let part = |entry: &Entry| {
                let owner = history.source(entry.source)?.owner;
                Some((owner, scale * rate(entry.column) * f64::from(entry.amount)))
            };
            let entries = (one.from + 1..=one.to).flat_map(|tick| history.row(tick));
            let always = rate(BASELINE) * (one.to - one.from) as f64;
            parts.push((Owner::Unattributed, scale * always));
            parts.extend(entries.filter_map(part));
        }
        sum
    }
}
