//! Marks: instants and spans that users name while a recording runs.
//!
//! They come from `uncore-trace mark` and from the lines of `record --marks`, and go into the table
//! `marks` and into the metadata. Guarantees: nothing is left behind by a recorder that is killed but
//! the FIFO of `--marks`; a mark that is refused is reported to its sender, or is a row of `loss`.

mod book;
mod line;
mod listen;
pub mod send;
pub mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use tokio::task::JoinSet;

use self::book::{Book, Room};
use self::listen::{Made, Shared, lock};
use super::args::Options;
use crate::assemble::{Ledger, Sink};
use crate::clock::mono_ns;
use crate::tables::writer::Target;

/// The marks of a recording, and the tasks that receive them.
#[derive(Debug)]
pub(super) struct Marks {
    book: Shared,
    /// The tasks; they end when this is dropped.
    listeners: JoinSet<()>,
    /// The FIFO, if it was made here.
    made: Option<Made>,
}

impl Marks {
    /// Listens as `options` say. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// The path of `--marks` can be neither opened nor created. If the socket for `uncore-trace
    /// mark` cannot be opened, that is only a warning.
    pub(super) fn open(options: &Options, target: &Target) -> Result<Self> {
        let room = match target {
            Target::Dataset(_) => Room::Table,
            Target::File(_) => Room::Metadata,
            Target::Stream(_) | Target::Pieces(_) | Target::Table(..) | Target::Nowhere => {
                Room::Nowhere
            }
        };
        let book = Arc::new(Mutex::new(Book::new(room)));
        let mut listeners = JoinSet::new();
        let mut made = None;
        if let Some(path) = &options.marks {
            let (receiver, file) = listen::source(path)?;
            made = file;
            listeners.spawn(listen::fifo(receiver, Arc::clone(&book)));
        }
        if options.listen {
            match listen::own() {
                Ok(listener) => {
                    listeners.spawn(listen::commands(listener, Arc::clone(&book)));
                }
                Err(error) => {
                    log::warn!("`uncore-trace mark` cannot reach this recording: {error:#}");
                }
            }
        }
        Ok(Self { book, listeners, made })
    }

    /// Begins the recording at `start_ns`, `CLOCK_MONOTONIC`.
    pub(super) fn begin(&self, start_ns: i64) {
        lock(&self.book).begin(start_ns);
    }

    /// Stops taking marks. Open spans stay without an end.
    pub(super) fn close(&mut self) {
        self.listeners.abort_all();
        self.made = None;
        lock(&self.book).close();
    }

    /// Ends a part of the recording at `at_ns`, `CLOCK_MONOTONIC`. Returns the marks of that part
    /// that were taken so far.
    pub(super) fn turn(&self, at_ns: i64) -> Taken {
        Taken(Mutex::new(lock(&self.book).turn(at_ns)).into())
    }

    /// The marks of the live part.
    pub(super) fn taken(&self) -> Taken {
        Taken(Arc::clone(&self.book))
    }
}

/// The marks of a part of the recording.
#[derive(Debug)]
pub(super) struct Taken(Shared);

impl Taken {
    /// Moves final marks to the table, and rejected ones to the losses.
    pub(super) fn hand_over(&self, sink: &mut Sink, ledger: &mut Ledger) {
        let mut book = lock(&self.0);
        for mark in book.take_rows() {
            sink.rows.marks.append(&mark.row(&sink.origin));
        }
        for (refusal, count) in book.take_lost() {
            ledger.not_marked(mono_ns() as u64, count, &format!("not taken: {}", refusal.words()));
        }
    }

    /// Writes the marks into the metadata, if they changed since the last call. Returns whether
    /// they had.
    pub(super) fn note(&self, pairs: &mut BTreeMap<String, String>) -> Result<bool> {
        lock(&self.0).note(pairs)
    }
}
