//! The rates of a counter from its sums: the maximum of the posterior.
//!
//! The prior is log-normal and hierarchical. The rate of a group is expected around the mean of all
//! groups, that of a process around its group's, and that of an owner on far CPUs around a part of its
//! rate on near ones. The maximum is found by Newton's method for the logarithms of the rates, so
//! they stay positive. The variance of the errors at each time scale weighs its sums.

use super::super::columns::{Columns, Kind};
use super::super::history::Use;
use super::super::solve::{Factor, Square, conjugate_gradient};
use super::super::sums::{Counts, SCALES, Sums};
use super::super::symmetric::Symmetric;

/// Expected part of the mean count that no owner causes.
const BASELINE_PART: f64 = 0.05;

/// Expected rate of a far owner relative to a near one. Linux allocates a task's memory on its own
/// node (`Documentation/admin-guide/mm/numa_memory_policy.rst`, Linux 7.2).
const FAR: f64 = 0.05;

/// Least variance of the errors of a scale, as a part of that of the shortest.
const LEAST_ERROR: f64 = 0.3;

/// Time is divided some 15 us beside the readings of counts. What an owner's use differs by no more
/// than this, in ticks of one CPU that it runs on, teaches nothing.
const EDGE: f64 = 0.03;

/// Longest step of the logarithm of a rate.
const LONGEST_STEP: f64 = 1.0;

/// The rates have converged when their logarithms change by less than this.
const SETTLED: f64 = 1e-3;

/// Iterations before the weights of scales are found anew.
const WEIGHED: usize = 4;

/// Iterations after which it is estimated how much is known of each rate, if nothing was known before.
const KNOWN: [usize; 2] = [4, 20];

/// The largest number of iterations in which the equations of a step are solved, and the part of the
/// squared residual that may be left. A step need not be exact, because the next one begins with an
/// exact slope (Dembo, Eisenstat and Steihaug 1982, "Inexact Newton Methods").
const STEP: (usize, f64) = (60, 1e-4);

/// Standard deviation of the logarithm of a rate.
fn deviation(by: Use, kind: Kind) -> f64 {
    match (by, kind) {
        (_, Kind::Baseline) => 1.0,
        (Use::Time, Kind::Group) => 1.6,
        (Use::Time, Kind::Process) => 0.7,
        (Use::Misses, Kind::Group) => 0.5,
        (Use::Misses, Kind::Process) => 0.3,
        (Use::Ports, Kind::Group) => 0.2,
        (Use::Ports, Kind::Process) => 0.1,
        (_, Kind::Far) => 1.8,
    }
}

/// What is expected of a place.
#[derive(Clone, Copy, Debug)]
struct Expected {
    /// Index of the parent.
    parent: Option<usize>,
    /// Logarithm of the rate over the parent's, or over the mean of all.
    offset: f64,
    /// One over the variance.
    strength: f64,
    /// Whether it counts for the mean of all.
    leads: bool,
}

/// The rates that were found.
#[derive(Clone, Debug, Default)]
pub(super) struct Solution {
    /// By place. A place without a column keeps the rate of its last one.
    pub rates: Vec<f64>,
    /// Variance of the errors of a tick by scale, as if errors were independent, relative to the
    /// square of what is expected of it.
    pub errors: [f64; SCALES],
    /// Places that have a rate.
    pub active: Vec<usize>,
    /// Covariance of the logarithms of their rates.
    pub covariance: Symmetric<f32>,
    /// Places that have another column since.
    pub renewed: Vec<usize>,
    /// By place: how much the counts tell of the rate, 0 to 1.
    pub known: Vec<f64>,
}

/// The problem, with places numbered without gaps.
struct Problem<'a> {
    sums: &'a Sums,
    counts: &'a Counts,
    active: &'a [usize],
    expected: Vec<Expected>,
    base: f64,
    /// By scale: whether the use of a place differs enough. Misses are read some time before or after
    /// counts, so those of a tick may be in the next one: the shortest scale tells nothing of them.
    tells: [Vec<bool>; SCALES],
}

