//! The files of a roll-up: one for each hour of a host, in partitions that query engines recognise.
//!
//! Names are those of [`layout`]. The second of a name is the next one that is free: a process that
//! was restarted within a window writes another file for it.
//!
//! Guarantees: a file gets its name when it is complete, and is never changed afterwards. A row is
//! in one file. Lost rows are counted ([`Unwritten`]). A process that is killed loses the rows
//! since the last seal, and the next process finishes the rest ([`repair_hours`]). Names that a
//! user chose cannot lead out of the directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Error, Result, ensure};
use arrow::array::RecordBatch;
use jiff::Timestamp;

use super::layout::{self, BOOT_DIGITS, FILE, Partition};
use super::lock::{self, LockingCommand};
use super::mode::FileMode;
use super::repair::repair_table;
use super::segment::{self, partial_dir};
use super::sent::{self, Stamp};
use super::writer::{CreateOptions, RecordingSize, RecordingTarget, Writer};
use super::{disk, place};
use crate::schema::origin::RecordingOrigin;
use crate::schema::rollup;

/// Suffix of the name of an unfinished file.
const PARTIAL: &str = ".parquet.partial";

/// After this time without a change nothing is about to be written into the directory of a host's
/// hour.
const UNUSED: Duration = Duration::from_hours(2);

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
        place::refuse_link(root)?;
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

    /// Writes the rows of a window. `ts` is the window's end: wall-clock time in microseconds since
    /// 1970, and `CLOCK_MONOTONIC` in ns. Returns the file of the previous hour if this is the
    /// first window of a new one.
    ///
    /// # Errors
    ///
    /// The rows cannot be written, or the previous hour cannot be finished. The next window goes
    /// into a new file.
    pub fn write(
        &mut self,
        (ts_us, mono_ns): (i64, i64),
        rows: &RecordBatch,
    ) -> Result<Option<(PathBuf, RecordingSize)>, Unwritten> {
        let count = rows.num_rows() as u64;
        let dir = self.partition_dir(ts_us).map_err(|error| Unwritten { rows: count, error })?;
        let closed = if self.live.as_ref().is_some_and(|live| live.dir != dir) {
            self.finish_hour()
                .map_err(|unwritten| Unwritten { rows: unwritten.rows + count, ..unwritten })?
        } else {
            None
        };
        let mut live = match self.live.take() {
            Some(live) => live,
            None => {
                self.begin_hour(dir, mono_ns).map_err(|error| Unwritten { rows: count, error })?
            }
        };
        let written = live.write(rows);
        written.map_err(|error| Unwritten { rows: live.unsealed + count, error })?;
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
        live.writer.seal_rows().map_err(|error| Unwritten { rows, error })?;
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
        let finished = live.writer.finish(&self.pairs);
        let finished = finished.map_err(|error| Unwritten { rows: 0, error })?;
        Ok(Some((live.path, finished)))
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
                "{} holds these windows already: remove it, or choose another directory",
                path.display()
            );
            second += 1;
        }
    }
}

/// Finishes the files that killed processes left below `root`, and returns them. Files that another
/// process is writing are skipped. For a file that cannot be finished a warning is given.
///
/// # Errors
///
/// A directory cannot be read.
pub fn repair_hours(root: &Path) -> Result<Vec<PathBuf>> {
    let mut repaired = Vec::new();
    for target in list_files(root, PARTIAL)? {
        let name = target.to_string_lossy();
        let target = PathBuf::from(name.strip_suffix(".partial").unwrap_or(&name));
        if lock::find_holder(&target).is_some() {
            continue;
        }
        match repair_table(&rollup::TABLE, &target) {
            Ok(_) => repaired.push(target),
            Err(error) => log::warn!("an hour that was not finished is left as it is: {error:#}"),
        }
    }
    Ok(repaired)
}

