//! Writes the tables of a recording so that it can be killed at any moment.
//!
//! While recording, table T is the directory `T.parquet.partial/` beside the file it will be. It
//! holds sealed segments, each a complete Parquet file, so `T.parquet.partial/*.parquet` reads in
//! DuckDB at any time. `seal` (each flush interval) writes the rows since the last seal as a new
//! segment under a temporary name and renames it; 32 segments are merged into one with larger row
//! groups, and 32 of those again (`segment.rs`), so metadata and memory stay flat. `finish` writes
//! the final file beside the segments, fsyncs it, renames it into place and removes the segments
//! (`finish.rs`). `repair` does the same with what a killed recorder left.
//!
//! Guarantees:
//! - `kill -9` loses at most the rows since the last `seal`. Segments are not fsynced: a flush to
//!   disk every second on a host that is being measured would disturb it, and page cache outlives
//!   the process. After a power cut the last segments may be missing.
//! - An existing file is replaced only by the final rename, and only with [`Create::overwrite`];
//!   what is no regular file never is ([`super::place`]). The files are readable only for the users that [`Create::mode`] names.
//! - Until something is sealed, dropping the writer leaves nothing behind; after that it leaves
//!   the segments, and every error says how to get a file from them.
//! - Memory is bounded by [`BUFFER_ROWS`] rows a table and one row group.
//! - Two recorders cannot use one target, nor `repair` a live one ([`super::lock`]). A partial directory
//!   that was removed while it was in use is an error that says what is lost.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;

use anyhow::{Context as _, Result};
use arrow::array::RecordBatch;

use super::files::Files;
use super::lock::Act;
use super::mode::Mode;
use super::stream::{Sink, Stream};
use crate::confine::Needs;
use crate::schema::{TableDef, fabric};

/// Rows a table holds back at most before it seals on its own; at 200 bytes a row in memory this
/// is under 4 MiB.
pub const BUFFER_ROWS: usize = 16_384;

/// Where a recording goes.
pub enum Target {
    /// One file, the fabric table only.
    File(PathBuf),
    /// A directory with one file for every table.
    Dataset(PathBuf),
    /// One file, of a table that is not of a recording.
    Table(&'static TableDef, PathBuf),
    /// The fabric table as an Arrow IPC stream.
    Stream(Sink),
    /// Some tables, piece by piece, for another thread.
    Pieces(Pieces),
    /// Nowhere: what is wanted is tapped ([`super::thread::Tap`]).
    Nowhere,
}

/// What another thread gets of a recording.
#[derive(Debug)]
pub enum Piece {
    /// Rows of a table.
    Rows(&'static TableDef, RecordBatch),
    /// The metadata as they are from here on.
    Metadata(BTreeMap<String, String>),
}

/// Where pieces go.
#[derive(Debug, Clone)]
pub struct Pieces {
    /// The other thread; the recorder waits where it is slow.
    pub sender: SyncSender<Piece>,
    /// The tables that it wants.
    pub tables: Vec<&'static TableDef>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::File(path) => f.debug_tuple("File").field(path).finish(),
            Target::Dataset(path) => f.debug_tuple("Dataset").field(path).finish(),
            Target::Table(def, path) => {
                f.debug_tuple("Table").field(&def.name).field(path).finish()
            }
            Target::Stream(_) => f.write_str("Stream"),
            Target::Pieces(_) => f.write_str("Pieces"),
            Target::Nowhere => f.write_str("Nowhere"),
        }
    }
}

/// How the files of an output are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Create {
    /// Replace regular files that exist.
    pub overwrite: bool,
    /// Permissions of the files and directories that are made.
    pub mode: Mode,
    /// What others who want the same output are told.
    pub act: Act,
}

/// What a finished recording amounts to, over all its tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Finished {
    /// Rows written.
    pub rows: u64,
    /// Bytes of the final files; 0 for a stream, whose bytes the sink has seen.
    pub bytes: u64,
}

impl AddAssign for Finished {
    fn add_assign(&mut self, more: Self) {
        self.rows += more.rows;
        self.bytes += more.bytes;
    }
}

/// The tables of one recording.
#[derive(Debug)]
pub struct Writer(Output);

#[derive(Debug)]
enum Output {
    Files(Box<Files>),
    Stream(Box<Stream>),
    Pieces(Pieces, u64),
    Nowhere,
}

