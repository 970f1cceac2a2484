//! The files of a recording that is being written: a partial directory for each table, and what
//! happens to it at the end, after an error, or when the recording is abandoned.
//!
//! Guarantees: those of [`super::writer`].

use std::collections::BTreeMap;
use std::fs;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use arrow::array::RecordBatch;

use super::lock::{self, Lock, LockingCommand};
use super::manifest::Manifest;
use super::mode::FileMode;
use super::names::{table_path, without_slash};
use super::sealed::partial_dir;
use super::segment::Partial;
use super::{disk, finish, output_path, recovery};
use crate::confine::ThreadNeeds;
use crate::schema::{ALL, TableDef, cgroups, counters, cpus, fabric, links, metadata};

/// Tables that the rows of others refer to. They are sealed first: a recorder may be killed during
/// a seal, and a reading could not be verified without its counter and its CPU.
const REFERRED: [&str; 4] =
    [counters::TABLE.name, links::TABLE.name, cpus::TABLE.name, cgroups::TABLE.name];

/// Number of rows after which a table seals on its own: below 4 MiB at 200 bytes per row in memory.
pub const BUFFER_ROWS: usize = 16_384;

/// How the files of an output are created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CreateOptions {
    /// Replace existing regular files.
    pub overwrite: bool,
    /// Permissions of the new files and directories.
    pub mode: FileMode,
    /// The command, as shown to other processes that want the same output.
    pub command: LockingCommand,
}

/// The size of a finished recording, over all its tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordingSize {
    /// Rows written.
    pub rows: u64,
    /// Size of the final files in bytes; 0 for a stream.
    pub bytes: u64,
}

impl AddAssign for RecordingSize {
    fn add_assign(&mut self, added: Self) {
        self.rows += added.rows;
        self.bytes += added.bytes;
    }
}

/// The files of a recording.
#[derive(Debug)]
pub(super) struct RecordingFiles {
    /// The path that the user gave, for messages.
    path: PathBuf,
    /// The tables that are not finished.
    tables: Vec<TableSink>,
    /// The list of the other tables of a dataset.
    manifest: Option<Manifest>,
    /// Metadata of the segments of `fabric`.
    pairs: BTreeMap<String, String>,
    /// Held until the file of `fabric` is finished.
    pub(super) lock: Option<Lock>,
    /// The directory of the dataset, if it was created here.
    created_dir: Option<PathBuf>,
    /// Whether any rows are on disk.
    has_sealed: bool,
}

#[derive(Debug)]
struct TableSink {
    partial: Partial,
    pending: Vec<RecordBatch>,
    rows: usize,
}

impl RecordingFiles {
    /// A single file with this table.
    pub(super) fn create_file(
        def: &'static TableDef,
        path: PathBuf,
        create: CreateOptions,
        metadata: &BTreeMap<String, String>,
    ) -> Result<RecordingFiles> {
        let tables = [(def, path.clone())];
        output_path::warn_of_open_dir(disk::parent_dir(&path));
        RecordingFiles::without_tables(path).create_partials(&tables, create, metadata)
    }

    /// A directory with a file for every table. It is created if missing.
    pub(super) fn create_dataset(
        path: PathBuf,
        create: CreateOptions,
        metadata: &BTreeMap<String, String>,
    ) -> Result<RecordingFiles> {
        let tables: Vec<_> = ALL.iter().map(|def| (*def, table_path(&path, def))).collect();
        let beside = ALL.iter().copied().filter(|def| def.name != fabric::TABLE.name);
        let mut files = RecordingFiles::without_tables(path);
        files.created_dir = make_dataset(&files.path, create.mode)?;
        output_path::warn_of_open_dir(
            files.created_dir.as_deref().map_or(&*files.path, disk::parent_dir),
        );
        files.manifest = Some(Manifest::from_tables(beside));
        files.create_partials(&tables, create, metadata)
    }

    fn without_tables(path: PathBuf) -> RecordingFiles {
        RecordingFiles {
            path,
            tables: Vec::new(),
            manifest: None,
            pairs: BTreeMap::new(),
            lock: None,
            created_dir: None,
            has_sealed: false,
        }
    }

