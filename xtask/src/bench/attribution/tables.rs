//! The figures of one arrangement as Markdown tables: errors by mix, confidence by bins.

use super::AttributionReport;
use super::figures::{Bin, Cell, FLOOR, Figure, largest_calibration_error, rms_calibration_error};
use super::goals;
use super::recordings::Arrangement;
use crate::bench::stats::Summary;
use crate::lab::mixes::Mix;

/// The method that others are compared with.
pub(super) const BASE: &str = "residency";

/// The figures of one arrangement.
#[derive(Clone, Copy)]
pub(super) struct ArrangementView<'a> {
    pub cells: &'a [Cell],
    pub arrangement: Arrangement,
    pub mixes: &'a [&'a Mix],
}

impl<'a> ArrangementView<'a> {
    fn arrangement_cells(self) -> impl Iterator<Item = &'a Cell> {
        self.cells.iter().filter(move |cell| cell.arrangement == self.arrangement)
    }

    /// The figure of one mix.
    pub(super) fn find_figure(
        self,
        mix: &str,
        (method, window): (&str, &str),
    ) -> Option<&'a Figure> {
        let is_it = |cell: &&Cell| cell.mix == mix && cell.method == method;
        let mut cells = self.arrangement_cells().filter(is_it);
        Some(&cells.find(|cell| cell.window == window)?.figure)
    }

    /// A value for each separable mix.
    pub(super) fn separable_values(
        self,
        column: (&str, &str),
        number: impl Fn(&Figure) -> Option<f64>,
    ) -> Vec<f64> {
        let mixes = self.mixes.iter().filter(|mix| mix.separable);
        mixes.filter_map(|mix| number(self.find_figure(mix.name, column)?)).collect()
    }

    /// Smallest ratio of the base's median error to that of a method.
    pub(super) fn smallest_gain(self, (method, window): (&str, &str)) -> Option<f64> {
        let mixes = self.mixes.iter().filter(|mix| mix.separable && method != BASE);
        let gains = mixes.filter_map(|mix| {
            let base = self.find_figure(mix.name, (BASE, window))?.median;
            Some(base / self.find_figure(mix.name, (method, window))?.median)
        });
        gains.min_by(f64::total_cmp)
    }

    /// Fraction of the intervals that contain the truth, over all mixes.
    pub(super) fn interval_coverage(self, column: (&str, &str)) -> Option<f64> {
        let figures = self.mixes.iter().filter_map(|mix| self.find_figure(mix.name, column));
        let (contained_count, interval_count) =
            figures.fold((0, 0), |(contained_sum, interval_sum), figure| {
                (contained_sum + figure.intervals_held, interval_sum + figure.intervals)
            });
        (interval_count > 0).then(|| contained_count as f64 / interval_count as f64)
    }

    /// Rows by tenth of confidence, over all mixes.
    pub(super) fn confidence_bins(self, column: (&str, &str)) -> Vec<Bin> {
        let mut sum: Vec<Bin> = Vec::new();
        for figure in self.mixes.iter().filter_map(|mix| self.find_figure(mix.name, column)) {
            sum.resize(sum.len().max(figure.bins.len()), Bin::default());
            for (sum, bin) in sum.iter_mut().zip(&figure.bins) {
                *sum = sum.merged_with(*bin);
            }
        }
        sum
    }
}

/// All tables of an arrangement, with the command that makes them.
pub(super) fn render_tables(
    report: &AttributionReport<'_>,
    view: ArrangementView<'_>,
    methods: &[String],
    windows: &[String],
) -> String {
    let all_methods = methods.iter().map(String::as_str).chain([FLOOR]);
    let columns_for = |methods: &[&'_ str]| -> Vec<(String, String)> {
        let column = |window: &String| {
            methods.iter().map(|method| ((*method).to_owned(), window.clone())).collect::<Vec<_>>()
        };
        windows.iter().flat_map(column).collect()
    };
    let with_floor = columns_for(&all_methods.collect::<Vec<_>>());
    let methods: Vec<&str> = methods.iter().map(String::as_str).collect();
    let divided = columns_for(&methods);
    let learnt: Vec<&str> = methods.iter().copied().filter(|method| *method != BASE).collect();
    let sure = columns_for(&learnt);
    let tables = [
        vec![recorder_line(view)],
        error_table(view, &borrow_columns(&with_floor)),
        misplaced_table(view, &borrow_columns(&with_floor)),
        bill_table(view, &borrow_columns(&divided)),
        interval_table(view, &borrow_columns(&divided)),
        confidence_table(view, &borrow_columns(&sure)),
        calibration_by_mix(view, &borrow_columns(&sure)),
        goals::goal_tables(view, &learnt, windows),
        mix_table(view),
        vec![command_line_note(report)],
    ];
    tables
        .into_iter()
        .filter(|lines| !lines.is_empty())
        .fold(String::new(), |text, lines| text + &lines.join("\n") + "\n\n")
}