/// Finds the rates in at most `most` steps, beginning with those of `before`; `None` if nothing was
/// counted. `keeps` says whether the covariance of `before` is kept.
pub(super) fn solve(
    sums: &Sums,
    counts: &Counts,
    columns: &Columns,
    by: Use,
    before: &Solution,
    (most, keeps): (usize, bool),
) -> Option<Solution> {
    let mean = counts.sum / sums.ticks;
    if mean <= 0.0 || !mean.is_finite() {
        return None;
    }
    let active: Vec<usize> =
        (0..columns.len()).filter(|place| columns.get(*place).is_some()).collect();
    let problem = Problem::new(sums, counts, columns, by, &active);
    let mut logs = problem.start(before, mean);
    let (mut errors, mut sum) = ([0.0; SCALES], Combined::default());
    // How much is known of each rate, for the mean of all.
    let mut known: Vec<f64> =
        active.iter().map(|place| before.known.get(*place).copied().unwrap_or(1.0)).collect();
    let is_first = before.rates.is_empty();
    for step in 0..most {
        let rates: Vec<f64> = logs.iter().map(|log| log.exp()).collect();
        if step == 0 || is_first && step % WEIGHED == 0 {
            errors = problem.errors(&rates);
            sum = problem.combine(&errors);
        }
        let pull = sum.pull(&rates);
        let slope = problem.slope(&logs, &pull, &known);
        let change = problem.step(&rates, &sum, &pull, &slope);
        let largest = change.iter().fold(0.0f64, |most, its| most.max(its.abs()));
        if !largest.is_finite() {
            return None;
        }
        let part = (LONGEST_STEP / largest.max(1e-9)).min(1.0);
        for (log, change) in logs.iter_mut().zip(&change) {
            *log += part * change;
        }
        if is_first && KNOWN.contains(&step) {
            let variances = Factor::of(&problem.curvature(&rates, &sum))?.variances();
            for (known, (variance, expected)) in
                known.iter_mut().zip(variances.into_iter().zip(&problem.expected))
            {
                *known = 1.0 / (1.0 + variance * expected.strength);
            }
        }
        if largest < SETTLED && (!is_first || step + 1 >= WEIGHED.min(most)) {
            break;
        }
    }
    let rates: Vec<f64> = logs.iter().map(|log| log.exp()).collect();
    let covariance = if keeps {
        problem.reorder(before)
    } else {
        Factor::of(&problem.curvature(&rates, &sum))?.inverse()
    };
    // Stored ticks may refer to places that are free: these keep their rates.
    let mut all = before.rates.clone();
    all.resize(columns.len(), 0.0);
    for (place, rate) in active.iter().zip(&rates) {
        all[*place] = *rate;
    }
    let mut all_known = vec![0.0; columns.len()];
    for (at, place) in active.iter().enumerate() {
        let variance = covariance.row(at).last().copied().map_or(f64::INFINITY, f64::from);
        all_known[*place] = 1.0 / (1.0 + variance * problem.expected[at].strength);
    }
    Some(Solution { rates: all, errors, active, covariance, renewed: Vec::new(), known: all_known })
}

impl<'a> Problem<'a> {
    fn new(
        sums: &'a Sums,
        counts: &'a Counts,
        columns: &Columns,
        by: Use,
        active: &'a [usize],
    ) -> Self {
        let index = |place: u16| active.binary_search(&usize::from(place)).ok();
        let expected = active.iter().filter_map(|place| columns.get(*place)).map(|column| {
            let parent = column.parent.and_then(index);
            let deviation = deviation(by, column.kind);
            Expected {
                parent,
                offset: if column.kind == Kind::Far { FAR.ln() } else { 0.0 },
                strength: 1.0 / (deviation * deviation),
                leads: column.kind != Kind::Baseline
                    && column.kind != Kind::Far
                    && parent.is_none(),
            }
        });
        let get = |of: &[f64], place: usize| of.get(place).copied().unwrap_or(0.0);
        let tells = std::array::from_fn(|scale| {
            active
                .iter()
                .map(|place| {
                    let edges = match by {
                        Use::Time => EDGE * EDGE * get(&sums.used, *place) / sums.ticks,
                        Use::Misses | Use::Ports => 0.0,
                    };
                    let spread = get(&sums.spread[scale], *place) / sums.free[scale].max(1.0);
                    let is_told = by != Use::Misses || scale > 0;
                    is_told && (*place == 0 || scale + 1 == SCALES || spread > edges)
                })
                .collect()
        });
        let base = (BASELINE_PART * counts.sum / sums.ticks).ln();
        Self { sums, counts, active, expected: expected.collect(), base, tells }
    }

