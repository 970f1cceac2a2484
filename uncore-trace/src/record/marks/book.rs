//! The marks of a recording: finished ones, open spans, and rejected ones.
//!
//! Guarantees: memory is bounded by [`MOST_OPEN`], by [`MOST_PER_SECOND`] for each second between
//! two calls of [`MarkBook::take_rows`], and by the limit of the metadata. The time of a mark is
//! never before the begin of the recording nor after the moment at which the mark was received.
//! Rejected marks are counted.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use super::wire::MarkAct;
use crate::schema::marks::{LISTED_BYTES, LISTED_MARKS, ListedMarks, Mark, MarkKind, TEXT_BYTES};
use crate::schema::metadata;

/// Largest number of open spans.
const MOST_OPEN: usize = 1000;

/// Largest number of marks per second. A program that sends more must neither fill the
/// memory nor keep the recorder from draining.
const MOST_PER_SECOND: u32 = 1000;

/// Bytes by which a mark in the metadata grows when its span ends: `null` becomes a number of up to
/// 19 digits.
const END_BYTES: usize = 15;

/// Where marks are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkStorage {
    /// In the table; the first ones also in the metadata.
    Table,
    /// In the metadata only.
    Metadata,
    /// Nowhere: the metadata of a stream are written before the first mark.
    Nowhere,
}

/// Why a mark was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MarkRefusal {
    Empty,
    TooLong,
    NotBegun,
    TooMany,
    TooManyOpen,
    NoRoom,
    Stream,
}

impl MarkRefusal {
    /// The reason, as it follows "not taken: ".
    pub(super) fn reason(self) -> String {
        match self {
            Self::Empty => "it has no text".to_owned(),
            Self::TooLong => format!("it is longer than {TEXT_BYTES} bytes"),
            Self::NotBegun => "no span of that name is open: begin it first".to_owned(),
            Self::TooMany => {
                format!("a recording takes at most {MOST_PER_SECOND} marks in a second")
            }
            Self::TooManyOpen => format!("{MOST_OPEN} spans are open: end some of them first"),
            Self::NoRoom => format!(
                "a single file can have {LISTED_MARKS} marks of together {} KiB: record into a \
                 directory (-o DIR/)",
                LISTED_BYTES >> 10
            ),
            Self::Stream => {
                "the recording is a stream, which cannot have marks: record into a file".to_owned()
            }
        }
    }

    /// Whether the mark was valid and the recorder had no room for it.
    const fn is_lack_of_room(self) -> bool {
        matches!(self, Self::TooMany | Self::TooManyOpen | Self::NoRoom)
    }
}

/// A requested mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct MarkRequest<'a> {
    /// Kind of the request.
    pub act: MarkAct,
    /// The name.
    pub text: &'a str,
    /// Tells spans of the same name apart, if the sender knows which one it ends.
    pub id: Option<&'a str>,
    /// Time of the mark as the sender says, ns on `CLOCK_MONOTONIC`.
    pub mono_ns: i64,
    /// See [`Mark::source`].
    pub source: &'static str,
    /// See [`Mark::pid`].
    pub pid: Option<i32>,
}

/// A span that has not ended.
#[derive(Debug)]
struct OpenMark {
    mark: Mark,
    id: Option<String>,
    /// Its index in the metadata's list.
    list_index: Option<usize>,
}

/// The marks of a recording.
#[derive(Debug)]
pub(super) struct MarkBook {
    storage: MarkStorage,
    /// Begin of the recording, ns on `CLOCK_MONOTONIC`; `i64::MIN` until it is known.
    start_ns: i64,
    open_spans: Vec<OpenMark>,
    /// Marks that are final and not in the table yet.
    rows: Vec<Mark>,
    listed: ListedMarks,
    listed_bytes: usize,
    /// Whether the list changed since the metadata were written.
    has_changed: bool,
    /// Marks that were rejected since the last call of [`MarkBook::take_lost`].
    lost: BTreeMap<MarkRefusal, u64>,
    /// A second, and the number of marks in it.
    second: (i64, u32),
}

impl MarkBook {
    pub(super) fn new(storage: MarkStorage) -> Self {
        Self {
            storage,
            start_ns: i64::MIN,
            open_spans: Vec::new(),
            rows: Vec::new(),
            listed: ListedMarks::default(),
            listed_bytes: 0,
            has_changed: false,
            lost: BTreeMap::new(),
            second: (i64::MIN, 0),
        }
    }

    /// Begins the recording at `start_ns`. Earlier marks get that time.
    pub(super) fn begin_recording(&mut self, start_ns: i64) {
        self.start_ns = start_ns;
        let open_marks = self.open_spans.iter_mut().map(|open| &mut open.mark);
        for mark in open_marks.chain(&mut self.rows).chain(&mut self.listed.marks) {
            mark.mono_ns = mark.mono_ns.max(start_ns);
            mark.end_ns = mark.end_ns.map(|end_ns| end_ns.max(start_ns));
        }
    }

    /// Takes a mark at the time `now_ns` on `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    ///
    /// The mark is rejected. If there was no room for it, it is counted.
    pub(super) fn take_mark(
        &mut self,
        request: MarkRequest<'_>,
        now_ns: i64,
    ) -> Result<(), MarkRefusal> {
        let outcome = self.try_take(request, now_ns);
        if let Err(refusal) = outcome
            && refusal.is_lack_of_room()
        {
            *self.lost.entry(refusal).or_default() += 1;
        }
        outcome
    }

