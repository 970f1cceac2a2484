//! Counts, and the normal equations of the rates in one block.

use super::prior::{Expected, Kind};

/// A count of one or more ticks.
#[derive(Clone, Debug)]
pub(super) struct Observation {
    /// The tick at which it begins, exclusive.
    pub from: u64,
    /// Its last tick.
    pub to: u64,
    /// The count.
    pub count: f64,
    /// Whether it covers time in which the counter did not count: nothing is learnt from it.
    pub restarts: bool,
    /// Inverse of its variance at the last use.
    pub weight: f64,
    /// The use; empty until the count has a block.
    pub row: DesignRow,
}

/// The use during a count: places, ascending, and amounts. The baseline is the first.
#[derive(Clone, Debug, Default)]
pub(super) struct DesignRow {
    ticks: f32,
    used: Box<[(u16, f32)]>,
}

impl DesignRow {
    /// A row from places in any order, with repetitions, for a count over `ticks` ticks. The amount
    /// of the baseline is `always` per tick.
    pub(super) fn of(ticks: u64, always: f64, used: impl Iterator<Item = (usize, f32)>) -> Self {
        let ticks = ticks as f32;
        let used = used.map(|(place, amount)| (place as u16, amount));
        let mut all: Vec<(u16, f32)> =
            std::iter::once((0, ticks * always as f32)).chain(used).collect();
        all.sort_unstable_by_key(|(place, _)| *place);
        all.dedup_by(|next, sum| {
            let same = next.0 == sum.0;
            if same {
                sum.1 += next.1;
            }
            same
        });
        Self { ticks, used: all.into() }
    }

    /// Places and amounts.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (usize, f64)> + Clone {
        self.used.iter().map(|&(place, amount)| (usize::from(place), f64::from(amount)))
    }

    /// The index of a place in the row.
    pub(super) fn find(&self, place: usize) -> Option<usize> {
        self.used.binary_search_by_key(&place, |(at, _)| usize::from(*at)).ok()
    }

    /// Number of ticks of the count.
    pub(super) fn ticks(&self) -> f64 {
        f64::from(self.ticks)
    }
}

/// Standard deviation of the step of a constant rate, relative to the rate.
pub(super) const STEP: f64 = 0.003;

/// The counts of a time in which rates are constant.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Its first tick, divided by the length of a block.
    pub number: u64,
    /// Places of the columns that have use in it.
    active: Vec<usize>,
    /// The index of each place in `active`.
    index: Vec<u16>,
    /// Sum of weight x amount x amount over counts, `active.len()` numbers per row. Each block has
    /// one: single precision halves the memory.
    gram: Vec<f32>,
    /// Sum of weight x amount x count.
    right: Vec<f64>,
    /// Number of counts.
    pub counts: f64,
    /// Sum of weight x count^2.
    square: f64,
    /// The rate, by place.
    pub rate: Vec<f64>,
    /// Precision of the step to the next block, by place.
    pub step: Vec<f64>,
    /// Variance of the rate, by place.
    pub variance: Vec<f64>,
}

const NONE: u16 = u16::MAX;

impl Block {
    /// A block without counts.
    pub(super) fn new(number: u64, rate: Vec<f64>) -> Self {
        let n = rate.len();
        Self {
            number,
            active: Vec::new(),
            index: vec![NONE; n],
            gram: Vec::new(),
            right: Vec::new(),
            counts: 0.0,
            square: 0.0,
            rate,
            step: vec![1.0; n],
            variance: vec![0.0; n],
        }
    }

    /// The block after it.
    pub(super) fn next(&self, number: u64) -> Self {
        let mut next = Self::new(number, self.rate.clone());
        next.variance.clone_from(&self.variance);
        next
    }

    /// Sets the steps to those of constant rates.
    pub(super) fn steps_of(&mut self, kinds: &[Kind], expected: Expected) {
        for (place, &kind) in kinds.iter().enumerate().take(self.rate.len()) {
            let size = STEP * self.rate[place].max(0.1 * expected.mode(kind));
            self.step[place] = 1.0 / (size * size);
        }
    }

