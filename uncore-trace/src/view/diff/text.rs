//! A comparison as text: the summary, then a table for each event or direction of a link.
//!
//! Guarantees: text from the machine is escaped; if there is a width, long names do not push
//! numbers out of it; a value that is not known is `-`, never 0.

use std::fmt::Write as _;

use super::super::interval::Interval;
use super::super::render::TextStyle;
use super::super::table_layout::{ReportColumnKind, TableColumn, TableFit, or_dash};
use super::rate::{ChangeVerdict, RateChange, SideRate};
pub use super::summary::format_rates;
use super::summary::tenant_label;
use super::{ComparedTenant, Diff, DiffSubject, SpanFacts, summary};
use crate::terminal::{cells, mark, shorten, wrap_words};
use crate::text::{printable, wrapped};
use crate::units::{self, SharedUnit};

/// The whole comparison, with the names of the two sides, and the `top` largest differences in
/// each table.
pub fn render_text(
    diff: &Diff,
    side_names: [&str; 2],
    top: Option<usize>,
    style: TextStyle,
) -> String {
    let width = style.width.unwrap_or(usize::MAX);
    let mut output = format!("{}\n\n", wrap_words(&summary(diff, style), width));
    for (word, side_name, facts) in [
        ("before: ", side_names[0], &diff.before_facts),
        ("after:  ", side_names[1], &diff.after_facts),
    ] {
        output.push_str(&wrapped(word, &describe_side(side_name, facts), style.width));
    }
    for note in &diff.notes {
        output.push_str(&wrapped("note: ", &printable(note), style.width));
    }
    output.push('\n');
    let shown: Vec<Vec<&ComparedTenant>> =
        diff.subjects.iter().map(|subject| shown_tenants(subject, top)).collect();
    let tables: Vec<Vec<TableColumn>> = diff
        .subjects
        .iter()
        .zip(&shown)
        .map(|(subject, tenants)| tenant_columns(diff, subject, tenants, style))
        .collect();
    let fit = TableFit::new(style, &tables);
    for ((subject, tenants), columns) in diff.subjects.iter().zip(&shown).zip(&tables) {
        output.push_str(&subject_headline(subject, style));
        if !tenants.is_empty() {
            output.push_str(&fit.draw(columns));
        }
        output.push_str(&describe_hidden(subject, tenants.len()));
        output.push('\n');
    }
    if let Some(note) = fit.hidden_note() {
        // Writing to a String cannot fail.
        writeln!(output, "{}", wrap_words(&note, width)).unwrap_or_default();
    }
    output
}

/// Name, length and incompleteness of one of the two sides.
fn describe_side(side_name: &str, facts: &SpanFacts) -> String {
    let length = units::human(facts.length_s() * 1e9, "ns");
    let called = printable(side_name);
    match &facts.incomplete {
        None => format!("{called}, {length}"),
        Some(lacks) => {
            format!("{called}, {length}, {}", printable(&lacks.summary_line(facts.start_ns)))
        }
    }
}

/// Link or event, both rates, and the change; then the notes.
fn subject_headline(subject: &DiffSubject, style: TextStyle) -> String {
    let change_text = format!("  {}", describe_change(&subject.total, &subject.unit));
    let name = printable(&subject.name);
    let mut output = match style.width {
        Some(width) if cells(&name) + cells(&change_text) > width => {
            let name = shorten(&name, width, mark(style.ascii)).into_owned();
            format!("{name}\n{}", wrapped("  ", change_text.trim_start(), Some(width)))
        }
        _ => format!("{name}{change_text}\n"),
    };
    for note in &subject.notes {
        output.push_str(&wrapped("  note: ", &printable(note), style.width));
    }
    output
}

/// `12.3 -> 18.9 GB/s, +6.6 GB/s (+54 %): more`
pub(super) fn describe_change(change: &RateChange, unit: &str) -> String {
    let mut description = format_rates(change, unit);
    if let Some(difference) = change.difference_per_s() {
        write!(
            description,
            ", {}",
            with_sign(difference, &units::human_rate(difference, &printable(unit)))
        )
        .unwrap_or_default();
    }
    if let Some(ratio) = change.rate_ratio() {
        let percent = (ratio - 1.0) * 100.0;
        write!(description, " ({})", with_sign(percent, &units::human(percent, "%")))
            .unwrap_or_default();
    }
    if let Some(verdict) = verdict_text(change) {
        write!(description, ": {verdict}").unwrap_or_default();
    }
    description
}

