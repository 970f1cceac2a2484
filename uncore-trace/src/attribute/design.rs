//! Who used the CPUs in each tick of a moving span: what a regression explains counts by.
//!
//! One [`Design`] serves all counters that see the same CPUs. Time is kept in whole units, so that
//! the sums which ticks enter and leave are exact: they depend on the ticks in the span alone, not
//! on how the span came to be there. Memory is bounded by the span: [`OWNERS`] owners have a column
//! of their own, all others share one.

use std::{
    cmp::Reverse,
    collections::{HashMap, VecDeque},
};

use crate::align::who::Who;

/// Owners with a column of their own.
pub const OWNERS: usize = 32;

/// The column of what is always there, whoever runs: devices, refresh, other sockets.
pub const BASELINE: usize = 0;

/// The column of all owners without one of their own.
pub const REST: usize = 1;

/// Columns in all.
pub const WIDTH: usize = OWNERS + 2;

/// Units in a tick: 0.25 us of a tick of 1 ms. With them the sums of products stay below 2^53, the
/// whole numbers that a double holds, for 4096 ticks of a socket of 256 CPUs.
pub const UNITS: u32 = 4096;

/// Length of the span, ns.
const SPAN_NS: u64 = 2_000_000_000;

/// Fewest and most ticks of a span, where a tick is very long or very short.
const SPAN_TICKS: (u64, u64) = (512, 4096);

/// How often rates are computed anew, ns.
const REFRESH_NS: u64 = 100_000_000;

/// An owner gets a column of its own from this many ticks' worth of CPU time in the span.
const LEAST_TICKS: u64 = 2;

/// One tick: owners by their index, and their units of time.
type Tick = Box<[(u32, u32)]>;

#[derive(Debug)]
struct Owner {
    who: Who,
    column: usize,
    /// Ticks of the span in which it ran.
    ticks: u32,
    units: u64,
}

/// The ticks of the span.
#[derive(Debug)]
pub struct Design {
    tick_ns: u64,
    span: usize,
    ticks: VecDeque<Tick>,
    /// The tick that the last one pushed out.
    left: Option<Tick>,
    index_of: HashMap<Who, u32>,
    owners: Vec<Owner>,
    gram: Vec<f64>,
    generation: u64,
    fits: u64,
    since_fit: u64,
}

/// A tick as one row of the regression: units by column.
#[derive(Debug)]
pub struct Row {
    /// Units of each column.
    pub units: [f64; WIDTH],
    /// The columns that are not 0.
    pub columns: Vec<usize>,
}

impl Design {
    /// An empty span of ticks of this length.
    pub fn new(tick_ns: u64) -> Self {
        let (fewest, most) = SPAN_TICKS;
        Self {
            tick_ns,
            span: (SPAN_NS / tick_ns).clamp(fewest, most) as usize,
            ticks: VecDeque::new(),
            left: None,
            index_of: HashMap::new(),
            owners: Vec::new(),
            gram: vec![0.0; WIDTH * WIDTH],
            generation: 0,
            fits: 0,
            since_fit: 0,
        }
    }

    /// Ticks in the span.
    pub fn len(&self) -> usize {
        self.ticks.len()
    }

    /// Whether there is none yet.
    pub fn is_empty(&self) -> bool {
        self.ticks.is_empty()
    }

    /// Length of a tick, ns.
    pub const fn tick_ns(&self) -> u64 {
        self.tick_ns
    }

    /// Changes with the meaning of the columns.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Changes when rates are due.
    pub const fn fits(&self) -> u64 {
        self.fits
    }

    /// Units of a length of time.
    pub fn units(&self, ns: u64) -> f64 {
        ns as f64 * f64::from(UNITS) / self.tick_ns as f64
    }

    /// Sums of products of columns, row by row.
    pub fn gram(&self) -> &[f64] {
        &self.gram
    }

    /// Adds a tick: nanoseconds by owner, each owner at most once. Idle time explains nothing.
    pub fn push(&mut self, times: &[(Who, u64)]) {
        let mut tick = Vec::with_capacity(times.len());
        for &(who, ns) in times.iter().filter(|(who, _)| *who != Who::Idle) {
            let units = self.units(ns).round() as u32;
            if units == 0 {
                continue;
            }
            let next = self.owners.len() as u32;
            let index = *self.index_of.entry(who).or_insert(next);
            if index == next {
                self.owners.push(Owner { who, column: REST, ticks: 0, units: 0 });
            }
            if let Some(owner) = self.owners.get_mut(index as usize) {
                owner.ticks += 1;
                owner.units += u64::from(units);
            }
            tick.push((index, units));
        }
        let tick = tick.into_boxed_slice();
        self.add(&tick, 1.0);
        self.ticks.push_back(tick);
        self.left = (self.ticks.len() > self.span).then(|| self.ticks.pop_front()).flatten();
        if let Some(left) = self.left.take() {
            self.add(&left, -1.0);
            for &(index, units) in &left {
                if let Some(owner) = self.owners.get_mut(index as usize) {
                    owner.ticks -= 1;
                    owner.units -= u64::from(units);
                }
            }
            self.left = Some(left);
        }
        self.since_fit += 1;
    }

