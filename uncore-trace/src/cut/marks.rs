//! Marks of the copied time.

use anyhow::Result;

use super::cut_source::PartToCut;
use crate::clock::TimeSpan;
use crate::schema::marks::{Builder, ListedMarks, Mark, MarkKind, TABLE, decode_marks};
use crate::schema::origin::RecordingOrigin;
use crate::tables::writer::Writer;

/// Copies the marks of a span of time. A mark that begins earlier begins with the span; one that
/// ends later has no end. A mark that was open where two parts meet becomes one.
pub(super) fn copy_marks(
    source_parts: &[PartToCut],
    span: TimeSpan<i64>,
    writer: &mut Writer,
) -> Result<ListedMarks> {
    let mut copied: Vec<Mark> = Vec::new();
    let mut origin = RecordingOrigin::default();
    for source_part in source_parts {
        origin = RecordingOrigin::from_metadata(&source_part.pairs);
        let Some(table) = source_part.recording.find_table(&TABLE)? else { continue };
        for batch in table.scan_columns(&TABLE.column_names())? {
            for mark in decode_marks(&batch?)? {
                match copied
                    .iter_mut()
                    .find(|open_span| continues_span(open_span, &mark, source_part.begin_ns))
                {
                    Some(earlier_span) => earlier_span.end_ns = mark.end_ns,
                    None => copied.push(mark),
                }
            }
        }
    }
    copied.retain(|mark| mark.mono_ns <= span.end_ns && span.begin_ns <= last_ns(mark));
    for mark in &mut copied {
        mark.mono_ns = mark.mono_ns.max(span.begin_ns);
        mark.end_ns = mark.end_ns.filter(|mark_end_ns| *mark_end_ns <= span.end_ns);
    }
    let mut rows = Builder::default();
    for mark in &copied {
        rows.append(&mark.to_row(&origin));
    }
    writer.write(&TABLE, &rows.finish())?;
    Ok(ListedMarks::list_first(copied))
}

/// Whether a mark continues a span that was open when its part began.
fn continues_span(earlier: &Mark, mark: &Mark, part_begin: i64) -> bool {
    let is_at_begin = mark.kind == MarkKind::Span && mark.mono_ns == part_begin;
    let is_open = earlier.kind == MarkKind::Span && earlier.end_ns.is_none();
    let identity = |mark: &Mark| (mark.text.clone(), mark.source.clone(), mark.pid);
    is_at_begin && is_open && identity(earlier) == identity(mark)
}

fn last_ns(mark: &Mark) -> i64 {
    let is_open = mark.kind == MarkKind::Span && mark.end_ns.is_none();
    mark.end_ns.unwrap_or(if is_open { i64::MAX } else { mark.mono_ns })
}
