//! One window of a roll-up while it is summed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::sums::{CountedTime, ShareSum, Window};
use super::{MOST_LINES, RollupOwner};
use crate::clock::RollupTime;
use crate::schema::owner::{OTHER_TASKS, TASK};

/// Bits of the mantissa of an interval's ends. They are rounded outwards to 0.1 %, so that they
/// take 2 bytes in a file instead of 8.
const INTERVAL_BITS: u32 = 10;

/// Total and times of the counters of one thing in a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CounterTotals {
    /// Sum of the totals, in the unit of the counter.
    pub total: f64,
    time: CountedTime,
    /// Sum of `running` x length of a window, and sum of these lengths, ns.
    running: (f64, f64),
}

impl CounterTotals {
    /// Known time, ns ([`super::super::sums::CountedTime`]).
    pub(super) fn known_ns(&self) -> i64 {
        self.time.whole.known_ns().round() as i64
    }

    /// Mean of `running`, weighted by the length of the windows.
    pub(super) fn mean_running(&self) -> f32 {
        let (weighted_running, total_ns) = self.running;
        if total_ns > 0.0 { (weighted_running / total_ns) as f32 } else { 0.0 }
    }
}

/// The values of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RowValues {
    pub value: f64,
    pub low: f64,
    pub high: f64,
    pub confidence: Option<f32>,
}

/// The shares of one counter by owner and method.
#[derive(Debug)]
pub(super) struct OwnerSum {
    pub counter_index: usize,
    pub owner: RollupOwner,
    pub method: String,
    pub sum: ShareSum,
}

impl OwnerSum {
    /// The values of the line's row; `None` if its counters had no value in the whole window.
    pub(super) fn row_values(&self, totals: &CounterTotals) -> Option<RowValues> {
        if totals.known_ns() == 0 {
            return None;
        }
        let (value, total) = (self.sum.value, totals.total);
        let interval = self.sum.sum_interval(total);
        Some(RowValues {
            value,
            low: coarse_down(interval.low).min(value),
            high: coarse_up(interval.high).min(total).max(value),
            confidence: self
                .sum
                .confidence
                .mean_confidence()
                .map(|mean| ((mean * 100.0).round() / 100.0) as f32),
        })
    }
}

/// The bits of a double that are cleared in an interval's ends.
const COARSE: u64 = (1 << (f64::MANTISSA_DIGITS - 1 - INTERVAL_BITS)) - 1;

fn coarse_down(value: f64) -> f64 {
    f64::from_bits(value.max(0.0).to_bits() & !COARSE)
}

fn coarse_up(value: f64) -> f64 {
    f64::from_bits(value.max(0.0).to_bits().saturating_add(COARSE) & !COARSE)
}

/// An open window of the roll-up: its lines, and the totals of its counters.
#[derive(Debug, Default)]
pub(super) struct OpenWindow {
    /// Begin of the window, ns.
    pub(super) begin_ns: i64,
    /// The end of the newest row when it was first found to be over, ns.
    over_since: Option<i64>,
    pub(super) lines: Vec<OwnerSum>,
    index: HashMap<(usize, RollupOwner, String), usize>,
    totals: HashMap<usize, CounterTotals>,
    /// The end of the newest window of `fabric`.
    newest_end: Option<RollupTime>,
}

impl OpenWindow {
    /// A window that begins at `begin_ns`, without lines.
    pub(super) fn new(begin_ns: i64) -> Self {
        Self { begin_ns, ..Self::default() }
    }

    /// Notes that the window is over at `newest_ns`. Returns when it was first over.
    pub(super) fn note_over(&mut self, newest_ns: i64) -> i64 {
        *self.over_since.get_or_insert(newest_ns)
    }

    /// Notes the end of a window of `fabric`.
    pub(super) fn note_end(&mut self, end: RollupTime) {
        if self.newest_end.is_none_or(|newest| newest.mono_ns < end.mono_ns) {
            self.newest_end = Some(end);
        }
    }

