//! Writes the tables of a recording so that the process can be killed at any time.
//!
//! During the recording, table T is the directory `T.parquet.partial/` next to its final file. It
//! contains sealed segments, each a complete Parquet file, so DuckDB can read
//! `T.parquet.partial/*.parquet` at any time. `seal_rows` (once per flush interval) writes the rows
//! since the last seal as a new segment under a temporary name and renames it. 32 segments are
//! merged into one with larger row groups, and 32 of those again (`segment.rs`), so that metadata
//! and memory stay small. `finish` writes the final file next to the segments, syncs and renames
//! it, and removes the segments (`finish.rs`). `repair` does the same with the segments of a killed
//! recorder.
//!
//! Guarantees:
//! - `kill -9` loses at most the rows since the last `seal_rows`. Segments are not synced: a sync every
//!   second would disturb the measured host, and the page cache outlives the process. After a power
//!   cut the last segments may be missing.
//! - An existing file is replaced only by the final rename, and only with
//!   [`CreateOptions::overwrite`]. Only regular files are ever replaced ([`super::output_path`]).
//!   Only the users of [`CreateOptions::mode`] can read the files.
//! - Until something is sealed, dropping the writer leaves nothing behind. After that it leaves the
//!   segments, and every error says how to make a file from them.
//! - Memory is bounded by [`BUFFER_ROWS`] rows per table and one row group.
//! - Two recorders cannot use one target, and `repair` cannot use a live one ([`super::lock`]). If
//!   a partial directory is removed during the recording, the error says what is lost.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;

use anyhow::{Context as _, Result};
use arrow::array::RecordBatch;

use super::files::RecordingFiles;
pub use super::files::{BUFFER_ROWS, CreateOptions, RecordingSize};
use super::stream::{Stream, StreamSink};
use crate::confine::ThreadNeeds;
use crate::schema::{TableDef, fabric};

/// The destination of a recording.
pub enum RecordingTarget {
    /// One file with the table `fabric` only.
    File(PathBuf),
    /// A directory with one file for every table.
    Dataset(PathBuf),
    /// One file of a table that is not part of a recording.
    Table(&'static TableDef, PathBuf),
    /// The table `fabric` as an Arrow IPC stream.
    Stream(StreamSink),
    /// Some tables, in pieces, for another thread.
    Pieces(PieceChannel),
    /// Nowhere: a tap takes the rows ([`super::thread::Tap`]).
    Nowhere,
}

/// A piece of a recording for another thread.
#[derive(Debug)]
pub enum TablePiece {
    /// Rows of a table.
    Rows(&'static TableDef, RecordBatch),
    /// New metadata.
    Metadata(BTreeMap<String, String>),
}

/// The destination of pieces.
#[derive(Debug, Clone)]
pub struct PieceChannel {
    /// The other thread. The recorder waits if it is slow.
    pub sender: SyncSender<TablePiece>,
    /// The tables that it needs.
    pub tables: Vec<&'static TableDef>,
}

impl std::fmt::Debug for RecordingTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RecordingTarget::File(path) => f.debug_tuple("File").field(path).finish(),
            RecordingTarget::Dataset(path) => f.debug_tuple("Dataset").field(path).finish(),
            RecordingTarget::Table(def, path) => {
                f.debug_tuple("Table").field(&def.name).field(path).finish()
            }
            RecordingTarget::Stream(_) => f.write_str("Stream"),
            RecordingTarget::Pieces(_) => f.write_str("Pieces"),
            RecordingTarget::Nowhere => f.write_str("Nowhere"),
        }
    }
}

/// The tables of a recording.
#[derive(Debug)]
pub struct Writer(WriterOutput);

#[derive(Debug)]
enum WriterOutput {
    Files(Box<RecordingFiles>),
    Stream(Box<Stream>),
    Pieces(PieceChannel, u64),
    Nowhere,
}

impl PieceChannel {
    fn send_piece(&self, piece: TablePiece) -> Result<()> {
        self.sender.send(piece).context("the thread that receives the rows has ended")
    }

    /// The table, if it is needed.
    fn find_table(&self, def: &TableDef) -> Option<&'static TableDef> {
        self.tables.iter().copied().find(|table| table.name == def.name)
    }
}

