//! The parts of owners in the count of a window that is not over.
//!
//! A window may be longer than the time for which the use of its ticks is kept. So it is divided in
//! pieces, each while its ticks are kept. Of a piece only sums for each owner are left: what is
//! kept of a window depends on its owners, and not on its length.

use std::cmp::Ordering;

use super::cgroups::cgroup_of_owner;
use super::history::{History, OwnerUse};
use super::learner::{Contributions, Variance};
use super::traffic_source::TrafficSource;

/// An owner's part, on near or on far CPUs, in one column: sums over pieces, or means by value.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnerPart {
    /// The owner.
    pub source: TrafficSource,
    /// The slot of its column.
    pub slot: u16,
    /// Its part of the count.
    pub value: f64,
    /// The variance that its traffic adds to the count.
    pub noise: f64,
    /// Its use.
    pub amount: f64,
    /// Its fraction of the use of its column, 0 to 1.
    pub column_fraction: f64,
    /// [`OwnerUse::edge_fraction`] of the last piece.
    pub edge_fraction: f64,
    /// The variance of its column's part.
    pub variance: Variance,
}

impl OwnerPart {
    /// The part of a piece. Owners of a column have parts in proportion to their use.
    fn from_piece(
        owner_use: &OwnerUse,
        use_by_slot: &[f64],
        contributions: &Contributions,
    ) -> Self {
        let OwnerUse { source, slot: column_slot, amount, edge_fraction: edge } = *owner_use;
        let slot_index = usize::from(column_slot);
        let in_column = |sums: &[f64]| sums.get(slot_index).copied().unwrap_or(0.0);
        let column_fraction = amount / in_column(use_by_slot);
        Self {
            source,
            slot: column_slot,
            value: in_column(&contributions.value) * column_fraction,
            noise: in_column(&contributions.noise) * column_fraction * column_fraction,
            amount,
            column_fraction,
            edge_fraction: edge,
            variance: contributions.variance.get(slot_index).copied().unwrap_or(Variance::UNKNOWN),
        }
    }

    /// The order of two owners: by cgroup, then by owner.
    fn compare_owners(&self, other: &Self) -> Ordering {
        let key = |owner_part: &Self| {
            (cgroup_of_owner(&owner_part.source.owner), owner_part.source, owner_part.slot)
        };
        key(self).cmp(&key(other))
    }

    /// Adds the same owner's part of a later piece.
    fn add_later(&mut self, later: &Self) {
        let sum = self.value + later.value;
        if sum > 0.0 {
            let weight = later.value / sum;
            self.column_fraction += weight * (later.column_fraction - self.column_fraction);
            self.variance.move_towards(&later.variance, weight);
        }
        self.value = sum;
        self.noise += later.noise;
        self.amount += later.amount;
        self.edge_fraction = later.edge_fraction;
    }
}

/// The parts of a window so far.
#[derive(Debug, Default)]
pub(super) struct WindowParts {
    /// The sum of the counts that rates divided.
    pub value: f64,
    /// The sum of their variances.
    pub noise: f64,
    /// The sum of the counts for which there were no rates.
    pub unknown: f64,
    /// Sorted by cgroup, then by owner.
    pub owners: Vec<OwnerPart>,
    /// The last tick of the last piece.
    last_tick: u64,
    /// Whether the owners of a piece are not here.
    lacks_owners: bool,
}

impl WindowParts {
    /// The tick after which the next piece begins, of a window that begins after `after_tick`.
    pub(super) fn piece_begin_tick(&self, after_tick: u64) -> u64 {
        self.last_tick.max(after_tick)
    }

    /// Whether the use of owners is that of the whole window: rates divided all of its pieces.
    pub(super) const fn are_whole(&self) -> bool {
        !self.lacks_owners
    }

    /// The use of owners on CPUs.
    pub(super) fn cpu_use(&self) -> impl Iterator<Item = (TrafficSource, f64)> {
        let on_cpus = self.owners.iter().filter(|owner_part| owner_part.source.device.is_none());
        on_cpus.map(|owner_part| (owner_part.source, owner_part.amount))
    }

