//! Counts by cgroup, summed from batches of `fabric`.
//!
//! As in perf, a named cgroup includes those below it; a task in two named cgroups, one below the
//! other, counts in both. Counts in no named cgroup have parts of their own: `(other)` for other
//! tasks, `(idle)`, `(irq)` (interrupts and softirqs), `(device)` and `(unattributed)` for those
//! owners of `fabric`. Guarantee: if no named cgroup is below another, the parts of a counter sum
//! to its total, because every row is in exactly one part.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use arrow::array::RecordBatch;

use super::sums::{Confidence, CountedTime, Window};
use crate::schema::cgroups::is_within;
use crate::schema::columns::{
    f32_column, f64_column, i32_column, i64_column, nullable_value, word_column,
};
use crate::schema::owner;

/// Names of the parts outside the named cgroups, by `owner`.
const OUTSIDE_PARTS: [(&str, &str); 7] = [
    (owner::TASK, OTHER),
    (owner::OTHER_TASKS, OTHER),
    (owner::IDLE, "(idle)"),
    (owner::IRQ, "(irq)"),
    (owner::SOFTIRQ, "(irq)"),
    (owner::DEVICE, "(device)"),
    (owner::UNATTRIBUTED, "(unattributed)"),
];

/// The whole of a counter.
pub const ALL: &str = "(all)";

/// Tasks in no named cgroup.
pub const OTHER: &str = "(other)";

/// Names of the parts outside the named cgroups, without duplicates.
pub fn outside_part_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = OUTSIDE_PARTS.iter().map(|(_, name)| *name).collect();
    names.dedup();
    names
}

/// One part of one or more counters.
#[derive(Clone, Debug, Default)]
pub struct CgroupPart {
    /// In the unit of the counter.
    pub value: f64,
    /// The methods of its shares.
    pub methods: BTreeSet<String>,
    /// The confidence of its shares.
    pub confidence: Confidence,
}

impl CgroupPart {
    /// Adds another part.
    pub fn add_part(&mut self, added_part: &Self) {
        self.value += added_part.value;
        self.methods.extend(added_part.methods.iter().cloned());
        self.confidence.add_sum(&added_part.confidence);
    }
}

/// Sums of one counter.
#[derive(Clone, Debug, Default)]
pub struct CounterSums {
    /// By name of the part.
    cells: HashMap<String, CgroupPart>,
    total: CgroupPart,
    /// Whether any window has a count.
    pub counted: bool,
    time: CountedTime,
    /// Time that the counter ran, ns.
    pub running_ns: f64,
}

impl CounterSums {
    /// The value of one part, scaled up for windows in which the counter never ran, as counts are
    /// scaled to the time enabled. Within a window, `fabric` is already scaled.
    pub fn part_sum(&self, part_name: &str) -> CgroupPart {
        let cell = if part_name == ALL { Some(&self.total) } else { self.cells.get(part_name) };
        let cell = cell.cloned().unwrap_or_default();
        let factor = self.scale_factor();
        CgroupPart {
            value: cell.value * factor,
            confidence: cell.confidence.scaled_by(factor),
            ..cell
        }
    }

    /// Length of all windows, ns.
    pub fn enabled_ns(&self) -> f64 {
        self.time.whole.all_ns
    }

    fn scale_factor(&self) -> f64 {
        self.time.whole.known_fraction().filter(|fraction| *fraction > 0.0).map_or(1.0, f64::recip)
    }

    /// The total of all parts.
    pub fn total_value(&self) -> f64 {
        self.total.value * self.scale_factor()
    }
}

/// Sums rows by counter and part.
#[derive(Debug)]
pub struct ByCgroup<'a> {
    /// The named cgroups.
    pub named: &'a [String],
    /// By counter.
    sums: Vec<CounterSums>,
}

impl<'a> ByCgroup<'a> {
    /// No rows yet, for this number of counters and the cgroups `named`.
    pub fn new(named: &'a [String], counters: usize) -> Self {
        Self { named, sums: vec![CounterSums::default(); counters] }
    }

