//! Latencies as tables.
//!
//! Guarantees: text from the machine is escaped; if there is a width, long names do not push
//! numbers out of it; every table says that it shows a correlation, not a cause.

use std::fmt::Write as _;

use super::super::key::By;
use super::super::layout::{Column, Fit, Kind};
use super::super::render::TextStyle;
use super::{LEAST, Latency, Means, Tenant};
use crate::terminal::{mark, shorten, wrap_words};
use crate::text::printable;
use crate::units::{self, SharedUnit};

/// A table for each latency of each link, with its first `top` tenants; empty without latencies.
pub fn text(latencies: &[Latency], by: By, top: Option<usize>, style: TextStyle) -> String {
    let width = style.width.unwrap_or(usize::MAX);
    let known: Vec<Vec<Row<'_>>> = latencies.iter().map(rows).collect();
    let shown = |rows: &[Row<'_>]| rows.len().min(top.unwrap_or(usize::MAX));
    let tables: Vec<Vec<Column>> = latencies
        .iter()
        .zip(&known)
        .map(|(latency, rows)| columns(latency, &rows[..shown(rows)], by))
        .collect();
    let fit = Fit::new(style, &tables);
    let mut out = String::new();
    for ((latency, rows), columns) in latencies.iter().zip(&known).zip(&tables) {
        let mut lines = vec![headline(latency)];
        lines.extend(rows.first().map(|row| sentence(latency, row, style)));
        for line in lines {
            // Writing to a String cannot fail.
            writeln!(out, "{}", wrap_words(&line, width)).unwrap_or_default();
        }
        let shown = shown(rows);
        if shown > 0 {
            out.push_str(&fit.draw(columns));
        }
        for line in left_out(rows.len() - shown, latency.tenants.len() - rows.len()) {
            writeln!(out, "{}", wrap_words(&line, width)).unwrap_or_default();
        }
        out.push('\n');
    }
    if let Some(note) = fit.note() {
        writeln!(out, "{}", wrap_words(&note, width)).unwrap_or_default();
    }
    out
}

/// A tenant with both parts: others quiet, and others busy.
type Row<'a> = (&'a Tenant, [Means; 2]);

fn rows(latency: &Latency) -> Vec<Row<'_>> {
    let both = |tenant: &Tenant| tenant.split.filter(|_| tenant.difference().is_some());
    latency.tenants.iter().filter_map(|tenant| Some((tenant, both(tenant)?))).collect()
}

/// The metric, and its value over all windows.
fn headline(latency: &Latency) -> String {
    let of = format!("{} of {}", printable(&latency.metric), printable(&latency.link));
    let all = latency.all.value.map(|value| units::human(value, &printable(&latency.unit)));
    let all = all.unwrap_or_else(|| "not known".to_owned());
    let unknown = match latency.unknown_windows {
        0 => String::new(),
        1 => ", without one window that is not known".to_owned(),
        count => format!(", without {count} windows that are not known"),
    };
    format!("{of}: {all}{unknown} ({})", printable(&latency.about))
}

/// `While /tenant-a used it: 112 ns with others quiet, 148 ns with others busy (correlation, not cause)`
fn sentence(latency: &Latency, (tenant, [quiet, busy]): &Row<'_>, style: TextStyle) -> String {
    let unit = printable(&latency.unit);
    let value = |part: &Means| units::human(part.value.unwrap_or(f64::NAN), &unit);
    let name = name(tenant);
    let width = style.width.unwrap_or(usize::MAX);
    format!(
        "While {} used it: {} with others quiet, {} with others busy (correlation, not cause)",
        shorten(&name, width / 2, mark(style.ascii)),
        value(quiet),
        value(busy)
    )
}

fn name(tenant: &Tenant) -> String {
    let key = printable(&tenant.key);
    if tenant.key == tenant.owner { format!("({key})") } else { key.into_owned() }
}

/// The number of tenants that are not in the table, and why.
fn left_out(more: usize, unknown: usize) -> Vec<String> {
    let mut lines = Vec::new();
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    if unknown > 0 {
        let tenants = if unknown == 1 { "tenant" } else { "tenants" };
        lines.push(format!(
            "not known of {unknown} {tenants}: fewer than {LEAST} windows with others quiet or busy, or \
             others as busy at all times"
        ));
    }
    lines
}

fn columns(latency: &Latency, rows: &[Row<'_>], by: By) -> Vec<Column> {
    let unit = printable(&latency.unit);
    let column = |kind: Kind, head: &str, unit: String, cells: Vec<String>| Column {
        kind,
        head: head.to_owned(),
        unit,
        cells,
        noted: false,
    };
    let values = rows.iter().flat_map(|(_, parts)| parts).filter_map(|part| part.value);
    let times = SharedUnit::for_values(values, &unit);
    let time = |kind: Kind, head: &str, of: &dyn Fn(&Row<'_>) -> Option<f64>| {
        let cell = |row: &Row<'_>| of(row).map_or_else(|| "-".to_owned(), |it| times.format_figure(it));
        column(kind, head, times.unit_name().to_owned(), rows.iter().map(cell).collect())
    };
    // Both rates in one unit.
    let rates = |kind: Kind, head: &str, of: &dyn Fn(&Means) -> f64| {
        let all = rows.iter().flat_map(|(_, parts)| parts).map(of);
        let shared = SharedUnit::for_values(all, "bytes");
        let cell = |(_, [quiet, busy]): &Row<'_>| {
            let figure = |part| shared.format_figure(of(part)).trim_end().to_owned();
            format!("{} / {}", figure(quiet), figure(busy))
        };
        column(kind, head, shared.rate_name(), rows.iter().map(cell).collect())
    };
    let windows = |(_, [quiet, busy]): &Row<'_>| format!("{} / {}", quiet.windows, busy.windows);
    let ratio = |(_, [quiet, busy]): &Row<'_>| {
        let ratio = quiet.value.zip(busy.value).map(|(quiet, busy)| busy / quiet);
        ratio.filter(|it| it.is_finite()).map_or_else(|| "-".to_owned(), units::format_ratio)
    };
    vec![
        column(Kind::Name, by.name(), String::new(), rows.iter().map(|row| name(row.0)).collect()),
        time(Kind::Before, "others quiet", &|(_, [quiet, _])| quiet.value),
        time(Kind::After, "others busy", &|(_, [_, busy])| busy.value),
        column(Kind::Ratio, Kind::Ratio.word(), String::new(), rows.iter().map(ratio).collect()),
        column(
            Kind::Windows,
            Kind::Windows.word(),
            String::new(),
            rows.iter().map(windows).collect(),
        ),
        rates(Kind::Own, Kind::Own.word(), &|part| part.own_per_s),
        rates(Kind::Others, Kind::Others.word(), &|part| part.others_per_s),
    ]
}
