//! The files of a roll-up: one for each hour of a host, in partitions that query engines recognise.
//!
//! Names are those of [`layout`]. The second of a name is the next one that is free: a process that
//! was restarted within a window writes another file for it.
//!
//! Guarantees: a file gets its name when it is complete, and is never changed afterwards. A row is
//! in one file. Lost rows are counted ([`Unwritten`]). A process that is killed loses the rows
//! since the last seal, and the next process finishes the rest
//! ([`super::hour_upkeep::repair_hours`]). Names that a user chose cannot lead out of the
//! directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error, Result, ensure};
use arrow::array::RecordBatch;
use jiff::Timestamp;

use super::layout::{self, BOOT_DIGITS, FILE};
use super::lock::LockingCommand;
use super::mode::FileMode;
use super::sealed::partial_dir;
use super::writer::{CreateOptions, RecordingSize, RecordingTarget, Writer};
use super::{disk, output_path};
use crate::clock::RollupTime;
use crate::schema::origin::RecordingOrigin;
use crate::schema::rollup;

/// Number of digits of a second: enough for 300 years.
const SECOND_DIGITS: usize = 10;

/// The files of a roll-up below one directory.
#[derive(Debug)]
pub struct Hours {
    root: PathBuf,
    mode: FileMode,
    pairs: BTreeMap<String, String>,
    /// Prefix of the names of its files.
    boot: String,
    cluster: String,
    host: String,
    live: Option<LiveHour>,
    /// Files that may exist for the same windows; `None`: any.
    allowed_files: Option<BTreeSet<PathBuf>>,
}

/// Rows that could not be written.
#[derive(Debug)]
pub struct Unwritten {
    /// Number of lost rows: those since the last seal.
    pub rows: u64,
    /// The cause.
    pub error: Error,
}

impl Unwritten {
    /// Turns the error that loses this many rows into this.
    fn from_error(rows: u64) -> impl Fn(Error) -> Self {
        move |error| Self { rows, error }
    }
}

impl From<Unwritten> for Error {
    fn from(unwritten: Unwritten) -> Self {
        unwritten.error
    }
}

/// The hour that is being written.
#[derive(Debug)]
struct LiveHour {
    dir: PathBuf,
    path: PathBuf,
    writer: Writer,
    /// Number of rows since the last seal, which a failure loses.
    unsealed: u64,
}

impl LiveHour {
    fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        let sealed = self.writer.sealed_bytes();
        self.writer.write(&rollup::TABLE, rows)?;
        // Many rows are sealed together.
        let is_sealed = self.writer.sealed_bytes() != sealed;
        self.unsealed = if is_sealed { 0 } else { self.unsealed + rows.num_rows() as u64 };
        Ok(())
    }
}

impl Hours {
    /// Writes files below `root`, which is created if missing, with this metadata.
    ///
    /// # Errors
    ///
    /// The directory cannot be created, or is a symbolic link.
    pub fn open(root: &Path, mode: FileMode, pairs: BTreeMap<String, String>) -> Result<Self> {
        output_path::refuse_link(root)?;
        make_directories(root, mode)?;
        let RecordingOrigin { host, boot_id, cluster } = RecordingOrigin::from_metadata(&pairs);
        let boot: String =
            boot_id.chars().filter(char::is_ascii_hexdigit).take(BOOT_DIGITS).collect();
        let cluster = cluster.unwrap_or_else(|| layout::DEFAULT.to_owned());
        let root = root.to_owned();
        Ok(Self { root, mode, pairs, boot, cluster, host, live: None, allowed_files: None })
    }

    /// Allows only these existing files for the same windows. Other files would contain the same
    /// rows again.
    #[must_use]
    pub fn allow_existing(mut self, files: BTreeSet<PathBuf>) -> Self {
        self.allowed_files = Some(files);
        self
    }

