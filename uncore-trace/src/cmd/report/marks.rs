//! The marks in a report, and the list of `report --marks`.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::{Args, print};
use crate::clock::TimeSpan;
use crate::schema::fabric;
use crate::schema::marks::Mark;
use crate::tables::reader::Recording;
use crate::text::printable_path;
use crate::view::mark_list;
use crate::view::marks::RecordedMarks;
use crate::view::render::TextStyle;
use crate::view::report_sums::ReportSums;
use crate::view::span::SelectedTime;

/// Most marks that are printed before the tables.
const MARKS: usize = 10;

/// The marks of the selected time, and how to list those beyond [`MARKS`]; empty if there are none.
pub(super) fn before_tables(
    args: &Args,
    recording: &Recording,
    usage: &ReportSums,
    style: TextStyle,
) -> Result<String> {
    let recorded = RecordedMarks::read_marks(recording)?;
    let marks = marks_within(args, &recorded, usage.span);
    let mut text = mark_list::draw_marks(&marks, usage.start_ns, MARKS, style);
    if marks.len() > MARKS {
        let path = printable_path(&args.path);
        let hidden_count = marks.len() - MARKS;
        // Writing to a String cannot fail.
        writeln!(text, " and {hidden_count} more: uncore-trace report {path} --marks")
            .unwrap_or_default();
    }
    if !text.is_empty() {
        text.push('\n');
    }
    Ok(text)
}

/// The marks of the selected time. Marks after the last window are included if no end was selected.
fn marks_within<'a>(
    args: &Args,
    all_marks: &'a RecordedMarks,
    span: TimeSpan<i64>,
) -> Vec<&'a Mark> {
    if all_marks.left_out > 0 {
        log::warn!(
            "{} has the first {} marks only: {} more are in the table marks of the directory that \
             was recorded",
            args.path.display(),
            all_marks.list.len(),
            all_marks.left_out
        );
    }
    let begin_ns = args.from.as_ref().map_or(i64::MIN, |_| span.begin_ns);
    let end_ns = args.to.as_ref().map_or(i64::MAX, |_| span.end_ns);
    all_marks.list.iter().filter(|mark| mark.is_within(begin_ns, end_ns)).collect()
}

/// Prints the marks of the selected time; exit code 0.
pub(super) fn print_marks(args: &Args, recording: &Recording) -> Result<u8> {
    let table = recording.open_table(&fabric::TABLE)?;
    let span =
        SelectedTime::between_moments(recording, &table, args.from.as_ref(), args.to.as_ref())?;
    let recorded = RecordedMarks::read_marks(recording)?;
    // A recording without rows has no begin: times count from the first mark.
    let first_mark_ns = recorded.list.first().map_or(0, |mark| mark.mono_ns);
    let all_time = TimeSpan::new(i64::MIN, i64::MAX);
    let (start_ns, span) = span.map_or((first_mark_ns, all_time), |selected| {
        (selected.start_ns, TimeSpan::new(selected.begin_ns, selected.end_ns))
    });
    let marks = marks_within(args, &recorded, span);
    let text = if args.json {
        mark_list::marks_as_json(&marks, start_ns).context("cannot write the marks as JSON")?
    } else if args.csv {
        mark_list::marks_as_csv(&marks, start_ns)
    } else if marks.is_empty() {
        "there are no marks\n".to_owned()
    } else {
        mark_list::draw_marks(&marks, start_ns, usize::MAX, args.text_style())
    };
    print(&text)?;
    Ok(0)
}
