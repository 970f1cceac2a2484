//! The columns of an event's table.
//!
//! Guarantees: the numbers of a column have one unit; a value that is not known is `-`, never 0.

use std::borrow::Cow;

use super::heat::STEPS;
use super::interval::Interval;
use super::key::SMALL;
use super::layout::{Column, Kind};
use super::usage::{By, UsageEvent, ReportLine, Usage};
use crate::terminal::cells;
use crate::text::printable;
use crate::units::{self, SharedUnit};

/// Ends of an interval that differ by no more than this part of the value are the value.
const SAME: f64 = 1e-9;

/// Variants of a table, from wide to narrow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Characters of the bars over time.
    pub(super) bars: usize,
    /// Whether units that are words are printed below the headings; if not, they are only above the
    /// table.
    pub(super) units: bool,
    /// Whether there is a column for owners; if not, lines without a name show the owner as their
    /// name.
    pub(super) owner: bool,
}

/// The columns of an event's table.
pub(super) fn columns(usage: &Usage, event: &UsageEvent, ascii: bool, shape: Shape) -> Vec<Column> {
    let by = event.grouping;
    let lines: Vec<&ReportLine> = event.lines.iter().filter(|line| line.says_something()).collect();
    let column = |kind, head: &str, cell: &dyn Fn(&ReportLine) -> String| Column {
        kind,
        head: head.to_owned(),
        unit: String::new(),
        cells: lines.iter().map(|line| cell(line)).collect(),
        noted: false,
    };
    let word = !units::has_symbol(&event.unit) && !shape.units;
    let unit = if word { Cow::Borrowed("") } else { printable(&event.unit) };
    // A column of numbers, in the unit of the largest.
    let numbers = |kind: Kind, number: &dyn Fn(&ReportLine) -> Option<f64>, is_rate: bool| {
        let shared = SharedUnit::for_values(lines.iter().filter_map(|line| number(line)), &unit);
        let name = if is_rate { shared.rate_name() } else { shared.unit_name().to_owned() };
        let cell = |line: &ReportLine| or_dash(number(line).map(|number| shared.format_figure(number)));
        Column { unit: name, ..column(kind, kind.word(), &cell) }
    };
    let parts = |kind: Kind, part: &dyn Fn(&ReportLine) -> Option<f64>| {
        let shared = SharedUnit::as_percent();
        let cell = |line: &ReportLine| or_dash(part(line).map(|part| shared.format_figure(part)));
        Column { unit: shared.unit_name().to_owned(), ..column(kind, kind.word(), &cell) }
    };
    let times = |kind: Kind, time: &dyn Fn(&ReportLine) -> Option<i64>| {
        let cell = |line: &ReportLine| second(usage, time(line));
        Column { unit: "s".to_owned(), ..column(kind, kind.word(), &cell) }
    };
    let bar_ns = usage.step_ns * STEPS as f64 / shape.bars as f64;
    let mut columns = Vec::new();
    if both(by) && shape.owner {
        columns.push(column(Kind::Owner, "owner", &|line| printable(&line.owner).into_owned()));
    }
    columns.extend([
        column(Kind::Name, by.name(), &|line| name(line, by, shape)),
        numbers(Kind::Value, &ReportLine::known_value, false),
        intervals(event, &lines, &unit, if ascii { "-" } else { "–" }),
        numbers(Kind::Average, &|line| event.mean_rate(line.known_value()?), true),
        numbers(Kind::Peak, &|line| line.peak, true),
        parts(Kind::Share, &|line| {
            line.known_value().filter(|_| event.total != 0.0).map(|value| value / event.total)
        }),
        Column {
            noted: lines.iter().any(|line| line.sum.confidence.lowest.is_none_or(|least| least < 1.0)),
            ..column(Kind::Confidence, "confidence", &|line| {
                let confidence = line.sum.confidence.mean_confidence().zip(line.sum.confidence.lowest);
                or_dash(confidence.map(|(mean, least)| format!("{mean:.2} (min {least:.2})")))
            })
        },
        column(Kind::Method, "method", &|line| {
            let methods: Vec<&str> = line.methods.iter().map(String::as_str).collect();
            printable(&methods.join(", ")).into_owned()
        }),
        Column {
            noted: lines.iter().any(|line| line.running < 1.0),
            ..parts(Kind::Running, &|line| Some(line.running))
        },
        Column {
            noted: lines.iter().any(|line| line.sum.missing > 0),
            ..column(Kind::Missing, "missing", &|line| line.sum.missing.to_string())
        },
        times(Kind::From, &|line| line.active.map(|active| active.0)),
        times(Kind::To, &|line| line.active.map(|active| active.1)),
        column(Kind::Time, &format!("a bar is {}", units::human(bar_ns, "ns")), &|line| {
            line.heat.draw_line(shape.bars, ascii)
        }),
    ]);
    // Lines that sum all owners have no interval, because nothing was divided.
    columns.retain(|column| column.kind != Kind::Interval || by.has_owner());
    columns
}

/// The interval of each line, with aligned ends.
fn intervals(event: &UsageEvent, lines: &[&ReportLine], unit: &str, dash: &str) -> Column {
    let all: Vec<_> = lines.iter().map(|line| line.value_interval(event)).collect();
    let ends = all.iter().flatten().flat_map(|interval| [interval.low, interval.high]);
    let shared = SharedUnit::for_values(ends, unit);
    let highs = all.iter().flatten().map(|interval| cells(&shared.format_figure(interval.high)));
    let width = highs.max().unwrap_or(0);
    let range = |it: &Interval| shared.format_range(it.low, it.high, dash, width);
    let is_exact = |(line, interval): (&&ReportLine, &Option<Interval>)| {
        let value = line.sum.value;
        interval.is_some_and(|it| {
            (it.high - it.low).abs() <= SAME * value.abs()
                && (it.high - value).abs() <= SAME * value.abs()
        })
    };
    Column {
        kind: Kind::Interval,
        head: Kind::Interval.word().to_owned(),
        unit: shared.unit_name().to_owned(),
        cells: all.iter().map(|interval| or_dash(interval.as_ref().map(range))).collect(),
        noted: !lines.iter().zip(&all).all(is_exact),
    }
}

/// Whether lines have an owner beside their name.
fn both(by: By) -> bool {
    by.has_owner() && by != By::Owner
}

/// The name of a line; an owner that has its own column is not repeated.
fn name(line: &ReportLine, by: By, shape: Shape) -> String {
    if line.key == SMALL {
        return format!("({} small processes)", line.most_small_processes());
    }
    match (both(by) && line.key == line.owner, shape.owner) {
        (false, _) => printable(&line.key).into_owned(),
        (true, true) => String::new(),
        (true, false) => format!("({})", printable(&line.owner)),
    }
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// A time as seconds after the begin of the recording.
fn second(usage: &Usage, ns: Option<i64>) -> String {
    let after = ns.map(|ns| ns.saturating_sub(usage.start_ns) as f64 / 1e9);
    or_dash(after.map(|after| format!("{after:.3}")))
}
