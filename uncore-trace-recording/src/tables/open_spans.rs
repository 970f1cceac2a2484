//! Spans that were open when a recorder was killed.
//!
//! A span becomes a row of `marks` when it or the recording ends. After a recorder was killed, open
//! spans are only in the metadata, and `repair` copies them from there.

use std::collections::{BTreeMap, HashSet};

use anyhow::Result;

use super::pages::BATCH_ROWS;
use super::segment::Partial;
use super::{disk, sound};
use crate::schema::columns::{i64_column, text_column};
use crate::schema::marks::{Builder, ListedMarks, MarkKind};
use crate::schema::origin::RecordingOrigin;

/// Adds the open spans in the metadata `pairs` to the segments of `marks`. No span is added twice,
/// even if this is repeated or the metadata are older than the last segment.
pub(super) fn add_open_spans(
    partial: &mut Partial,
    pairs: &BTreeMap<String, String>,
) -> Result<()> {
    let listed = ListedMarks::from_metadata(pairs)?;
    let mut open: Vec<_> = listed
        .marks
        .iter()
        .filter(|mark| mark.kind == MarkKind::Span && mark.end_ns.is_none())
        .collect();
    if open.is_empty() {
        return Ok(());
    }
    let written = read_spans(partial)?;
    open.retain(|mark| !written.contains(&(mark.mono_ns, mark.text.clone())));
    let mut builder = Builder::default();
    let origin = RecordingOrigin::from_metadata(pairs);
    for mark in open {
        builder.append(&mark.to_row(&origin));
    }
    if builder.is_empty() {
        return Ok(());
    }
    partial.write_next_segment(&[builder.finish()], pairs)
}

/// Begin and name of each mark in the segments.
fn read_spans(partial: &Partial) -> Result<HashSet<(i64, String)>> {
    let mut spans = HashSet::new();
    for range in &partial.segments {
        let path = partial.segment_path(*range);
        for batch in sound::open_reader(&path, BATCH_ROWS)? {
            let batch = disk::with_action("read", &path, batch)?;
            let (begin, text) = (i64_column(&batch, "mono_ns")?, text_column(&batch, "text")?);
            let row = |row| (begin.value(row), text.value(row).to_owned());
            spans.extend((0..batch.num_rows()).map(row));
        }
    }
    Ok(spans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::marks::{Mark, TABLE};
    use crate::schema::metadata;
    use crate::tables::mode::FileMode;

    fn span(mono_ns: i64, end_ns: Option<i64>) -> Mark {
        let (text, source) = ("it".to_owned(), "command".to_owned());
        Mark { mono_ns, end_ns, kind: MarkKind::Span, text, source, pid: None }
    }

    #[test]
    fn what_only_the_metadata_have_is_added_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut partial =
            Partial::create(&TABLE, &dir.path().join("marks.parquet"), FileMode::default())
                .unwrap();
        let instant = Mark { kind: MarkKind::Instant, ..span(9, None) };
        // The metadata were written before the second span ended; its row was written later.
        let listed = vec![span(1, None), span(2, None), span(3, Some(4)), instant];
        let listed = ListedMarks { marks: listed, left_out: 0 };
        let json = serde_json::to_string(&listed).unwrap();
        let pairs = BTreeMap::from([
            (metadata::MARKS.to_owned(), json),
            (metadata::HOST.to_owned(), "test".to_owned()),
        ]);
        let mut builder = Builder::default();
        for mark in [span(2, Some(5)), span(3, Some(4))] {
            builder.append(&mark.to_row(&RecordingOrigin::default()));
        }
        partial.write_next_segment(&[builder.finish()], &pairs).unwrap();
        for _ in 0..2 {
            add_open_spans(&mut partial, &pairs).unwrap();
            let expected = |begin| (begin, "it".to_owned());
            assert_eq!(
                read_spans(&partial).unwrap(),
                [expected(1), expected(2), expected(3)].into()
            );
            assert_eq!(partial.segments.len(), 2);
        }
        // A recording without marks.
        add_open_spans(&mut partial, &BTreeMap::new()).unwrap();
        assert_eq!(partial.segments.len(), 2);
    }
}
