//! Counts by cgroup, summed from batches of `fabric`.
//!
//! A task belongs to the deepest of the named cgroups it is in. What is in none of them has parts
//! of its own: `(other)` is tasks elsewhere, `(idle)`, `(irq)` (interrupts and softirqs),
//! `(device)` and `(unattributed)` what `fabric` gives to those owners. Guarantee: the parts of a
//! counter add up to its whole, because every row is in exactly one part.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use arrow::array::{Array as _, RecordBatch};

use crate::schema::columns::{f32s, f64s, get, i32s, i64s, words};
use crate::schema::owner;

/// The parts of what is in no named cgroup, by `owner`.
const REST: [(&str, &str); 7] = [
    (owner::TASK, OTHER),
    (owner::OTHER_TASKS, OTHER),
    (owner::IDLE, "(idle)"),
    (owner::IRQ, "(irq)"),
    (owner::SOFTIRQ, "(irq)"),
    (owner::DEVICE, "(device)"),
    (owner::UNATTRIBUTED, "(unattributed)"),
];

/// The part of tasks in no named cgroup.
pub const OTHER: &str = "(other)";

/// The names of the parts of what is in no named cgroup, each once.
pub fn rest() -> Vec<&'static str> {
    let mut rest: Vec<&str> = REST.iter().map(|(_, name)| *name).collect();
    rest.dedup();
    rest
}

/// One part of one or more counters.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// In the unit of the counter.
    pub value: f64,
    /// How it was divided.
    pub methods: BTreeSet<String>,
    /// The least of any part; `None` where nothing is claimed.
    pub confidence: Option<f32>,
}

impl Cell {
    /// Adds another part.
    pub fn add(&mut self, other: &Self) {
        self.value += other.value;
        self.methods.extend(other.methods.iter().cloned());
        self.confidence = match (self.confidence, other.confidence) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

/// One counter.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// By part.
    cells: HashMap<String, Cell>,
    /// Whether any window has a count.
    pub counted: bool,
    /// Length of the windows that have a value.
    counted_ns: f64,
    /// Time that the counter ran, ns.
    pub running_ns: f64,
    /// Length of all windows, ns.
    pub enabled_ns: f64,
}

impl Sums {
    /// One part, scaled up to the windows in which the counter never ran, as a count is to the time enabled;
    /// within a window the timeline has scaled it.
    pub fn cell(&self, part: &str) -> Cell {
        let cell = self.cells.get(part).cloned().unwrap_or_default();
        Cell { value: cell.value * self.factor(), ..cell }
    }

    fn factor(&self) -> f64 {
        if self.counted_ns > 0.0 { self.enabled_ns / self.counted_ns } else { 1.0 }
    }

    /// All parts together.
    pub fn whole(&self) -> f64 {
        self.cells.values().map(|cell| cell.value).sum::<f64>() * self.factor()
    }
}

/// Adds up rows.
#[derive(Debug)]
pub struct ByCgroup<'a> {
    named: &'a [String],
    /// End of the window of each counter that was last added to the times.
    seen: Vec<Option<i64>>,
    /// By counter.
    sums: Vec<Sums>,
}

impl<'a> ByCgroup<'a> {
    /// Nothing yet, of so many counters and the cgroups `named`.
    pub fn new(named: &'a [String], counters: usize) -> Self {
        Self { named, seen: vec![None; counters], sums: vec![Sums::default(); counters] }
    }

    /// The named cgroups.
    pub const fn named(&self) -> &'a [String] {
        self.named
    }

    /// What was added of a counter.
    pub fn of(&self, counter: u32) -> Option<&Sums> {
        self.sums.get(counter as usize)
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        self.sums.fill(Sums::default());
    }

    /// Adds these rows of a batch.
    ///
    /// # Errors
    ///
    /// A column is missing or of another type.
    pub fn add(&mut self, batch: &RecordBatch, rows: std::ops::Range<usize>) -> Result<()> {
        let (end, length) = (i64s(batch, "mono_ns")?, i64s(batch, "window_ns")?);
        let (counter, running) = (i32s(batch, "counter")?, f32s(batch, "running")?);
        let (owner, cgroup) = (words(batch, "owner")?, words(batch, "cgroup")?);
        let (value, method) = (f64s(batch, "value")?, words(batch, "method")?);
        let confidence = f32s(batch, "confidence")?;
        for row in rows {
            let id = counter.value(row) as usize;
            let Some((sums, seen)) = self.sums.get_mut(id).zip(self.seen.get_mut(id)) else {
                continue;
            };
            if seen.replace(end.value(row)) != Some(end.value(row)) {
                let length = length.value(row) as f64;
                sums.enabled_ns += length;
                sums.running_ns += length * f64::from(running.value(row));
                if value.is_valid(row) {
                    sums.counted_ns += length;
                }
            }
            let Some(value) = get(value, row) else { continue };
            sums.counted = true;
            let part = part(self.named, owner.get(row).unwrap_or_default(), cgroup.get(row));
            let cell = sums.cells.entry(part.to_owned()).or_default();
            if value != 0.0 {
                let methods = method.get(row).map(str::to_owned).into_iter().collect();
                cell.add(&Cell { value, methods, confidence: get(confidence, row) });
            }
        }
        Ok(())
    }
}

/// The part that a row of the timeline belongs to.
fn part<'a>(named: &'a [String], owner: &str, cgroup: Option<&str>) -> &'a str {
    let rest = REST.iter().find(|(known, _)| *known == owner).map_or("(unattributed)", |r| r.1);
    let Some(cgroup) = cgroup.filter(|_| owner == owner::TASK) else {
        return rest;
    };
    let holds = |name: &&String| {
        let below = cgroup.strip_prefix(name.trim_end_matches('/'));
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    };
    named.iter().filter(holds).max_by_key(|name| name.len()).map_or(rest, String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_what_no_other_does() {
        let named = ["/".to_owned(), "/a".to_owned()];
        assert_eq!(part(&named, "task", Some("/a/b")), "/a");
        assert_eq!(part(&named, "task", Some("/ab")), "/");
        assert_eq!(part(&named, "task", Some("/")), "/");
        assert_eq!(part(&named, "idle", None), "(idle)");
        assert_eq!(part(&named, "nonsense", None), "(unattributed)");
    }
}