    /// Creates the partial directories of `tables`. After an error nothing is left behind.
    fn create_partials(
        mut self,
        tables: &[(&'static TableDef, PathBuf)],
        create: CreateOptions,
        metadata: &BTreeMap<String, String>,
    ) -> Result<RecordingFiles> {
        for (_, target) in tables {
            output_path::require_parent(target)?;
            if disk::is_occupied(&partial_dir(target))? {
                return Err(occupied_error(&self.path, &partial_dir(target), tables));
            }
            output_path::require_vacant(target, create.overwrite)?;
        }
        // `fabric`, the last in the list, is created first, so that the lock is held before others
        // can see any of the directories.
        for (def, target) in tables.iter().rev() {
            let partial = match Partial::create(def, target, create.mode) {
                // Another recorder created it first.
                Err(_) if self.lock.is_none() && disk::is_occupied(&partial_dir(target))? => {
                    return Err(occupied_error(&self.path, &partial_dir(target), tables));
                }
                partial => partial?,
            };
            self.tables.push(TableSink { partial, pending: Vec::new(), rows: 0 });
            if self.lock.is_none() {
                let fabric = &self.tables[0].partial.target;
                self.lock =
                    Some(lock::lock_output(&self.path, fabric, create.mode, create.command)?);
            }
        }
        self.tables.reverse();
        self.set_metadata(metadata)?;
        // An empty first segment of `fabric`: a recorder that is killed in its first second leaves
        // its metadata, and `*.parquet` always matches a file.
        if let Some(fabric) = self.tables.last_mut() {
            fabric.partial.write_next_segment(&[], &self.pairs)?;
        }
        Ok(self)
    }

    /// See [`super::writer::Writer::access_needs`].
    pub(super) fn access_needs(&self) -> ThreadNeeds {
        let targets = self.tables.iter().map(|table| table.partial.target.clone()).collect();
        let parent = disk::parent_dir(&self.path).to_owned();
        let partial = self.tables.iter().map(|table| table.partial.dir.clone());
        let (writes, names) = match (&self.manifest, &self.created_dir) {
            (None, _) => (partial.collect(), vec![parent]),
            (Some(_), None) => (vec![self.path.clone()], Vec::new()),
            // If nothing was recorded, the directory is removed.
            (Some(_), Some(_)) => (vec![self.path.clone()], vec![parent]),
        };
        ThreadNeeds { writes, names, replaces: targets, ..ThreadNeeds::default() }
    }

    /// See [`super::writer::Writer::wants_table`].
    pub(super) fn has_table(&self, def: &TableDef) -> bool {
        self.tables.iter().any(|table| table.partial.def.name == def.name)
    }

    /// See [`super::writer::Writer::set_metadata`].
    pub(super) fn set_metadata(&mut self, metadata: &BTreeMap<String, String>) -> Result<()> {
        self.pairs = match &self.manifest {
            Some(manifest) => manifest.added_to(metadata)?,
            None => metadata.clone(),
        };
        Ok(())
    }

    /// See [`super::writer::Writer::write`].
    pub(super) fn write(&mut self, def: &TableDef, batch: &RecordBatch) -> Result<()> {
        let Some(index) = self.tables.iter().position(|t| t.partial.def.name == def.name) else {
            return Ok(());
        };
        let table = &mut self.tables[index];
        table.pending.push(batch.clone());
        table.rows += batch.num_rows();
        if table.rows < BUFFER_ROWS {
            return Ok(());
        }
        let (referred, _) = self.split_referred();
        self.seal_tables(referred.into_iter().chain([index]))
    }

    /// Indices of the tables that others refer to, and of the other tables.
    fn split_referred(&self) -> (Vec<usize>, Vec<usize>) {
        let name = |index: usize| self.tables[index].partial.def.name;
        (0..self.tables.len()).partition(|index| REFERRED.contains(&name(*index)))
    }

    fn seal_tables(&mut self, indices: impl Iterator<Item = usize>) -> Result<()> {
        for index in indices {
            let sealed = self.tables[index].seal_pending(&self.pairs);
            self.record_seal(sealed)?;
        }
        Ok(())
    }

    /// See [`super::writer::Writer::seal_rows`].
    pub(super) fn seal_all(&mut self) -> Result<()> {
        let (referred, unreferred) = self.split_referred();
        self.seal_tables(referred.into_iter().chain(unreferred))
    }

    /// Size of all segments in bytes.
    pub(super) fn segment_bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.partial.bytes).sum()
    }

    /// Notes that rows are on disk, or adds the remedy to an error.
    fn record_seal(&mut self, sealed: Result<bool>) -> Result<()> {
        match sealed {
            Ok(wrote) => {
                self.has_sealed |= wrote;
                Ok(())
            }
            Err(error) => Err(self.add_remedy(&error)),
        }
    }

