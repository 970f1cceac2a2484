//! Goals for the methods on the separable mixes, and whether they are reached.

use super::figures::{Figure, largest_calibration_error, rms_calibration_error};
use super::recordings::Arrangement;
use super::tables::{ArrangementView, format_percent};
use crate::bench::stats::Summary;

/// A method without witnesses, for comparison.
const WITHOUT: &str = "regression";

/// On which side of its limit a value must be.
#[derive(Clone, Copy)]
enum LimitKind {
    AtMost,
    AtLeast,
    /// Between the limit and this value.
    Within(f64),
}

/// A goal with its limit.
struct Goal {
    about: &'static str,
    /// The limits without and with witnesses.
    limits: fn(window: &str) -> Option<[f64; 2]>,
    value: fn(ArrangementView<'_>, (&str, &str)) -> Option<f64>,
    limit_kind: LimitKind,
    format_value: fn(f64) -> String,
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
        value: |view, column| {
            Some(separable_summary(view, column, |figure| Some(figure.median))?.median)
        },
        limit_kind: LimitKind::AtMost,
        format_value: format_percent,
    },
    Goal {
        about: "median error, worst mix, %",
        limits: |_| Some([0.05, 0.03]),
        value: |view, column| {
            Some(separable_summary(view, column, |figure| Some(figure.median))?.max)
        },
        limit_kind: LimitKind::AtMost,
        format_value: format_percent,
    },
    Goal {
        about: "p95, median of mixes, %",
        limits: |_| Some([0.25, 0.15]),
        value: |view, column| {
            Some(separable_summary(view, column, |figure| Some(figure.p95))?.median)
        },
        limit_kind: LimitKind::AtMost,
        format_value: format_percent,
    },
    Goal {
        about: "misplaced, median of mixes, %",
        limits: |_| Some([0.03, 0.02]),
        value: |view, column| {
            Some(separable_summary(view, column, |figure| Some(figure.misplaced))?.median)
        },
        limit_kind: LimitKind::AtMost,
        format_value: format_percent,
    },
    Goal {
        about: "misplaced, worst mix, %",
        limits: |_| Some([0.08, 0.04]),
        value: |view, column| {
            Some(separable_summary(view, column, |figure| Some(figure.misplaced))?.max)
        },
        limit_kind: LimitKind::AtMost,
        format_value: format_percent,
    },
    Goal {
        about: "worst bill with confidence above 0.5, %",
        limits: |_| Some([0.15, 0.1]),
        value: |view, column| {
            Some(separable_summary(view, column, |figure| figure.bill_worst_relied_on)?.max)
        },
        limit_kind: LimitKind::AtMost,
        format_value: format_percent,
    },
    Goal {
        about: "times better than residency",
        limits: |_| Some([15.0, 20.0]),
        value: |view, column| view.smallest_gain(column),
        limit_kind: LimitKind::AtLeast,
        format_value: |times| format!("{times:.1}"),
    },
    Goal {
        about: "confidence, root mean square",
        limits: |_| Some([0.05, 0.05]),
        value: |view, column| rms_calibration_error(&view.confidence_bins(column)),
        limit_kind: LimitKind::AtMost,
        format_value: |off| format!("{off:.3}"),
    },
    Goal {
        about: "confidence, largest difference",
        limits: |_| Some([0.1, 0.1]),
        value: |view, column| largest_calibration_error(&view.confidence_bins(column)),
        limit_kind: LimitKind::AtMost,
        format_value: |off| format!("{off:.2}"),
    },
    Goal {
        about: "confidence, root mean square of the worst mix (any)",
        limits: |_| Some([0.15, 0.15]),
        value: |view, column| {
            let figures = view.mixes.iter().filter_map(|mix| view.find_figure(mix.name, column));
            figures.filter_map(|figure| rms_calibration_error(&figure.bins)).max_by(f64::total_cmp)
        },
        limit_kind: LimitKind::AtMost,
        format_value: |off| format!("{off:.2}"),
    },
    Goal {
        about: "90 % intervals that hold the truth (0.85 to 0.95)",
        limits: |_| Some([0.85, 0.85]),
        value: |view, column| view.interval_coverage(column),
        limit_kind: LimitKind::Within(0.95),
        format_value: |fraction| format!("{fraction:.2}"),
    },
];

fn separable_summary(
    view: ArrangementView<'_>,
    column: (&str, &str),
    number: fn(&Figure) -> Option<f64>,
) -> Option<Summary> {
    Summary::from_values(view.separable_values(column, number))
}

/// A row for each goal and method: its limit, and the value in each window.
pub(super) fn goal_tables(
    view: ArrangementView<'_>,
    methods: &[&str],
    windows: &[String],
) -> Vec<String> {
    let mut lines = Vec::new();
    for method in methods {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.push(format!("| goals, {method}: value (limit) | {} |", windows.join(" | ")));
        lines.push(format!("|---|{}", "---|".repeat(windows.len())));
        lines.extend(ALL.iter().map(|goal| {
            let cells = windows.iter().map(|window| goal.goal_cell(view, (method, window)));
            let cells: Vec<String> = cells.map(Option::unwrap_or_default).collect();
            format!("| {} | {} |", goal.about, cells.join(" | "))
        }));
    }
    lines
}

impl Goal {
    fn goal_cell(&self, view: ArrangementView<'_>, column: (&str, &str)) -> Option<String> {
        let value = (self.value)(view, column)?;
        let witness = view.arrangement == Arrangement::Witness && column.0 != WITHOUT;
        let limit = (self.limits)(column.1)?[usize::from(witness)];
        let word = if self.is_goal_reached(value, limit) { "reached" } else { "**missed**" };
        Some(format!("{} ({}) {word}", (self.format_value)(value), (self.format_value)(limit)))
    }

    fn is_goal_reached(&self, value: f64, limit: f64) -> bool {
        match self.limit_kind {
            LimitKind::AtMost => value <= limit,
            LimitKind::AtLeast => value >= limit,
            LimitKind::Within(upper_limit) => (limit..=upper_limit).contains(&value),
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
        assert!(least.is_goal_reached(15.0, 15.0) && !least.is_goal_reached(14.9, 15.0));
        let most = goal("p95");
        assert!(most.is_goal_reached(0.25, 0.25) && !most.is_goal_reached(0.251, 0.25));
        let held = goal("90 % intervals");
        assert_eq!(
            [0.84, 0.85, 0.95, 0.96].map(|part| held.is_goal_reached(part, 0.85)),
            [false, true, true, false]
        );
        assert_eq!((goal("median error, median").limits)("10ms"), Some([0.015, 0.01]));
        assert_eq!((goal("median error, median").limits)("3ms"), None);
    }
}
