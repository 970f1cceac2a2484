//! Latencies as tables.
//!
//! Guarantees: text from the machine is escaped; if there is a width, long names do not push
//! numbers out of it; every table says that it shows a correlation, not a cause.

use std::fmt::Write as _;

use super::super::answer::owner_label;
use super::super::grouping::GroupBy;
use super::super::render::TextStyle;
use super::super::table_layout::{ReportColumnKind, TableColumn, TableFit, or_dash};
use super::{LinkLatency, MIN_WINDOWS, TenantLatency, WindowMeans};
use crate::terminal::{mark, shorten, wrap_words};
use crate::text::printable;
use crate::units::{self, SharedUnit};

/// A table for each latency of each link, with its first `top` tenants; empty without latencies.
pub fn render_text(
    latencies: &[LinkLatency],
    grouping: GroupBy,
    top: Option<usize>,
    style: TextStyle,
) -> String {
    let width = style.width.unwrap_or(usize::MAX);
    let known: Vec<Vec<SplitTenant<'_>>> = latencies.iter().map(split_tenants).collect();
    let shown = |rows: &[SplitTenant<'_>]| rows.len().min(top.unwrap_or(usize::MAX));
    let tables: Vec<Vec<TableColumn>> = latencies
        .iter()
        .zip(&known)
        .map(|(latency, rows)| latency_columns(latency, &rows[..shown(rows)], grouping))
        .collect();
    let fit = TableFit::new(style, &tables);
    let mut output = String::new();
    for ((latency, rows), columns) in latencies.iter().zip(&known).zip(&tables) {
        let mut lines = vec![latency_headline(latency)];
        lines.extend(rows.first().map(|row| correlation_sentence(latency, row, style)));
        for line in lines {
            // Writing to a String cannot fail.
            writeln!(output, "{}", wrap_words(&line, width)).unwrap_or_default();
        }
        let shown = shown(rows);
        if shown > 0 {
            output.push_str(&fit.draw(columns));
        }
        for line in left_out(rows.len() - shown, latency.tenants.len() - rows.len()) {
            writeln!(output, "{}", wrap_words(&line, width)).unwrap_or_default();
        }
        output.push('\n');
    }
    if let Some(note) = fit.hidden_note() {
        writeln!(output, "{}", wrap_words(&note, width)).unwrap_or_default();
    }
    output
}

/// A tenant with both halves of its windows: others quiet, and others busy.
type SplitTenant<'a> = (&'a TenantLatency, [WindowMeans; 2]);

fn split_tenants(latency: &LinkLatency) -> Vec<SplitTenant<'_>> {
    let both_halves =
        |tenant: &TenantLatency| tenant.split.filter(|_| tenant.latency_difference().is_some());
    latency.tenants.iter().filter_map(|tenant| Some((tenant, both_halves(tenant)?))).collect()
}

/// The metric, and its value over all windows.
fn latency_headline(latency: &LinkLatency) -> String {
    let metric_of_link = format!("{} of {}", printable(&latency.metric), printable(&latency.link));
    let overall = latency.overall.value.map(|value| units::human(value, &printable(&latency.unit)));
    let overall = overall.unwrap_or_else(|| "not known".to_owned());
    let unknown = match latency.unknown_windows {
        0 => String::new(),
        1 => ", without one window that is not known".to_owned(),
        count => format!(", without {count} windows that are not known"),
    };
    format!("{metric_of_link}: {overall}{unknown} ({})", printable(&latency.about))
}

/// `While /tenant-a used it: 112 ns with others quiet, 148 ns with others busy (correlation, not
/// cause)`
fn correlation_sentence(
    latency: &LinkLatency,
    (tenant, [quiet, busy]): &SplitTenant<'_>,
    style: TextStyle,
) -> String {
    let unit = printable(&latency.unit);
    let value = |half: &WindowMeans| units::human(half.value.unwrap_or(f64::NAN), &unit);
    let name = tenant_label(tenant);
    format!(
        "While {} used it: {} with others quiet, {} with others busy (correlation, not cause)",
        shorten(&name, style.width.unwrap_or(usize::MAX) / 2, mark(style.ascii)),
        value(quiet),
        value(busy)
    )
}

fn tenant_label(tenant: &TenantLatency) -> String {
    owner_label(&tenant.key, &tenant.owner).into_owned()
}

/// The number of tenants that are not in the table, and why.
fn left_out(hidden_count: usize, unknown_count: usize) -> Vec<String> {
    let mut lines = Vec::new();
    if hidden_count > 0 {
        lines.push(format!("and {hidden_count} more"));
    }
    if unknown_count > 0 {
        let tenants = if unknown_count == 1 { "tenant" } else { "tenants" };
        lines.push(format!(
            "not known of {unknown_count} {tenants}: fewer than {MIN_WINDOWS} windows with others \
             quiet or busy, or others as busy at all times"
        ));
    }
    lines
}

fn latency_columns(
    latency: &LinkLatency,
    rows: &[SplitTenant<'_>],
    grouping: GroupBy,
) -> Vec<TableColumn> {
    let unit = printable(&latency.unit);
    let column = |column_kind, unit: &str, cell: &dyn Fn(&SplitTenant<'_>) -> String| {
        TableColumn::new(column_kind, unit, rows.iter().map(cell).collect())
    };
    let values = rows.iter().flat_map(|(_, halves)| halves).filter_map(|half| half.value);
    let times = SharedUnit::for_values(values, &unit);
    let time_column = |column_kind, half: usize| {
        column(column_kind, times.unit_name(), &|(_, halves)| {
            or_dash(halves[half].value.map(|value| times.format_figure(value)))
        })
    };
    // Both rates in one unit.
    let rate_column = |column_kind, rate_of: fn(&WindowMeans) -> f64| {
        let rates_per_s = rows.iter().flat_map(|(_, halves)| halves).map(rate_of);
        let shared = SharedUnit::for_values(rates_per_s, "bytes");
        let cell = |(_, [quiet, busy]): &SplitTenant<'_>| {
            let figure = |half| shared.format_figure(rate_of(half)).trim_end().to_owned();
            format!("{} / {}", figure(quiet), figure(busy))
        };
        column(column_kind, &shared.rate_name(), &cell)
    };
    let ratio = |(_, [quiet, busy]): &SplitTenant<'_>| {
        let ratio = quiet.value.zip(busy.value).map(|(quiet, busy)| busy / quiet);
        or_dash(ratio.filter(|quotient| quotient.is_finite()).map(units::format_ratio))
    };
    vec![
        column(ReportColumnKind::Name, "", &|(tenant, _)| tenant_label(tenant))
            .with_head(grouping.name()),
        time_column(ReportColumnKind::Before, 0).with_head("others quiet"),
        time_column(ReportColumnKind::After, 1).with_head("others busy"),
        column(ReportColumnKind::Ratio, "", &ratio),
        column(ReportColumnKind::Windows, "", &|(_, [quiet, busy])| {
            format!("{} / {}", quiet.windows, busy.windows)
        }),
        rate_column(ReportColumnKind::Own, |half| half.own_per_s),
        rate_column(ReportColumnKind::Others, |half| half.others_per_s),
    ]
}