    /// Adds to the error what happens to the sealed rows, and how to recover them.
    fn add_remedy(&self, error: &anyhow::Error) -> anyhow::Error {
        let kept = if self.has_sealed {
            recovery::recovery_message(
                &self.tables.iter().map(|table| &table.partial).collect::<Vec<_>>(),
                &self.path,
            )
        } else {
            "nothing had been recorded and nothing is left behind".to_owned()
        };
        anyhow!("{error:#}; {kept}")
    }

    /// See [`super::writer::Writer::finish`].
    pub(super) fn finish(mut self, metadata: &BTreeMap<String, String>) -> Result<RecordingSize> {
        self.set_metadata(metadata)?;
        self.seal_all()?;
        for index in 0..self.tables.len() {
            let unchanged = self.tables[index].partial.require_unchanged().map(|()| false);
            self.record_seal(unchanged)?;
        }
        // From here on only the segments have the rows: an error must not remove them.
        let is_empty = !self.has_sealed;
        self.has_sealed = true;
        let mut total = RecordingSize::default();
        // A table is removed from the list when it is finished, so the list has the tables that can
        // still be lost.
        while let Some(table) = self.tables.first_mut() {
            let def = table.partial.def;
            let pairs = if def.name == fabric::TABLE.name { &self.pairs } else { metadata };
            match finish::assemble_table(&mut table.partial, pairs) {
                Ok(assembled) => {
                    total += assembled.size;
                    self.tables.remove(0);
                    if let Some(manifest) = &mut self.manifest {
                        manifest.set_digest(def, assembled.digest);
                    }
                    self.set_metadata(metadata)?;
                }
                Err(error) => {
                    let error = self.add_remedy(&error);
                    return Err(if is_empty {
                        error.context("no row was recorded")
                    } else {
                        error
                    });
                }
            }
        }
        Ok(total)
    }
}

impl TableSink {
    /// Writes the pending rows as a segment. Returns whether there were any. `pairs` is the
    /// metadata of `fabric`.
    fn seal_pending(&mut self, pairs: &BTreeMap<String, String>) -> Result<bool> {
        if self.rows == 0 {
            return Ok(false);
        }
        // Only segments of `fabric` have all metadata: the plan may be large, and `repair` copies
        // them to the other tables.
        let version = pairs.get_key_value(metadata::SCHEMA_VERSION).into_iter();
        let version_pairs;
        let pairs = if self.partial.def.name == fabric::TABLE.name {
            pairs
        } else {
            version_pairs = version.map(|(key, value)| (key.clone(), value.clone())).collect();
            &version_pairs
        };
        self.partial.write_next_segment(&self.pending, pairs)?;
        self.pending.clear();
        self.rows = 0;
        Ok(true)
    }
}

impl Drop for RecordingFiles {
    /// Removes the files of a recording that sealed nothing; keeps all files of one that did.
    fn drop(&mut self) {
        if self.has_sealed {
            return;
        }
        // A directory that has replaced ours belongs to somebody else.
        for table in self.tables.iter().filter(|table| table.partial.is_unchanged()) {
            // Nobody is left who could handle an error.
            disk::remove_tree(&table.partial.dir).ok();
        }
        if let Some(dir) = &self.created_dir {
            fs::remove_dir(dir).ok();
        }
    }
}

/// Creates the dataset's directory. Returns it if it did not exist before.
fn make_dataset(path: &Path, mode: FileMode) -> Result<Option<PathBuf>> {
    output_path::refuse_link(path)?;
    if path.is_dir() {
        return Ok(None);
    }
    output_path::require_parent(path)?;
    if disk::is_occupied(&without_slash(path))? {
        bail!(
            "{} is a file; a directory with the raw tables needs another name",
            without_slash(path).display()
        );
    }
    disk::with_action("create directory", path, mode.create_directory(path))?;
    Ok(Some(path.to_owned()))
}

/// The error for an output whose partial directory `dir` already exists.
fn occupied_error(
    path: &Path,
    dir: &Path,
    tables: &[(&'static TableDef, PathBuf)],
) -> anyhow::Error {
    match tables.last().and_then(|(_, fabric)| lock::find_holder(fabric)) {
        Some(holder) => lock::in_use(path, holder),
        None => anyhow!(
            "{} is from a recording that did not end; finish it with `uncore-trace repair {}`",
            dir.display(),
            path.display()
        ),
    }
}
