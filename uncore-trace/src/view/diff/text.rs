//! A comparison as text: the summary, then a table for each event or direction of a link.
//!
//! Guarantees: text from the machine is escaped; if there is a width, long names do not push
//! numbers out of it; a value that is not known is `-`, never 0.

use std::fmt::Write as _;

use super::super::interval::Interval;
use super::super::layout::{Column, Fit, Kind};
use super::super::render::Style;
use super::rate::{Change, Verdict};
use super::summary::name;
pub use super::summary::rates;
use super::{About, Diff, Tenant, Way, summary};
use crate::terminal::{cells, mark, shorten, wrap};
use crate::text::{printable, wrapped};
use crate::units::{self, Shared};

/// The whole comparison, with the names `called` of the two, and the `top` largest differences in
/// each table.
pub fn text(diff: &Diff, called: [&str; 2], top: Option<usize>, style: Style) -> String {
    let width = style.width.unwrap_or(usize::MAX);
    let mut out = format!("{}\n\n", wrap(&summary(diff, style), width));
    for (word, called, about) in
        [("before: ", called[0], &diff.before), ("after:  ", called[1], &diff.after)]
    {
        out.push_str(&wrapped(word, &of(called, about), style.width));
    }
    for note in &diff.notes {
        out.push_str(&wrapped("note: ", &printable(note), style.width));
    }
    out.push('\n');
    let shown: Vec<Vec<&Tenant>> = diff.ways.iter().map(|way| tenants(way, top)).collect();
    let tables: Vec<Vec<Column>> = diff
        .ways
        .iter()
        .zip(&shown)
        .map(|(way, tenants)| columns(diff, way, tenants, style))
        .collect();
    let fit = Fit::new(style, &tables);
    for ((way, tenants), columns) in diff.ways.iter().zip(&shown).zip(&tables) {
        out.push_str(&headline(way, style));
        if !tenants.is_empty() {
            out.push_str(&fit.draw(columns));
        }
        out.push_str(&rest(way, tenants.len()));
        out.push('\n');
    }
    if let Some(note) = fit.note() {
        // Writing to a String cannot fail.
        writeln!(out, "{}", wrap(&note, width)).unwrap_or_default();
    }
    out
}

/// Name, length and incompleteness of one of the two.
fn of(called: &str, about: &About) -> String {
    let length = units::human(about.seconds() * 1e9, "ns");
    let called = printable(called);
    match &about.incomplete {
        None => format!("{called}, {length}"),
        Some(lacks) => format!("{called}, {length}, {}", printable(&lacks.line(about.start_ns))),
    }
}

/// Link or event, both rates, and the change; then the notes.
fn headline(way: &Way, style: Style) -> String {
    let said = format!("  {}", said(&way.total, &way.unit));
    let name = printable(&way.name);
    let mut out = match style.width {
        Some(width) if cells(&name) + cells(&said) > width => {
            let name = shorten(&name, width, mark(style.ascii)).into_owned();
            format!("{name}\n{}", wrapped("  ", said.trim_start(), Some(width)))
        }
        _ => format!("{name}{said}\n"),
    };
    for note in &way.notes {
        out.push_str(&wrapped("  note: ", &printable(note), style.width));
    }
    out
}

/// `12.3 -> 18.9 GB/s, +6.6 GB/s (+54 %): more`
pub(super) fn said(change: &Change, unit: &str) -> String {
    let mut said = rates(change, unit);
    if let Some(difference) = change.difference() {
        write!(said, ", {}", signed(difference, &units::rate(difference, &printable(unit))))
            .unwrap_or_default();
    }
    if let Some(ratio) = change.ratio() {
        let percent = (ratio - 1.0) * 100.0;
        write!(said, " ({})", signed(percent, &units::human(percent, "%"))).unwrap_or_default();
    }
    if let Some(verdict) = verdict(change) {
        write!(said, ": {verdict}").unwrap_or_default();
    }
    said
}

