//! `misses` and `ports`: divide traffic caused by CPUs by what witnesses count of it.
//!
//! A last-level cache miss of a core is a transfer on the fabric, so misses predict the traffic of
//! CPUs better than time does. The bytes per miss also differ less between owners; they depend on
//! stores and prefetches. The method is that of [`super::regression`] with misses in place of time,
//! and with a much tighter prior (`learner/posterior.rs`). Traffic without misses is the baseline,
//! `unattributed`.
//!
//! Misses in interrupt handlers count for the interrupted task. Misses of an idle CPU (from
//! handlers and prefetchers) are idle's, and those of an unknown task are `unattributed`. If the
//! misses of a CPU are unknown at the begin or the end of a window, `regression` divides it. So it
//! does if a virtual machine ran in it whose misses are not counted
//! ([`crate::entries::RAN_GUEST`]); nothing is learnt from such ticks.
//!
//! Bytes at ports ([`super::ports`]) are another use of the same kind. They are known some time
//! after the counts, when the ports have divided them, so counts wait until then.

use std::collections::{BTreeSet, VecDeque};

use super::device_bytes::DeviceDirections;
use super::division_method::{DivisionInput, DivisionMethod};
use super::history::{Histories, History};
use super::learner::Effort;
use super::measured_part::MeasuredPart;
use super::method::Method;
use super::misfit::Misfit;
use super::near_rates::NearRates;
use super::predictor::Predictor;
use super::regression::Regression;
use super::share::{Share, confident_value};
use super::sibling_cost::ContrastSums;
use crate::entries::Relief;

/// The method, with what it has learnt about one counter.
#[derive(Debug)]
pub(super) struct ByWitness {
    predictor: Predictor,
    /// Divides windows whose use is unknown.
    timed: Regression,
    witnessed: Regression,
    /// Whether regression by time divides a window if its confidence is higher.
    compare: bool,
    /// Whether it has divided a window.
    is_divided_by_time: bool,
    /// Counts of ticks whose use is not known yet.
    counts: VecDeque<(u64, Option<f64>)>,
    /// The count since the use was last known.
    carried: f64,
    seen_use: SeenUse,
}

/// The known use in the window that is to be divided next. Its first ticks may be forgotten.
#[derive(Clone, Copy, Debug, Default)]
struct SeenUse {
    /// The last tick that was looked at.
    last_tick: u64,
    /// Whether there was use that no witness counts.
    is_blind: bool,
    /// Whether all use up to its begin was known; `None` if no tick was looked at.
    begins_whole: Option<bool>,
}

impl SeenUse {
    /// The same after the ticks up to `last_tick` of a window that begins after `begin_tick`.
    fn extend_to(self, history: &History, begin_tick: u64, last_tick: u64) -> Self {
        Self {
            last_tick,
            is_blind: self.is_blind
                || history.is_blind(self.last_tick.max(begin_tick) + 1..=last_tick),
            begins_whole: self.begins_whole.or_else(|| Some(history.is_complete(begin_tick))),
        }
    }
}

impl ByWitness {
    /// A method for ticks of `tick_ns`. It divides a window if its use is known and, with
    /// `compare`, if its confidence is not lower than that of regression by time.
    pub(super) fn new(predictor: Predictor, tick_ns: u64, effort: Effort, compare: bool) -> Self {
        Self {
            predictor,
            timed: Regression::new(Predictor::Time, tick_ns, effort),
            witnessed: Regression::new(predictor, tick_ns, effort),
            compare,
            is_divided_by_time: false,
            counts: VecDeque::new(),
            carried: 0.0,
            seen_use: SeenUse::default(),
        }
    }

    /// Learns from bytes of devices in these directions, too.
    pub(super) fn using_devices(self, devices: DeviceDirections) -> Self {
        Self {
            timed: self.timed.using_devices(devices),
            witnessed: self.witnessed.using_devices(devices),
            ..self
        }
    }

