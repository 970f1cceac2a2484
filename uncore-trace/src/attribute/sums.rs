//! Sums over ticks from which rates are learnt: normal equations at four time scales.
//!
//! What rates do not explain of a count lasts: phases, drift, devices. Errors of neighbouring ticks
//! are alike, and least squares over ticks would take them for independent. So the ticks are split
//! by time scale: differences within 8 ticks, of means of 8 within 64, of means of 64 within 512, and
//! means of 512. Each scale has sums of its own, and the variance of its errors weighs it.
//!
//! Who ran is the same for all counters that see a set of CPUs, so its sums ([`Design`]) are made
//! once. A counter adds the products with its counts ([`Counts`]). Old ticks are forgotten
//! exponentially, so neither memory nor work grows with the recording.

use std::sync::Arc;

use super::symmetric::{RowBatch, SymmetricMatrix, BATCH_ROWS};

/// Number of parts of a group of the next scale.
pub(super) const STEP: usize = BATCH_ROWS;

/// Number of scales.
pub(super) const SCALES: usize = 4;

/// Time constant of the memory, in ticks.
const MEMORY: f64 = 60_000.0;

/// The part of the sums that is left after one group of the longest scale.
fn left() -> f64 {
    (-(STEP.pow(3) as f64) / MEMORY).exp()
}

/// Least expected count of a tick, as a part of the mean: the errors of a quiet tick are not small
/// in the same proportion.
const LEAST_SIZE: f64 = 0.1;

/// Gain of the mean of what is expected of a tick.
const MEAN_GAIN: f64 = 1e-3;

/// The use in a tick, or its mean over some: places, ascending, and amounts.
pub(super) type Row = Arc<[(u16, f32)]>;

/// The mean of some ticks.
#[derive(Clone, Debug)]
pub(super) struct Mean {
    of: Row,
    /// What is expected of them, as a part of the mean.
    size: f64,
}

/// Some means of one scale that make one of the next.
#[derive(Clone, Debug)]
pub(super) struct Group {
    scale: usize,
    means: Vec<Mean>,
    /// Weight of a squared error.
    weight: f64,
}

/// Adds a row to a dense vector.
pub(super) fn add_row(to: &mut Vec<f64>, row: &[(u16, f32)], weight: f64) {
    let most = row.last().map_or(0, |(place, _)| usize::from(*place) + 1);
    if to.len() < most {
        to.resize(most, 0.0);
    }
    for (place, amount) in row {
        to[usize::from(*place)] += weight * f64::from(*amount);
    }
}

/// What these rates by place make expect.
pub(super) fn expected(rates: &[f64], row: &[(u16, f32)]) -> f64 {
    let rate = |place: u16| rates.get(usize::from(place)).copied().unwrap_or(0.0);
    row.iter().map(|(place, amount)| rate(*place) * f64::from(*amount)).sum()
}

/// Sums of one set of CPUs.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    /// By scale: weighed products.
    pub products: [SymmetricMatrix<f64>; SCALES],
    /// By scale: sum of squared differences of each place.
    pub spread: [Vec<f64>; SCALES],
    /// By scale: number of differences.
    pub free: [f64; SCALES],
    /// Use of each place.
    pub used: Vec<f64>,
    /// Number of ticks.
    pub ticks: f64,
}

impl Sums {
    fn add(&mut self, group: &Group) {
        let Group { scale, ref means, weight } = *group;
        let size = STEP.pow(scale as u32) as f64;
        let mut rows = RowBatch::default();
        for mean in means {
            rows.push(&mean.of, 1.0);
        }
        let is_last = scale + 1 == SCALES;
        let rows_of = rows.rows_mut();
        let spread = &mut self.spread[scale];
        let n = rows_of.first().map_or(0, Vec::len);
        spread.resize(n.max(spread.len()), 0.0);
        for (place, spread) in spread[..n].iter_mut().enumerate() {
            let sum: f64 = rows_of.iter().map(|row| row[place]).sum();
            let mean = if is_last { 0.0 } else { sum / means.len() as f64 };
            for row in &mut *rows_of {
                row[place] -= mean;
                *spread += row[place] * row[place] * size;
            }
        }
        self.products[scale].add_products(&mut rows, weight);
        self.free[scale] += means.len() as f64 - f64::from(!is_last);
    }