/// The text with `+` in front if the value is above 0.
fn with_sign(value: f64, number_text: &str) -> String {
    let sign =
        if value > 0.0 && number_text.starts_with(|c: char| c.is_ascii_digit()) { "+" } else { "" };
    format!("{sign}{number_text}")
}

/// The verdict in words; `None` if there is none.
pub(super) fn verdict_text(change: &RateChange) -> Option<String> {
    let verdict = change.verdict()?;
    let is_doubtful = matches!(verdict, ChangeVerdict::New | ChangeVerdict::Gone)
        && change.is_beyond_error() != Some(true);
    let doubt = if is_doubtful { ", within error" } else { "" };
    Some(format!("{}{doubt}", verdict.table_word()))
}

/// The first `top` tenants with anything to show.
pub(super) fn shown_tenants(subject: &DiffSubject, top: Option<usize>) -> Vec<&ComparedTenant> {
    let is_shown = |tenant: &&ComparedTenant| tenant.change.says_something();
    subject.tenants.iter().filter(is_shown).take(top.unwrap_or(usize::MAX)).collect()
}

/// The number of hidden tenants, and their sum.
pub(super) fn describe_hidden(subject: &DiffSubject, shown_count: usize) -> String {
    let hidden_tenants =
        subject.tenants.iter().filter(|tenant| tenant.change.says_something()).skip(shown_count);
    let differences: Vec<Option<f64>> =
        hidden_tenants.map(|tenant| tenant.change.difference_per_s()).collect();
    // If one is unknown, so is the sum.
    let sum: Option<f64> = differences.iter().copied().sum();
    let difference_text =
        |sum: f64| with_sign(sum, &units::human_rate(sum, &printable(&subject.unit)));
    match (differences.len(), sum.map(difference_text)) {
        (0, _) => String::new(),
        (1, Some(sum)) => format!(" and one other: {sum}\n"),
        (1, None) => " and one other, whose difference is not known\n".to_owned(),
        (count, Some(sum)) => format!(" and {count} others: {sum} together\n"),
        (count, None) => format!(" and {count} others, whose sum is not known\n"),
    }
}

/// The columns of the table of a link or event.
fn tenant_columns(
    diff: &Diff,
    subject: &DiffSubject,
    tenants: &[&ComparedTenant],
    style: TextStyle,
) -> Vec<TableColumn> {
    let unit = printable(&subject.unit);
    let changes: Vec<&RateChange> = tenants.iter().map(|tenant| &tenant.change).collect();
    let all_rates = changes
        .iter()
        .flat_map(|rate_change| [rate_change.before_rate.per_s(), rate_change.after_rate.per_s()])
        .flatten();
    // All rates have one unit, so that they can be compared.
    let shared = SharedUnit::for_values(all_rates, &unit);
    let rate_unit = shared.rate_name();
    let column = |column_kind, unit: &str, cell: &dyn Fn(&RateChange) -> Option<String>| {
        let cells = changes.iter().map(|change| or_dash(cell(change))).collect();
        TableColumn::new(column_kind, unit, cells)
    };
    let rate = |side_rate: &SideRate| Some(shared.format_figure(side_rate.per_s()?));
    let dash = if style.ascii { "-" } else { "–" };
    let difference = |value: f64| with_sign(value, &shared.format_figure(value));
    let highs = changes
        .iter()
        .filter_map(|change| Some(cells(&difference(change.difference_interval()?.high))));
    let width = highs.max().unwrap_or(0);
    let range = |Interval { low, high }: Interval| {
        let (low, high) = (difference(low), difference(high));
        if low == high { low } else { format!("{low} {dash} {high:>width$}") }
    };
    let names = tenants.iter().map(|tenant| tenant_label(tenant)).collect();
    vec![
        TableColumn::new(ReportColumnKind::Name, "", names).with_head(diff.grouping.name()),
        column(ReportColumnKind::Before, &rate_unit, &|change| rate(&change.before_rate)),
        column(ReportColumnKind::After, &rate_unit, &|change| rate(&change.after_rate)),
        column(ReportColumnKind::Difference, &rate_unit, &|change| {
            change.difference_per_s().map(difference)
        }),
        column(ReportColumnKind::Interval, &rate_unit, &|change| {
            change.difference_interval().map(range)
        }),
        column(ReportColumnKind::Ratio, "", &|change| change.rate_ratio().map(units::format_ratio)),
        column(ReportColumnKind::Change, "", &verdict_text),
    ]
}