    /// Assigns this place to another column.
    pub(super) fn reset(&mut self, place: usize, rate: f64, kind: Kind, expected: Expected) {
        let n = self.rate.len().max(place + 1);
        self.index.resize(n, NONE);
        for row in [&mut self.rate, &mut self.step, &mut self.variance] {
            row.resize(n, 0.0);
        }
        let size = STEP * rate.max(0.1 * expected.mode(kind));
        self.rate[place] = rate;
        self.step[place] = 1.0 / (size * size);
        self.variance[place] = 0.0;
    }

    /// Changes the unit of rates: rates and counts are multiplied by `factor`.
    pub(super) fn scale(&mut self, factor: f64) {
        let square = factor * factor;
        for (rate, variance) in self.rate.iter_mut().zip(&mut self.variance) {
            *rate *= factor;
            *variance *= square;
        }
        self.step.iter_mut().for_each(|step| *step /= square);
        self.gram.iter_mut().for_each(|sum| *sum /= square as f32);
        self.right.iter_mut().for_each(|sum| *sum /= factor);
    }

    /// Drops its counts.
    pub(super) fn clear(&mut self) {
        for place in self.active.drain(..) {
            self.index[place] = NONE;
        }
        self.gram.clear();
        self.right.clear();
        (self.counts, self.square) = (0.0, 0.0);
    }

    /// Adds a count.
    pub(super) fn add(&mut self, row: &DesignRow, count: f64, weight: f64) {
        for (place, _) in row.iter() {
            if self.index[place] == NONE {
                self.grow(place);
            }
        }
        let k = self.active.len();
        for (place, amount) in row.iter() {
            let one = usize::from(self.index[place]);
            let weighed = weight * amount;
            self.right[one] += weighed * count;
            let sums = &mut self.gram[one * k..][..k];
            for (other, its) in row.iter() {
                sums[usize::from(self.index[other])] += (weighed * its) as f32;
            }
        }
        self.counts += 1.0;
        self.square += weight * count * count;
    }

    fn grow(&mut self, place: usize) {
        let k = self.active.len();
        self.index[place] = k as u16;
        self.active.push(place);
        self.right.push(0.0);
        let mut wider = vec![0.0; (k + 1) * (k + 1)];
        for row in 0..k {
            wider[row * (k + 1)..][..k].copy_from_slice(&self.gram[row * k..][..k]);
        }
        self.gram = wider;
    }

    /// Places of the columns that have use.
    pub(super) fn active(&self) -> &[usize] {
        &self.active
    }

    /// Adds `gram x rates` to `to`, both by place.
    pub(super) fn apply(&self, rates: &[f64], to: &mut [f64]) {
        let k = self.active.len();
        for (row, &place) in self.gram.chunks_exact(k.max(1)).zip(&self.active) {
            let sum: f64 =
                row.iter().zip(&self.active).map(|(gram, at)| f64::from(*gram) * rates[*at]).sum();
            to[place] += sum;
        }
    }

    /// Adds its sums to those of all blocks, in a matrix with `n` numbers per row.
    pub(super) fn add_to(&self, gram: &mut [f64], n: usize) {
        let k = self.active.len();
        for (row, &place) in self.gram.chunks_exact(k.max(1)).zip(&self.active) {
            for (sum, &other) in row.iter().zip(&self.active) {
                gram[place * n + other] += f64::from(*sum);
            }
        }
    }

    /// Adds the right-hand side to `to`, by place.
    pub(super) fn add_right(&self, to: &mut [f64]) {
        for (right, &place) in self.right.iter().zip(&self.active) {
            to[place] += right;
        }
    }

    /// Calls `each` with each place and its diagonal element.
    pub(super) fn diagonal(&self, mut each: impl FnMut(usize, f64)) {
        let k = self.active.len();
        for (at, &place) in self.active.iter().enumerate() {
            each(place, f64::from(self.gram[at * k + at]));
        }
    }

    /// Mean of weight x error^2 over its counts.
    pub(super) fn misfit(&self) -> f64 {
        let k = self.active.len();
        let mut sum = self.square;
        for (at, &place) in self.active.iter().enumerate() {
            let row = &self.gram[at * k..][..k];
            let of_gram: f64 = row
                .iter()
                .zip(&self.active)
                .map(|(gram, other)| f64::from(*gram) * self.rate[*other])
                .sum();
            sum += self.rate[place] * (of_gram - 2.0 * self.right[at]);
        }
        if self.counts > 0.0 { sum.max(0.0) / self.counts } else { 0.0 }
    }
}
