//! `misses`: by the last-level misses of each owner, counted by the core PMUs of the CPUs that the
//! counter sees and read whenever one of them changes hands.
//!
//! A miss of the last cache that a core counts goes to the fabric, so it is a better weight than time
//! for what CPUs cause:
//!
//! count of a window = rest + sum over owners of rate x misses
//!
//! Rates differ as owners store, prefetch and share lines; they and the rest are learnt from how
//! counts differ when others miss ([`super::per_miss`]). Until then, and where that says nothing, every
//! owner has the same rate: the count is divided in proportion to misses. The rest is there when
//! nothing is missed, and `unattributed`. A window's count is divided in proportion to rate x misses
//! and rest, so the parts sum to it.
//!
//! Misses of interrupt handlers are counted for the task that they interrupted, those of an idle CPU
//! (what handlers and prefetchers make there) are idle's, and those of nobody known are
//! `unattributed`. Where a window lacks the misses of one of its CPUs, or nothing was missed, the
//! method that it stands in for decides.
//!
//! # Confidence
//!
//! The chance that a share `s` is within 10 % of the truth, `tanh(0.1 pi / sqrt(12 v))` (errors have
//! a logistic distribution), times the part of the window in which the counter ran. `v`, the variance
//! of the relative error, is the sum of
//!
//! - what rates and rest are uncertain by: `g' C g`, with `C` their covariance and `g` the derivative
//!   of `ln s` by them;
//! - what the window differs by: `W (1 - s) / q`, `q` the sum of all shares squared, and `W` the
//!   variance of windows around what rates say, or the square by which this window differs if that
//!   is larger: nobody knows whose the difference is, so each owner is taken to differ by the same
//!   part of its own;
//! - `(1 - s) / n`: its misses `n` are few.

use super::confidence::within_tenth;
use super::per_miss::{REST, Rates, Row};
use super::{Attribution, History, Method, Share, Window, leave_rest, trust};
use crate::log::Owner;

/// The method, with what it has learnt of one counter.
#[derive(Debug)]
pub(super) struct Misses {
    /// Decides where misses are not known.
    other: Box<dyn Attribution>,
    /// Whether it decides too where it is trusted more.
    compare: bool,
    rates: Rates,
}

impl Misses {
    /// Stands in for `other`: wherever misses are known or, with `compare`, unless `other` is trusted
    /// more.
    pub(super) fn new(other: Box<dyn Attribution>, compare: bool) -> Self {
        Self { other, compare, rates: Rates::default() }
    }
}

impl Attribution for Misses {
    fn tick(&mut self, tick: u64, count: Option<f64>) {
        self.other.tick(tick, count);
    }

    fn restart(&mut self) {
        self.other.restart();
    }

    fn solve(&mut self, history: &History) {
        self.other.solve(history);
    }

    fn advance(&mut self, history: &History, to: u64) {
        self.other.advance(history, to);
    }

    fn needs(&self) -> u64 {
        self.other.needs()
    }

    fn skip(&mut self, history: Option<&History>, to: u64) {
        self.other.skip(history, to);
    }

    fn divide(&mut self, window: &Window<'_>) -> (Method, Vec<Share>) {
        // It takes every window, whatever method divides it.
        let other = self.other.divide(window);
        match window.misses.and_then(|misses| self.shares(window, misses)) {
            Some(shares) if !self.compare || trust(&shares) >= trust(&other.1) => {
                (Method::Misses, shares)
            }
            _ => other,
        }
    }
}

/// An owner's part of what is expected of a window.
struct Part {
    who: Owner,
    misses: f64,
    column: usize,
    /// Rate x misses.
    expected: f64,
}

