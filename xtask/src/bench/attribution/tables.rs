//! The figures of one arrangement as Markdown tables: errors by mix, confidence by bins.

use super::Report;
use super::figures::{Bin, Cell, FLOOR, Figure, largest, rms};
use super::goals;
use super::recordings::Arrangement;
use crate::bench::stats::Summary;
use crate::lab::mixes::Mix;

/// The method that others are compared with.
pub(super) const BASE: &str = "residency";

/// The figures of one arrangement.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub cells: &'a [Cell],
    pub arrangement: Arrangement,
    pub mixes: &'a [&'a Mix],
}

impl<'a> View<'a> {
    fn cells(self) -> impl Iterator<Item = &'a Cell> {
        self.cells.iter().filter(move |cell| cell.arrangement == self.arrangement)
    }

    /// The figure of one mix.
    pub(super) fn figure(self, mix: &str, (method, window): (&str, &str)) -> Option<&'a Figure> {
        let is_it = |cell: &&Cell| cell.mix == mix && cell.method == method;
        let mut cells = self.cells().filter(is_it);
        Some(&cells.find(|cell| cell.window == window)?.figure)
    }

    /// A value for each separable mix.
    pub(super) fn separable(
        self,
        column: (&str, &str),
        number: impl Fn(&Figure) -> Option<f64>,
    ) -> Vec<f64> {
        let mixes = self.mixes.iter().filter(|mix| mix.separable);
        mixes.filter_map(|mix| number(self.figure(mix.name, column)?)).collect()
    }

    /// Smallest ratio of the base's median error to that of a method.
    pub(super) fn gain(self, (method, window): (&str, &str)) -> Option<f64> {
        let mixes = self.mixes.iter().filter(|mix| mix.separable && method != BASE);
        let gains = mixes.filter_map(|mix| {
            let base = self.figure(mix.name, (BASE, window))?.median;
            Some(base / self.figure(mix.name, (method, window))?.median)
        });
        gains.min_by(f64::total_cmp)
    }

    /// Fraction of the intervals that contain the truth, over all mixes.
    pub(super) fn held(self, column: (&str, &str)) -> Option<f64> {
        let figures = self.mixes.iter().filter_map(|mix| self.figure(mix.name, column));
        let (held, all) = figures.fold((0, 0), |(held, all), figure| {
            (held + figure.intervals_held, all + figure.intervals)
        });
        (all > 0).then(|| held as f64 / all as f64)
    }

    /// Rows by tenth of confidence, over all mixes.
    pub(super) fn bins(self, column: (&str, &str)) -> Vec<Bin> {
        let mut sum: Vec<Bin> = Vec::new();
        for figure in self.mixes.iter().filter_map(|mix| self.figure(mix.name, column)) {
            sum.resize(sum.len().max(figure.bins.len()), Bin::default());
            for (sum, bin) in sum.iter_mut().zip(&figure.bins) {
                *sum = sum.and(*bin);
            }
        }
        sum
    }
}

/// All tables of an arrangement, with the command that makes them.
pub(super) fn markdown(
    report: &Report<'_>,
    view: View<'_>,
    methods: &[String],
    windows: &[String],
) -> String {
    let all = methods.iter().map(String::as_str).chain([FLOOR]);
    let of = |methods: &[&'_ str]| -> Vec<(String, String)> {
        let column = |window: &String| {
            methods.iter().map(|method| ((*method).to_owned(), window.clone())).collect::<Vec<_>>()
        };
        windows.iter().flat_map(column).collect()
    };
    let with_floor = of(&all.collect::<Vec<_>>());
    let methods: Vec<&str> = methods.iter().map(String::as_str).collect();
    let divided = of(&methods);
    let learnt: Vec<&str> = methods.iter().copied().filter(|method| *method != BASE).collect();
    let sure = of(&learnt);
    let tables = [
        vec![about(view)],
        errors(view, &borrowed(&with_floor)),
        misplaced(view, &borrowed(&with_floor)),
        bills(view, &borrowed(&divided)),
        intervals(view, &borrowed(&divided)),
        confidence(view, &borrowed(&sure)),
        by_mix(view, &borrowed(&sure)),
        goals::tables(view, &learnt, windows),
        mixes(view),
        vec![made_with(report)],
    ];
    tables
        .into_iter()
        .filter(|lines| !lines.is_empty())
        .fold(String::new(), |text, lines| text + &lines.join("\n") + "\n\n")
}

