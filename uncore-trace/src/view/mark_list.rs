//! Lists the marks of a recording: as text, JSON lines and CSV.
//!
//! Guarantees: times are `CLOCK_MONOTONIC`, and also seconds after the begin, which `--from` and
//! `--to` accept; an unknown value is `null` or an empty field; names are escaped, so that they can
//! neither end a record nor control a terminal.

use std::fmt::Write as _;

use serde::Serialize;

use super::json_lines::json_lines;
use super::machine_output::field_text;
use super::marks::RecordedMark;
use super::render::TextStyle;
use crate::table::{ColumnFit, TextTable};
use crate::terminal::mark;
use crate::text::{csv_field, csv_text, printable};

/// The first `max_marks` marks as a table, with a heading above; empty without marks. `start_ns` is
/// the begin of the recording.
pub fn draw_marks(
    marks: &[&RecordedMark],
    start_ns: i64,
    max_marks: usize,
    style: TextStyle,
) -> String {
    if marks.is_empty() {
        return String::new();
    }
    let second = |ns: i64| format!("{:.3} s", ns.saturating_sub(start_ns) as f64 / 1e9);
    let mut mark_table = TextTable::new([
        ("from", ColumnFit::Number),
        ("to", ColumnFit::Number),
        ("mark", ColumnFit::Shorten),
    ]);
    for mark in marks.iter().take(max_marks) {
        let end = match mark.end_ns {
            Some(end) => second(end),
            None if mark.is_open() => "not ended".to_owned(),
            None => String::new(),
        };
        mark_table.add_row([second(mark.begin_ns), end, printable(&mark.text).into_owned()]);
    }
    mark_table.to_text(style.width, mark(style.ascii))
}

/// The object of a mark; `report --help` lists the keys.
#[derive(Debug, Serialize)]
struct MarkObject<'a> {
    text: &'a str,
    kind: &'static str,
    begin_s: f64,
    end_s: Option<f64>,
    begin_ns: i64,
    end_ns: Option<i64>,
    source: &'a str,
    pid: Option<i32>,
}

impl<'a> MarkObject<'a> {
    fn new(mark: &'a RecordedMark, start_ns: i64) -> Self {
        let second = |ns: i64| ns.saturating_sub(start_ns) as f64 / 1e9;
        Self {
            text: &mark.text,
            kind: mark.kind.kind_name(),
            begin_s: second(mark.begin_ns),
            end_s: mark.end_ns.map(second),
            begin_ns: mark.begin_ns,
            end_ns: mark.end_ns,
            source: &mark.source,
            pid: mark.pid,
        }
    }
}

/// The marks as JSON, one object per line.
pub fn marks_as_json(marks: &[&RecordedMark], start_ns: i64) -> serde_json::Result<String> {
    json_lines(marks.iter().map(|mark| MarkObject::new(mark, start_ns)))
}

/// The marks as CSV (RFC 4180, with the line ends of this system), with a line of names first.
pub fn marks_as_csv(marks: &[&RecordedMark], start_ns: i64) -> String {
    let mut csv_lines = "text,kind,begin_s,end_s,begin_ns,end_ns,source,pid\n".to_owned();
    for mark in marks {
        let object = MarkObject::new(mark, start_ns);
        let text = |text: &str| csv_field(&csv_text(text), ",").into_owned();
        let fields = [
            text(object.text),
            object.kind.to_owned(),
            object.begin_s.to_string(),
            field_text(object.end_s),
            object.begin_ns.to_string(),
            field_text(object.end_ns),
            text(object.source),
            field_text(object.pid),
        ];
        // Writing to a String cannot fail.
        writeln!(csv_lines, "{}", fields.join(",")).unwrap_or_default();
    }
    csv_lines
}

#[cfg(test)]
mod tests {
    use super::super::marks::RecordedMarks;
    use super::super::sample::{BEGIN, Broken, INTACT, MARKS, SampleRecording};
    use super::*;
    use crate::terminal::cells;

    fn marks() -> Vec<RecordedMark> {
        RecordedMarks::read_list(
            &SampleRecording::new(false, &Broken { marks: MARKS, ..INTACT }).open(),
        )
        .unwrap()
    }

    #[test]
    fn the_list_of_marks_has_their_times_and_escaped_names() {
        let marks = marks();
        let marks: Vec<&RecordedMark> = marks.iter().collect();
        let wide = draw_marks(&marks, BEGIN, 10, TextStyle::default());
        insta::assert_snapshot!("marks", wide);
        assert!(!wide.contains('\u{1b}'), "{wide:?}");
        assert_eq!(draw_marks(&marks, BEGIN, 2, TextStyle::default()).lines().count(), 3);
        assert_eq!(draw_marks(&[], BEGIN, 2, TextStyle::default()), "");
        for width in [34, 40, 80] {
            for ascii in [false, true] {
                let text = draw_marks(&marks, BEGIN, 10, TextStyle { ascii, width: Some(width) });
                assert!(text.lines().all(|line| cells(line) <= width), "{width}:\n{text}");
                assert!(!ascii || text.is_ascii(), "{text}");
            }
        }
    }

    #[test]
    fn json_lines_of_marks_have_the_text_as_it_is() {
        let marks = marks();
        let marks: Vec<&RecordedMark> = marks.iter().collect();
        let text = marks_as_json(&marks, BEGIN).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0]["text"], "warm\u{1b}[2J\nup");
        assert!(lines[0]["end_s"].is_null() && lines[0]["pid"].is_null());
        assert_eq!(
            (lines[1]["begin_s"].as_f64(), lines[1]["end_s"].as_f64()),
            (Some(1.0), Some(2.0))
        );
        assert_eq!((&lines[1]["kind"], &lines[1]["pid"]), (&"span".into(), &7.into()));
        assert_eq!(lines[3]["kind"], "span");
        let csv_shown = marks_as_csv(&marks, BEGIN);
        assert_eq!(csv_shown.lines().count(), 5, "{csv_shown}");
        assert!(csv_shown.contains("\nsave,span,2.5,,7500000000,,command,7\n"), "{csv_shown}");
        for text in [text, csv_shown] {
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        }
    }
}
