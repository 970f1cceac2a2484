//! Marks of the copied time.

use anyhow::Result;

use super::cut_source::PartToCut;
use crate::schema::marks::{Builder, ListedMarks, Mark, MarkKind, TABLE, decode_marks};
use crate::schema::origin::RecordingOrigin;
use crate::tables::writer::Writer;

/// Copies the marks of the time from `begin_ns` to `end_ns`. A span that begins earlier is cut at
/// `begin_ns`; a span that ends later has no end. A span that was open where two parts meet becomes
/// one.
pub(super) fn copy_marks(
    source_parts: &[PartToCut],
    begin_ns: i64,
    end_ns: i64,
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
    copied.retain(|mark| mark.mono_ns <= end_ns && begin_ns <= last_ns(mark));
    for mark in &mut copied {
        mark.mono_ns = mark.mono_ns.max(begin_ns);
        mark.end_ns = mark.end_ns.filter(|mark_end_ns| *mark_end_ns <= end_ns);
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