    /// Whether a named cgroup is below another: its counts are then in two parts.
    pub fn has_overlap(&self) -> bool {
        let is_twice = |name: &String| {
            self.named.iter().filter(|ancestor| is_within(name, ancestor)).count() > 1
        };
        self.named.iter().any(is_twice)
    }

    /// The sums of a counter.
    pub fn counter_sums(&self, counter: u32) -> Option<&CounterSums> {
        self.sums.get(counter as usize)
    }

    /// Forgets all rows.
    pub fn clear_rows(&mut self) {
        self.sums.fill(CounterSums::default());
    }

    /// Adds a range of rows of a batch.
    ///
    /// # Errors
    ///
    /// A column is missing or has another type.
    pub fn add_rows(&mut self, batch: &RecordBatch, rows: std::ops::Range<usize>) -> Result<()> {
        let (end, length) = (i64_column(batch, "mono_ns")?, i64_column(batch, "window_ns")?);
        let (counter, running) = (i32_column(batch, "counter")?, f32_column(batch, "running")?);
        let (owner, cgroup) = (word_column(batch, "owner")?, word_column(batch, "cgroup")?);
        let (value, method) = (f64_column(batch, "value")?, word_column(batch, "method")?);
        let confidence = f32_column(batch, "confidence")?;
        for row in rows {
            let id = counter.value(row);
            let Some(sums) = usize::try_from(id).ok().and_then(|id| self.sums.get_mut(id)) else {
                continue;
            };
            let length_ns = length.value(row);
            let value = nullable_value(value, row);
            let window = Window::of_value(end.value(row), length_ns, value.is_some());
            if sums.time.add_window(id, window, &()) {
                sums.running_ns += window.length_ns() as f64 * f64::from(running.value(row));
            }
            let Some(value) = value else { continue };
            sums.counted = true;
            if value == 0.0 {
                continue;
            }
            let methods = method.get(row).map(str::to_owned).into_iter().collect();
            let mut cell = CgroupPart { value, methods, confidence: Confidence::default() };
            cell.confidence.add_row(value, nullable_value(confidence, row));
            sums.total.add_part(&cell);
            for part_name in
                parts_of_row(self.named, owner.get(row).unwrap_or_default(), cgroup.get(row))
            {
                sums.cells.entry(part_name.to_owned()).or_default().add_part(&cell);
            }
        }
        Ok(())
    }
}

/// The parts to which a row of `fabric` belongs.
fn parts_of_row<'a>(named: &'a [String], owner: &str, cgroup: Option<&str>) -> Vec<&'a str> {
    let cgroup = cgroup.filter(|_| owner == owner::TASK);
    let is_in = |name: &&String| cgroup.is_some_and(|cgroup| is_within(cgroup, name));
    let parts: Vec<&str> = named.iter().filter(is_in).map(String::as_str).collect();
    if !parts.is_empty() {
        return parts;
    }
    let outside_part = OUTSIDE_PARTS.iter().find(|(known, _)| *known == owner);
    vec![outside_part.map_or("(unattributed)", |(_, name)| name)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_all_and_a_cgroup_what_is_below_it() {
        let named = ["/".to_owned(), "/a".to_owned()];
        assert_eq!(parts_of_row(&named, "task", Some("/a/b")), ["/", "/a"]);
        assert_eq!(parts_of_row(&named, "task", Some("/ab")), ["/"]);
        assert_eq!(parts_of_row(&named, "task", Some("/")), ["/"]);
        assert_eq!(parts_of_row(&named, "idle", None), ["(idle)"]);
        assert_eq!(parts_of_row(&named, "nonsense", None), ["(unattributed)"]);
        assert!(ByCgroup::new(&named, 0).has_overlap());
        assert!(!ByCgroup::new(&["/a".to_owned(), "/ab".to_owned()], 0).has_overlap());
    }
}