impl Writer {
    /// Opens the target. Existing files are not changed unless `create` allows it, and then only at
    /// the end.
    pub fn create(
        target: RecordingTarget,
        create: CreateOptions,
        metadata: &BTreeMap<String, String>,
    ) -> Result<Writer> {
        let files = match target {
            RecordingTarget::Stream(sink) => {
                return Ok(Writer(WriterOutput::Stream(Box::new(Stream::create(sink, metadata)?))));
            }
            RecordingTarget::Pieces(pieces) => {
                pieces.send_piece(TablePiece::Metadata(metadata.clone()))?;
                return Ok(Writer(WriterOutput::Pieces(pieces, 0)));
            }
            RecordingTarget::Nowhere => return Ok(Writer(WriterOutput::Nowhere)),
            RecordingTarget::File(path) => {
                RecordingFiles::create_file(&fabric::TABLE, path, create, metadata)?
            }
            RecordingTarget::Table(def, path) => {
                RecordingFiles::create_file(def, path, create, metadata)?
            }
            RecordingTarget::Dataset(path) => {
                RecordingFiles::create_dataset(path, create, metadata)?
            }
        };
        Ok(Writer(WriterOutput::Files(Box::new(files))))
    }

    /// The access to files that a thread needs which only writes here.
    pub fn access_needs(&self) -> ThreadNeeds {
        match &self.0 {
            WriterOutput::Stream(_) | WriterOutput::Pieces(..) | WriterOutput::Nowhere => {
                ThreadNeeds::default()
            }
            WriterOutput::Files(files) => files.access_needs(),
        }
    }

    /// Whether rows of this table are kept. Other rows need not be made.
    pub fn wants_table(&self, def: &TableDef) -> bool {
        match &self.0 {
            WriterOutput::Stream(_) => def.name == fabric::TABLE.name,
            WriterOutput::Pieces(pieces, _) => pieces.find_table(def).is_some(),
            WriterOutput::Files(files) => files.has_table(def),
            WriterOutput::Nowhere => false,
        }
    }

    /// Replaces the metadata of later segments, which `repair` uses.
    pub fn set_metadata(&mut self, metadata: &BTreeMap<String, String>) -> Result<()> {
        match &mut self.0 {
            WriterOutput::Stream(_) | WriterOutput::Nowhere => Ok(()),
            WriterOutput::Pieces(pieces, _) => {
                pieces.send_piece(TablePiece::Metadata(metadata.clone()))
            }
            WriterOutput::Files(files) => files.set_metadata(metadata),
        }
    }

    /// Writes rows of a table. Rows of a table that is not kept are dropped.
    pub fn write(&mut self, def: &TableDef, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 || !self.wants_table(def) {
            return Ok(());
        }
        match &mut self.0 {
            WriterOutput::Stream(stream) => stream.write(batch),
            WriterOutput::Pieces(pieces, rows) => {
                let Some(def) = pieces.find_table(def) else { return Ok(()) };
                *rows += batch.num_rows() as u64;
                pieces.send_piece(TablePiece::Rows(def, batch.clone()))
            }
            WriterOutput::Files(files) => files.write(def, batch),
            WriterOutput::Nowhere => Ok(()),
        }
    }

    /// Makes everything written so far survive a kill.
    pub fn seal_rows(&mut self) -> Result<()> {
        match &mut self.0 {
            WriterOutput::Stream(_) | WriterOutput::Pieces(..) | WriterOutput::Nowhere => Ok(()),
            WriterOutput::Files(files) => files.seal_all(),
        }
    }

    /// Size of the sealed data in bytes; 0 if nothing is sealed.
    pub fn sealed_bytes(&self) -> u64 {
        match &self.0 {
            WriterOutput::Stream(_) | WriterOutput::Pieces(..) | WriterOutput::Nowhere => 0,
            WriterOutput::Files(files) => files.segment_bytes(),
        }
    }

    /// The lock, for tests that simulate a killed recorder: the kernel releases it when a process
    /// ends.
    #[cfg(test)]
    pub(super) fn lock_of_a_killed(&self) -> Option<&super::lock::Lock> {
        match &self.0 {
            WriterOutput::Files(files) => files.lock.as_ref(),
            WriterOutput::Stream(_) | WriterOutput::Pieces(..) | WriterOutput::Nowhere => None,
        }
    }

    /// Ends the recording with its final metadata.
    pub fn finish(self, metadata: &BTreeMap<String, String>) -> Result<RecordingSize> {
        match self.0 {
            WriterOutput::Stream(stream) => Ok(RecordingSize { rows: stream.finish()?, bytes: 0 }),
            WriterOutput::Pieces(pieces, rows) => {
                pieces.send_piece(TablePiece::Metadata(metadata.clone()))?;
                Ok(RecordingSize { rows, bytes: 0 })
            }
            WriterOutput::Files(files) => files.finish(metadata),
            WriterOutput::Nowhere => Ok(RecordingSize::default()),
        }
    }
}