    /// Writes the rows of a window. Returns the file of the previous hour if this is the first
    /// window of a new one.
    ///
    /// # Errors
    ///
    /// The rows cannot be written, or the previous hour cannot be finished. The next window goes
    /// into a new file.
    pub fn write(
        &mut self,
        end: RollupTime,
        rows: &RecordBatch,
    ) -> Result<Option<(PathBuf, RecordingSize)>, Unwritten> {
        let count = rows.num_rows() as u64;
        let dir = self.partition_dir(end.ts_us).map_err(Unwritten::from_error(count))?;
        let closed = if self.live.as_ref().is_some_and(|live| live.dir != dir) {
            self.finish_hour()
                .map_err(|unwritten| Unwritten { rows: unwritten.rows + count, ..unwritten })?
        } else {
            None
        };
        let mut live = match self.live.take() {
            Some(live) => live,
            None => self.begin_hour(dir, end.mono_ns).map_err(Unwritten::from_error(count))?,
        };
        let lost_rows = live.unsealed + count;
        live.write(rows).map_err(Unwritten::from_error(lost_rows))?;
        self.live = Some(live);
        Ok(closed)
    }

    /// Makes the written rows survive a kill; `true` if there were any.
    ///
    /// # Errors
    ///
    /// Those of [`Hours::write`].
    pub fn seal_rows(&mut self) -> Result<bool, Unwritten> {
        let Some(mut live) = self.live.take() else { return Ok(false) };
        let rows = std::mem::take(&mut live.unsealed);
        live.writer.seal_rows().map_err(Unwritten::from_error(rows))?;
        self.live = Some(live);
        Ok(rows > 0)
    }

    /// Finishes the file that is being written; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The file cannot be finished. What is left can be repaired.
    pub fn finish_hour(&mut self) -> Result<Option<(PathBuf, RecordingSize)>, Unwritten> {
        self.seal_rows()?;
        let Some(live) = self.live.take() else { return Ok(None) };
        // Nothing that was sealed is lost.
        let finished = live.writer.finish(&self.pairs).map_err(Unwritten::from_error(0));
        Ok(Some((live.path, finished?)))
    }

    /// The directory of the hour of a time.
    fn partition_dir(&self, ts_us: i64) -> Result<PathBuf> {
        let time = Timestamp::from_microsecond(ts_us)
            .context("the wall clock of a window is out of range")?;
        Ok(self.root.join(layout::hour_directory(&self.cluster, time, &self.host)))
    }

    fn begin_hour(&self, dir: PathBuf, mono_ns: i64) -> Result<LiveHour> {
        make_directories(&dir, self.mode)?;
        let path = self.vacant_path(&dir, mono_ns.div_euclid(1_000_000_000))?;
        let target = RecordingTarget::Table(&rollup::TABLE, path.clone());
        let create =
            CreateOptions { overwrite: false, mode: self.mode, command: LockingCommand::Rollup };
        let writer = Writer::create(target, create, &self.pairs)?;
        Ok(LiveHour { dir, path, writer, unsealed: 0 })
    }

    /// The name of a file whose first window ended in this second, or in the next one that is free.
    fn vacant_path(&self, dir: &Path, mut second: i64) -> Result<PathBuf> {
        loop {
            let path = dir.join(format!("{}_{second:0SECOND_DIGITS$}{FILE}", self.boot));
            if !disk::is_occupied(&path)? && !disk::is_occupied(&partial_dir(&path))? {
                return Ok(path);
            }
            ensure!(
                self.allowed_files.as_ref().is_none_or(|files| files.contains(&path)),
                "{} already has these windows: remove it, or choose another directory",
                path.display()
            );
            second += 1;
        }
    }
}

/// Creates a directory and its missing parents.
///
/// # Errors
///
/// A directory cannot be created.
pub fn make_directories(dir: &Path, mode: FileMode) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    make_directories(disk::parent_dir(dir), mode)?;
    match mode.create_directory(dir) {
        // Another process created it first.
        Err(_) if dir.is_dir() => Ok(()),
        result => disk::with_action("create directory", dir, result),
    }
}

#[cfg(test)]
mod tests;
