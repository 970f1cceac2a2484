//! Lists the marks of a recording: as text, JSON lines and CSV.
//!
//! Guarantees: times are `CLOCK_MONOTONIC`, and also seconds after the begin, which `--from` and
//! `--to` accept; an unknown value is `null` or an empty field; names are escaped, so that they can
//! neither end a record nor control a terminal.

use std::fmt::Write as _;

use super::json_lines::{json_lines, json_object};
use super::machine_output::field_text;
use super::render::TextStyle;
use crate::schema::marks::Mark;
use crate::table::{ColumnFit, TextTable};
use crate::terminal::mark;
use crate::text::{csv_field, csv_text, printable};

/// The first `max_marks` marks as a table, with a heading above; empty without marks. `start_ns` is
/// the begin of the recording.
pub fn draw_marks(marks: &[&Mark], start_ns: i64, max_marks: usize, style: TextStyle) -> String {
    if marks.is_empty() {
        return String::new();
    }
    let second = |ns: i64| format!("{:.3} s", seconds_after(start_ns, ns));
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
        mark_table.add_row([second(mark.mono_ns), end, printable(&mark.text).into_owned()]);
    }
    mark_table.to_text(style.width, mark(style.ascii))
}

fn seconds_after(start_ns: i64, ns: i64) -> f64 {
    ns.saturating_sub(start_ns) as f64 / 1e9
}

/// The marks as JSON, one object per line; `report --help` lists the keys.
pub fn marks_as_json(marks: &[&Mark], start_ns: i64) -> serde_json::Result<String> {
    json_lines(marks.iter().map(|mark| {
        json_object! {
            text: &mark.text,
            kind: mark.kind.kind_name(),
            begin_s: seconds_after(start_ns, mark.mono_ns),
            end_s: mark.end_ns.map(|end_ns| seconds_after(start_ns, end_ns)),
            begin_ns: mark.mono_ns,
            end_ns: mark.end_ns,
            source: &mark.source,
            pid: mark.pid,
        }
    }))
}

/// The marks as CSV (RFC 4180, with the line ends of this system), with a line of names first.
pub fn marks_as_csv(marks: &[&Mark], start_ns: i64) -> String {
    let mut csv_lines = "text,kind,begin_s,end_s,begin_ns,end_ns,source,pid\n".to_owned();
    for mark in marks {
        let text = |text: &str| csv_field(&csv_text(text), ",").into_owned();
        let fields = [
            text(&mark.text),
            mark.kind.kind_name().to_owned(),
            seconds_after(start_ns, mark.mono_ns).to_string(),
            field_text(mark.end_ns.map(|end_ns| seconds_after(start_ns, end_ns))),
            mark.mono_ns.to_string(),
            field_text(mark.end_ns),
            text(&mark.source),
            field_text(mark.pid),
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

    fn marks() -> Vec<Mark> {
        RecordedMarks::read_list(
            &SampleRecording::new(false, &Broken { marks: MARKS, ..INTACT }).open(),
        )
        .unwrap()
    }

    #[test]
    fn the_list_of_marks_has_their_times_and_escaped_names() {
        let marks = marks();
        let marks: Vec<&Mark> = marks.iter().collect();
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
        let marks: Vec<&Mark> = marks.iter().collect();
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