/// Removes finished files below `root` that are older than `age`, and empty directories.
/// Returns the number of files. With an object store, files that it has not confirmed are kept
/// until they exceed `max_unsent` bytes; then the oldest are removed. A warning is given for a file
/// that cannot be removed.
///
/// # Errors
///
/// A directory cannot be read.
pub fn trim_hours(root: &Path, age: Duration, max_unsent: Option<u64>) -> Result<usize> {
    let current_time = SystemTime::now();
    let is_older = |path: &Path, age| {
        let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
        modified
            .is_ok_and(|time| current_time.duration_since(time).is_ok_and(|elapsed| elapsed > age))
    };
    let mut old = list_files(root, FILE)?;
    old.retain(|path| is_older(path, age));
    let mut waiting = Vec::new();
    if max_unsent.is_some() {
        (old, waiting) = split_by_sent(root, old);
    }
    // Newest first: as many are kept as there is room for.
    let mut bytes = 0;
    for path in waiting.into_iter().rev() {
        bytes += fs::symlink_metadata(&path).map_or(0, |metadata| metadata.len());
        if max_unsent.is_some_and(|max_bytes| bytes > max_bytes) {
            log::warn!(
                "{} is older than rollup.keep and was not sent, and more than upload.queue waits: it is removed",
                path.display()
            );
            old.push(path);
        }
    }
    let mut emptied = list_host_dirs(root)?;
    emptied.retain(|host| is_older(host, UNUSED));
    let mut removed = 0;
    for path in old {
        match fs::remove_file(&path) {
            Ok(()) => removed += 1,
            Err(error) => log::warn!("{:#}", disk::action_error("remove", &path, &error)),
        }
        emptied.extend(path.parent().map(Path::to_owned));
    }
    // Directories that are not empty stay.
    for host in emptied {
        // Its own, that of the hour, and that of the day.
        host.ancestors().take(3).take_while(|dir| fs::remove_dir(dir).is_ok()).for_each(drop);
    }
    Ok(removed)
}

/// Files below `root` that the object store has confirmed, and the others, of these.
fn split_by_sent(root: &Path, files: Vec<PathBuf>) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let sent = sent::read_journal(root).unwrap_or_else(|error| {
        let path = root.join(sent::JOURNAL);
        log::warn!("{:#}; all files count as not sent", disk::action_error("read", &path, &error));
        BTreeMap::new()
    });
    let is_sent = |path: &PathBuf| {
        let name = path.strip_prefix(root).ok().and_then(Path::to_str);
        let stamp = fs::symlink_metadata(path).map(|metadata| Stamp::from_metadata(&metadata));
        name.zip(stamp.ok()).is_some_and(|(name, stamp)| sent.get(name) == Some(&stamp))
    };
    files.into_iter().partition(is_sent)
}

/// The finished files below `root` that the object store has not confirmed.
///
/// # Errors
///
/// A directory cannot be read.
pub fn unsent(root: &Path) -> Result<Vec<fs::Metadata>> {
    let (_, waiting) = split_by_sent(root, list_files(root, FILE)?);
    Ok(waiting.iter().filter_map(|path| fs::symlink_metadata(path).ok()).collect())
}

/// All paths in the partitions below `root` with this suffix, sorted.
fn list_files(root: &Path, suffix: &str) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for dir in &list_host_dirs(root)? {
        paths
            .extend(list_entries(dir, |name, _| name.ends_with(suffix) && !name.starts_with('.'))?);
    }
    paths.sort();
    Ok(paths)
}

/// Files of a roll-up, and what lies among them.
#[derive(Debug, Default)]
pub(super) struct HourTree {
    /// Each is one path, or of an hour that is written those of what is sealed.
    pub(super) files: Vec<(Partition, Vec<PathBuf>)>,
    /// What has the name of a file or a directory of a roll-up, and is not where those are; with
    /// the partition that it lies in.
    pub(super) misplaced: Vec<(Partition, PathBuf)>,
}

