//! Marks of the copied time.

use anyhow::Result;

use super::part::Part;
use crate::schema::marks::{Builder, Kind, Listed, Mark, TABLE, decode};
use crate::schema::origin::Origin;
use crate::tables::writer::Writer;

/// Copies the marks of the time from `begin` to `end`. A span that begins earlier is cut at
/// `begin`; a span that ends later has no end. A span that was open where two parts meet becomes
/// one.
pub(super) fn copy(parts: &[Part], begin: i64, end: i64, writer: &mut Writer) -> Result<Listed> {
    let mut all: Vec<Mark> = Vec::new();
    let mut origin = Origin::default();
    for part in parts {
        origin = Origin::of(&part.pairs);
        let Some(table) = part.table(&TABLE)? else { continue };
        let columns: Vec<&str> = TABLE.encodings.iter().map(|(name, _)| *name).collect();
        for batch in table.scan(&columns)? {
            for mark in decode(&batch?)? {
                match all.iter_mut().find(|before| goes_on(before, &mark, part.begin)) {
                    Some(before) => before.end_ns = mark.end_ns,
                    None => all.push(mark),
                }
            }
        }
    }
    all.retain(|mark| mark.mono_ns <= end && begin <= last(mark));
    for mark in &mut all {
        mark.mono_ns = mark.mono_ns.max(begin);
        mark.end_ns = mark.end_ns.filter(|its| *its <= end);
    }
    let mut rows = Builder::default();
    for mark in &all {
        rows.append(&mark.row(&origin));
    }
    writer.write(&TABLE, &rows.finish())?;
    Ok(Listed::first(all))
}

/// Whether a mark continues a span that was open when its part began.
fn goes_on(before: &Mark, mark: &Mark, part_begin: i64) -> bool {
    let is_rest = mark.kind == Kind::Span && mark.mono_ns == part_begin;
    let is_open = before.kind == Kind::Span && before.end_ns.is_none();
    let same = |mark: &Mark| (mark.text.clone(), mark.source.clone(), mark.pid);
    is_rest && is_open && same(before) == same(mark)
}

fn last(mark: &Mark) -> i64 {
    let is_open = mark.kind == Kind::Span && mark.end_ns.is_none();
    mark.end_ns.unwrap_or(if is_open { i64::MAX } else { mark.mono_ns })
}
