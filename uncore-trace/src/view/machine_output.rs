//! Writes the sums of [`super::report_sums`] as JSON lines and CSV.
//!
//! Guarantees: values are as recorded, in base units; an unknown value is `null` or an empty field;
//! names are escaped, so that they can neither end a record nor control a terminal.

use std::fmt::Write as _;

use serde::Serialize;

use super::canary::CanaryCredit;
use super::incomplete::Incomplete;
use super::json_lines::json_lines;
use super::report_sums::ReportSums;
use crate::text::{csv_field, csv_text};

/// The object of a line; `report --help` lists the keys.
#[derive(Debug, Default, Serialize)]
struct LineObject<'a> {
    event: &'a str,
    unit: &'a str,
    by: &'a str,
    key: &'a str,
    owner: Option<&'a str>,
    value: Option<f64>,
    value_low: Option<f64>,
    value_high: Option<f64>,
    rate_per_s: Option<f64>,
    peak_per_s: Option<f64>,
    share: Option<f64>,
    confidence: Option<f64>,
    confidence_min: Option<f32>,
    methods: Vec<&'a str>,
    running: f64,
    rows: u64,
    missing_rows: u64,
    begin_ns: i64,
    end_ns: i64,
    known_ns: i64,
    active_begin_ns: Option<i64>,
    active_end_ns: Option<i64>,
    heat_step_ns: f64,
    heat: Vec<Option<f64>>,
    canary: Option<&'a [CanaryCredit]>,
    complete: bool,
    incomplete: Option<&'a Incomplete>,
}

/// The objects of the lines of all events.
fn line_objects<'a>(
    usage: &'a ReportSums,
    incomplete: Option<&'a Incomplete>,
    canary: Option<&'a [CanaryCredit]>,
) -> impl Iterator<Item = LineObject<'a>> {
    let lines =
        usage.events.iter().flat_map(|event| event.lines.iter().map(move |line| (event, line)));
    lines.map(move |(event, line)| {
        let value = line.known_value();
        let bounds = event.time.time_bounds();
        let known_ns = event.time.whole.known_ns();
        let interval = line.value_interval(event);
        LineObject {
            event: &event.name,
            unit: &event.unit,
            by: usage.grouping.name(),
            key: &line.key,
            owner: usage.grouping.has_owner().then_some(&line.owner),
            value,
            value_low: interval.map(|interval| interval.low),
            value_high: interval.map(|interval| interval.high),
            rate_per_s: value.and_then(|value| event.mean_rate(value)),
            peak_per_s: line.peak,
            share: value.map(|value| value / event.total).filter(|share| share.is_finite()),
            confidence: line.sum.confidence.mean_confidence(),
            confidence_min: line.sum.confidence.lowest,
            methods: line.methods.iter().map(String::as_str).collect(),
            running: line.running,
            rows: line.sum.rows,
            missing_rows: line.sum.missing,
            begin_ns: bounds.map_or(0, |bounds| bounds.begin_ns),
            end_ns: bounds.map_or(0, |bounds| bounds.end_ns),
            known_ns: known_ns.round() as i64,
            active_begin_ns: line.active.map(|active| active.begin_ns),
            active_end_ns: line.active.map(|active| active.end_ns),
            heat_step_ns: usage.step_ns,
            heat: line.heat.step_values().collect(),
            canary,
            complete: incomplete.is_none(),
            incomplete,
        }
    })
}

/// The lines of all events as JSON, one object per line; each has what the recording lacks, and
/// what its canary was credited.
pub fn usage_as_json(
    usage: &ReportSums,
    incomplete: Option<&Incomplete>,
    canary: Option<&[CanaryCredit]>,
) -> serde_json::Result<String> {
    json_lines(line_objects(usage, incomplete, canary))
}

