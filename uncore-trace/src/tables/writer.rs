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
//! - An existing file is replaced only by the final rename, and only when told to.
//! - Until something is sealed, dropping the writer leaves nothing behind; after that it leaves
//!   the segments, and every error says how to get a file from them.
//! - Memory is bounded by [`BUFFER_ROWS`] rows a table and one row group.
//! - Two recorders cannot use one target, nor `repair` a live one: a lock is held on the partial
//!   directory of `fabric`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use arrow::array::RecordBatch;

use super::segment::{Partial, partial_dir};
use super::stream::{Sink, Stream};
use super::{ALL, TableDef, disk, fabric, finish, metadata};

/// Rows a table holds back at most before it seals on its own; at 200 bytes a row in memory this
/// is under 4 MiB.
pub const BUFFER_ROWS: usize = 16_384;

/// Where a recording goes.
pub enum Target {
    /// One file, the fabric table only.
    File(PathBuf),
    /// A directory with one file for every table.
    Dataset(PathBuf),
    /// The fabric table as an Arrow IPC stream.
    Stream(Sink),
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::File(path) => f.debug_tuple("File").field(path).finish(),
            Target::Dataset(path) => f.debug_tuple("Dataset").field(path).finish(),
            Target::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// What a finished recording amounts to, over all its tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Finished {
    /// Rows written.
    pub rows: u64,
    /// Bytes of the final files; 0 for a stream, whose bytes the sink has seen.
    pub bytes: u64,
}

/// The tables of one recording.
#[derive(Debug)]
pub struct Writer {
    output: Output,
    metadata: BTreeMap<String, String>,
}

#[derive(Debug)]
enum Output {
    Files(Files),
    Stream(Box<Stream>),
}

#[derive(Debug)]
struct Files {
    /// What the user named: for messages.
    path: PathBuf,
    tables: Vec<TableSink>,
    /// Held until the fabric file is finished; closing it lets go of the lock.
    lock: Option<File>,
    /// The dataset directory, when it was made here.
    made: Option<PathBuf>,
    sealed: bool,
}

#[derive(Debug)]
struct TableSink {
    target: PathBuf,
    partial: Partial,
    pending: Vec<RecordBatch>,
    rows: usize,
}

impl Writer {
    /// Opens the target; nothing that exists is touched unless `overwrite`, and then only at the
    /// end.
    pub fn create(
        target: Target,
        overwrite: bool,
        metadata: &BTreeMap<String, String>,
    ) -> Result<Writer> {
        let output = match target {
            Target::Stream(sink) => Output::Stream(Box::new(Stream::create(sink, metadata)?)),
            Target::File(path) => {
                if path.is_dir() {
                    bail!(
                        "{} is a directory; end the name with / to record a dataset into it",
                        path.display()
                    );
                }
                let tables = vec![(&fabric::TABLE, path.clone())];
                Output::Files(Files::create(path, tables, None, overwrite, metadata)?)
            }
            Target::Dataset(path) => {
                let tables = ALL.iter().map(|def| (*def, table_path(&path, def))).collect();
                let made = make_dataset(&path)?;
                let files = Files::create(path, tables, made.clone(), overwrite, metadata);
                if let (Err(_), Some(made)) = (&files, made) {
                    // Empty or not ours to remove; the error that counts is the one at hand.
                    fs::remove_dir(made).ok();
                }
                Output::Files(files?)
            }
        };
        Ok(Writer { output, metadata: metadata.clone() })
    }

    /// Whether rows of this table are kept: rows of others need not be made.
    pub fn wants(&self, def: &TableDef) -> bool {
        match &self.output {
            Output::Stream(_) => def.name == fabric::TABLE.name,
            Output::Files(files) => files.tables.iter().any(|t| t.partial.def.name == def.name),
        }
    }

    /// Replaces the metadata that goes into the segments from now on and that `repair` will find.
    pub fn set_metadata(&mut self, metadata: &BTreeMap<String, String>) {
        self.metadata.clone_from(metadata);
    }

    /// Takes rows of a table; those of a table that is not wanted are dropped.
    pub fn write(&mut self, def: &TableDef, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 || !self.wants(def) {
            return Ok(());
        }
        match &mut self.output {
            Output::Stream(stream) => stream.write(batch),
            Output::Files(files) => files.write(def, batch, &self.metadata),
        }
    }

    /// Makes everything written so far survive a kill.
    pub fn seal(&mut self) -> Result<()> {
        match &mut self.output {
            Output::Stream(_) => Ok(()),
            Output::Files(files) => files.seal(&self.metadata),
        }
    }

    /// The lock, for tests that play a killed recorder: a process gives it up as it dies.
    #[cfg(test)]
    pub(super) fn lock_of_a_killed(&self) -> Option<&File> {
        match &self.output {
            Output::Files(files) => files.lock.as_ref(),
            Output::Stream(_) => None,
        }
    }

    /// Ends the recording with its final metadata.
    pub fn finish(self, metadata: &BTreeMap<String, String>) -> Result<Finished> {
        match self.output {
            Output::Stream(stream) => Ok(Finished { rows: stream.finish()?, bytes: 0 }),
            Output::Files(files) => files.finish(metadata),
        }
    }
}

/// The file of a table in a dataset.
pub fn table_path(dataset: &Path, def: &TableDef) -> PathBuf {
    dataset.join(format!("{}.parquet", def.name))
}