fn borrow_columns(columns: &[(String, String)]) -> Vec<(&str, &str)> {
    columns.iter().map(|(method, window)| (method.as_str(), window.as_str())).collect()
}

fn recorder_line(view: ArrangementView<'_>) -> String {
    let recorder_location = match view.arrangement {
        Arrangement::Housekeeping => "The recorder runs on a CPU of its own",
        Arrangement::Shared => "The recorder runs among the tenants",
        Arrangement::Witness => "With witnesses. The recorder runs on a CPU of its own",
    };
    let recorder_fractions =
        Summary::from_values(view.arrangement_cells().map(|cell| cell.recorder));
    let largest_fraction = recorder_fractions.map_or(0.0, |summary| summary.max);
    format!(
        "{recorder_location} and takes at most {} % of the time of their CPUs.",
        format_percent(largest_fraction)
    )
}

/// The list of mixes.
fn mix_table(view: ArrangementView<'_>) -> Vec<String> {
    let of_mix = |mix: &&Mix| {
        let cell = view.arrangement_cells().find(|cell| cell.mix == mix.name);
        let correlation = cell.and_then(|cell| cell.correlation).map_or_else(
            || "-".to_owned(),
            |of_pairs| format!("{:.2} / {:.2}", of_pairs.median, of_pairs.max),
        );
        format!("| {} | {} | {correlation} |", mix.name, mix.about)
    };
    let title = "correlation of two CPUs: median / largest";
    let mut lines = vec![format!("| mix | tenants | {title} |"), "|---|---|---|".to_owned()];
    lines.extend(view.mixes.iter().map(of_mix));
    if view.mixes.iter().any(|mix| !mix.separable) {
        let footnote = "\\* What is recorded does not tell its tenants apart: not separable.";
        lines.extend([String::new(), footnote.to_owned()]);
    }
    lines
}

fn command_line_note(report: &AttributionReport<'_>) -> String {
    let seeds: Vec<String> = report.seeds.iter().map(u64::to_string).collect();
    let AttributionReport { date, command, seconds, .. } = report;
    format!("{date}, `{command}`; seeds {}, {seconds} s of each mix.", seeds.join(", "))
}

fn table_head(first_title: &str, columns: &[(&str, &str)]) -> Vec<String> {
    let names: Vec<String> =
        columns.iter().map(|(method, window)| format!("{method} {window}")).collect();
    vec![
        format!("| {first_title} | {} |", names.join(" | ")),
        format!("|---|{}", "---|".repeat(names.len())),
    ]
}

/// One line of a table.
fn table_line(name: &str, cells: impl Iterator<Item = Option<String>>) -> String {
    let cells: Vec<String> = cells.map(Option::unwrap_or_default).collect();
    format!("| {name} | {} |", cells.join(" | "))
}

/// A line for each mix.
fn mix_lines(
    view: ArrangementView<'_>,
    columns: &[(&str, &str)],
    shown: impl Fn(&Figure) -> Option<String>,
) -> Vec<String> {
    let is_recorded = |mix: &&&Mix| view.arrangement_cells().any(|cell| cell.mix == mix.name);
    let of_mix = |mix: &&Mix| {
        let star = if mix.separable { "" } else { "*" };
        let name = format!("{}{star}", mix.name);
        table_line(&name, columns.iter().map(|column| shown(view.find_figure(mix.name, *column)?)))
    };
    view.mixes.iter().filter(is_recorded).map(of_mix).collect()
}

/// In percent, without the sign.
pub(super) fn format_percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    if percent < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}

/// The median of the separable mixes, and the largest.
fn summary_line(
    name: &str,
    view: ArrangementView<'_>,
    columns: &[(&str, &str)],
    number: fn(&Figure) -> Option<f64>,
) -> String {
    table_line(
        name,
        columns.iter().map(|column| {
            let summary = Summary::from_values(view.separable_values(*column, number))?;
            Some(format!("{} / {}", format_percent(summary.median), format_percent(summary.max)))
        }),
    )
}