    /// Adds the counts of the ticks whose use is known now.
    fn catch_up(&mut self, histories: &Histories) {
        let Some(history) = histories.history_of(self.predictor) else {
            return self.counts.clear();
        };
        while let Some((tick, count)) =
            self.counts.pop_front_if(|entry| entry.0 <= history.last_tick())
        {
            if history.is_blind(tick..=tick) {
                // Nobody knows how much of it belongs to which use.
                self.carried = 0.0;
                self.witnessed.observe_tick(tick, None, histories);
                continue;
            }
            self.carried += count.unwrap_or(0.0);
            let is_known = count.is_some() && history.is_complete(tick);
            let count = is_known.then(|| std::mem::take(&mut self.carried));
            self.witnessed.observe_tick(tick, count, histories);
        }
    }
}

impl DivisionMethod for ByWitness {
    fn observe_tick(&mut self, tick: u64, count: Option<f64>, histories: &Histories) {
        self.timed.observe_tick(tick, count, histories);
        self.counts.push_back((tick, count));
        self.catch_up(histories);
    }

    fn note_restart(&mut self) {
        self.timed.note_restart();
        self.witnessed.note_restart();
    }

    fn learn_ticks(&mut self, histories: &Histories) {
        self.catch_up(histories);
        self.timed.learn_ticks(histories);
        self.witnessed.learn_ticks(histories);
    }

    fn solve_rates(&mut self, histories: &Histories, peer_rates: &[&NearRates]) {
        self.timed.solve_rates(histories, peer_rates);
        self.witnessed.solve_rates(histories, &[]);
    }

    fn near_rates(&self, histories: &Histories) -> NearRates {
        self.timed.near_rates(histories)
    }

    fn set_relief(&mut self, relief: Relief) {
        self.timed.set_relief(relief);
        self.witnessed.set_relief(relief);
    }

    fn rate_profile(&self, asked_predictor: Predictor) -> Option<Vec<f64>> {
        if asked_predictor == Predictor::Time {
            self.timed.rate_profile(asked_predictor)
        } else {
            self.witnessed.rate_profile(asked_predictor)
        }
    }

    fn misfits(&self) -> Vec<Misfit> {
        let by_time = self.timed.misfits().into_iter().filter(|_| self.is_divided_by_time);
        let misfits: BTreeSet<Misfit> =
            self.witnessed.misfits().into_iter().chain(by_time).collect();
        misfits.into_iter().collect()
    }

    fn take_contrasts(&mut self) -> Option<ContrastSums> {
        self.timed.take_contrasts()
    }

    fn divide_ticks(&mut self, histories: &Histories, begin_tick: u64, last_tick: u64) {
        if let Some(history) =
            histories.history_of(self.predictor).filter(|_| last_tick > begin_tick)
        {
            self.seen_use = self.seen_use.extend_to(history, begin_tick, last_tick);
        }
        self.timed.divide_ticks(histories, begin_tick, last_tick);
        self.witnessed.divide_ticks(histories, begin_tick, last_tick);
    }

    fn oldest_needed_tick(&self) -> u64 {
        self.timed.oldest_needed_tick().min(self.witnessed.oldest_needed_tick())
    }

    fn note_measured(&mut self, parts: Vec<MeasuredPart>) {
        self.timed.note_measured(parts.clone());
        self.witnessed.note_measured(parts);
    }

    fn skip_window(&mut self, histories: Option<&Histories>, end_tick: u64) {
        if let Some(histories) = histories {
            self.catch_up(histories);
        }
        self.seen_use = SeenUse::default();
        self.timed.skip_window(histories, end_tick);
        self.witnessed.skip_window(histories, end_tick);
    }

