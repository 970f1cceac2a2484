//! Counts divided by rates, summed over the ticks of a window.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::super::columns::BASELINE;
use super::super::history::{Entry, History, TrafficSource};
use super::Observation;
use super::local::{Local, Variance};
use crate::entries::Owner;

/// The source number of the baseline.
const NOBODY: u32 = 0;

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

/// The part of a source in the counts of some ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Contribution {
    /// The source; `None` for the baseline.
    pub who: Option<TrafficSource>,
    /// The place of its column.
    pub column: u16,
    /// Its part of the counts.
    pub value: f64,
    /// Its use.
    pub amount: f64,
    /// The variance that its traffic adds to the count.
    pub noise: f64,
}

/// The parts of all sources.
#[derive(Debug, Default)]
pub(in super::super) struct Contributions {
    /// By source number.
    pub of: HashMap<u32, Contribution, RandomState>,
    /// By place.
    pub variance: Vec<Variance>,
}

impl Contributions {
    /// Removes all parts.
    pub(super) fn clear(&mut self) {
        self.of.clear();
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
        let always = rate(BASELINE) * (one.to - one.from) as f64;
        let (mut sum, mut squares, mut noise) = (always, always * always, 0.0);
        let entries = || (one.from + 1..=one.to).flat_map(|tick| history.row(tick));
        for entry in entries() {
            let expected = rate(entry.column) * f64::from(entry.amount);
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
        let mut take =
            |source: u32, who: Option<TrafficSource>, column, amount: f64, expected: f64| {
                let of = self.of.entry(source).or_default();
                if of.who.is_none() {
                    of.who = who;
                }
                of.column = column;
                of.value += scale * expected;
                of.amount += amount;
                of.noise += noise * expected * expected / squares;
            };
        take(NOBODY, None, BASELINE, 1.0, always);
        for entry in entries() {
            let amount = f64::from(entry.amount);
            let who = history.source(entry.source);
            take(entry.source, who, entry.column, amount, rate(entry.column) * amount);
        }
        if let Some(parts) = parts {
            let part = |entry: &Entry| {
                let owner = history.source(entry.source)?.owner;
                Some((owner, scale * rate(entry.column) * f64::from(entry.amount)))
            };
            parts.push((Owner::Unattributed, scale * always));
            parts.extend(entries().filter_map(part));
        }
        sum
    }
}
