//! Owner used the CPUs in each tick: what a regression explains counts by.
//!
//! One [`Design`] serves all counters that see the same CPUs. Memory is bounded: [`OWNERS`] owners
//! have a column of their own, all others share one.

use std::collections::HashMap;

use crate::log::Owner;

/// Owners with a column of their own.
pub(super) const OWNERS: usize = 32;

/// The column of what is always there, whatever runs: devices, refresh, other sockets.
pub(super) const BASELINE: usize = 0;

/// The column of all owners without one of their own.
pub(super) const REST: usize = 1;

/// Columns in all.
pub(super) const WIDTH: usize = OWNERS + 2;

/// How often columns are given anew, ns.
const REVIEW_NS: u64 = 100_000_000;

/// What is left of an owner's use of the CPUs after that: the memory is about 2 s.
const LEFT: f64 = 0.95;

/// An owner gets a column of its own from this much use on, in ticks of one CPU.
const LEAST: f64 = 2.0;

/// Below this use an owner is gone, and its column free.
const GONE: f64 = 0.05;

/// Use by column, in ticks of one CPU; 1 for the baseline.
pub(super) type Row = [f64; WIDTH];

/// The owners' columns and the last tick.
#[derive(Debug)]
pub struct Design {
    tick_ns: u64,
    /// Use of late, by owner.
    used: HashMap<Owner, f64>,
    column_of: HashMap<Owner, usize>,
    owners: [Option<Owner>; WIDTH],
    born: [u64; WIDTH],
    generation: u64,
    row: Row,
    since_review: u64,
}

impl Design {
    /// Before the first tick, all of this length.
    pub fn new(tick_ns: u64) -> Self {
        Self {
            tick_ns,
            used: HashMap::new(),
            column_of: HashMap::new(),
            owners: [None; WIDTH],
            born: [0; WIDTH],
            generation: 0,
            row: [0.0; WIDTH],
            since_review: 0,
        }
    }

    /// Length of a tick, ns.
    pub const fn tick_ns(&self) -> u64 {
        self.tick_ns
    }

    /// A length of time in ticks.
    pub fn ticks(&self, ns: u64) -> f64 {
        ns as f64 / self.tick_ns as f64
    }

    /// Use of the last tick by column.
    pub const fn row(&self) -> &Row {
        &self.row
    }

    /// When the owner of each column got it: a number that grows; 0 at the start.
    pub const fn born(&self) -> &[u64; WIDTH] {
        &self.born
    }

    /// One more than the last column in use.
    pub fn width(&self) -> usize {
        let last = self.owners.iter().rposition(Option::is_some);
        last.map_or(REST + 1, |last| last + 1)
    }

    /// The column of an owner.
    pub fn column(&self, who: Owner) -> usize {
        self.column_of.get(&who).copied().unwrap_or(REST)
    }

    /// Adds a tick: nanoseconds by owner, each owner at most once. Idle time explains nothing.
    pub fn push(&mut self, times: &[(Owner, u64)]) {
        self.row = [0.0; WIDTH];
        self.row[BASELINE] = 1.0;
        for &(who, ns) in times.iter().filter(|(who, ns)| *who != Owner::Idle && *ns > 0) {
            let ticks = self.ticks(ns);
            *self.used.entry(who).or_default() += ticks;
            let column = self.column(who);
            self.row[column] += ticks;
        }
        self.since_review += 1;
        if self.since_review * self.tick_ns >= REVIEW_NS {
            self.since_review = 0;
            self.review();
        }
    }

    /// Frees the columns of owners that are gone and gives columns to those who use most. Owner has
    /// one keeps it until another used twice as much: what was learnt of it goes with it.
    fn review(&mut self) {
        for used in self.used.values_mut() {
            *used *= LEFT;
        }
        self.used.retain(|_, used| *used >= GONE);
        for column in REST + 1..WIDTH {
            if self.owners[column].is_some_and(|who| !self.used.contains_key(&who)) {
                self.free(column);
            }
        }
        let mut waiting: Vec<(f64, Owner)> = self
            .used
            .iter()
            .filter(|(who, used)| **used >= LEAST && !self.column_of.contains_key(*who))
            .map(|(who, used)| (*used, *who))
            .collect();
        waiting.sort_unstable_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        for (used, who) in waiting {
            let Some(column) = self.room_for(used) else { break };
            self.free(column);
            self.generation += 1;
            self.owners[column] = Some(who);
            self.born[column] = self.generation;
            self.column_of.insert(who, column);
        }
    }

    fn free(&mut self, column: usize) {
        if let Some(who) = self.owners[column].take() {
            self.column_of.remove(&who);
        }
    }

    /// A free column, or that of the owner who used least, if that is less than half of `used`.
    fn room_for(&self, used: f64) -> Option<usize> {
        if let Some(free) = (REST + 1..WIDTH).find(|&column| self.owners[column].is_none()) {
            return Some(free);
        }
        let of = |column: usize| {
            self.owners[column].and_then(|who| self.used.get(&who)).copied().unwrap_or(0.0)
        };
        let least = (REST + 1..WIDTH).min_by(|&one, &other| of(one).total_cmp(&of(other)))?;
        (2.0 * of(least) < used).then_some(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 1_000_000;

    fn run(design: &mut Design, ticks: usize, times: &[(Owner, u64)]) {
        (0..ticks).for_each(|_| design.push(times));
    }

    #[test]
    fn who_uses_most_has_a_column_and_keeps_it() {
        let mut design = Design::new(TICK);
        let all: Vec<_> = (0..50).map(|at| (Owner::Irq(at), TICK / 2 + u64::from(at))).collect();
        run(&mut design, 1000, &all);
        let own = |design: &Design| {
            (0..50).filter(|&at| design.column(Owner::Irq(at)) != REST).collect::<Vec<_>>()
        };
        let first = own(&design);
        assert_eq!(first.len(), OWNERS);
        assert_eq!(design.width(), WIDTH);
        let shared: f64 = design.row()[REST];
        assert!((shared - 9.0).abs() < 0.1, "{shared}");
        // A little more is no reason to learn anew, much more is.
        let more: Vec<_> = (0..50).map(|at| (Owner::Irq(at), TICK / 2 - u64::from(at))).collect();
        run(&mut design, 5000, &more);
        assert_eq!(own(&design), first);
        run(&mut design, 5000, &[&all[..], &[(Owner::Softirq(1), TICK * 2)]].concat());
        assert_ne!(design.column(Owner::Softirq(1)), REST);
    }

    #[test]
    fn who_is_gone_leaves_room() {
        let mut design = Design::new(TICK);
        run(&mut design, 200, &[(Owner::Irq(1), TICK), (Owner::Idle, TICK)]);
        let (column, born) = (design.column(Owner::Irq(1)), *design.born());
        assert!(column != REST && design.column(Owner::Idle) == REST);
        run(&mut design, 20_000, &[(Owner::Irq(2), TICK)]);
        assert_eq!(design.column(Owner::Irq(1)), REST);
        run(&mut design, 200, &[(Owner::Irq(2), TICK), (Owner::Irq(3), TICK)]);
        assert_eq!(design.column(Owner::Irq(3)), column);
        assert!(design.born()[column] > born[column]);
    }
}