    fn divide_window(&mut self, window: &DivisionInput<'_>) -> (Method, Vec<Share>) {
        if let Some(histories) = window.histories {
            self.catch_up(histories);
        }
        // Both learn from every window, whichever divides it.
        let by_time = self.timed.divide_window(window);
        let history = window.histories.and_then(|histories| histories.history_of(self.predictor));
        let seen = std::mem::take(&mut self.seen_use);
        let is_known = history.is_some_and(|history| {
            let seen =
                seen.extend_to(history, window.begin_tick(history.tick_ns()), window.end_tick);
            !seen.is_blind
                && seen.begins_whole == Some(true)
                && history.last_tick() >= window.end_tick
                && history.is_complete(window.end_tick)
        });
        match self.witnessed.learnt_shares(window).filter(|_| is_known) {
            Some(shares)
                if !self.compare || confident_value(&shares) >= confident_value(&by_time.1) =>
            {
                let method =
                    if self.predictor == Predictor::Ports { Method::Ports } else { Method::Misses };
                (method, shares)
            }
            _ => {
                self.is_divided_by_time = true;
                by_time
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::traffic_source::{SourceUse, TickMisses, TrafficSource};
    use super::*;
    use crate::attribute::tests::split_mix::SplitMix;
    use crate::entries::Owner;

    const TICK_NS: u64 = 1_000_000;
    const TICKS: u64 = 3000;

    /// Ticks of two owners that pause now and then, with more or fewer misses for 100 ms at a time.
    /// The second moves `factor` times as many bytes per miss, and `rest` bytes come without
    /// misses. `mixed` says whether their misses vary independently; misses of the ticks `unknown`
    /// come with the next tick. Returns the misses of the last window, and its shares.
    fn learnt(
        (factor, rest): (f64, f64),
        mixed: bool,
        unknown: impl Fn(u64) -> bool,
    ) -> ([f64; 2], Method, Vec<Share>) {
        learnt_beside((factor, rest), mixed, unknown, |_| 0.0)
    }

    /// The same beside a virtual machine that moves these bytes in each tick, without misses.
    fn learnt_beside(
        (factor, rest): (f64, f64),
        mixed: bool,
        unknown: impl Fn(u64) -> bool,
        of_guest: impl Fn(u64) -> f64,
    ) -> ([f64; 2], Method, Vec<Share>) {
        let mut random = SplitMix(7);
        let mut histories = Histories::new(TICK_NS, true);
        let mut method = ByWitness::new(Predictor::Misses, TICK_NS, Effort::Live, false);
        let (mut owed, mut levels) = ([0; 2], [0; 2]);
        let (mut last, mut total) = ([0.0; 2], 0.0);
        for tick in 1..=TICKS {
            if tick % 100 == 1 {
                levels =
                    [1000 + random.next_below(9000) as u64, 1000 + random.next_below(9000) as u64];
            }
            let runs = [random.next_below(2) as u64, random.next_below(2) as u64];
            let (runs, misses) = if mixed {
                (runs, [runs[0] * levels[0], runs[1] * levels[1]])
            } else {
                ([runs[0]; 2], [runs[0] * levels[0]; 2])
            };
            let of_guest = of_guest(tick);
            let count = 64.0 * (misses[0] as f64 + factor * misses[1] as f64 + rest) + of_guest;
            for at in 0..2 {
                owed[at] += misses[at];
                if tick > TICKS - 10 {
                    last[at] += misses[at] as f64;
                }
            }
            total += if tick > TICKS - 10 { count } else { 0.0 };
            let near = |at: usize| TrafficSource::from_cpus(Owner::Irq(at as u32), false);
            let times = [0, 1].map(|at| SourceUse::new(near(at), runs[at] * TICK_NS));
            let told = if unknown(tick) {
                Vec::new()
            } else {
                let [one, other] = std::mem::take(&mut owed);
                vec![SourceUse::new(near(0), one), SourceUse::new(near(1), other)]
            };
            if of_guest > 0.0 {
                let times = [times[0], times[1], SourceUse::new(near(2), TICK_NS)];
                histories.push_blind(tick, &times);
            } else {
                let is_complete = !unknown(tick);
                histories.push(tick, &times, || TickMisses { by_source: told, is_complete });
            }
            method.observe_tick(tick, Some(count), &histories);
            if tick.is_multiple_of(100) {
                histories.review_use();
                method.learn_ticks(&histories);
                histories.finish_review(|by| method.rate_profile(by).into_iter().collect());
                method.solve_rates(&histories, &[]);
                if tick < TICKS {
                    method.skip_window(Some(&histories), tick);
                    method.divide_ticks(&histories, tick, tick);
                    histories.forget_before(method.oldest_needed_tick().min(tick));
                }
            }
        }
        method.skip_window(Some(&histories), TICKS - 10);
        let time = [(Owner::Irq(0), 10 * TICK_NS), (Owner::Irq(1), 10 * TICK_NS)];
        let (by, shares) = method.divide_window(&DivisionInput {
            total,
            factor: 1.0,
            running: 1.0,
            sees_one_cpu: false,
            len_ns: 10 * TICK_NS,
            end_tick: TICKS,
            time: &time,
            counts: &[],
            io: None,
            histories: Some(&histories),
        });
        let sum: f64 = shares.iter().map(|share| share.value).sum();
        assert!((sum - total).abs() < 1e-9 * total, "{shares:?}");
        (last, by, shares)
    }

    fn near(value: f64, expected: f64) -> bool {
        (value / expected - 1.0).abs() < 0.06
    }

    #[test]
    fn bytes_per_miss_are_learnt() {
        for factor in [1.0, 2.0, 0.5] {
            let (misses, by, shares) = learnt((factor, 0.0), true, |_| false);
            assert_eq!(by, Method::Misses);
            assert!(near(shares[0].value, 64.0 * misses[0]), "{factor}: {shares:?}");
            assert!(near(shares[1].value, 64.0 * factor * misses[1]), "{factor}: {shares:?}");
            assert!(shares.iter().take(2).all(|share| share.confidence > 0.7), "{shares:?}");
        }
    }

    #[test]
    fn owners_that_miss_together_have_the_same_rate() {
        let (misses, _, shares) = learnt((2.0, 0.0), false, |_| false);
        assert!((shares[0].value / (96.0 * misses[0]) - 1.0).abs() < 0.1, "{shares:?}");
        assert!(shares[0].confidence < 0.7, "{shares:?}");
    }

    #[test]
    fn what_comes_without_misses_is_unattributed() {
        let (misses, _, shares) = learnt((1.0, 8000.0), true, |_| false);
        assert!(near(shares[0].value, 64.0 * misses[0]), "{shares:?}");
        assert!(near(shares[2].value, 64.0 * 80_000.0), "{shares:?}");
        assert_eq!(shares[2].owner, Owner::Unattributed);
        assert!(shares[0].confidence > 0.7, "{shares:?}");
    }

    #[test]
    fn ticks_whose_misses_come_late_are_learnt_from_with_the_next() {
        let (misses, by, shares) = learnt((2.0, 0.0), true, |tick| tick % 3 == 1);
        assert_eq!(by, Method::Misses);
        assert!(near(shares[1].value, 128.0 * misses[1]), "{shares:?}");
    }

    #[test]
    fn a_window_with_a_virtual_machine_is_divided_otherwise_and_nothing_is_learnt_from_it() {
        let guest = |ticks: fn(u64) -> bool| move |tick| if ticks(tick) { 1e6 } else { 0.0 };
        let never = |_| false;
        for at in [TICKS, TICKS - 5, TICKS - 9] {
            let of_guest = move |tick| if tick == at { 1e6 } else { 0.0 };
            let (_, by, _) = learnt_beside((1.0, 0.0), true, never, of_guest);
            assert_ne!(by, Method::Misses, "{at}");
        }
        // It ran in half of all ticks, but not in the last window.
        let (misses, by, shares) = learnt_beside(
            (2.0, 0.0),
            true,
            never,
            guest(|tick| tick <= TICKS - 10 && tick % 20 < 10),
        );
        assert_eq!(by, Method::Misses);
        assert!(near(shares[1].value, 128.0 * misses[1]), "{misses:?} {shares:?}");
    }

    #[test]
    fn a_window_whose_misses_are_not_known_is_divided_otherwise() {
        for unknown in [TICKS, TICKS - 10] {
            assert_ne!(learnt((1.0, 0.0), true, |tick| tick == unknown).1, Method::Misses);
        }
    }
}