/// Makes the dataset's directory; returns it when it was not there before.
fn make_dataset(path: &Path) -> Result<Option<PathBuf>> {
    if path.is_dir() {
        return Ok(None);
    }
    if disk::occupied(path)? {
        bail!("{} is a file; a dataset needs a directory", path.display());
    }
    disk::doing("create directory", path, fs::create_dir(path))?;
    Ok(Some(path.to_owned()))
}

/// The lock of a recording: on a file in fabric's partial directory.
pub(super) fn lock(fabric_target: &Path) -> Result<File> {
    let path = partial_dir(fabric_target).join("lock");
    let file = disk::doing("create", &path, File::create(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            bail!("{} is being recorded now; stop that first", fabric_target.display())
        }
        Err(fs::TryLockError::Error(error)) => Err(disk::failed("lock", &path, &error)),
    }
}

impl Files {
    fn create(
        path: PathBuf,
        tables: Vec<(&'static TableDef, PathBuf)>,
        made: Option<PathBuf>,
        overwrite: bool,
        metadata: &BTreeMap<String, String>,
    ) -> Result<Files> {
        for (_, target) in &tables {
            if disk::occupied(&partial_dir(target))? {
                bail!(
                    "{} is left from a recording that did not end; make it a file with \
                     `uncore-trace repair {}`, or remove it",
                    partial_dir(target).display(),
                    path.display()
                );
            }
            if !overwrite && disk::occupied(target)? {
                bail!("{} exists; use --force to replace it", target.display());
            }
        }
        let mut files = Files { path, tables: Vec::new(), lock: None, made, sealed: false };
        for (def, target) in tables {
            let partial = Partial::create(def, &target)?;
            files.tables.push(TableSink { target, partial, pending: Vec::new(), rows: 0 });
        }
        // An empty first segment of fabric: a recorder killed in its first second still leaves
        // its metadata, and `*.parquet` always matches something.
        if let Some(fabric) = files.tables.last_mut() {
            files.lock = Some(lock(&fabric.target)?);
            fabric.partial.seal(&[], metadata)?;
        }
        Ok(files)
    }

    fn write(
        &mut self,
        def: &TableDef,
        batch: &RecordBatch,
        metadata: &BTreeMap<String, String>,
    ) -> Result<()> {
        let Some(table) = self.tables.iter_mut().find(|t| t.partial.def.name == def.name) else {
            return Ok(());
        };
        table.pending.push(batch.clone());
        table.rows += batch.num_rows();
        if table.rows < BUFFER_ROWS {
            return Ok(());
        }
        let sealed = table.seal(metadata);
        self.note(sealed)
    }

    fn seal(&mut self, metadata: &BTreeMap<String, String>) -> Result<()> {
        for at in 0..self.tables.len() {
            let sealed = self.tables[at].seal(metadata);
            self.note(sealed)?;
        }
        Ok(())
    }

    /// Remembers that rows are on disk, or gives the error the way out.
    fn note(&mut self, sealed: Result<bool>) -> Result<()> {
        match sealed {
            Ok(wrote) => {
                self.sealed |= wrote;
                Ok(())
            }
            Err(error) => Err(self.way_out(&error)),
        }
    }

    fn way_out(&self, error: &anyhow::Error) -> anyhow::Error {
        if self.sealed {
            anyhow!(
                "{error:#}; what was recorded before is kept: make room or mend the cause, then \
                 run `uncore-trace repair {}`",
                self.path.display()
            )
        } else {
            anyhow!("{error:#}; nothing had been recorded and nothing is left behind")
        }
    }

    fn finish(mut self, metadata: &BTreeMap<String, String>) -> Result<Finished> {
        let sealed = self.seal(metadata);
        sealed?;
        // From here on the segments are all there is: a failure must not remove them.
        let nothing = !self.sealed;
        self.sealed = true;
        let mut total = Finished::default();
        for table in std::mem::take(&mut self.tables) {
            match finish::assemble(table.partial, &table.target, metadata) {
                Ok((rows, bytes)) => {
                    total.rows += rows;
                    total.bytes += bytes;
                }
                Err(error) => {
                    let error = self.way_out(&error);
                    return Err(if nothing { error.context("no row was recorded") } else { error });
                }
            }
        }
        Ok(total)
    }
}

impl TableSink {
    /// Writes the pending rows as a segment; says whether there were any.
    fn seal(&mut self, metadata: &BTreeMap<String, String>) -> Result<bool> {
        if self.rows == 0 {
            return Ok(false);
        }
        // Only fabric's segments carry everything: the plan may be large, and `repair` gives the
        // other tables what it finds there.
        let own;
        let pairs = if self.partial.def.name == fabric::TABLE.name {
            metadata
        } else {
            own = version_only(metadata);
            &own
        };
        self.partial.seal(&self.pending, pairs)?;
        self.pending.clear();
        self.rows = 0;
        Ok(true)
    }
}

fn version_only(metadata: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    metadata.iter().filter(|(key, _)| *key == metadata::SCHEMA_VERSION).map(pair).collect()
}

fn pair((key, value): (&String, &String)) -> (String, String) {
    (key.clone(), value.clone())
}

impl Drop for Files {
    /// Leaves nothing of a recording that sealed nothing; leaves everything of one that did.
    fn drop(&mut self) {
        if self.sealed {
            return;
        }
        for table in &self.tables {
            // Nobody is left to tell.
            disk::remove_tree(&table.partial.dir).ok();
        }
        if let Some(made) = &self.made {
            fs::remove_dir(made).ok();
        }
    }
}