    fn forget(&mut self) {
        let left = left();
        self.products.iter_mut().for_each(|its| its.scale_by(left));
        self.spread.iter_mut().flatten().for_each(|its| *its *= left);
        self.free.iter_mut().for_each(|its| *its *= left);
        self.used.iter_mut().for_each(|its| *its *= left);
        self.ticks *= left;
    }

    fn clear(&mut self, place: usize) {
        self.products.iter_mut().for_each(|its| its.clear_row_and_column(place));
        for spread in &mut self.spread {
            spread.get_mut(place).into_iter().for_each(|its| *its = 0.0);
        }
        self.used.get_mut(place).into_iter().for_each(|its| *its = 0.0);
    }
}

/// Sums the amounts of each place. The sort is stable, so sums do not depend on its algorithm.
pub(super) fn by_place(amounts: impl Iterator<Item = (u16, f64)>) -> Row {
    let mut row: Vec<(u16, f64)> = amounts.collect();
    row.sort_by_key(|(place, _)| *place);
    row.dedup_by(|next, sum| {
        let same = next.0 == sum.0;
        if same {
            sum.1 += next.1;
        }
        same
    });
    row.into_iter().map(|(place, amount)| (place, amount as f32)).collect()
}

/// The mean of means.
fn of_all(means: &[Mean]) -> Mean {
    let part = 1.0 / means.len().max(1) as f64;
    let of = by_place(
        means.iter().flat_map(|mean| mean.of.iter().map(|(at, its)| (*at, f64::from(*its) * part))),
    );
    let size = means.iter().map(|mean| mean.size).sum::<f64>() * part;
    Mean { of, size }
}

fn group(scale: usize, means: Vec<Mean>) -> Group {
    let size = of_all(&means).size;
    let weight = STEP.pow(scale as u32) as f64 / (size * size);
    Group { scale, means, weight }
}

/// Who ran: the sums of all counters that see a set of CPUs.
#[derive(Debug, Default)]
pub(super) struct Design {
    sums: Sums,
    /// By scale: means that do not make a group yet.
    open: [Vec<Mean>; SCALES - 1],
    /// Groups since the counters were last told.
    groups: Vec<Group>,
    /// What to expect of a tick: a rate for each place.
    profile: Vec<f64>,
    mean: f64,
    /// Number of ticks so far.
    seen: u64,
}

impl Design {
    /// What is expected of a tick, as a part of the mean.
    pub(super) fn size(&mut self, row: &[(u16, f32)]) -> f64 {
        let expected = expected(&self.profile, row);
        self.seen += 1;
        self.mean += (expected - self.mean) * MEAN_GAIN.max(1.0 / self.seen as f64);
        if self.mean > 0.0 { (expected / self.mean).max(LEAST_SIZE) } else { 1.0 }
    }

    /// Adds a tick.
    pub(super) fn push(&mut self, row: Row, size: f64) {
        add_row(&mut self.sums.used, &row, 1.0);
        self.sums.ticks += 1.0;
        let mut next = Mean { of: row, size };
        for scale in 0..SCALES {
            let Some(open) = self.open.get_mut(scale) else {
                self.take(group(scale, vec![next]));
                self.sums.forget();
                break;
            };
            open.push(next);
            if open.len() < STEP {
                break;
            }
            let means = std::mem::take(open);
            next = of_all(&means);
            self.take(group(scale, means));
        }
    }

    fn take(&mut self, group: Group) {
        self.sums.add(&group);
        self.groups.push(group);
    }

    /// The groups since the last [`Design::told`].
    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// All counters know the groups so far.
    pub(super) fn told(&mut self) {
        self.groups.clear();
    }

    /// Sets what to expect of a tick.
    pub(super) fn expect(&mut self, profile: Vec<f64>) {
        let used: f64 = self.sums.used.iter().zip(&profile).map(|(used, rate)| used * rate).sum();
        if self.sums.ticks > 0.0 && used > 0.0 {
            self.mean = used / self.sums.ticks;
            self.profile = profile;
        }
    }

