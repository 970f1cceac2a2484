//! Goals for the methods on the separable mixes, and whether they are reached.

use super::figures::{Figure, largest, rms};
use super::recordings::Arrangement;
use super::tables::{View, percent};
use crate::bench::stats::Summary;

/// A method without witnesses, for comparison.
const WITHOUT: &str = "regression";

/// On which side of its limit a value must be.
#[derive(Clone, Copy)]
enum Side {
    Most,
    Least,
    /// Between the limit and this value.
    UpTo(f64),
}

/// A goal with its limit.
struct Goal {
    about: &'static str,
    /// The limits without and with witnesses.
    limits: fn(window: &str) -> Option<[f64; 2]>,
    value: fn(View<'_>, (&str, &str)) -> Option<f64>,
    side: Side,
    shown: fn(f64) -> String,
}

/// All goals, in the order of the table.
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
        side: Side::Most,
        shown: percent,
    },
    Goal {
        about: "median error, worst mix, %",
        limits: |_| Some([0.05, 0.03]),
        value: |view, column| Some(of(view, column, |it| Some(it.median))?.max),
        side: Side::Most,
        shown: percent,
    },
    Goal {
        about: "p95, median of mixes, %",
        limits: |_| Some([0.25, 0.15]),
        value: |view, column| Some(of(view, column, |it| Some(it.p95))?.median),
        side: Side::Most,
        shown: percent,
    },
    Goal {
        about: "misplaced, median of mixes, %",
        limits: |_| Some([0.03, 0.02]),
        value: |view, column| Some(of(view, column, |it| Some(it.misplaced))?.median),
        side: Side::Most,
        shown: percent,
    },
    Goal {
        about: "misplaced, worst mix, %",
        limits: |_| Some([0.08, 0.04]),
        value: |view, column| Some(of(view, column, |it| Some(it.misplaced))?.max),
        side: Side::Most,
        shown: percent,
    },
    Goal {
        about: "worst bill with confidence above 0.5, %",
        limits: |_| Some([0.15, 0.1]),
        value: |view, column| Some(of(view, column, |it| it.bill_worst_relied_on)?.max),
        side: Side::Most,
        shown: percent,
    },
    Goal {
        about: "times better than residency",
        limits: |_| Some([15.0, 20.0]),
        value: |view, column| view.gain(column),
        side: Side::Least,
        shown: |times| format!("{times:.1}"),
    },
    Goal {
        about: "confidence, root mean square",
        limits: |_| Some([0.05, 0.05]),
        value: |view, column| rms(&view.bins(column)),
        side: Side::Most,
        shown: |off| format!("{off:.3}"),
    },
    Goal {
        about: "confidence, largest difference",
        limits: |_| Some([0.1, 0.1]),
        value: |view, column| largest(&view.bins(column)),
        side: Side::Most,
        shown: |off| format!("{off:.2}"),
    },
    Goal {
        about: "confidence, root mean square of the worst mix (any)",
        limits: |_| Some([0.15, 0.15]),
        value: |view, column| {
            let figures = view.mixes.iter().filter_map(|mix| view.figure(mix.name, column));
            figures.filter_map(|figure| rms(&figure.bins)).max_by(f64::total_cmp)
        },
        side: Side::Most,
        shown: |off| format!("{off:.2}"),
    },
    Goal {
        about: "90 % intervals that hold the truth (0.85 to 0.95)",
        limits: |_| Some([0.85, 0.85]),
        value: |view, column| view.held(column),
        side: Side::UpTo(0.95),
        shown: |part| format!("{part:.2}"),
    },
];

fn of(view: View<'_>, column: (&str, &str), number: fn(&Figure) -> Option<f64>) -> Option<Summary> {
    Summary::of(view.separable(column, number))
}

/// A row for each goal and method: its limit, and the value in each window.
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
        let witness = view.arrangement == Arrangement::Witness && column.0 != WITHOUT;
        let limit = (self.limits)(column.1)?[usize::from(witness)];
        let word = if self.is_reached(value, limit) { "reached" } else { "**missed**" };
        Some(format!("{} ({}) {word}", (self.shown)(value), (self.shown)(limit)))
    }

    fn is_reached(&self, value: f64, limit: f64) -> bool {
        match self.side {
            Side::Most => value <= limit,
            Side::Least => value >= limit,
            Side::UpTo(most) => (limit..=most).contains(&value),
        }
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
        let held = goal("90 % intervals");
        assert_eq!(
            [0.84, 0.85, 0.95, 0.96].map(|part| held.is_reached(part, 0.85)),
            [false, true, true, false]
        );
        assert_eq!((goal("median error, median").limits)("10ms"), Some([0.015, 0.01]));
        assert_eq!((goal("median error, median").limits)("3ms"), None);
    }
}
