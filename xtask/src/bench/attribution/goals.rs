//! What the methods are to reach on mixes whose tenants can be told apart, and whether they do.

use super::figures::{Figure, largest, rms};
use super::tables::{View, percent};
use crate::bench::stats::Summary;

/// The method that has cache misses to learn from; the others have CPU time.
const WITNESS: &str = "misses";

/// Something that must not be above a limit, or below one.
struct Goal {
    about: &'static str,
    /// Without cache misses, and with them.
    limits: fn(window: &str) -> Option<[f64; 2]>,
    value: fn(View<'_>, (&str, &str)) -> Option<f64>,
    /// The limit is the least value.
    at_least: bool,
    shown: fn(f64) -> String,
}

/// All, in the order of the table.
const ALL: &[Goal] = &[
    Goal {
        about: "median error, median of mixes, %",
        limits: |window| match window {
            "1ms" => Some([0.02, 0.02]),
            "10ms" => Some([0.015, 0.01]),
            "100ms" => Some([0.01, 0.01]),
            _ => None,
        },
        value: |view, column| Some(of(view, column, |it| Some(it.median))?.median),
        at_least: false,
        shown: percent,
    },
    Goal {
        about: "median error, worst mix, %",
        limits: |_| Some([0.05, 0.03]),
        value: |view, column| Some(of(view, column, |it| Some(it.median))?.max),
        at_least: false,
        shown: percent,
    },
    Goal {
        about: "p95, median of mixes, %",
        limits: |_| Some([0.25, 0.15]),
        value: |view, column| Some(of(view, column, |it| Some(it.p95))?.median),
        at_least: false,
        shown: percent,
    },
    Goal {
        about: "misplaced, median of mixes, %",
        limits: |_| Some([0.03, 0.02]),
        value: |view, column| Some(of(view, column, |it| Some(it.misplaced))?.median),
        at_least: false,
        shown: percent,
    },
    Goal {
        about: "misplaced, worst mix, %",
        limits: |_| Some([0.08, 0.04]),
        value: |view, column| Some(of(view, column, |it| Some(it.misplaced))?.max),
        at_least: false,
        shown: percent,
    },
    Goal {
        about: "worst bill with confidence above 0.5, %",
        limits: |_| Some([0.15, 0.1]),
        value: |view, column| Some(of(view, column, |it| it.bill_worst_relied_on)?.max),
        at_least: false,
        shown: percent,
    },
    Goal {
        about: "times better than residency",
        limits: |_| Some([15.0, 20.0]),
        value: |view, column| view.gain(column),
        at_least: true,
        shown: |times| format!("{times:.1}"),
    },
    Goal {
        about: "confidence, root mean square",
        limits: |_| Some([0.05, 0.05]),
        value: |view, column| rms(&view.bins(column)),
        at_least: false,
        shown: |off| format!("{off:.3}"),
    },
    Goal {
        about: "confidence, largest difference",
        limits: |_| Some([0.1, 0.1]),
        value: |view, column| largest(&view.bins(column)),
        at_least: false,
        shown: |off| format!("{off:.2}"),
    },
    Goal {
        about: "confidence, root mean square of the worst mix (any)",
        limits: |_| Some([0.15, 0.15]),
        value: |view, column| {
            let figures = view.mixes.iter().filter_map(|mix| view.figure(mix.name, column));
            figures.filter_map(|figure| rms(&figure.bins)).max_by(f64::total_cmp)
        },
        at_least: false,
        shown: |off| format!("{off:.2}"),
    },
];

fn of(view: View<'_>, column: (&str, &str), number: fn(&Figure) -> Option<f64>) -> Option<Summary> {
    Summary::of(view.told(column, number))
}

/// Each goal for each method: its limit, and what was reached in each window.
pub(super) fn tables(view: View<'_>, methods: &[&str], windows: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    for method in methods {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.push(format!("| goals, {method}: value (limit) | {} |", windows.join(" | ")));
        lines.push(format!("|---|{}", "---|".repeat(windows.len())));
        lines.extend(ALL.iter().map(|goal| {
            let cells = windows.iter().map(|window| goal.cell(view, (method, window)));
            let cells: Vec<String> = cells.map(Option::unwrap_or_default).collect();
            format!("| {} | {} |", goal.about, cells.join(" | "))
        }));
    }
    lines
}

impl Goal {
    fn cell(&self, view: View<'_>, column: (&str, &str)) -> Option<String> {
        let value = (self.value)(view, column)?;
        let limit = (self.limits)(column.1)?[usize::from(column.0 == WITNESS)];
        let word = if self.is_reached(value, limit) { "reached" } else { "**missed**" };
        Some(format!("{} ({}) {word}", (self.shown)(value), (self.shown)(limit)))
    }

    fn is_reached(&self, value: f64, limit: f64) -> bool {
        if self.at_least { value >= limit } else { value <= limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_reached_and_not_passed() {
        let goal = |about: &str| ALL.iter().find(|goal| goal.about.starts_with(about)).unwrap();
        let least = goal("times better");
        assert!(least.is_reached(15.0, 15.0) && !least.is_reached(14.9, 15.0));
        let most = goal("p95");
        assert!(most.is_reached(0.25, 0.25) && !most.is_reached(0.251, 0.25));
        assert_eq!((goal("median error, median").limits)("10ms"), Some([0.015, 0.01]));
        assert_eq!((goal("median error, median").limits)("3ms"), None);
    }
}
