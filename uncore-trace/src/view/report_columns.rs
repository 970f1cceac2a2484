//! The columns of an event's table.
//!
//! Guarantees: the numbers of a column have one unit; a value that is not known is `-`, never 0.

use std::borrow::Cow;

use super::grouping::GroupBy;
use super::heat::STEPS;
use super::interval::Interval;
use super::key::SMALL;
use super::report_sums::{ReportEvent, ReportLine, ReportSums};
use super::table_layout::{ReportColumnKind, TableColumn, or_dash};
use crate::terminal::cells;
use crate::text::printable;
use crate::units::{self, SharedUnit};

/// Ends of an interval that differ by no more than this part of the value are the value.
const SAME: f64 = 1e-9;

/// Variants of a table, from wide to narrow.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableShape {
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
pub(super) fn report_columns(
    usage: &ReportSums,
    event: &ReportEvent,
    ascii: bool,
    shape: TableShape,
) -> Vec<TableColumn> {
    let grouping = event.grouping;
    let lines: Vec<&ReportLine> = event.lines.iter().filter(|line| line.says_something()).collect();
    let column = |column_kind, unit: &str, cell: &dyn Fn(&ReportLine) -> String| {
        TableColumn::new(column_kind, unit, lines.iter().map(|line| cell(line)).collect())
    };
    let is_unit_hidden = !units::has_symbol(&event.unit) && !shape.units;
    let unit = if is_unit_hidden { Cow::Borrowed("") } else { printable(&event.unit) };
    // A column of numbers, in the unit of the largest.
    let number_column = |column_kind: ReportColumnKind,
                         number: &dyn Fn(&ReportLine) -> Option<f64>,
                         is_rate: bool| {
        let shared = SharedUnit::for_values(lines.iter().filter_map(|line| number(line)), &unit);
        let name = if is_rate { shared.rate_name() } else { shared.unit_name().to_owned() };
        let cell =
            |line: &ReportLine| or_dash(number(line).map(|number| shared.format_figure(number)));
        column(column_kind, &name, &cell)
    };
    let percent_column =
        |column_kind: ReportColumnKind, fraction_of: &dyn Fn(&ReportLine) -> Option<f64>| {
            let shared = SharedUnit::as_percent();
            let cell = |line: &ReportLine| {
                or_dash(fraction_of(line).map(|fraction| shared.format_figure(fraction)))
            };
            column(column_kind, shared.unit_name(), &cell)
        };
    // Times in seconds after the begin of the recording.
    let second_column = |column_kind: ReportColumnKind,
                         time: &dyn Fn(&ReportLine) -> Option<i64>| {
        let second = |ns: i64| ns.saturating_sub(usage.start_ns) as f64 / 1e9;
        column(column_kind, "s", &|line| or_dash(time(line).map(|ns| format!("{:.3}", second(ns)))))
    };
    let bar_ns = usage.step_ns * STEPS as f64 / shape.bars as f64;
    let mut columns = Vec::new();
    if has_owner_column(grouping) && shape.owner {
        columns
            .push(column(ReportColumnKind::Owner, "", &|line| printable(&line.owner).into_owned()));
    }
    columns.extend([
        column(ReportColumnKind::Name, "", &|line| line_label(line, grouping, shape))
            .with_head(grouping.name()),
        number_column(ReportColumnKind::Value, &ReportLine::known_value, false),
        interval_column(event, &lines, &unit, if ascii { "-" } else { "–" }),
        number_column(
            ReportColumnKind::Average,
            &|line| event.mean_rate(line.known_value()?),
            true,
        ),
        number_column(ReportColumnKind::Peak, &|line| line.peak, true),
        percent_column(ReportColumnKind::Share, &|line| {
            line.known_value().filter(|_| event.total != 0.0).map(|value| value / event.total)
        }),
        TableColumn {
            noted: lines
                .iter()
                .any(|line| line.sum.confidence.lowest.is_none_or(|lowest| lowest < 1.0)),
            ..column(ReportColumnKind::Confidence, "", &|line| {
                let confidence =
                    line.sum.confidence.mean_confidence().zip(line.sum.confidence.lowest);
                or_dash(confidence.map(|(mean, lowest)| format!("{mean:.2} (min {lowest:.2})")))
            })
        },
        column(ReportColumnKind::Method, "", &|line| {
            let methods: Vec<&str> = line.methods.iter().map(String::as_str).collect();
            printable(&methods.join(", ")).into_owned()
        }),
        TableColumn {
            noted: lines.iter().any(|line| line.running < 1.0),
            ..percent_column(ReportColumnKind::Running, &|line| Some(line.running))
        },
        TableColumn {
            noted: lines.iter().any(|line| line.sum.missing > 0),
            ..column(ReportColumnKind::Missing, "", &|line| line.sum.missing.to_string())
        },
        second_column(ReportColumnKind::From, &|line| line.active.map(|active| active.begin_ns)),
        second_column(ReportColumnKind::To, &|line| line.active.map(|active| active.end_ns)),
        column(ReportColumnKind::Time, "", &|line| line.heat.draw_line(shape.bars, ascii))
            .with_head(&format!("a bar is {}", units::human(bar_ns, "ns"))),
    ]);
    // Lines that sum all owners have no interval, because nothing was divided.
    columns
        .retain(|column| column.column_kind != ReportColumnKind::Interval || grouping.has_owner());
    columns
}

/// The interval of each line, with aligned ends.
fn interval_column(
    event: &ReportEvent,
    lines: &[&ReportLine],
    unit: &str,
    dash: &str,
) -> TableColumn {
    let intervals: Vec<_> = lines.iter().map(|line| line.value_interval(event)).collect();
    let ends = intervals.iter().flatten().flat_map(|interval| [interval.low, interval.high]);
    let shared = SharedUnit::for_values(ends, unit);
    let highs =
        intervals.iter().flatten().map(|interval| cells(&shared.format_figure(interval.high)));
    let width = highs.max().unwrap_or(0);
    let range = |bounds: &Interval| shared.format_range(bounds.low, bounds.high, dash, width);
    let is_exact = |(line, interval): (&&ReportLine, &Option<Interval>)| {
        let value = line.sum.value;
        interval.is_some_and(|bounds| {
            (bounds.high - bounds.low).abs() <= SAME * value.abs()
                && (bounds.high - value).abs() <= SAME * value.abs()
        })
    };
    let cells = intervals.iter().map(|interval| or_dash(interval.as_ref().map(range))).collect();
    TableColumn {
        noted: !lines.iter().zip(&intervals).all(is_exact),
        ..TableColumn::new(ReportColumnKind::Interval, shared.unit_name(), cells)
    }
}

/// Whether lines have an owner beside their name.
fn has_owner_column(grouping: GroupBy) -> bool {
    grouping.has_owner() && grouping != GroupBy::Owner
}

/// The name of a line; an owner that has its own column is not repeated.
fn line_label(line: &ReportLine, grouping: GroupBy, shape: TableShape) -> String {
    if line.key == SMALL {
        return format!("({} small processes)", line.most_small_processes());
    }
    match (has_owner_column(grouping) && line.key == line.owner, shape.owner) {
        (false, _) => printable(&line.key).into_owned(),
        (true, true) => String::new(),
        (true, false) => format!("({})", printable(&line.owner)),
    }
}
