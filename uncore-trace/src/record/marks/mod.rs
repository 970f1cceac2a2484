//! Marks: instants and spans that users name while a recording runs.
//!
//! They come from `uncore-trace mark`, and go into the table `marks` and into the metadata.
//! Guarantees: nothing is left behind by a recorder that is killed; a mark that is refused is
//! reported to its sender, and if there was no room for it, counted as a row of `loss`.

mod book;
mod listen;
pub mod send;
pub mod wire;

use std::sync::{Arc, Mutex};

use anyhow::Result;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use self::book::{MarkBook, MarkStorage};
use self::listen::{SharedBook, lock_book};
use super::open_part::OpenPart;
use super::side_sources::{Preparation, SideSetup, SideSource, StopPoint};
use super::state::RecorderState;
use crate::clock::mono_ns;
use crate::tables::writer::RecordingTarget;

/// The marks of a recording, and the tasks that receive them.
#[derive(Debug)]
struct RecordingMarks {
    book: SharedBook,
    /// The tasks; they end when this is dropped.
    listeners: JoinSet<()>,
}

/// Listens for marks from now on, if any may come.
pub(super) fn prepare_source<'a>(preparation: &Preparation<'_, 'a>) -> Option<SideSetup<'a>> {
    if !preparation.options.listen {
        return None;
    }
    let marks = RecordingMarks::open_listeners(preparation.target);
    Some(SideSetup::new(|begun| {
        lock_book(&marks.book).begin_recording(begun.start_ns as i64);
        Some(Box::new(marks))
    }))
}

impl RecordingMarks {
    /// Listens for marks of a recording into `target`. Needs a tokio runtime. If the socket for
    /// `uncore-trace mark` cannot be opened, that is only a warning.
    fn open_listeners(target: &RecordingTarget) -> Self {
        let storage = match target {
            RecordingTarget::Dataset(_) => MarkStorage::Table,
            RecordingTarget::File(_) => MarkStorage::Metadata,
            RecordingTarget::Stream(_)
            | RecordingTarget::Pieces(_)
            | RecordingTarget::Table(..)
            | RecordingTarget::Nowhere => MarkStorage::Nowhere,
        };
        let book = Arc::new(Mutex::new(MarkBook::new(storage)));
        let mut listeners = JoinSet::new();
        match UnixListener::bind(wire::marks_socket_path(std::process::id())) {
            Ok(listener) => {
                listeners.spawn(listen::serve_commands(listener, Arc::clone(&book)));
            }
            Err(error) => {
                log::warn!("`uncore-trace mark` cannot reach this recording: {error:#}");
            }
        }
        Self { book, listeners }
    }
}

/// They are not polled: tasks of the event loop take them, and a part gets its own when it is
/// sealed.
impl SideSource for RecordingMarks {
    fn seal_part(&mut self, open_part: &mut OpenPart) -> Result<bool> {
        enter_marks(&mut lock_book(&self.book), open_part)
    }

    fn end_part(&mut self, open_part: &mut OpenPart, next_start_ns: Option<u64>) -> Result<()> {
        let mut book = lock_book(&self.book);
        match next_start_ns {
            Some(start_ns) => enter_marks(&mut book.end_part(start_ns as i64), open_part),
            None => enter_marks(&mut book, open_part),
        }
        .map(drop)
    }

    fn stop_point(&self) -> StopPoint {
        StopPoint::AfterLastTick
    }

    /// Stops taking marks. Those that the command wrote just before it ended have been read by
    /// then. Open spans stay without an end.
    fn stop(&mut self, _state: &mut RecorderState<'_>) -> Result<()> {
        self.listeners.abort_all();
        lock_book(&self.book).close_spans();
        Ok(())
    }
}

/// Moves final marks to the table of a part, and rejected ones to its losses. `true` if its
/// metadata changed.
fn enter_marks(book: &mut MarkBook, open_part: &mut OpenPart) -> Result<bool> {
    let OpenPart { sink, timeline, pairs, .. } = open_part;
    for mark in book.take_rows() {
        sink.rows.marks.append(&mark.to_row(&sink.origin));
    }
    for (refusal, count) in book.take_lost() {
        let why = format!("not taken: {}", refusal.reason());
        timeline.ledger.add_rejected_marks(mono_ns() as u64, count, &why);
    }
    book.note_in_metadata(pairs)
}
