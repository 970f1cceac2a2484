//! `marks`: instants and spans that users named during a recording, and their form in the metadata.
//!
//! Guarantees: the table of a dataset has every mark that was taken. The metadata of every file of
//! the recording have the first ones, up to [`LISTED_MARKS`] and [`LISTED_BYTES`], and the number
//! of the others.

use std::collections::BTreeMap;

use anyhow::Result;
use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};

use super::column_type::{I32, I64, Null, Text, Word, table};
use super::columns::{i32_column, i64_column, nullable_value, text_column, word_column};
use super::metadata;
use super::origin::RecordingOrigin;
use crate::named_values::named_values;

table! {
    "marks", "instants and spans that users named while recording", sorted by [];
    Own;
    origin;
    mono_ns: I64 => Plain, "Time of an instant, or begin of a span, `CLOCK_MONOTONIC`, ns.";
    end_ns: Null<I64> => Plain, "End of a span, `CLOCK_MONOTONIC`, ns; null for an instant, and for a span that was not ended before the recording was.";
    kind: Word => Dict, "`instant` or `span`.";
    text: Text => Plain, "Name of the mark, 1 to 1024 bytes as the user gave them: it may hold control characters.";
    source: Word => Dict, "Who made the mark: `command` (`uncore-trace mark`).";
    pid: Null<I32> => Plain, "Process that sent the mark; null where that is not known, as in another PID namespace.";
}

/// [`Row::source`] of `uncore-trace mark`.
pub const COMMAND: &str = "command";

/// Largest length of a mark's text in bytes.
pub const TEXT_BYTES: usize = 1024;

/// Largest number of marks in the metadata. Each segment of `fabric`, one per flush interval,
/// repeats them: some 100 kB with short texts.
pub const LISTED_MARKS: usize = 1000;

/// Largest size in bytes of the marks in the metadata, as JSON.
pub const LISTED_BYTES: usize = 128 << 10;

named_values! {
    /// Kind of a mark.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum MarkKind;
    /// The value in the column `kind`.
    pub fn kind_name;
    /// A point in time.
    Instant = "instant",
    /// A span with a begin and, if it was ended, an end.
    Span = "span",
}

/// A mark, with the columns that are its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Time of an instant, or begin of a span, `CLOCK_MONOTONIC`, ns.
    pub mono_ns: i64,
    /// End of a span, ns on `CLOCK_MONOTONIC`; `None` if it was not ended.
    pub end_ns: Option<i64>,
    /// What it is.
    pub kind: MarkKind,
    /// Its name, as given.
    pub text: String,
    /// Who made it: [`COMMAND`].
    pub source: String,
    /// Process that sent it, if known.
    pub pid: Option<i32>,
}

impl Mark {
    /// Whether it is a span that was not ended.
    pub fn is_open(&self) -> bool {
        self.kind == MarkKind::Span && self.end_ns.is_none()
    }

    /// The end: for an instant its time, for a span that was not ended the largest time.
    pub fn last_ns(&self) -> i64 {
        self.end_ns.unwrap_or(if self.is_open() { i64::MAX } else { self.mono_ns })
    }

    /// Whether any of it lies between two times.
    pub fn is_within(&self, begin_ns: i64, end_ns: i64) -> bool {
        self.mono_ns <= end_ns && begin_ns <= self.last_ns()
    }

    /// The mark as a row of the table.
    pub fn to_row<'a>(&'a self, origin: &'a RecordingOrigin) -> Row<'a> {
        Row {
            host: &origin.host,
            boot_id: &origin.boot_id,
            cluster: origin.cluster.as_deref(),
            mono_ns: self.mono_ns,
            end_ns: self.end_ns,
            kind: self.kind.kind_name(),
            text: &self.text,
            source: &self.source,
            pid: self.pid,
        }
    }
}

/// The marks in the metadata, [`metadata::MARKS`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedMarks {
    /// The first ones, in the order in which they were taken.
    pub marks: Vec<Mark>,
    /// Number of further marks, which are only in the table.
    pub left_out: u64,
}

impl ListedMarks {
    /// The marks in a recording's metadata; empty if there are none.
    ///
    /// # Errors
    ///
    /// The metadata are damaged.
    pub fn from_metadata(pairs: &BTreeMap<String, String>) -> Result<Self> {
        Ok(metadata::parse_json(pairs, metadata::MARKS)?.unwrap_or_default())
    }

    /// Lists the first of these marks, as many as there is room for.
    pub fn list_first(candidates: Vec<Mark>) -> Self {
        let mut bytes = 0;
        let has_room = |mark: &Mark| {
            bytes += serde_json::to_string(mark).map_or(LISTED_BYTES, |json| json.len() + 1);
            bytes <= LISTED_BYTES
        };
        let count = candidates.len() as u64;
        let marks: Vec<Mark> =
            candidates.into_iter().take(LISTED_MARKS).take_while(has_room).collect();
        let left_out = count - marks.len() as u64;
        Self { marks, left_out }
    }
}

/// The marks in rows of the table.
///
/// # Errors
///
/// A column of `mono_ns`, `end_ns`, `kind`, `text`, `source` and `pid` is missing.
pub fn decode_marks(batch: &RecordBatch) -> Result<Vec<Mark>> {
    let (begin, end) = (i64_column(batch, "mono_ns")?, i64_column(batch, "end_ns")?);
    let (kinds, source) = (word_column(batch, "kind")?, word_column(batch, "source")?);
    let (text, pid) = (text_column(batch, "text")?, i32_column(batch, "pid")?);
    let mark = |row| Mark {
        mono_ns: begin.value(row),
        end_ns: nullable_value(end, row),
        kind: kinds.get(row).and_then(MarkKind::from_name).unwrap_or(MarkKind::Instant),
        text: text.value(row).to_owned(),
        source: source.get(row).unwrap_or_default().to_owned(),
        pid: nullable_value(pid, row),
    };
    Ok((0..batch.num_rows()).map(mark).collect())
}