    /// Adds the next piece of a window that begins after `after_tick`: the ticks up to `last_tick`.
    pub(super) fn add_piece(
        &mut self,
        contributions: &Contributions,
        history: &History,
        after_tick: u64,
        last_tick: u64,
    ) {
        let begin_tick = self.piece_begin_tick(after_tick);
        if contributions.restarts {
            // What was counted before belongs to other owners.
            *self = Self { lacks_owners: true, ..Self::default() };
        }
        self.last_tick = last_tick;
        self.unknown += contributions.unknown;
        self.lacks_owners |= contributions.unknown > 0.0;
        let value: f64 = contributions.value.iter().sum();
        if value <= 0.0 || !value.is_finite() {
            self.lacks_owners = true;
            return;
        }
        self.value += value;
        self.noise += contributions.noise.iter().sum::<f64>();
        let window_use = history.window_use(begin_tick, last_tick);
        let owner_part = |owner_use: &OwnerUse| {
            OwnerPart::from_piece(owner_use, &window_use.by_slot, contributions)
        };
        let piece = window_use
            .owners
            .iter()
            .map(owner_part)
            .filter(|piece_part| piece_part.value.is_finite());
        if self.owners.is_empty() {
            self.owners = piece.collect();
        } else {
            self.merge_piece(piece);
        }
    }

    /// Adds sorted parts of a later piece.
    fn merge_piece(&mut self, piece: impl Iterator<Item = OwnerPart>) {
        let mut earlier = std::mem::take(&mut self.owners).into_iter().peekable();
        for mut later_part in piece {
            while let Some(earlier_part) =
                earlier.next_if(|candidate| candidate.compare_owners(&later_part).is_lt())
            {
                self.owners.push(earlier_part);
            }
            if let Some(mut united) =
                earlier.next_if(|candidate| candidate.compare_owners(&later_part).is_eq())
            {
                united.add_later(&later_part);
                later_part = united;
            }
            self.owners.push(later_part);
        }
        self.owners.extend(earlier);
    }
}

#[cfg(test)]
mod tests {
    use super::super::traffic_source::{SourceUse, TickMisses};
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::division_method::{DivisionInput, DivisionMethod as _};
    use super::super::history::Histories;
    use super::super::learner::Effort;
    use super::super::predictor::Predictor;
    use super::super::regression::Regression;
    use crate::attribute::tests::split_mix::SplitMix;
    use crate::entries::Owner;

    const TICK_NS: u64 = 1_000_000;

    /// Ticks between two turns, and how long a window waits, as
    /// [`super::super::schedule`] has them.
    const TURN: u64 = 100;
    const LAG: u64 = 500;

    /// Ticks of a run. What is divided begins when rates are known.
    const BEGIN: u64 = 1000;
    const END: u64 = 6000;

    /// Owners of a run. Each runs for some tenths of a second and pauses for some.
    const OWNERS: usize = 8;