impl Pieces {
    fn send(&self, piece: Piece) -> Result<()> {
        self.sender.send(piece).context("no thread takes the rows")
    }

    /// The table of this name, where it is wanted.
    fn wanted(&self, def: &TableDef) -> Option<&'static TableDef> {
        self.tables.iter().copied().find(|table| table.name == def.name)
    }
}

impl Writer {
    /// Opens the target; nothing that exists is touched unless `create` says so, and then only at
    /// the end.
    pub fn create(
        target: Target,
        create: Create,
        metadata: &BTreeMap<String, String>,
    ) -> Result<Writer> {
        let files = match target {
            Target::Stream(sink) => {
                return Ok(Writer(Output::Stream(Box::new(Stream::create(sink, metadata)?))));
            }
            Target::Pieces(pieces) => {
                pieces.send(Piece::Metadata(metadata.clone()))?;
                return Ok(Writer(Output::Pieces(pieces, 0)));
            }
            Target::Nowhere => return Ok(Writer(Output::Nowhere)),
            Target::File(path) => Files::file(&fabric::TABLE, path, create, metadata)?,
            Target::Table(def, path) => Files::file(def, path, create, metadata)?,
            Target::Dataset(path) => Files::dataset(path, create, metadata)?,
        };
        Ok(Writer(Output::Files(Box::new(files))))
    }

    /// What a thread needs that does nothing but write here.
    pub fn needs(&self) -> Needs {
        match &self.0 {
            Output::Stream(_) | Output::Pieces(..) | Output::Nowhere => Needs::default(),
            Output::Files(files) => files.needs(),
        }
    }

    /// Whether rows of this table are kept: rows of others need not be made.
    pub fn wants(&self, def: &TableDef) -> bool {
        match &self.0 {
            Output::Stream(_) => def.name == fabric::TABLE.name,
            Output::Pieces(pieces, _) => pieces.wanted(def).is_some(),
            Output::Files(files) => files.wants(def),
            Output::Nowhere => false,
        }
    }

    /// Replaces the metadata that goes into the segments from now on and that `repair` will find.
    pub fn set_metadata(&mut self, metadata: &BTreeMap<String, String>) -> Result<()> {
        match &mut self.0 {
            Output::Stream(_) | Output::Nowhere => Ok(()),
            Output::Pieces(pieces, _) => pieces.send(Piece::Metadata(metadata.clone())),
            Output::Files(files) => files.set_metadata(metadata),
        }
    }

    /// Takes rows of a table; those of a table that is not wanted are dropped.
    pub fn write(&mut self, def: &TableDef, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 || !self.wants(def) {
            return Ok(());
        }
        match &mut self.0 {
            Output::Stream(stream) => stream.write(batch),
            Output::Pieces(pieces, rows) => {
                let Some(def) = pieces.wanted(def) else { return Ok(()) };
                *rows += batch.num_rows() as u64;
                pieces.send(Piece::Rows(def, batch.clone()))
            }
            Output::Files(files) => files.write(def, batch),
            Output::Nowhere => Ok(()),
        }
    }

    /// Makes everything written so far survive a kill.
    pub fn seal(&mut self) -> Result<()> {
        match &mut self.0 {
            Output::Stream(_) | Output::Pieces(..) | Output::Nowhere => Ok(()),
            Output::Files(files) => files.seal(),
        }
    }

    /// Bytes that are sealed; 0 where nothing is.
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Output::Stream(_) | Output::Pieces(..) | Output::Nowhere => 0,
            Output::Files(files) => files.bytes(),
        }
    }

    /// The lock, for tests that play a killed recorder: a process gives it up as it dies.
    #[cfg(test)]
    pub(super) fn lock_of_a_killed(&self) -> Option<&super::lock::Lock> {
        match &self.0 {
            Output::Files(files) => files.lock.as_ref(),
            Output::Stream(_) | Output::Pieces(..) | Output::Nowhere => None,
        }
    }

    /// Ends the recording with its final metadata.
    pub fn finish(self, metadata: &BTreeMap<String, String>) -> Result<Finished> {
        match self.0 {
            Output::Stream(stream) => Ok(Finished { rows: stream.finish()?, bytes: 0 }),
            Output::Pieces(pieces, rows) => {
                pieces.send(Piece::Metadata(metadata.clone()))?;
                Ok(Finished { rows, bytes: 0 })
            }
            Output::Files(files) => files.finish(metadata),
            Output::Nowhere => Ok(Finished::default()),
        }
    }
}
