//! The length of windows where `-I` does not set it: the shortest in which the limit of rows leaves
//! some rows for each count.

use super::render::format_duration;
use super::{Counter, Plan};
use crate::schema::row_limit::RowLimit;

/// The lengths, ms. The shortest is that of all but large machines.
const LENGTHS_MS: [u64; 7] = [10, 20, 50, 100, 200, 500, 1000];

/// Rows for a count of many CPUs: its largest owners, and those that are no task.
const ROWS_PER_COUNTER: usize = 10;

/// Rows for a count of one CPU, on which few tasks run in a window.
const ROWS_PER_CPU_COUNTER: usize = 4;

/// The shortest length, ns.
pub const SHORTEST_WINDOW_NS: u64 = LENGTHS_MS[0] * 1_000_000;

impl Plan {
    /// Chooses the length of windows for this limit of rows. Returns a note if they are longer.
    pub fn choose_window(&mut self, limit: RowLimit) -> Option<String> {
        let wanted_rows = self.wanted_rows();
        let has_room = |window_ns: &u64| {
            limit.window_rows(*window_ns).is_none_or(|max_rows| max_rows >= wanted_rows)
        };
        let lengths_ns = LENGTHS_MS.map(|length_ms| length_ms * 1_000_000);
        let mut lengths_ns =
            lengths_ns.into_iter().filter(|length_ns| length_ns.is_multiple_of(self.tick_ns));
        let longest_ns = lengths_ns.clone().next_back();
        let window_ns = lengths_ns.find(has_room).or(longest_ns)?;
        if window_ns <= self.window_ns {
            return None;
        }
        self.window_ns = window_ns;
        Some(format!(
            "note: windows are {} long, so that {} counters have at most {limit} rows a second; -I \
             sets the length, --rows the limit",
            format_duration(self.window_ns),
            self.divided_counters().count()
        ))
    }

    /// A note if this limit leaves too few rows for each count of a window.
    pub fn few_rows_note(&self, limit: RowLimit) -> Option<String> {
        let max_rows = limit.window_rows(self.window_ns)?;
        (max_rows < self.wanted_rows()).then(|| {
            format!(
                "note: --rows leaves {max_rows} rows of a window of {} for {} counters, so small \
                 owners share rows; a longer -I or --rows all keeps more",
                format_duration(self.window_ns),
                self.divided_counters().count()
            )
        })
    }

    fn divided_counters(&self) -> impl Iterator<Item = &Counter> {
        self.counters.iter().filter(|counter| counter.role.is_divided())
    }

    /// The rows that the counts of a window need.
    fn wanted_rows(&self) -> usize {
        self.divided_counters()
            .map(|counter| if counter.per_cpu { ROWS_PER_CPU_COUNTER } else { ROWS_PER_COUNTER })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_of(counters: usize, per_cpu: bool, tick_ns: u64) -> Plan {
        let counter = serde_json::json!({
            "id": 0, "pmu": "fabric", "family": "fabric", "subsystem": "mem", "event": "read",
            "filter": "", "unit": "bytes", "scale": 1.0, "attr_type": 1,
            "config": [0, 0, 0, 0, 0], "cpu": 0, "socket": 0, "sees": "0", "far": "",
            "per_cpu": per_cpu, "at_switch": false, "leader": null,
        });
        let counter: Counter = serde_json::from_value(counter).unwrap();
        Plan {
            tick_ns,
            window_ns: SHORTEST_WINDOW_NS,
            counters: vec![counter; counters],
            ..Plan::default()
        }
    }

    fn chosen_ms(counters: usize, per_cpu: bool, tick_ns: u64, limit: RowLimit) -> (u64, usize) {
        let mut plan = plan_of(counters, per_cpu, tick_ns);
        let note = plan.choose_window(limit);
        (plan.window_ns / 1_000_000, usize::from(note.is_some()))
    }

    #[test]
    fn windows_are_longer_where_there_are_more_counters() {
        let chosen = |counters| chosen_ms(counters, false, 1_000_000, RowLimit::DEFAULT);
        assert_eq!(
            [14, 20, 40, 100, 200].map(chosen),
            [(10, 0), (10, 0), (20, 1), (50, 1), (100, 1)]
        );
        // The kernel's counters of 2, 64 and 352 CPUs, four for each.
        let of_cpus = |counters| chosen_ms(counters, true, 1_000_000, RowLimit::DEFAULT).0;
        assert_eq!([8, 256, 1408].map(of_cpus), [10, 100, 500]);
        assert_eq!(chosen_ms(200, false, 1_000_000, RowLimit::All), (10, 0));
        assert_eq!(chosen_ms(200, false, 1_000_000, RowLimit::PerSecond(1)), (1000, 1));
        // Only whole ticks.
        assert_eq!(chosen_ms(40, false, 10_000_000, RowLimit::DEFAULT), (20, 1));
        assert_eq!(chosen_ms(40, false, 25_000_000, RowLimit::DEFAULT), (50, 1));
    }

    #[test]
    fn a_note_says_where_windows_are_too_short_for_the_limit() {
        let mut plan = plan_of(8, false, 1_000_000);
        assert_eq!(plan.few_rows_note(RowLimit::DEFAULT), None);
        plan.window_ns = 1_000_000;
        let note = plan.few_rows_note(RowLimit::DEFAULT).unwrap();
        assert!(note.contains("leaves 20 rows of a window of 1ms for 8 counters"), "{note}");
        assert_eq!(plan.few_rows_note(RowLimit::All), None);
    }
}
