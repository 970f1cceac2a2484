//! One window of a roll-up while it is summed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::interval::{Claim, Width};
use super::{MOST_LINES, Owner};
use crate::schema::owner::{OTHER_TASKS, TASK};

/// Digits of an end of an interval: it is rounded outwards to so many bits, which is 0.1 %, so that it
/// takes 2 bytes in a file and not 8.
const INTERVAL_BITS: u32 = 10;

/// What a counter counted in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Counted {
    /// Sum of its totals.
    pub total: f64,
    /// Time of the windows that had one, ns.
    pub known_ns: i64,
    /// Sum of `running`, by time of all windows, ns.
    ran: f64,
    /// Time of all windows, ns.
    all_ns: i64,
}

impl Counted {
    /// Mean of `running`.
    pub(super) fn running(&self) -> f32 {
        if self.all_ns > 0 { (self.ran / self.all_ns as f64) as f32 } else { 0.0 }
    }
}

/// What a line shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shown {
    pub value: f64,
    pub low: f64,
    pub high: f64,
    pub confidence: Option<f32>,
}

/// The shares of one counter that one owner has by one method.
#[derive(Debug)]
pub(super) struct Line {
    pub counter: i32,
    pub owner: Owner,
    pub method: String,
    /// What the counter counted; set when the window is closed.
    pub counted: Counted,
    value: f64,
    /// Sum of confidences by value, and of the values that have one.
    sure: (f64, f64),
    /// Sum of confidences, and how many there are: their mean where all values are 0.
    plain: (f64, u32),
    width: Width,
}

impl Line {
    fn new(counter: i32, owner: Owner, method: String) -> Self {
        Self {
            counter,
            owner,
            method,
            counted: Counted::default(),
            value: 0.0,
            sure: (0.0, 0.0),
            plain: (0.0, 0),
            width: Width::default(),
        }
    }

    /// Adds a line of another owner.
    fn join(&mut self, other: &Self) {
        self.value += other.value;
        self.sure = (self.sure.0 + other.sure.0, self.sure.1 + other.sure.1);
        self.plain = (self.plain.0 + other.plain.0, self.plain.1 + other.plain.1);
        self.width.join(&other.width);
    }

    /// What its row says; nothing where the counter had no value in the whole window.
    pub(super) fn shown(&self) -> Option<Shown> {
        if self.counted.known_ns == 0 {
            return None;
        }
        let interval = self.width.interval(self.value, self.counted.total);
        let confidence = if self.sure.1 > 0.0 {
            Some(self.sure.0 / self.sure.1)
        } else {
            (self.plain.1 > 0).then(|| self.plain.0 / f64::from(self.plain.1))
        };
        Some(Shown {
            value: self.value,
            low: coarse_down(interval.low).min(self.value),
            high: coarse_up(interval.high).min(self.counted.total).max(self.value),
            confidence: confidence.map(|it| ((it * 100.0).round() / 100.0) as f32),
        })
    }
}

/// The bits of a double that are left out of an end of an interval.
const COARSE: u64 = (1 << (f64::MANTISSA_DIGITS - 1 - INTERVAL_BITS)) - 1;

fn coarse_down(value: f64) -> f64 {
    f64::from_bits(value.max(0.0).to_bits() & !COARSE)
}