    fn try_take(&mut self, request: MarkRequest<'_>, now_ns: i64) -> Result<(), MarkRefusal> {
        if self.storage == MarkStorage::Nowhere {
            return Err(MarkRefusal::Stream);
        }
        if request.text.is_empty() {
            return Err(MarkRefusal::Empty);
        }
        if request.text.len() > TEXT_BYTES {
            return Err(MarkRefusal::TooLong);
        }
        let time_ns = request.mono_ns.min(now_ns).max(self.start_ns);
        if request.act == MarkAct::End {
            return self.end_span(request.text, request.id, time_ns);
        }
        if request.act == MarkAct::Begin && self.open_spans.len() >= MOST_OPEN {
            return Err(MarkRefusal::TooManyOpen);
        }
        let second = now_ns.div_euclid(1_000_000_000);
        if self.second.0 != second {
            self.second = (second, 0);
        }
        if self.second.1 >= MOST_PER_SECOND {
            return Err(MarkRefusal::TooMany);
        }
        let mark = Mark {
            mono_ns: time_ns,
            end_ns: None,
            kind: if request.act == MarkAct::Begin { MarkKind::Span } else { MarkKind::Instant },
            text: request.text.to_owned(),
            source: request.source.to_owned(),
            pid: request.pid,
        };
        let list_index = self.add_to_list(&mark);
        if list_index.is_none() && self.storage == MarkStorage::Metadata {
            return Err(MarkRefusal::NoRoom);
        }
        self.second.1 += 1;
        if list_index.is_none() {
            self.listed.left_out += 1;
        }
        self.has_changed = true;
        match mark.kind {
            MarkKind::Span => {
                self.open_spans.push(OpenMark {
                    mark,
                    id: request.id.map(str::to_owned),
                    list_index,
                });
            }
            MarkKind::Instant => self.keep_row(mark),
        }
        Ok(())
    }

    /// Ends the span of this name that was begun last.
    fn end_span(&mut self, text: &str, id: Option<&str>, time_ns: i64) -> Result<(), MarkRefusal> {
        let is_named = |open: &OpenMark| open.mark.text == text && open.id.as_deref() == id;
        let index = self.open_spans.iter().rposition(is_named).ok_or(MarkRefusal::NotBegun)?;
        let OpenMark { mut mark, list_index: listed_index, .. } = self.open_spans.remove(index);
        mark.end_ns = Some(time_ns.max(mark.mono_ns));
        if let Some(listed) =
            listed_index.and_then(|index_in_list| self.listed.marks.get_mut(index_in_list))
        {
            listed.end_ns = mark.end_ns;
            self.has_changed = true;
        }
        self.keep_row(mark);
        Ok(())
    }

    /// Adds a mark to the list in the metadata, if there is room. Returns its index.
    fn add_to_list(&mut self, mark: &Mark) -> Option<usize> {
        let bytes = self.listed_bytes + serde_json::to_string(mark).ok()?.len() + END_BYTES + 1;
        // Once a mark was left out, later ones are too: the list has the first marks.
        if self.listed.marks.len() >= LISTED_MARKS
            || bytes > LISTED_BYTES
            || self.listed.left_out > 0
        {
            return None;
        }
        self.listed_bytes = bytes;
        self.listed.marks.push(mark.clone());
        Some(self.listed.marks.len() - 1)
    }

    fn keep_row(&mut self, mark: Mark) {
        if self.storage == MarkStorage::Table {
            self.rows.push(mark);
        }
    }

    /// Ends a part of the recording at `at_ns`. Returns the book of the part that ends; this
    /// becomes the book of the next part. An open span is in both: it has no end in the first part,
    /// and begins at `at_ns` in the second.
    pub(super) fn end_part(&mut self, at_ns: i64) -> Self {
        let mut next_book =
            Self { start_ns: at_ns, second: self.second, ..Self::new(self.storage) };
        for OpenMark { mark, id, .. } in &self.open_spans {
            let mark = Mark { mono_ns: mark.mono_ns.max(at_ns), ..mark.clone() };
            let list_index = next_book.add_to_list(&mark);
            next_book.listed.left_out += u64::from(list_index.is_none());
            next_book.open_spans.push(OpenMark { mark, id: id.clone(), list_index });
        }
        next_book.has_changed = !next_book.open_spans.is_empty();
        let mut ended = std::mem::replace(self, next_book);
        ended.close_spans();
        ended
    }

    /// Ends the recording. Open spans stay without an end.
    pub(super) fn close_spans(&mut self) {
        for open in std::mem::take(&mut self.open_spans) {
            self.keep_row(open.mark);
        }
    }

    /// Marks that are final and were not returned before.
    pub(super) fn take_rows(&mut self) -> Vec<Mark> {
        std::mem::take(&mut self.rows)
    }

    /// Marks that were rejected since the last call.
    pub(super) fn take_lost(&mut self) -> BTreeMap<MarkRefusal, u64> {
        std::mem::take(&mut self.lost)
    }

    /// Writes the marks into the metadata, if they changed since the last call. Returns whether
    /// they had.
    pub(super) fn note_in_metadata(
        &mut self,
        pairs: &mut BTreeMap<String, String>,
    ) -> Result<bool> {
        if std::mem::take(&mut self.has_changed) {
            let json = serde_json::to_string(&self.listed)
                .context("cannot write the recording's marks as JSON")?;
            pairs.insert(metadata::MARKS.to_owned(), json);
            return Ok(true);
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
