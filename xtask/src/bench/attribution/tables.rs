//! The figures as Markdown tables: errors by mix, confidence by what it says.

use super::Report;
use super::figures::{Bin, Cell, Figure};
use super::recordings::Arrangement;
use crate::bench::stats::Summary;
use crate::lab::mixes::Mix;

/// What the others are held against.
const BASE: &str = "residency";

/// Bins with fewer rows say nothing of calibration.
const ENOUGH: u64 = 200;

/// The figures of one arrangement.
#[derive(Clone, Copy)]
struct View<'a> {
    cells: &'a [Cell],
    arrangement: Arrangement,
}

impl<'a> View<'a> {
    fn cells(self) -> impl Iterator<Item = &'a Cell> {
        self.cells.iter().filter(move |cell| cell.arrangement == self.arrangement)
    }
}

/// All tables of an arrangement, and what they were made with.
pub(super) fn markdown(
    report: &Report<'_>,
    arrangement: Arrangement,
    mixes: &[&Mix],
    methods: &[String],
    windows: &[String],
) -> String {
    let columns: Vec<(&str, &str)> = windows
        .iter()
        .flat_map(|window| methods.iter().map(move |method| (method.as_str(), window.as_str())))
        .collect();
    let view = View { cells: &report.cells, arrangement };
    let mut lines = vec![format!("Recorder: {}\n", arrangement.name())];
    lines.extend(errors(view, mixes, &columns));
    lines.push(String::new());
    lines.extend(wholes(view, mixes, &columns));
    lines.push(String::new());
    lines.extend(confidence(view, mixes, &columns));
    lines.push(String::new());
    lines.extend(by_mix(view, mixes, methods));
    lines.push(String::new());
    let seeds: Vec<String> = report.seeds.iter().map(u64::to_string).collect();
    let Report { date, command, seconds, .. } = report;
    let seeds = seeds.join(", ");
    lines.push(format!("{date}, `{command}`; seeds {seeds}, {seconds} s of each mix.\n"));
    lines.join("\n")
}

fn cell<'a>(view: View<'a>, mix: &str, column: (&str, &str)) -> Option<&'a Cell> {
    view.cells()
        .find(|cell| (cell.method.as_str(), cell.window.as_str()) == column && cell.mix == mix)
}

fn head(first: &str, columns: &[(&str, &str)]) -> Vec<String> {
    let names: Vec<String> =
        columns.iter().map(|(method, window)| format!("{method} {window}")).collect();
    vec![
        format!("| {first} | {} |", names.join(" | ")),
        format!("|---|{}", "---|".repeat(names.len())),
    ]
}

fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}

/// Median and 95th percentile of the errors; the last lines are of the mixes whose tenants can be
/// told apart.
fn errors(view: View<'_>, mixes: &[&Mix], columns: &[(&str, &str)]) -> Vec<String> {
    let mut lines = head("% off, median / p95", columns);
    lines.extend(pairs(view, mixes, columns, |figure| (figure.median, figure.p95)));
    let medians: Vec<String> = columns
        .iter()
        .map(|column| {
            let told = mixes.iter().filter(|mix| mix.told);
            let medians = told.filter_map(|mix| cell(view, mix.name, *column));
            let summary = Summary::of(medians.map(|cell| cell.figure.median));
            summary.map_or_else(String::new, |summary| percent(summary.median))
        })
        .collect();
    lines.push(format!("| median of those that can be told | {} |", medians.join(" | ")));
    let gains: Vec<String> = columns
        .iter()
        .map(|&(method, window)| {
            let gain = |mix: &&&Mix| {
                let base = cell(view, mix.name, (BASE, window))?.figure.median;
                Some(base / cell(view, mix.name, (method, window))?.figure.median)
            };
            let told = mixes.iter().filter(|mix| mix.told && method != BASE);
            let summary = Summary::of(told.filter_map(|mix| gain(&mix)));
            summary.map_or_else(String::new, |gains| format!("{:.1}", gains.min))
        })
        .collect();
    lines.push(format!("| times less than {BASE}, at least | {} |", gains.join(" | ")));
    lines
}

