//! Text output, in the layout of `perf stat`: value, unit, event, rate after `#`, the part of the
//! time that the counter ran if that is not all, and the noise of repeated runs.
//!
//! Guarantees: bytes have a prefix, the same in all rows of an event, and every other count has all
//! its digits; only 0 is printed as `0`; text from the machine is escaped.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::row::{CgroupShare, Location, Rate, RowPeriod, RowValue, StatRow};
use crate::text::printable;
use crate::units::SharedUnit;

/// Units of an event's values and rates, by label and unit.
type Units<'a> = HashMap<(&'a str, &'a str), (SharedUnit, SharedUnit)>;

/// Width of the number, as in perf.
const VALUE: usize = 18;

/// The line above the rows of an interval.
pub fn interval_heading(rows: &[StatRow]) -> String {
    let location_text = rows.first().map_or_else(String::new, |row| {
        location_columns(row.location, row.location.kind_name(), "cpus")
    });
    format!("#           time {location_text}{:>VALUE$} unit     events\n", "counts")
}

/// The columns of a location and of its number of counters, which a CPU has not.
fn location_columns(location: Location, name: &str, count: &str) -> String {
    let width = location.column_width();
    match location {
        Location::Machine => String::new(),
        Location::Cpu(_) => format!("{name:<width$} "),
        _ => format!("{name:<width$} {count:>4} "),
    }
}

/// One line per row.
pub fn rows(rows: &[StatRow], when: RowPeriod) -> String {
    let width =
        |text: &dyn Fn(&StatRow) -> usize, minimum| rows.iter().map(text).fold(minimum, usize::max);
    let labels = width(&|row| printable(&row.label).chars().count(), 24);
    let cgroups = width(
        &|row| {
            row.cgroup_share
                .as_ref()
                .map_or(0, |cgroup_share| printable(&cgroup_share.cgroup).chars().count())
        },
        0,
    );
    let units = shared_units(rows);
    let mut text = String::new();
    for row in rows {
        write_row(&mut text, row, when, &units, (labels, cgroups));
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// The units of each event: its rows are compared with each other, so they share a unit.
fn shared_units(rows: &[StatRow]) -> Units<'_> {
    let mut numbers: HashMap<_, (Vec<f64>, Vec<f64>, &str)> = HashMap::new();
    for row in rows {
        let (values, rates, rate_unit) = numbers.entry(unit_key(row)).or_default();
        values.extend(row.value.as_number());
        if let Some((rate, unit)) = row.rate.as_ref().and_then(prefixed) {
            rates.push(rate);
            *rate_unit = unit;
        }
    }
    let shared = |(key, (values, rates, rate_unit)): (_, (Vec<f64>, Vec<f64>, &str))| {
        let (_, unit) = key;
        (key, (SharedUnit::for_values(values, unit), SharedUnit::for_values(rates, rate_unit)))
    };
    numbers.into_iter().map(shared).collect()
}

/// Rows with equal keys share a unit.
fn unit_key(row: &StatRow) -> (&str, &str) {
    (&row.label, &row.unit)
}

/// The rate and its base unit, if it is shown with a prefix.
fn prefixed(rate: &Rate) -> Option<(f64, &'static str)> {
    match rate.unit {
        "GB/s" => Some((rate.value * 1e9, "bytes")),
        "/s" => Some((rate.value, "")),
        _ => None,
    }
}

fn write_row(
    text: &mut String,
    row: &StatRow,
    when: RowPeriod,
    units: &Units<'_>,
    (labels, cgroups): (usize, usize),
) {
    // Writing to a String cannot fail.
    let mut write =
        |arguments: std::fmt::Arguments<'_>| text.write_fmt(arguments).unwrap_or_default();
    match when {
        RowPeriod::Whole => {}
        RowPeriod::Until(seconds) => write(format_args!("{seconds:>16.9} ")),
        RowPeriod::Summary => write(format_args!("{:>16} ", "summary")),
    }
    let (location, members) = (row.location.to_string(), row.members.to_string());
    write(format_args!("{}", location_columns(row.location, &location, &members)));
    let shared = units.get(&unit_key(row));
    let (number, unit) = number_and_unit(row, shared.map(|(values, _)| values));
    write(format_args!("{number:>VALUE$} {unit:<8} {:<labels$}", printable(&row.label)));
    match (&row.cgroup_share, &row.rate) {
        (Some(cgroup_share), _) => {
            write(format_args!(
                " {:<cgroups$} # {}",
                printable(&cgroup_share.cgroup),
                share_text(cgroup_share, row)
            ));
        }
        (None, Some(rate)) => {
            let rate = per_second(rate, shared.map(|(_, rates)| rates));
            write(format_args!(" # {rate:>12}"));
        }
        (None, None) => write(format_args!("   {:>12}", "")),
    }
    // If nothing was counted, the words in the value say so.
    let running = row.counted.as_ref().filter(|_| row.value.as_number().is_some());
    if let Some(counted) = running.filter(|counted| counted.running < 1.0) {
        write(format_args!("  ({:.2}%)", 100.0 * counted.running));
    }
    // perf prints no noise of exactly 0 either.
    if let Some(noise) = row.noise.filter(|noise| *noise > 0.0) {
        write(format_args!("  ( +-{noise:>6.2}% )"));
    }
}

/// Fraction of the whole, method and confidence.
fn share_text(cgroup_share: &CgroupShare, row: &StatRow) -> String {
    let share = match cgroup_share.share {
        Some(share) if share > 0.0 && share < 0.0001 => "<0.01 %".to_owned(),
        Some(share) => format!("{:.2} %", 100.0 * share),
        None if row.counted.is_some() => "-".to_owned(),
        None => String::new(),
    };
    let confidence = cgroup_share.confidence.map(|sure| format!(", confidence {sure:.2}"));
    format!("{share:>8}  {}{}", cgroup_share.method, confidence.unwrap_or_default())
}

fn per_second(rate: &Rate, shared: Option<&SharedUnit>) -> String {
    match prefixed(rate).zip(shared) {
        Some(((number, _), shared)) => {
            let (number, unit) = (shared.format_figure(number), shared.rate_name());
            format!("{} {unit}", number.trim_end())
        }
        None => format!("{:.3} {}", rate.value, rate.unit),
    }
}

/// The number and its unit.
fn number_and_unit(row: &StatRow, shared: Option<&SharedUnit>) -> (String, String) {
    let bare = |unit: &str| if matches!(unit, "count" | "1") { "" } else { unit }.to_owned();
    let number = match &row.value {
        RowValue::Number(number) => *number,
        RowValue::Undefined => return ("-".to_owned(), bare(&row.unit)),
        no_number => return (no_number.as_words().unwrap_or_default(), String::new()),
    };
    let Some(counted) = &row.counted else {
        return (metric_digits(number), bare(&row.unit));
    };
    match (row.unit.as_str(), shared) {
        ("bytes", Some(shared)) => (shared.format_figure(number), shared.unit_name().to_owned()),
        (unit, _) => {
            let decimals = if counted.integral { 0 } else { 2 };
            (group_thousands(number, decimals), bare(unit))
        }
    }
}

/// A metric's number with at least three significant digits, or `<0.001` for smaller ones.
fn metric_digits(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1000.0 => group_thousands(number, 0),
        size if size >= 100.0 => format!("{number:.1}"),
        size if size >= 1.0 => format!("{number:.2}"),
        size if size >= 0.001 => format!("{number:.4}"),
        _ if number > 0.0 => "<0.001".to_owned(),
        _ => ">-0.001".to_owned(),
    }
}