    fn used(&self, at: usize) -> f64 {
        self.sums.used.get(self.active[at]).copied().unwrap_or(0.0)
    }

    /// Logarithms to begin with.
    fn start(&self, before: &Solution, mean: f64) -> Vec<f64> {
        let n = self.active.len();
        let leads = |at: &usize| self.expected[*at].leads;
        let used: f64 = (1..n).filter(leads).map(|at| self.used(at)).sum();
        let unit = (mean * self.sums.ticks / used.max(1e-9 * self.sums.ticks)).ln();
        let mut logs = vec![f64::NAN; n];
        logs[0] = self.base;
        for (log, place) in logs.iter_mut().zip(self.active) {
            if let Some(rate) = before.rates.get(*place).filter(|rate| **rate > 0.0) {
                *log = rate.ln();
            }
        }
        // Parents first: a column is at most two below a group.
        for _ in 0..3 {
            for at in 1..n {
                let Expected { parent, offset, .. } = self.expected[at];
                if logs[at].is_nan() {
                    logs[at] = parent.map_or(unit, |parent| logs[parent]) + offset;
                }
            }
        }
        logs.iter_mut().filter(|log| log.is_nan()).for_each(|log| *log = unit);
        logs
    }

    /// Mean squared error by scale.
    fn errors(&self, rates: &[f64]) -> [f64; SCALES] {
        let of = |scale: usize| {
            let (sums, counts) = (&self.sums.products[scale], &self.counts.products[scale]);
            let mut with_counts = 0.0;
            let mut square = 0.0;
            for (at, place) in self.active.iter().enumerate() {
                let row = sums.row(*place);
                with_counts += rates[at] * counts.get(*place).copied().unwrap_or(0.0);
                let Some((own, _)) = row.split_last() else { continue };
                let before: f64 = self.active[..at]
                    .iter()
                    .zip(rates)
                    .map(|(other, rate)| row.get(*other).map_or(0.0, |its| its * rate))
                    .sum();
                square += rates[at] * (2.0 * before + own * rates[at]);
            }
            let all = self.counts.square[scale];
            (all - 2.0 * with_counts + square).max(1e-12 * all + 1e-30)
                / self.sums.free[scale].max(1.0)
        };
        let errors: [f64; SCALES] = std::array::from_fn(of);
        errors.map(|error| error.max(LEAST_ERROR * errors[0]).max(1e-12))
    }

    /// The sums of all scales, each weighed by its errors.
    fn combine(&self, errors: &[f64; SCALES]) -> Combined {
        let n = self.active.len();
        let (mut matrix, mut right) = (Symmetric::<f64>::zero(n), vec![0.0; n]);
        for (scale, error) in errors.iter().enumerate() {
            let weight = 1.0 / error;
            let tells = &self.tells[scale];
            for at in (0..n).filter(|at| tells[*at]) {
                let place = self.active[at];
                let row = self.sums.products[scale].row(place);
                let counted = self.counts.products[scale].get(place).copied().unwrap_or(0.0);
                right[at] += weight * counted;
                if row.is_empty() {
                    continue;
                }
                for ((to, other), tells) in
                    matrix.row_mut(at).iter_mut().zip(self.active).zip(tells)
                {
                    if *tells {
                        *to += weight * row[*other];
                    }
                }
            }
        }
        let square = Square::of(&matrix);
        Combined { matrix, square, right }
    }