impl Misses {
    /// Divides a window, and learns from it; `None` where nothing was missed.
    fn shares(&mut self, window: &Window<'_>, misses: &[(Owner, u64)]) -> Option<Vec<Share>> {
        let owners: Vec<(Owner, f64)> = misses
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|&(who, count)| (who, count as f64))
            .collect();
        if owners.is_empty() {
            return None;
        }
        let row = self.rates.row(&owners, window.total);
        let part = |&(who, misses): &(Owner, f64)| {
            let column = self.rates.column(who);
            let expected = row.relative(misses) * self.rates.rate(column);
            Part { who, misses, column, expected }
        };
        let parts: Vec<Part> = owners.iter().map(part).collect();
        let all = self.rates.rate(REST) + parts.iter().map(|part| part.expected).sum::<f64>();
        let shares =
            (all > 0.0 && all.is_finite()).then(|| self.divided(window, &parts, all, &row));
        self.rates.learn(&row, window.len_ns);
        shares
    }

    fn divided(&self, window: &Window<'_>, parts: &[Part], all: f64, row: &Row) -> Vec<Share> {
        let said = self.rates.prediction_of(row);
        let squares: f64 = parts.iter().map(|part| (part.expected / all).powi(2)).sum();
        let own = said.window.max((row.count - all).powi(2)) / (row.count.max(all)).powi(2);
        let mut shares = Vec::with_capacity(parts.len() + 1);
        for part in parts.iter().filter(|part| part.who != Owner::Unattributed) {
            let s = part.expected / all;
            let value = window.total * s;
            if value <= 0.0 {
                continue;
            }
            let lump = row.relative(part.misses) / row.units[part.column];
            let of_rates = said.of_share(part.column, self.rates.rate(part.column), all)
                + self.rates.within(part.column, lump);
            let of_window = (own / squares + 1.0 / part.misses) * (1.0 - s).max(0.0);
            let confidence = within_tenth(of_rates + of_window) as f32 * window.running;
            shares.push(Share { who: part.who, value, confidence });
        }
        leave_rest(&mut shares, window.total);
        shares
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::residency::Residency;
    use super::super::simulation::Random;
    use super::*;

    const LEN_NS: u64 = 10_000_000;

    fn method(compare: bool) -> Misses {
        Misses::new(Box::new(Residency), compare)
    }

    fn window(total: f64, misses: Option<&[(Owner, u64)]>) -> Window<'_> {
        Window {
            total,
            factor: 1.0,
            running: 1.0,
            own_cpu: false,
            len_ns: LEN_NS,
            to: 0,
            time: &[(Owner::Idle, 3), (Owner::Irq(1), 1)],
            counts: &[],
            misses,
            io: None,
            history: None,
        }
    }

    fn near(value: f64, expected: f64) -> bool {
        (value / expected - 1.0).abs() < 0.03
    }

    /// Windows of two owners, of which the second moves `factor` times as many bytes a miss, and of
    /// `rest` lines that nobody missed. Returns the last misses and what became of them; `mixed` says
    /// whether the two miss by themselves.
    fn learnt(factor: f64, rest: f64, mixed: bool) -> ([f64; 2], Vec<Share>) {
        let mut random = Random(7);
        let mut method = method(false);
        let (mut last, mut shares) = ([0.0; 2], Vec::new());
        for _ in 0..400 {
            let one = 1000 + random.below(9000) as u64;
            let other = if mixed { 1000 + random.below(9000) as u64 } else { one };
            last = [one as f64, other as f64];
            let total = 64.0 * (last[0] + factor * last[1] + rest);
            let misses = [(Owner::Irq(0), one), (Owner::Irq(1), other)];
            let by;
            (by, shares) = method.divide(&window(total, Some(&misses)));
            assert_eq!(by, Method::Misses);
        }
        (last, shares)
    }

    #[test]
    fn at_first_parts_follow_misses() {
        let misses =
            [(Owner::Idle, 1), (Owner::Irq(1), 0), (Owner::Irq(2), 2), (Owner::Unattributed, 1)];
        let (by, shares) = method(false).divide(&window(100.0, Some(&misses)));
        let values: Vec<_> = shares.iter().map(|share| (share.who, share.value)).collect();
        assert_eq!(by, Method::Misses);
        assert_eq!(
            values,
            [(Owner::Idle, 25.0), (Owner::Irq(2), 50.0), (Owner::Unattributed, 25.0)]
        );
        assert_eq!(shares[2].confidence.to_bits(), 0f32.to_bits());
    }

    #[test]
    fn without_misses_the_other_method_decides() {
        for none in [None, Some(&[][..]), Some(&[(Owner::Idle, 0)][..])] {
            let (by, shares) = method(false).divide(&window(100.0, none));
            assert_eq!((by, shares.len()), (Method::Residency, 2));
        }
    }

    #[test]
    fn bytes_per_miss_are_learnt() {
        for factor in [1.0, 2.0, 0.5] {
            let (misses, shares) = learnt(factor, 0.0, true);
            assert!(near(shares[0].value, 64.0 * misses[0]), "{factor}: {shares:?}");
            assert!(near(shares[1].value, 64.0 * factor * misses[1]), "{factor}: {shares:?}");
            assert!(shares.iter().take(2).all(|share| share.confidence > 0.9), "{shares:?}");
        }
    }

    #[test]
    fn owners_that_miss_together_cannot_be_told_apart() {
        let (misses, shares) = learnt(2.0, 0.0, false);
        assert!(near(shares[0].value, 96.0 * misses[0]), "{shares:?}");
        assert!(shares[0].confidence < 0.7, "{shares:?}");
    }

    #[test]
    fn what_comes_without_misses_is_unattributed() {
        let (misses, shares) = learnt(1.0, 8000.0, true);
        assert!(near(shares[0].value, 64.0 * misses[0]), "{shares:?}");
        assert!(near(shares[2].value, 64.0 * 8000.0), "{shares:?}");
        assert_eq!(shares[2].who, Owner::Unattributed);
        assert!(shares[0].confidence > 0.9, "{shares:?}");
    }

    #[test]
    fn the_method_that_is_trusted_more_decides() {
        let sole = [(Owner::Irq(1), 100_000)];
        assert_eq!(method(true).divide(&window(1.0, Some(&sole))).0, Method::Misses);
        let few: Vec<_> = (0..100).map(|at| (Owner::Irq(at), 1)).collect();
        assert_eq!(method(true).divide(&window(1.0, Some(&few))).0, Method::Residency);
        assert_eq!(method(false).divide(&window(1.0, Some(&few))).0, Method::Misses);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever was counted and missed, by more owners than have rates of their own.
        #[test]
        fn parts_sum_to_the_whole(
            windows in prop::collection::vec(
                (1e-300f64..1e18, prop::collection::vec((0u32..60, 0u64..1 << 50), 1..40)), 1..60,
            ),
        ) {
            let mut method = method(false);
            for (total, counts) in windows {
                let counts: std::collections::BTreeMap<_, _> =
                    counts.into_iter().map(|(at, n)| (Owner::Irq(at), n)).collect();
                let misses: Vec<_> = counts.into_iter().collect();
                let (_, shares) = method.divide(&window(total, Some(&misses)));
                let sum: f64 = shares.iter().map(|share| share.value).sum();
                prop_assert!((sum - total).abs() <= total * 1e-9, "{} of {}", sum, total);
                for share in shares {
                    prop_assert!(share.value >= 0.0 && share.value.is_finite(), "{:?}", share);
                    prop_assert!((0.0..=1.0).contains(&share.confidence), "{:?}", share);
                }
            }
        }
    }
}