impl HourTree {
    /// The files at `dir`, which may be the directory of all, of a cluster, day, hour or host. Of
    /// partitions that `wanted` refuses nothing is read.
    ///
    /// # Errors
    ///
    /// A directory cannot be read.
    pub(super) fn read_tree(
        dir: &Path,
        wanted: &mut dyn FnMut(&Partition) -> bool,
    ) -> Result<Self> {
        // `.` may be the directory of an hour.
        let partition = Partition::from_path(&disk::with_action("read", dir, dir.canonicalize())?);
        let mut tree = Self::default();
        tree.read_directory(dir, &partition, wanted)?;
        tree.files.sort_by(|a, b| a.1.cmp(&b.1));
        tree.misplaced.sort_by(|a, b| a.1.cmp(&b.1));
        Ok(tree)
    }

    fn read_directory(
        &mut self,
        dir: &Path,
        partition: &Partition,
        wanted: &mut dyn FnMut(&Partition) -> bool,
    ) -> Result<()> {
        let (mut partial, mut inner_dirs) = (Vec::new(), Vec::new());
        let listed = list_entries(dir, |name, is_dir| {
            let is_file = name.ends_with(FILE) || is_dir && name.ends_with(PARTIAL);
            !name.starts_with('.') && (is_file || is_dir && layout::has_key(name))
        })?;
        let first_file = self.files.len();
        for path in listed {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            // A part of a bucket may have been copied without the directories above it.
            let is_above_all = partition.key_depth() == 0;
            let inner = partition
                .child_partition(name)
                .or_else(|| is_above_all.then(|| Partition::from_path(Path::new(name))))
                .filter(|inner| inner.key_depth() > 0 && path.is_dir());
            if let Some(inner) = inner {
                inner_dirs.push((path, inner));
            } else if !partition.has_files() {
                self.misplaced.push((partition.clone(), path));
            } else if layout::is_file(name) && path.is_file() {
                self.files.push((partition.clone(), vec![path]));
            } else if name.strip_suffix(".partial").is_some_and(layout::is_file) {
                partial.push(path);
            } else {
                self.misplaced.push((partition.clone(), path));
            }
        }
        for path in partial {
            // A file that is about to lose its partial directory has both names.
            let file = path.with_extension("");
            if !self.files[first_file..].iter().any(|(_, paths)| paths.contains(&file)) {
                self.files.push((partition.clone(), segment::sealed_files(&path)?));
            }
        }
        for (path, inner) in inner_dirs {
            if wanted(&inner) {
                self.read_directory(&path, &inner, wanted)?;
            }
        }
        Ok(())
    }
}

/// The directories of all hosts' hours.
fn list_host_dirs(root: &Path) -> Result<Vec<PathBuf>> {
    let mut dirs = vec![(root.to_owned(), Partition::default())];
    for _ in layout::KEYS {
        let mut inner_dirs = Vec::new();
        for (dir, partition) in &dirs {
            let is_partition =
                |name: &str, is_dir: bool| is_dir && partition.child_partition(name).is_some();
            inner_dirs.extend(list_entries(dir, is_partition)?.into_iter().filter_map(|path| {
                let inner = partition.child_partition(path.file_name()?.to_str()?)?;
                Some((path, inner))
            }));
        }
        dirs = inner_dirs;
    }
    Ok(dirs.into_iter().map(|(dir, _)| dir).collect())
}

/// The selected entries of a directory, without symbolic links.
fn list_entries(dir: &Path, wanted: impl Fn(&str, bool) -> bool) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in disk::with_action("read", dir, fs::read_dir(dir))? {
        let entry = disk::with_action("read", dir, entry)?;
        let file_type = disk::with_action("look at", &entry.path(), entry.file_type())?;
        let is_wanted = |name: &str| !file_type.is_symlink() && wanted(name, file_type.is_dir());
        if entry.file_name().to_str().is_some_and(is_wanted) {
            paths.push(entry.path());
        }
    }
    Ok(paths)
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