fn borrowed(columns: &[(String, String)]) -> Vec<(&str, &str)> {
    columns.iter().map(|(method, window)| (method.as_str(), window.as_str())).collect()
}

fn about(view: View<'_>) -> String {
    let place = match view.arrangement {
        Arrangement::Housekeeping => "The recorder runs on a CPU of its own",
        Arrangement::Shared => "The recorder runs among the tenants",
        Arrangement::Witness => "With witnesses. The recorder runs on a CPU of its own",
    };
    let parts = Summary::of(view.cells().map(|cell| cell.recorder));
    let part = parts.map_or(0.0, |parts| parts.max);
    format!("{place} and takes at most {} % of the time of their CPUs.", percent(part))
}

/// The list of mixes.
fn mixes(view: View<'_>) -> Vec<String> {
    let of_mix = |mix: &&Mix| {
        let cell = view.cells().find(|cell| cell.mix == mix.name);
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
        let about = "\\* What is recorded does not tell its tenants apart: not separable.";
        lines.extend([String::new(), about.to_owned()]);
    }
    lines
}

fn made_with(report: &Report<'_>) -> String {
    let seeds: Vec<String> = report.seeds.iter().map(u64::to_string).collect();
    let Report { date, command, seconds, .. } = report;
    format!("{date}, `{command}`; seeds {}, {seconds} s of each mix.", seeds.join(", "))
}

fn head(first: &str, columns: &[(&str, &str)]) -> Vec<String> {
    let names: Vec<String> =
        columns.iter().map(|(method, window)| format!("{method} {window}")).collect();
    vec![
        format!("| {first} | {} |", names.join(" | ")),
        format!("|---|{}", "---|".repeat(names.len())),
    ]
}

/// One line of a table.
fn line(name: &str, cells: impl Iterator<Item = Option<String>>) -> String {
    let cells: Vec<String> = cells.map(Option::unwrap_or_default).collect();
    format!("| {name} | {} |", cells.join(" | "))
}

/// A line for each mix.
fn by_name(
    view: View<'_>,
    columns: &[(&str, &str)],
    shown: impl Fn(&Figure) -> Option<String>,
) -> Vec<String> {
    let there = |mix: &&&Mix| view.cells().any(|cell| cell.mix == mix.name);
    let of_mix = |mix: &&Mix| {
        let star = if mix.separable { "" } else { "*" };
        let name = format!("{}{star}", mix.name);
        line(&name, columns.iter().map(|column| shown(view.figure(mix.name, *column)?)))
    };
    view.mixes.iter().filter(there).map(of_mix).collect()
}

/// In percent, without the sign.
pub(super) fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}

/// The median of the separable mixes, and the largest.
fn summary(
    name: &str,
    view: View<'_>,
    columns: &[(&str, &str)],
    number: fn(&Figure) -> Option<f64>,
) -> String {
    line(
        name,
        columns.iter().map(|column| {
            let of = Summary::of(view.separable(*column, number))?;
            Some(format!("{} / {}", percent(of.median), percent(of.max)))
        }),
    )
}

/// Median and 95th percentile of the errors.
fn errors(view: View<'_>, columns: &[(&str, &str)]) -> Vec<String> {
    let mut lines = head("error in %, median / p95", columns);
    lines.extend(by_name(view, columns, |figure| {
        Some(format!("{} / {}", percent(figure.median), percent(figure.p95)))
    }));
    let median = |figure: &Figure| Some(figure.median);
    lines.push(summary("separable mixes, median error: median / worst", view, columns, median));
    let p95 = |figure: &Figure| Some(figure.p95);
    lines.push(summary("separable mixes, p95: median / worst", view, columns, p95));
    lines.push(line(
        &format!("times better than {BASE}, at least"),
        columns.iter().map(|column| Some(format!("{:.1}", view.gain(*column)?))),
    ));
    lines
}