    /// Ends a window: says that rates are due, and gives the columns to those who ran most.
    pub fn refresh(&mut self) {
        if self.since_fit * self.tick_ns < REFRESH_NS {
            return;
        }
        self.since_fit = 0;
        self.fits += 1;
        let least = LEAST_TICKS * u64::from(UNITS);
        let mut ranked: Vec<usize> =
            (0..self.owners.len()).filter(|&at| self.owners[at].units >= least).collect();
        // One that has a column keeps it until another ran twice as long: sums are made anew then.
        let rank = |owner: &Owner| owner.units << u32::from(owner.column != REST);
        ranked.sort_unstable_by_key(|&at| (Reverse(rank(&self.owners[at])), self.owners[at].who));
        ranked.truncate(OWNERS);
        let own = self.owners.iter().filter(|owner| owner.column != REST).count();
        let same = ranked.iter().all(|&at| self.owners[at].column != REST);
        if !same || own != ranked.len() {
            self.remap(&ranked);
        }
    }

    /// Gives columns to these owners, in their order, and forgets those who are gone.
    fn remap(&mut self, chosen: &[usize]) {
        for owner in &mut self.owners {
            owner.column = REST;
        }
        for (place, &at) in chosen.iter().enumerate() {
            self.owners[at].column = REST + 1 + place;
        }
        let mut index = vec![0; self.owners.len()];
        let mut kept = 0;
        for (at, owner) in self.owners.iter().enumerate() {
            index[at] = kept;
            kept += u32::from(owner.ticks > 0);
        }
        self.owners.retain(|owner| owner.ticks > 0);
        for entry in self.ticks.iter_mut().flat_map(|tick| tick.iter_mut()) {
            entry.0 = index[entry.0 as usize];
        }
        self.left = None;
        let owners = self.owners.iter().enumerate();
        self.index_of = owners.map(|(at, owner)| (owner.who, at as u32)).collect();
        self.gram.fill(0.0);
        let ticks = std::mem::take(&mut self.ticks);
        for tick in &ticks {
            self.add(tick, 1.0);
        }
        self.ticks = ticks;
        self.generation += 1;
    }

    /// The column of an owner.
    pub fn column(&self, who: Who) -> usize {
        let owner = self.index_of.get(&who).and_then(|&index| self.owners.get(index as usize));
        owner.map_or(REST, |owner| owner.column)
    }

    /// The tick `back` before the last one.
    pub fn row(&self, back: usize) -> Option<Row> {
        let at = self.ticks.len().checked_sub(back + 1)?;
        self.ticks.get(at).map(|tick| self.row_of(tick))
    }

    /// The tick that the last one pushed out.
    pub fn left(&self) -> Option<Row> {
        self.left.as_ref().map(|tick| self.row_of(tick))
    }

    fn row_of(&self, tick: &Tick) -> Row {
        let mut row = Row { units: [0.0; WIDTH], columns: Vec::with_capacity(tick.len() + 1) };
        row.units[BASELINE] = f64::from(UNITS);
        row.columns.push(BASELINE);
        for &(index, units) in tick {
            let column = self.owners.get(index as usize).map_or(REST, |owner| owner.column);
            if row.units[column] == 0.0 {
                row.columns.push(column);
            }
            row.units[column] += f64::from(units);
        }
        row
    }

    fn add(&mut self, tick: &Tick, sign: f64) {
        let row = self.row_of(tick);
        for &a in &row.columns {
            for &b in &row.columns {
                self.gram[a * WIDTH + b] += sign * row.units[a] * row.units[b];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_span_alone() {
        let tick = |at: u64| -> Vec<(Who, u64)> {
            vec![
                (Who::Irq((at % 40) as u32), 1 + at * 7919 % 900_000),
                (Who::Softirq((at % 7) as u32), 1 + at * 104_729 % 700_000),
                (Who::Idle, 5),
            ]
        };
        let mut design = Design::new(1_000_000);
        for at in 0..7000 {
            design.push(&tick(at));
            if at % 10 == 9 {
                design.refresh();
            }
        }
        assert_eq!(design.len(), 2000);
        let before = design.gram.clone();
        let chosen: Vec<usize> =
            (0..design.owners.len()).filter(|&at| design.owners[at].column != REST).collect();
        assert_eq!(chosen.len(), OWNERS);
        let mut columns: Vec<_> = chosen.iter().map(|&at| (design.owners[at].column, at)).collect();
        columns.sort_unstable();
        let order: Vec<usize> = columns.into_iter().map(|(_, at)| at).collect();
        design.remap(&order);
        assert_eq!(before, design.gram);
        assert!(design.owners.len() <= 47, "{}", design.owners.len());
    }
}
