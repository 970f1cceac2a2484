//! The marks of a recording.

use anyhow::{Context as _, Result, bail};

use super::span::SpanEdge;
use crate::schema::marks::{ListedMarks, Mark, TABLE};
use crate::schema::{fabric, marks};
use crate::tables::reader::Recording;
use crate::terminal::shorten;

/// Names in an error message.
const NAMED: usize = 8;
/// Width of a name in an error message.
const NAME_CELLS: usize = 40;

/// The marks of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedMarks {
    /// In the order of their begin.
    pub list: Vec<Mark>,
    /// Number of further marks for which a single file has no room.
    pub left_out: u64,
}

impl RecordedMarks {
    /// All marks of `recording` in the order of their begin; of a single file, those that it has.
    ///
    /// # Errors
    ///
    /// The marks cannot be read.
    pub fn read_list(recording: &Recording) -> Result<Vec<Mark>> {
        Ok(Self::read_marks(recording)?.list)
    }

    /// Reads the marks from the table of a dataset, or else from the metadata.
    ///
    /// # Errors
    ///
    /// The marks cannot be read.
    pub fn read_marks(recording: &Recording) -> Result<Self> {
        let mut marks = if recording.has_table(&TABLE) {
            Self { list: read_table(recording)?, left_out: 0 }
        } else {
            let ListedMarks { marks, left_out } =
                ListedMarks::from_metadata(recording.open_table(&fabric::TABLE)?.metadata_pairs())
                    .with_context(|| {
                        format!("cannot read {}", recording.recording_path().display())
                    })?;
            Self { list: marks, left_out }
        };
        marks.list.sort_by_key(|mark| mark.mono_ns);
        Ok(marks)
    }

    /// Begin or end of the first mark of that name, `CLOCK_MONOTONIC`, ns.
    ///
    /// # Errors
    ///
    /// There is no such mark; the message lists the names that exist.
    pub fn find_time(&self, recording: &Recording, name: &str, edge: SpanEdge) -> Result<i64> {
        let Some(mark) = self.list.iter().find(|mark| mark.text == name) else {
            let name = shorten(name, NAME_CELLS, "…");
            bail!(
                "{} has no mark '{name}': {}",
                recording.recording_path().display(),
                self.name_list()
            );
        };
        Ok(match edge {
            SpanEdge::Begin => mark.mono_ns,
            SpanEdge::End => mark.last_ns(),
        })
    }

    /// The existing names, for an error message.
    fn name_list(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for mark in &self.list {
            if !names.contains(&mark.text.as_str()) {
                names.push(&mark.text);
            }
            if names.len() > NAMED {
                break;
            }
        }
        if names.is_empty() {
            return "it has no marks; `uncore-trace mark TEXT` makes one while it is recorded"
                .into();
        }
        let ellipsis = if names.len() > NAMED || self.left_out > 0 { ", …" } else { "" };
        let shown = names.iter().take(NAMED);
        let shown = shown.map(|name| format!("'{}'", shorten(name, NAME_CELLS, "…")));
        format!("it has {}{ellipsis}", shown.collect::<Vec<_>>().join(", "))
    }
}