    /// A place has a new column.
    pub(super) fn clear(&mut self, place: usize) {
        self.sums.clear(place);
        for mean in self.open.iter_mut().flatten() {
            mean.of = mean.of.iter().filter(|(at, _)| usize::from(*at) != place).copied().collect();
        }
        self.profile.get_mut(place).into_iter().for_each(|its| *its = 0.0);
    }

    /// The sums, in a young recording with the means that do not make a group yet; and the groups
    /// made of these.
    pub(super) fn closed(&self) -> (std::borrow::Cow<'_, Sums>, Vec<Group>) {
        if self.sums.free[SCALES - 1] >= 3.0 {
            return (std::borrow::Cow::Borrowed(&self.sums), Vec::new());
        }
        let mut sums = self.sums.clone();
        let mut groups = Vec::new();
        // The rest of a scale makes a mean of the next, whose weight is as if it were whole.
        let mut rest: Option<Mean> = None;
        for scale in 0..SCALES {
            let mut means = self.open.get(scale).cloned().unwrap_or_default();
            means.extend(rest.take());
            if means.is_empty() {
                continue;
            }
            rest = Some(of_all(&means));
            if means.len() > 1 || scale + 1 == SCALES {
                let group = group(scale, means);
                sums.add(&group);
                groups.push(group);
            }
        }
        (std::borrow::Cow::Owned(sums), groups)
    }
}

/// Products with the counts of one counter.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// By scale: weighed products of use and count.
    pub products: [Vec<f64>; SCALES],
    /// By scale: weighed sum of squares.
    pub square: [f64; SCALES],
    /// Sum.
    pub sum: f64,
    open: [Vec<f64>; SCALES - 1],
}

impl Counts {
    /// Adds the count of the next tick; `groups` are those of the design that it may end.
    pub(super) fn push(&mut self, count: f64, groups: &mut std::slice::Iter<'_, Group>) {
        self.sum += count;
        let mut next = count;
        for scale in 0..SCALES {
            let Some(open) = self.open.get_mut(scale) else {
                if let Some(group) = groups.next() {
                    self.take(group, &[next]);
                }
                self.forget();
                break;
            };
            open.push(next);
            if open.len() < STEP {
                break;
            }
            let counts = std::mem::take(open);
            next = counts.iter().sum::<f64>() / STEP as f64;
            if let Some(group) = groups.next() {
                self.take(group, &counts);
            }
        }
    }

    fn take(&mut self, group: &Group, counts: &[f64]) {
        let is_last = group.scale + 1 == SCALES;
        let mean = if is_last { 0.0 } else { counts.iter().sum::<f64>() / counts.len() as f64 };
        for (its, count) in group.means.iter().zip(counts) {
            let away = count - mean;
            add_row(&mut self.products[group.scale], &its.of, group.weight * away);
            self.square[group.scale] += group.weight * away * away;
        }
    }

    fn forget(&mut self) {
        let left = left();
        self.products.iter_mut().flatten().for_each(|its| *its *= left);
        self.square.iter_mut().for_each(|its| *its *= left);
        self.sum *= left;
    }

    /// A place has a new column.
    pub(super) fn clear(&mut self, place: usize) {
        for products in &mut self.products {
            products.get_mut(place).into_iter().for_each(|its| *its = 0.0);
        }
    }

    /// With the groups of [`Design::closed`].
    pub(super) fn closed(&self, groups: &[Group]) -> std::borrow::Cow<'_, Self> {
        if groups.is_empty() {
            return std::borrow::Cow::Borrowed(self);
        }
        let mut all = self.clone();
        let mut rest: Option<f64> = None;
        let mut groups = groups.iter();
        for scale in 0..SCALES {
            let mut counts = self.open.get(scale).cloned().unwrap_or_default();
            counts.extend(rest.take());
            if counts.is_empty() {
                continue;
            }
            rest = Some(counts.iter().sum::<f64>() / counts.len() as f64);
            if (counts.len() > 1 || scale + 1 == SCALES)
                && let Some(group) = groups.next()
            {
                all.take(group, &counts);
            }
        }
        std::borrow::Cow::Owned(all)
    }
}