fn coarse_up(value: f64) -> f64 {
    let bits = value.max(0.0).to_bits();
    f64::from_bits(bits.saturating_add(COARSE) & !COARSE)
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Window {
    lines: Vec<Line>,
    index: HashMap<(i32, Owner, String), usize>,
    counted: BTreeMap<i32, Counted>,
    /// Both clocks at the end of the newest window of `fabric`: ns, us.
    label: Option<(i64, i64)>,
}

impl Window {
    /// A window of `fabric` ended at these times.
    pub(super) fn label(&mut self, mono_ns: i64, ts_us: i64) {
        if self.label.is_none_or(|(newest, _)| newest < mono_ns) {
            self.label = Some((mono_ns, ts_us));
        }
    }

    /// The wall clock at `end_ns`, us.
    pub(super) fn ts_us(&self, end_ns: i64) -> i64 {
        self.label.map_or(0, |(mono_ns, ts_us)| ts_us + (end_ns - mono_ns) / 1000)
    }

    /// Adds what a counter counted in a window of `fabric`.
    pub(super) fn count(&mut self, counter: i32, length_ns: i64, total: Option<f64>, running: f32) {
        let counted = self.counted.entry(counter).or_default();
        counted.ran += f64::from(running) * length_ns as f64;
        counted.all_ns += length_ns;
        if let Some(total) = total {
            counted.total += total;
            counted.known_ns += length_ns;
        }
    }

    /// The line of an owner, and whether it is that of all for whom there is no room.
    pub(super) fn line(&mut self, counter: i32, owner: Owner, method: &str) -> (usize, bool) {
        let key = (counter, owner, method.to_owned());
        if let Some(line) = self.index.get(&key) {
            return (*line, false);
        }
        let is_full = self.lines.len() >= MOST_LINES && key.1.kind == TASK;
        let key = if is_full { (counter, Owner::bare(OTHER_TASKS), key.2) } else { key };
        let lines = &mut self.lines;
        let line = *self.index.entry(key).or_insert_with_key(|(counter, owner, method)| {
            lines.push(Line::new(*counter, owner.clone(), method.clone()));
            lines.len() - 1
        });
        (line, is_full)
    }

    /// The number of the cause of errors of this program in a line.
    pub(super) fn cause(&mut self, line: usize, socket: Option<i16>, program: &str) -> usize {
        self.lines.get_mut(line).map_or(0, |line| line.width.cause(socket, program))
    }

    /// Adds a share to a line.
    pub(super) fn add(&mut self, line: usize, cause: usize, claim: Claim) {
        let Some(line) = self.lines.get_mut(line) else { return };
        line.value += claim.value;
        if let Some(confidence) = claim.confidence {
            let (value, confidence) = (claim.value.max(0.0), f64::from(confidence));
            line.sure = (line.sure.0 + confidence * value, line.sure.1 + value);
            line.plain = (line.plain.0 + confidence, line.plain.1 + 1);
        }
        line.width.add(cause, claim);
    }

    /// Its lines, with at most `owners` cgroups of each counter: those with most. The others are one
    /// line of each method.
    pub(super) fn into_lines(self, owners: usize) -> Vec<Line> {
        let Self { mut lines, counted, .. } = self;
        // By counter, tasks first, the largest first.
        lines.sort_by(|a, b| {
            let rank = |line: &Line| (line.counter, line.owner.kind != TASK);
            let by_value = b.value.total_cmp(&a.value);
            rank(a).cmp(&rank(b)).then(by_value).then_with(|| a.owner.cmp(&b.owner))
        });
        let mut kept: Vec<Line> = Vec::with_capacity(lines.len());
        let mut others: BTreeMap<(i32, String), Line> = BTreeMap::new();
        let mut seen: (i32, HashSet<Owner>) = (i32::MIN, HashSet::new());
        for mut line in lines {
            line.counted = counted.get(&line.counter).copied().unwrap_or_default();
            if seen.0 != line.counter {
                seen = (line.counter, HashSet::new());
            }
            let is_task = line.owner.kind == TASK;
            if is_task && !seen.1.contains(&line.owner) {
                if seen.1.len() < owners {
                    seen.1.insert(line.owner.clone());
                } else {
                    line.owner = Owner::bare(OTHER_TASKS);
                }
            }
            if line.owner.kind != OTHER_TASKS {
                kept.push(line);
                continue;
            }
            match others.entry((line.counter, line.method.clone())) {
                Entry::Occupied(mut entry) => entry.get_mut().join(&line),
                Entry::Vacant(entry) => drop(entry.insert(line)),
            }
        }
        kept.extend(others.into_values());
        kept
    }
}