/// The text with `+` in front if the value is above 0.
fn signed(value: f64, text: &str) -> String {
    let sign = if value > 0.0 && text.starts_with(|c: char| c.is_ascii_digit()) { "+" } else { "" };
    format!("{sign}{text}")
}

/// The verdict in words; `None` if there is none.
pub(super) fn verdict(change: &Change) -> Option<String> {
    let verdict = change.verdict()?;
    let is_doubtful =
        matches!(verdict, Verdict::New | Verdict::Gone) && change.is_beyond_error() != Some(true);
    let doubt = if is_doubtful { ", within error" } else { "" };
    Some(format!("{}{doubt}", verdict.word()))
}

/// The first `top` tenants with anything to show.
pub(super) fn tenants(way: &Way, top: Option<usize>) -> Vec<&Tenant> {
    let says = |tenant: &&Tenant| tenant.change.says_something();
    way.tenants.iter().filter(says).take(top.unwrap_or(usize::MAX)).collect()
}

/// The number of hidden tenants, and their sum.
pub(super) fn rest(way: &Way, shown: usize) -> String {
    let rest = way.tenants.iter().filter(|tenant| tenant.change.says_something()).skip(shown);
    let differences: Vec<Option<f64>> = rest.map(|tenant| tenant.change.difference()).collect();
    // If one is unknown, so is the sum.
    let sum: Option<f64> = differences.iter().copied().sum();
    let said = |sum: f64| signed(sum, &units::rate(sum, &printable(&way.unit)));
    match (differences.len(), sum.map(said)) {
        (0, _) => String::new(),
        (1, Some(sum)) => format!(" and one other: {sum}\n"),
        (1, None) => " and one other, whose difference is not known\n".to_owned(),
        (count, Some(sum)) => format!(" and {count} others: {sum} together\n"),
        (count, None) => format!(" and {count} others, whose sum is not known\n"),
    }
}

/// The columns of the table of a link or event.
fn columns(diff: &Diff, way: &Way, tenants: &[&Tenant], style: Style) -> Vec<Column> {
    let unit = printable(&way.unit);
    let changes: Vec<&Change> = tenants.iter().map(|tenant| &tenant.change).collect();
    let rates = changes.iter().flat_map(|it| [it.before.per_s(), it.after.per_s()]).flatten();
    // All rates have one unit, so that they can be compared.
    let shared = Shared::of(rates, &unit);
    let column = |kind: Kind, head: &str, unit: String, cells: Vec<String>| Column {
        kind,
        head: head.to_owned(),
        unit,
        cells,
        noted: false,
    };
    let words = |kind: Kind, cell: &dyn Fn(&Change) -> Option<String>| {
        let cells = changes.iter().map(|change| or_dash(cell(change))).collect();
        column(kind, kind.word(), String::new(), cells)
    };
    let numbers = |kind: Kind, cell: &dyn Fn(&Change) -> Option<String>| Column {
        unit: shared.rate_name(),
        ..words(kind, cell)
    };
    let dash = if style.ascii { "-" } else { "–" };
    let difference = |value: f64| signed(value, &shared.figure(value));
    let highs = changes.iter().filter_map(|change| Some(cells(&difference(change.reach()?.high))));
    let width = highs.max().unwrap_or(0);
    let range = |Interval { low, high }: Interval| {
        let (low, high) = (difference(low), difference(high));
        if low == high { low } else { format!("{low} {dash} {high:>width$}") }
    };
    let names = tenants.iter().map(|tenant| name(tenant)).collect();
    vec![
        column(Kind::Name, diff.by.name(), String::new(), names),
        numbers(Kind::Before, &|change| Some(shared.figure(change.before.per_s()?))),
        numbers(Kind::After, &|change| Some(shared.figure(change.after.per_s()?))),
        numbers(Kind::Difference, &|change| Some(difference(change.difference()?))),
        numbers(Kind::Interval, &|change| change.reach().map(range)),
        words(Kind::Ratio, &|change| Some(units::ratio(change.ratio()?))),
        words(Kind::Change, &verdict),
    ]
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}