    /// The wall clock at `end_ns`, us.
    pub(super) fn ts_us(&self, end_ns: i64) -> i64 {
        self.newest_end.map_or(0, |newest| newest.ts_us + (end_ns - newest.mono_ns) / 1000)
    }

    /// Adds the total of a counter in a part of the window, of which some time is known.
    pub(super) fn add_total(
        &mut self,
        counter_index: usize,
        counter: i32,
        window: Window,
        total: Option<f64>,
        running: f32,
    ) {
        let totals = self.totals.entry(counter_index).or_default();
        totals.total += total.unwrap_or(0.0);
        // Its windows are written already.
        if window.end_ns <= window.begin_ns {
            return;
        }
        let length_ns = window.length_ns();
        totals.time.add_window(counter, window, &());
        totals.running.0 += f64::from(running) * length_ns as f64;
        totals.running.1 += length_ns as f64;
    }

    /// Index of an owner's line, and whether it is the sum of owners for which there is no room.
    /// `open_lines` counts the lines of all open windows.
    pub(super) fn find_or_add_line(
        &mut self,
        counter_index: usize,
        owner: RollupOwner,
        method: &str,
        open_lines: &mut usize,
    ) -> (usize, bool) {
        let key = (counter_index, owner, method.to_owned());
        if let Some(line) = self.index.get(&key) {
            return (*line, false);
        }
        let (max_lines, max_lines_of_window) = MOST_LINES;
        let is_full = *open_lines >= max_lines || self.lines.len() >= max_lines_of_window;
        let is_full = is_full && key.1.owner_kind == TASK;
        let key =
            if is_full { (counter_index, RollupOwner::with_kind(OTHER_TASKS), key.2) } else { key };
        let window_lines = &mut self.lines;
        let line = *self.index.entry(key).or_insert_with_key(|(new_index, owner, method)| {
            let (owner, method, sum) = (owner.clone(), method.clone(), ShareSum::default());
            window_lines.push(OwnerSum { counter_index: *new_index, owner, method, sum });
            *open_lines += 1;
            window_lines.len() - 1
        });
        (line, is_full)
    }

    /// The lines of the window, with at most `owners` cgroups of each counter: the largest, and
    /// also `canary`. The others are summed in one line for each method. Also returns the totals of
    /// the counters.
    pub(super) fn into_lines(
        self,
        owners: usize,
        canary: Option<&str>,
    ) -> (Vec<OwnerSum>, HashMap<usize, CounterTotals>) {
        let Self { mut lines, totals: counter_totals, .. } = self;
        // By counter, tasks first, the largest first.
        lines.sort_by(|a, b| {
            let rank = |line: &OwnerSum| (line.counter_index, line.owner.owner_kind != TASK);
            let by_value = b.sum.value.total_cmp(&a.sum.value);
            rank(a).cmp(&rank(b)).then(by_value).then_with(|| a.owner.cmp(&b.owner))
        });
        let mut kept: Vec<OwnerSum> = Vec::with_capacity(lines.len());
        let mut other_tasks: BTreeMap<(usize, String), OwnerSum> = BTreeMap::new();
        let mut seen: (usize, HashSet<RollupOwner>) = (usize::MAX, HashSet::new());
        for mut line in lines {
            if seen.0 != line.counter_index {
                seen = (line.counter_index, HashSet::new());
            }
            let is_task = line.owner.owner_kind == TASK;
            if is_task && !seen.1.contains(&line.owner) {
                let is_canary = canary.is_some() && line.owner.cgroup.as_deref() == canary;
                if seen.1.len() < owners || is_canary {
                    seen.1.insert(line.owner.clone());
                } else {
                    line.owner = RollupOwner::with_kind(OTHER_TASKS);
                }
            }
            if line.owner.owner_kind != OTHER_TASKS {
                kept.push(line);
                continue;
            }
            match other_tasks.entry((line.counter_index, line.method.clone())) {
                Entry::Occupied(mut entry) => entry.get_mut().sum.add_other_owner(&line.sum),
                Entry::Vacant(entry) => drop(entry.insert(line)),
            }
        }
        kept.extend(other_tasks.into_values());
        (kept, counter_totals)
    }
}