    /// The change of the logarithms in a step of Newton's method. `pull` makes the curvature larger,
    /// where it says that rates are too large: then the posterior is less curved than it looks.
    fn step(&self, rates: &[f64], sum: &Combined, pull: &[f64], slope: &[f64]) -> Vec<f64> {
        let n = rates.len();
        let mut own: Vec<f64> = pull.iter().map(|its| its.max(0.0)).collect();
        for (at, expected) in self.expected.iter().enumerate() {
            own[at] += expected.strength;
            if let Some(parent) = expected.parent {
                own[parent] += expected.strength;
            }
        }
        let product = |x: &[f64], to: &mut [f64]| {
            let scaled: Vec<f32> =
                x.iter().zip(rates).map(|(its, rate)| (its * rate) as f32).collect();
            let products = sum.square.times(&scaled);
            for at in 0..n {
                to[at] = f64::from(products[at]) * rates[at] + own[at] * x[at];
            }
            for (at, expected) in self.expected.iter().enumerate() {
                if let Some(parent) = expected.parent {
                    to[at] -= expected.strength * x[parent];
                    to[parent] -= expected.strength * x[at];
                }
            }
        };
        let diagonal: Vec<f64> =
            (0..n).map(|at| sum.matrix.row(at)[at] * rates[at] * rates[at] + own[at]).collect();
        let right: Vec<f64> = slope.iter().map(|its| -its).collect();
        conjugate_gradient(product, &diagonal, right, STEP)
    }

    /// The covariance of an earlier solution, for the places that have a rate. What was not known
    /// then varies as is expected of it.
    fn reorder(&self, before: &Solution) -> Symmetric<f32> {
        let stays = |place: &&usize| !before.renewed.contains(place);
        let at_before = self.active.iter().map(|place| {
            Some(place).filter(stays).and_then(|place| before.active.binary_search(place).ok())
        });
        let at_before: Vec<Option<usize>> = at_before.collect();
        let mut covariance = Symmetric::zero(self.active.len());
        for (at, one) in at_before.iter().enumerate() {
            let row = covariance.row_mut(at);
            let Some(one) = one else {
                row[at] = self.expected[at].strength.recip() as f32;
                continue;
            };
            let its = before.covariance.row(*one);
            for (to, other) in row.iter_mut().zip(&at_before) {
                *to = other.map_or(0.0, |other| its[other]);
            }
        }
        covariance
    }

    /// Slope of minus the logarithm of the posterior.
    fn slope(&self, logs: &[f64], pull: &[f64], known: &[f64]) -> Vec<f64> {
        let n = logs.len();
        let leads = || (1..n).filter(|at| self.expected[*at].leads);
        let weights: f64 = leads().map(|at| known[at]).sum();
        let mean = leads().map(|at| known[at] * logs[at]).sum::<f64>() / weights.max(1e-9);
        let mut slope = pull.to_vec();
        for at in 0..n {
            let Expected { parent, offset, strength, .. } = self.expected[at];
            let around = match parent {
                Some(parent) => logs[parent] + offset,
                None if at == 0 => self.base,
                None => mean + offset,
            };
            let away = (logs[at] - around) * strength;
            slope[at] += away;
            if let Some(parent) = parent {
                slope[parent] -= away;
            }
        }
        slope
    }

    /// Curvature of minus the logarithm of the posterior.
    fn curvature(&self, rates: &[f64], sum: &Combined) -> Symmetric<f64> {
        let mut curvature = sum.matrix.clone();
        for (at, expected) in self.expected.iter().enumerate() {
            for (to, rate) in curvature.row_mut(at).iter_mut().zip(rates) {
                *to *= rate * rates[at];
            }
            curvature.row_mut(at)[at] += expected.strength;
        }
        for (at, expected) in self.expected.iter().enumerate() {
            if let Some(parent) = expected.parent {
                curvature.row_mut(parent)[parent] += expected.strength;
                curvature.row_mut(at.max(parent))[at.min(parent)] -= expected.strength;
            }
        }
        curvature
    }
}

/// The sums of all scales.
#[derive(Debug, Default)]
struct Combined {
    matrix: Symmetric<f64>,
    /// The same, for products that need not be exact.
    square: Square,
    right: Vec<f64>,
}

impl Combined {
    /// How the counts pull the logarithm of each rate.
    fn pull(&self, rates: &[f64]) -> Vec<f64> {
        let expected = self.matrix.times(rates).into_iter().zip(&self.right);
        expected.zip(rates).map(|((expected, right), rate)| rate * (expected - right)).collect()
    }
}
