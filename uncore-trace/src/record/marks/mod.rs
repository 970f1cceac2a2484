//! Marks: instants and spans that users name while a recording runs.
//!
//! They come from `uncore-trace mark`, and go into the table `marks` and into the metadata.
//! Guarantees: nothing is left behind by a recorder that is killed; a mark that is refused is
//! reported to its sender, and if there was no room for it, counted as a row of `loss`.

mod book;
mod listen;
pub mod send;
mod source;
pub mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use self::book::{MarkBook, MarkStorage};
use self::listen::{SharedBook, lock_book};
pub(super) use self::source::prepare_source;
use crate::assemble::{Ledger, Sink};
use crate::clock::mono_ns;
use crate::tables::writer::RecordingTarget;

/// The marks of a recording, and the tasks that receive them.
#[derive(Debug)]
struct RecordingMarks {
    book: SharedBook,
    /// The tasks; they end when this is dropped.
    listeners: JoinSet<()>,
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

    /// Begins the recording at `start_ns`, `CLOCK_MONOTONIC`.
    fn begin_recording(&self, start_ns: i64) {
        lock_book(&self.book).begin_recording(start_ns);
    }

    /// Stops taking marks. Open spans stay without an end.
    fn stop_listening(&mut self) {
        self.listeners.abort_all();
        lock_book(&self.book).close_spans();
    }

    /// Ends a part of the recording at `at_ns`, `CLOCK_MONOTONIC`. Returns the marks of that part
    /// that were taken so far.
    fn split_book(&self, at_ns: i64) -> PartMarks {
        PartMarks(Mutex::new(lock_book(&self.book).end_part(at_ns)).into())
    }

    /// The marks of the live part.
    fn live_marks(&self) -> PartMarks {
        PartMarks(Arc::clone(&self.book))
    }
}

/// The marks of a part of the recording.
#[derive(Debug)]
struct PartMarks(SharedBook);

impl PartMarks {
    /// Moves final marks to the table, and rejected ones to the losses.
    fn hand_over(&self, sink: &mut Sink, ledger: &mut Ledger) {
        let mut book = lock_book(&self.0);
        for mark in book.take_rows() {
            sink.rows.marks.append(&mark.to_row(&sink.origin));
        }
        for (refusal, count) in book.take_lost() {
            ledger.add_rejected_marks(
                mono_ns() as u64,
                count,
                &format!("not taken: {}", refusal.reason()),
            );
        }
    }

    /// Writes the marks into the metadata, if they changed since the last call. Returns whether
    /// they had.
    fn note_in_metadata(&self, pairs: &mut BTreeMap<String, String>) -> Result<bool> {
        lock_book(&self.0).note_in_metadata(pairs)
    }
}