/// Errors of the sums over a whole recording.
fn wholes(view: View<'_>, mixes: &[&Mix], columns: &[(&str, &str)]) -> Vec<String> {
    let mut lines = head("% off in sum, median / worst", columns);
    let both = |figure: &Figure| (figure.whole_median, figure.whole_worst);
    lines.extend(pairs(view, mixes, columns, both));
    lines
}

/// A line for each mix, with two parts of the figure in each column.
fn pairs(
    view: View<'_>,
    mixes: &[&Mix],
    columns: &[(&str, &str)],
    both: impl Fn(&Figure) -> (f64, f64),
) -> Vec<String> {
    let shown = |mix: &Mix, column| {
        let cell = cell(view, mix.name, column);
        let (first, second) = cell.map(|cell| both(&cell.figure))?;
        Some(format!("{} / {}", percent(first), percent(second)))
    };
    let line = |mix: &&Mix| {
        let cells = columns.iter().map(|column| shown(mix, *column).unwrap_or_default());
        format!("| {} | {} |", mix.name, cells.collect::<Vec<_>>().join(" | "))
    };
    mixes.iter().map(line).collect()
}

/// Rows by what they say, over all mixes; the last line is the largest difference.
fn confidence(view: View<'_>, mixes: &[&Mix], columns: &[(&str, &str)]) -> Vec<String> {
    let mut lines = head("confidence: said / right (rows)", columns);
    let sums: Vec<Vec<Bin>> = columns.iter().map(|column| bins(view, mixes, *column)).collect();
    let most = sums.iter().map(Vec::len).max().unwrap_or(0);
    for tenth in 0..most {
        let cells: Vec<String> = sums
            .iter()
            .map(|bins| match bins.get(tenth) {
                Some(bin) if bin.rows > 0 => {
                    let (said, right) = bin.means();
                    format!("{said:.2} / {right:.2} ({})", bin.rows)
                }
                _ => String::new(),
            })
            .collect();
        let (from, to) = (tenth as f64 / 10.0, (tenth + 1) as f64 / 10.0);
        lines.push(format!("| {from:.1}-{to:.1} | {} |", cells.join(" | ")));
    }
    let worst: Vec<String> = sums.iter().map(|bins| off(bins)).collect();
    lines.push(format!("| largest difference | {} |", worst.join(" | ")));
    lines
}

fn bins(view: View<'_>, mixes: &[&Mix], column: (&str, &str)) -> Vec<Bin> {
    let mut sum: Vec<Bin> = Vec::new();
    for cell in mixes.iter().filter_map(|mix| cell(view, mix.name, column)) {
        sum.resize(sum.len().max(cell.figure.bins.len()), Bin::default());
        for (sum, bin) in sum.iter_mut().zip(&cell.figure.bins) {
            *sum = sum.and(*bin);
        }
    }
    sum
}

fn off(bins: &[Bin]) -> String {
    let off = bins.iter().filter(|bin| bin.rows >= ENOUGH).map(|bin| {
        let (said, right) = bin.means();
        (said - right).abs()
    });
    off.max_by(f64::total_cmp).map_or_else(String::new, |off| format!("{off:.2}"))
}

/// What the rows of each mix say, and how right they are, over all windows.
fn by_mix(view: View<'_>, mixes: &[&Mix], methods: &[String]) -> Vec<String> {
    let mut lines = vec![
        format!("| confidence of a mix: said / right | {} |", methods.join(" | ")),
        format!("|---|{}", "---|".repeat(methods.len())),
    ];
    for mix in mixes {
        let cells: Vec<String> = methods
            .iter()
            .map(|method| {
                let cells =
                    view.cells().filter(|cell| cell.mix == mix.name && cell.method == *method);
                let bins = cells.flat_map(|cell| &cell.figure.bins);
                let (said, right) = bins.fold(Bin::default(), |sum, bin| sum.and(*bin)).means();
                format!("{said:.2} / {right:.2}")
            })
            .collect();
        lines.push(format!("| {}: {} | {} |", mix.name, mix.about, cells.join(" | ")));
    }
    lines
}