/// The names and texts of the CSV fields: the keys of the JSON, without the values over time and the
/// details of what is incomplete.
fn csv_fields(object: &LineObject<'_>) -> [(&'static str, String); 23] {
    let text = |text: &str| csv_field(&csv_text(text), ",").into_owned();
    [
        ("event", text(object.event)),
        ("unit", text(object.unit)),
        ("by", text(object.by)),
        ("key", text(object.key)),
        ("owner", text(object.owner.unwrap_or_default())),
        ("value", field_text(object.value)),
        ("value_low", field_text(object.value_low)),
        ("value_high", field_text(object.value_high)),
        ("rate_per_s", field_text(object.rate_per_s)),
        ("peak_per_s", field_text(object.peak_per_s)),
        ("share", field_text(object.share)),
        ("confidence", field_text(object.confidence)),
        ("confidence_min", field_text(object.confidence_min)),
        ("methods", text(&object.methods.join("+"))),
        ("running", object.running.to_string()),
        ("rows", object.rows.to_string()),
        ("missing_rows", object.missing_rows.to_string()),
        ("begin_ns", object.begin_ns.to_string()),
        ("end_ns", object.end_ns.to_string()),
        ("known_ns", object.known_ns.to_string()),
        ("active_begin_ns", field_text(object.active_begin_ns)),
        ("active_end_ns", field_text(object.active_end_ns)),
        ("complete", object.complete.to_string()),
    ]
}

/// The lines of all events as CSV (RFC 4180, with the line ends of this system), with a line of
/// names first. CSV has no comments, so each record has a field for incompleteness.
pub fn report_as_csv(usage: &ReportSums, incomplete: Option<&Incomplete>) -> String {
    let mut csv_lines = csv_fields(&LineObject::default()).map(|(name, _)| name).join(",");
    csv_lines.push('\n');
    for object in line_objects(usage, incomplete, None) {
        let fields = csv_fields(&object).map(|(_, field)| field);
        // Writing to a String cannot fail.
        writeln!(csv_lines, "{}", fields.join(",")).unwrap_or_default();
    }
    csv_lines
}

/// The text of a field; empty without a value.
pub(super) fn field_text<T: ToString>(number: Option<T>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::grouping::GroupBy;
    use super::super::question::ReportQuestion;
    use super::super::report_sums::sum_report;
    use super::super::sample::{Broken, INTACT, SampleRecording};
    use super::*;

    #[test]
    fn json_lines_parse_and_keep_null_apart_from_zero() {
        let broken = Broken {
            fabric: |row, _| {
                if row.event == "page-faults" {
                    (row.value, row.total, row.running) = (None, None, 0.0);
                }
                true
            },
            ..INTACT
        };
        let sample = SampleRecording::new(false, &broken);
        let text = usage_as_json(
            &sum_report(&sample.open(), &ReportQuestion::grouped_by(GroupBy::Owner)).unwrap(),
            None,
            None,
        )
        .unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 6);
        for line in lines {
            let faults = line["event"] == "page-faults";
            assert_eq!(line["value"].is_null(), faults);
            assert_eq!(line["peak_per_s"].is_null(), faults);
            assert_eq!(line["value_low"].is_null(), faults);
            assert_eq!(line["value_high"].is_null(), faults);
            assert_eq!(line["heat"][0].is_null(), faults);
            assert_eq!(line["missing_rows"] == 0, !faults);
        }
    }

    /// The records, as a reader of RFC 4180 sees them.
    fn records(text: &str) -> Vec<Vec<String>> {
        let (mut records, mut record, mut field, mut quoted) =
            (vec![], vec![], String::new(), false);
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '"' if quoted && chars.next_if_eq(&'"').is_some() => field.push('"'),
                '"' => quoted = !quoted,
                ',' if !quoted => record.push(std::mem::take(&mut field)),
                '\n' if !quoted => {
                    record.push(std::mem::take(&mut field));
                    records.push(std::mem::take(&mut record));
                }
                c => field.push(c),
            }
        }
        assert!(record.is_empty() && field.is_empty() && !quoted, "{text}");
        records
    }

    #[test]
    fn hostile_names_neither_break_a_record_nor_reach_the_terminal() {
        let broken = Broken {
            fabric: |row, _| {
                if row.pid == Some(100) {
                    row.comm = Some("a,\"b\"\r\n\u{1b}[2J\u{9b}31m\u{202e},");
                }
                true
            },
            ..INTACT
        };
        let sample = SampleRecording::new(false, &broken);
        let usage = sum_report(&sample.open(), &ReportQuestion::grouped_by(GroupBy::Pid)).unwrap();
        let text = report_as_csv(&usage, None);
        let records = records(&text);
        assert_eq!(records.len(), 1 + 2 * 4, "{text}");
        assert!(records.iter().all(|record| record.len() == 23), "{text}");
        let name = r#"a,"b"\r\n\u{1b}[2J\u{9b}31m\u{202e}, (100)"#;
        assert!(records.iter().any(|record| record[3] == name), "{text}");
        for text in [text, usage_as_json(&usage, None, None).unwrap()] {
            assert!(!text.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}'));
        }
    }
}