/// Fraction given to other owners.
fn misplaced(view: View<'_>, columns: &[(&str, &str)]) -> Vec<String> {
    let mut lines = head("misplaced, % of bytes", columns);
    lines.extend(by_name(view, columns, |figure| Some(percent(figure.misplaced))));
    let number = |figure: &Figure| Some(figure.misplaced);
    lines.push(summary("separable mixes: median / worst", view, columns, number));
    lines
}

/// Errors of the sums over a whole recording.
fn bills(view: View<'_>, columns: &[(&str, &str)]) -> Vec<String> {
    let mut lines =
        head("bill: error in %, median / worst / worst with confidence above 0.5", columns);
    let percent = |part: Option<f64>| part.map_or_else(|| "-".to_owned(), percent);
    lines.extend(by_name(view, columns, |figure| {
        let Figure { bill_median, bill_worst, bill_worst_relied_on, .. } = figure;
        let parts = [*bill_median, *bill_worst, *bill_worst_relied_on];
        Some(parts.map(percent).join(" / "))
    }));
    lines
}

/// Number of intervals that contain the truth; nothing if reports have none.
fn intervals(view: View<'_>, columns: &[(&str, &str)]) -> Vec<String> {
    if view.cells().all(|cell| cell.figure.intervals == 0) {
        return Vec::new();
    }
    let mut lines = head("90 % intervals that hold the truth", columns);
    lines.extend(by_name(view, columns, |figure| {
        Some(format!("{} of {}", figure.intervals_held, figure.intervals))
    }));
    let held = |column: &(&str, &str)| Some(format!("{:.2}", view.held(*column)?));
    lines.push(line("part", columns.iter().map(held)));
    lines
}

/// Rows by tenth of confidence, over all mixes.
fn confidence(view: View<'_>, columns: &[(&str, &str)]) -> Vec<String> {
    let mut lines = head("confidence: mean / right (rows)", columns);
    let sums: Vec<Vec<Bin>> = columns.iter().map(|column| view.bins(*column)).collect();
    let most = sums.iter().map(Vec::len).max().unwrap_or(0);
    for tenth in 0..most {
        let name = format!("{:.1}-{:.1}", tenth as f64 / 10.0, (tenth + 1) as f64 / 10.0);
        lines.push(line(
            &name,
            sums.iter().map(|bins| {
                let bin = bins.get(tenth).filter(|bin| bin.rows > 0)?;
                let (said, right) = bin.means();
                Some(format!("{said:.2} / {right:.2} ({})", bin.rows))
            }),
        ));
    }
    let off = |bins: &Vec<Bin>| calibration(bins);
    lines.push(line("root mean square / largest", sums.iter().map(off)));
    lines
}

/// Differences between confidence and fraction that is right.
fn calibration(bins: &[Bin]) -> Option<String> {
    let rms = rms(bins)?;
    let largest = largest(bins).map_or_else(|| "-".to_owned(), |off| format!("{off:.2}"));
    Some(format!("{rms:.2} / {largest}"))
}

/// The same for each mix alone, with mean confidence and fraction that is right.
fn by_mix(view: View<'_>, columns: &[(&str, &str)]) -> Vec<String> {
    let mut lines = head("confidence: mean / right; root mean square / largest", columns);
    lines.extend(by_name(view, columns, |figure| {
        let sum = figure.bins.iter().fold(Bin::default(), |sum, bin| sum.and(*bin));
        let (said, right) = sum.means();
        Some(format!("{said:.2} / {right:.2}; {}", calibration(&figure.bins)?))
    }));
    lines
}