/// `1234567.8` as `1,234,568`.
fn group_thousands(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    let (sign, unsigned) =
        text.strip_prefix('-').map_or(("", text.as_str()), |stripped| ("-", stripped));
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut grouped = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if !fraction.is_empty() {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::super::row::sample::*;
    use super::*;

    #[test]
    fn thousands_are_separated() {
        for (number, decimals, text) in [
            (0.0, 0, "0"),
            (999.0, 0, "999"),
            (1000.0, 0, "1,000"),
            (-1_234_567.0, 0, "-1,234,567"),
            (1234.567, 2, "1,234.57"),
        ] {
            assert_eq!(group_thousands(number, decimals), text);
        }
        for (number, text) in [(0.0, "0"), (12.345, "12.35"), (0.01234, "0.0123"), (2e-9, "<0.001")]
        {
            assert_eq!(metric_digits(number), text);
        }
    }

    #[test]
    fn rows_are_laid_out_as_perf_does() {
        let shown = [
            rows(&all(), RowPeriod::Whole),
            interval_heading(&by_socket()),
            rows(&by_socket(), RowPeriod::Until(1.000_102_5)),
            rows(&by_socket(), RowPeriod::Summary),
            rows(&by_cgroup(), RowPeriod::Whole),
            rows(&bytes_by_socket(), RowPeriod::Until(2.0)),
        ];
        insta::assert_snapshot!(shown.join("\n"));
    }
}