/// The rows of the table.
fn read_table(recording: &Recording) -> Result<Vec<Mark>> {
    let mut list = Vec::new();
    let wanted = ["mono_ns", "end_ns", "kind", "text", "source", "pid"];
    for batch in recording.open_table(&TABLE)?.scan_columns(&wanted)? {
        list.extend(marks::decode_marks(&batch?)?);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::super::sample::{BEGIN, Broken, INTACT, MARKS, SampleRecording};
    use super::*;
    use crate::schema::marks::MarkKind;
    use crate::schema::metadata;

    const MARKED: Broken = Broken { marks: MARKS, ..INTACT };

    fn read(dataset: bool, broken: &Broken) -> (SampleRecording, RecordedMarks) {
        let sample = SampleRecording::new(dataset, broken);
        let marks = RecordedMarks::read_marks(&sample.open()).unwrap();
        (sample, marks)
    }

    #[test]
    fn a_file_and_a_dataset_have_the_same_marks_in_the_order_of_time() {
        let (_, file) = read(false, &MARKED);
        let (sample, dataset) = read(true, &MARKED);
        assert_eq!(file, dataset);
        assert_eq!(RecordedMarks::read_list(&sample.open()).unwrap(), file.list);
        let begins: Vec<i64> = file.list.iter().map(|mark| mark.mono_ns - BEGIN).collect();
        assert!(begins.is_sorted(), "{begins:?}");
        let found: Vec<_> = file
            .list
            .iter()
            .map(|mark| {
                (mark.text.as_str(), mark.kind, mark.end_ns.map(|end| end - BEGIN), mark.pid)
            })
            .collect();
        assert_eq!(
            found,
            [
                ("warm\u{1b}[2J\nup", MarkKind::Instant, None, None),
                ("epoch 1", MarkKind::Span, Some(2_000_000_000), Some(7)),
                ("epoch 1", MarkKind::Instant, None, None),
                ("save", MarkKind::Span, None, Some(7)),
            ]
        );
    }

    #[test]
    fn a_recording_without_marks_has_none() {
        for dataset in [false, true] {
            let (sample, marks) = read(dataset, &INTACT);
            assert_eq!(marks, RecordedMarks::default());
            let error =
                marks.find_time(&sample.open(), "x", SpanEdge::Begin).unwrap_err().to_string();
            assert!(
                error.contains("has no mark 'x': it has no marks; `uncore-trace mark"),
                "{error}"
            );
        }
    }

    #[test]
    fn metadata_that_are_damaged_are_an_error() {
        for text in ["", "[]", "{\"marks\":[{}],\"left_out\":0}", "{\"marks\":[]}"] {
            let sample = SampleRecording::new(false, &INTACT);
            let mut pairs =
                sample.open().open_table(&fabric::TABLE).unwrap().metadata_pairs().clone();
            pairs.insert(metadata::MARKS.to_owned(), text.to_owned());
            let error = ListedMarks::from_metadata(&pairs).unwrap_err().to_string();
            assert!(error.contains("uncore_trace.marks is damaged"), "{error}");
        }
    }

    #[test]
    fn a_name_is_that_of_its_first_mark() {
        let (sample, marks) = read(false, &MARKED);
        let recording = sample.open();
        let find = |name, edge| {
            marks.find_time(&recording, name, edge).map(|time| time.saturating_sub(BEGIN)).unwrap()
        };
        assert_eq!(find("epoch 1", SpanEdge::Begin), 1_000_000_000);
        assert_eq!(find("epoch 1", SpanEdge::End), 2_000_000_000);
        assert_eq!(find("warm\u{1b}[2J\nup", SpanEdge::End), 500_000_000);
        // The span has no end.
        assert_eq!(find("save", SpanEdge::End), i64::MAX - BEGIN);
    }

    #[test]
    fn an_unknown_mark_is_refused_with_the_known_names() {
        let (sample, mut marks) = read(false, &MARKED);
        let recording = sample.open();
        let error = |marks: &RecordedMarks, name: &str| {
            marks.find_time(&recording, name, SpanEdge::Begin).unwrap_err().to_string()
        };
        let text = error(&marks, "epoch 2");
        assert!(
            text.contains("'epoch 2': it has 'warm\u{1b}[2J\nup', 'epoch 1', 'save'"),
            "{text}"
        );
        assert!(!text.contains('…'), "{text}");
        let long = "x".repeat(1024);
        let mark = marks.list[0].clone();
        marks.list =
            (0..100).map(|at| Mark { text: format!("{at}{long}"), ..mark.clone() }).collect();
        let text = error(&marks, &long);
        assert!(text.chars().count() < 600 && text.ends_with(", …"), "{text}");
    }
}