    /// What each owner is given of a run in windows of `length` ticks, and the whole count. Turns
    /// are `offset` ticks after the ends of windows.
    fn given(by: Predictor, length: u64, offset: u64, seed: u64) -> (BTreeMap<Owner, f64>, f64) {
        let mut random = SplitMix(seed);
        let mut histories = Histories::new(TICK_NS, by == Predictor::Misses);
        let mut method = Regression::new(by, TICK_NS, Effort::Live);
        let (mut sums, mut all, mut counts) = (BTreeMap::new(), 0.0, BTreeMap::new());
        let (mut window, mut is_begun) = (BEGIN, false);
        let mut runs = [false; OWNERS];
        for tick in 1..=END + LAG + TURN {
            if tick % 150 == 1 {
                runs = std::array::from_fn(|_| random.next_below(2) == 0);
            }
            let times: Vec<_> = (0..OWNERS)
                .map(|at| {
                    let ns = if runs[at] { random.next_below(1 << 20) as u64 } else { 0 };
                    let source = super::TrafficSource::from_cpus(Owner::Irq(at as u32), false);
                    SourceUse::new(source, ns)
                })
                .collect();
            let moved = |(at, time): (usize, &SourceUse<u64>)| (at + 1) as f64 * time.amount as f64;
            let count = 1e5 + times.iter().enumerate().map(moved).sum::<f64>();
            histories
                .push(tick, &times, || TickMisses { by_source: times.clone(), is_complete: true });
            method.observe_tick(tick, Some(count), &histories);
            counts.insert(tick, count);
            if !(tick + TURN - offset).is_multiple_of(TURN) {
                continue;
            }
            histories.review_use();
            method.learn_ticks(&histories);
            histories.finish_review(|by| method.rate_profile(by).into_iter().collect());
            method.solve_rates(&histories, &[]);
            let to = tick.saturating_sub(LAG);
            if to >= BEGIN && !std::mem::replace(&mut is_begun, to >= BEGIN) {
                method.skip_window(Some(&histories), BEGIN);
            }
            while window + length <= to.min(END) {
                let end = window + length;
                let total: f64 = counts.range(window + 1..=end).map(|(_, count)| count).sum();
                all += total;
                let shares = method.learnt_shares(&DivisionInput {
                    total,
                    factor: 1.0,
                    running: 1.0,
                    sees_one_cpu: false,
                    len_ns: length * TICK_NS,
                    end_tick: end,
                    time: &[],
                    counts: &[],
                    io: None,
                    histories: Some(&histories),
                });
                for share in shares.unwrap() {
                    *sums.entry(share.owner).or_default() += share.value;
                }
                window = end;
            }
            method.divide_ticks(&histories, window.min(to), to);
            histories.forget_before(method.oldest_needed_tick().min(tick));
            let kept = histories.time.last_tick() - histories.time.first_tick();
            assert!(kept <= LAG + 2 * TURN, "{kept} ticks are kept");
            // An owner has one where it has no column of its own yet, and one where it has.
            assert!(method.kept_parts() <= 2 * OWNERS, "{} parts", method.kept_parts());
        }
        (sums, all)
    }

    #[test]
    fn a_window_without_rates_in_a_piece_lacks_the_use_of_it() {
        let histories = Histories::new(TICK_NS, false);
        let parts_of = |pieces: &[super::Contributions]| {
            let mut parts = super::WindowParts::default();
            for (contributions, end_tick) in pieces.iter().zip(1..) {
                parts.add_piece(contributions, &histories.time, 0, end_tick);
            }
            parts
        };
        let divided = || super::Contributions { value: vec![1.0], ..Default::default() };
        let undivided = super::Contributions { unknown: 1.0, ..Default::default() };
        let restarted = super::Contributions { restarts: true, ..divided() };
        assert!(parts_of(&[divided(), divided()]).are_whole());
        assert!(!parts_of(&[undivided, divided()]).are_whole());
        assert!(!parts_of(&[restarted, divided()]).are_whole());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

        /// Within a thousandth of the count: owners of a column share what a piece has of it, and
        /// not what a tick has.
        #[test]
        fn a_long_window_is_the_sum_of_its_ticks(
            length in prop::sample::select(vec![50, 250, 1000, 2500, 5000]),
            offset in 0..TURN,
            seed: u64,
            by in prop::sample::select(vec![Predictor::Time, Predictor::Misses]),
        ) {
            let (ticks, all) = given(by, 1, offset, seed);
            let (windows, same) = given(by, length, offset, seed);
            prop_assert!((all - same).abs() <= 1e-9 * all);
            for (owner, value) in &ticks {
                let other = windows.get(owner).copied().unwrap_or_default();
                prop_assert!((value - other).abs() <= 1e-3 * all, "{owner:?}: {value}, {other}");
            }
        }
    }
}