/// Median and 95th percentile of the errors.
fn error_table(view: ArrangementView<'_>, columns: &[(&str, &str)]) -> Vec<String> {
    let mut lines = table_head("error in %, median / p95", columns);
    lines.extend(mix_lines(view, columns, |figure| {
        Some(format!("{} / {}", format_percent(figure.median), format_percent(figure.p95)))
    }));
    let median = |figure: &Figure| Some(figure.median);
    lines.push(summary_line(
        "separable mixes, median error: median / worst",
        view,
        columns,
        median,
    ));
    let p95 = |figure: &Figure| Some(figure.p95);
    lines.push(summary_line("separable mixes, p95: median / worst", view, columns, p95));
    lines.push(table_line(
        &format!("times better than {BASE}, at least"),
        columns.iter().map(|column| Some(format!("{:.1}", view.smallest_gain(*column)?))),
    ));
    lines
}

/// Fraction given to other owners.
fn misplaced_table(view: ArrangementView<'_>, columns: &[(&str, &str)]) -> Vec<String> {
    let mut lines = table_head("misplaced, % of bytes", columns);
    lines.extend(mix_lines(view, columns, |figure| Some(format_percent(figure.misplaced))));
    let number = |figure: &Figure| Some(figure.misplaced);
    lines.push(summary_line("separable mixes: median / worst", view, columns, number));
    lines
}

/// Errors of the sums over a whole recording.
fn bill_table(view: ArrangementView<'_>, columns: &[(&str, &str)]) -> Vec<String> {
    let mut lines =
        table_head("bill: error in %, median / worst / worst with confidence above 0.5", columns);
    let format_optional =
        |fraction: Option<f64>| fraction.map_or_else(|| "-".to_owned(), format_percent);
    lines.extend(mix_lines(view, columns, |figure| {
        let Figure { bill_median, bill_worst, bill_worst_relied_on, .. } = figure;
        let bill_errors = [*bill_median, *bill_worst, *bill_worst_relied_on];
        Some(bill_errors.map(format_optional).join(" / "))
    }));
    lines
}

/// Number of intervals that contain the truth; nothing if reports have none.
fn interval_table(view: ArrangementView<'_>, columns: &[(&str, &str)]) -> Vec<String> {
    if view.arrangement_cells().all(|cell| cell.figure.intervals == 0) {
        return Vec::new();
    }
    let mut lines = table_head("90 % intervals that hold the truth", columns);
    lines.extend(mix_lines(view, columns, |figure| {
        Some(format!("{} of {}", figure.intervals_held, figure.intervals))
    }));
    let coverage = |column: &(&str, &str)| Some(format!("{:.2}", view.interval_coverage(*column)?));
    lines.push(table_line("part", columns.iter().map(coverage)));
    lines
}

/// Rows by tenth of confidence, over all mixes.
fn confidence_table(view: ArrangementView<'_>, columns: &[(&str, &str)]) -> Vec<String> {
    let mut lines = table_head("confidence: mean / right (rows)", columns);
    let sums: Vec<Vec<Bin>> = columns.iter().map(|column| view.confidence_bins(*column)).collect();
    let tenth_count = sums.iter().map(Vec::len).max().unwrap_or(0);
    for tenth in 0..tenth_count {
        let name = format!("{:.1}-{:.1}", tenth as f64 / 10.0, (tenth + 1) as f64 / 10.0);
        lines.push(table_line(
            &name,
            sums.iter().map(|bins| {
                let bin = bins.get(tenth).filter(|bin| bin.rows > 0)?;
                let (mean_confidence, right_fraction) = bin.calibration_means();
                Some(format!("{mean_confidence:.2} / {right_fraction:.2} ({})", bin.rows))
            }),
        ));
    }
    let off = |bins: &Vec<Bin>| calibration_cell(bins);
    lines.push(table_line("root mean square / largest", sums.iter().map(off)));
    lines
}

/// Differences between confidence and fraction that is right.
fn calibration_cell(bins: &[Bin]) -> Option<String> {
    let rms = rms_calibration_error(bins)?;
    let largest =
        largest_calibration_error(bins).map_or_else(|| "-".to_owned(), |off| format!("{off:.2}"));
    Some(format!("{rms:.2} / {largest}"))
}

/// The same for each mix alone, with mean confidence and fraction that is right.
fn calibration_by_mix(view: ArrangementView<'_>, columns: &[(&str, &str)]) -> Vec<String> {
    let mut lines = table_head("confidence: mean / right; root mean square / largest", columns);
    lines.extend(mix_lines(view, columns, |figure| {
        let sum = figure.bins.iter().fold(Bin::default(), |sum, bin| sum.merged_with(*bin));
        let (mean_confidence, right_fraction) = sum.calibration_means();
        Some(format!(
            "{mean_confidence:.2} / {right_fraction:.2}; {}",
            calibration_cell(&figure.bins)?
        ))
    }));
    lines
}
