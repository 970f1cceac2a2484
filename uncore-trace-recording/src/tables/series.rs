//! The parts of a recording that is rotated, and which of them are kept.
//!
//! Guarantees: a part is never replaced; numbers continue after the highest existing one. Two
//! recorders cannot use one series. A part is renamed out of the series before its files are
//! removed, so everything that matches the pattern is complete.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use bytesize::ByteSize;

use super::file::TableFile;
use super::mode::FileMode;
use super::names::{PartKind, PartNames, parts_of, table_path, without_slash};
use super::sealed::partial_dir;
use super::writer::RecordingTarget;
use super::{disk, lock, output_path};
use crate::confine::ThreadNeeds;
use crate::schema::fabric;
use crate::schema::origin::RecordingOrigin;
use crate::units::parse_duration;

/// Ends the name of a part that is being removed; it begins with a dot, so that no glob finds it.
const REMOVED: &str = ".removed";

/// The shortest length of a part. Attribution learns anew in each part.
const SHORTEST: Duration = Duration::from_secs(1);

/// The smallest size of a part. The files of a dataset without rows take 60 KB.
const SMALLEST: u64 = 1 << 20;

/// When a part ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotate {
    /// After this time.
    After(Duration),
    /// When this many bytes of it are on disk.
    Bytes(u64),
}

impl FromStr for Rotate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if is_size(text) {
            let size = parse_size(text)?;
            if size < SMALLEST {
                return Err("choose at least 1MiB".to_owned());
            }
            return Ok(Self::Bytes(size));
        }
        if text.ends_with('M') || text.ends_with('G') {
            return Err("write a size with its unit, 256MiB, or a time, 1h".to_owned());
        }
        let time = parse_duration(text, Duration::from_secs(1))?;
        if time < SHORTEST {
            return Err("choose at least 1s".to_owned());
        }
        Ok(Self::After(time))
    }
}

/// Which parts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// This many of the newest finished parts.
    Parts(u32),
    /// As many of the newest parts as fit into this many bytes, together with the live part.
    Bytes(u64),
}

impl FromStr for Keep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kept = match text.parse::<u32>() {
            Ok(count) => Self::Parts(count),
            Err(_) => Self::Bytes(parse_size(text)?),
        };
        if matches!(kept, Self::Parts(0) | Self::Bytes(0)) {
            return Err("at least one part is kept: choose 1 or more".to_owned());
        }
        Ok(kept)
    }
}

/// Parses a size with its unit, such as `256MiB`, in bytes.
///
/// # Errors
///
/// The text is not a size; the error shows the format.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let size = text.parse::<ByteSize>().ok().filter(|_| is_size(text));
    size.map(|size| size.as_u64())
        .ok_or_else(|| format!("{text:?} is not a size: write 256MiB, 20GiB or 1GB"))
}

/// Whether a text has a unit of size, not of time.
pub(crate) fn is_size(text: &str) -> bool {
    text.ends_with(['B', 'b'])
}

/// The parts of one output.
#[derive(Debug)]
pub struct PartSeries {
    names: PartNames,
    keep: Option<Keep>,
    /// The number of the next part.
    next_number: u64,
}

impl PartSeries {
    /// Opens the series of `target`. Its directory is created if missing.
    ///
    /// # Errors
    ///
    /// The target is neither a file nor a directory, or is a recording that was not rotated;
    /// another process records into the series; the directory cannot be created or read.
    pub fn open(target: &RecordingTarget, keep: Option<Keep>, mode: FileMode) -> Result<Self> {
        let (dir, stem, output_kind) = match target {
            RecordingTarget::Dataset(path) => (path.clone(), String::new(), PartKind::Dataset),
            RecordingTarget::File(path) => {
                let stem = path.file_stem().and_then(OsStr::to_str);
                let stem = stem.ok_or_else(|| {
                    anyhow!("the name {} is not UTF-8: choose another", path.display())
                })?;
                (disk::parent_dir(path).to_owned(), format!("{stem}-"), PartKind::File)
            }
            RecordingTarget::Stream(_)
            | RecordingTarget::Pieces(_)
            | RecordingTarget::Table(..)
            | RecordingTarget::Nowhere => {
                bail!("a stream has no parts: give --rotate a file or a directory, e.g. -o run/")
            }
        };
        match output_kind {
            PartKind::File => output_path::require_parent(&dir.join("part"))?,
            PartKind::Dataset => make_series_dir(&dir, mode)?,
        }
        let mut series =
            Self { names: PartNames { dir, stem, part_kind: output_kind }, keep, next_number: 1 };
        for number in series.names.list_numbers()? {
            if let Some(holder) = lock::find_holder(&series.names.fabric_path(number)) {
                return Err(lock::in_use(&series.names.part_path(number), holder));
            }
            series.next_number = number + 1;
        }
        series.remove_leftovers()?;
        Ok(series)
    }

    /// The access to files that creating and removing parts needs.
    pub fn access_needs(&self) -> ThreadNeeds {
        ThreadNeeds { writes: vec![self.names.dir.clone()], ..ThreadNeeds::default() }
    }

    /// The target of the next part.
    pub fn next_target(&mut self) -> RecordingTarget {
        let path = self.names.part_path(self.next_number);
        self.next_number += 1;
        match self.names.part_kind {
            PartKind::File => RecordingTarget::File(path),
            PartKind::Dataset => RecordingTarget::Dataset(path),
        }
    }

    /// Removes the oldest parts beyond those to keep, if the live part has `live` bytes. An
    /// unfinished part counts like any other.
    ///
    /// # Errors
    ///
    /// A part cannot be removed.
    pub fn trim_parts(&self, live: u64) -> Result<()> {
        let Some(keep) = self.keep else { return Ok(()) };
        let mut finished = self.names.list_numbers()?;
        finished.retain(|&number| lock::find_holder(&self.names.fabric_path(number)).is_none());
        let mut sizes: Vec<(u64, u64)> =
            finished.into_iter().map(|number| (number, self.part_size(number))).collect();
        let mut bytes = live + sizes.iter().map(|(_, size)| size).sum::<u64>();
        sizes.reverse();
        while let Some(&(number, size)) = sizes.last() {
            let is_kept = match keep {
                Keep::Parts(max_parts) => sizes.len() <= max_parts as usize,
                Keep::Bytes(max_bytes) => bytes <= max_bytes,
            };
            if is_kept {
                break;
            }
            self.remove_part(number)?;
            bytes = bytes.saturating_sub(size);
            sizes.pop();
        }
        Ok(())
    }

    /// Removes the oldest part that nobody is recording, unless all parts are to be kept. For a
    /// full disk.
    ///
    /// # Errors
    ///
    /// The part cannot be removed.
    pub fn make_room(&self) -> Result<()> {
        if self.keep.is_none() {
            return Ok(());
        }
        self.remove_oldest().map(drop)
    }

    /// Removes the oldest part that nobody is recording. Returns its size; `None` if there is none.
    fn remove_oldest(&self) -> Result<Option<u64>> {
        let is_free = |number: &u64| lock::find_holder(&self.names.fabric_path(*number)).is_none();
        let Some(oldest) = self.names.list_numbers()?.into_iter().find(is_free) else {
            return Ok(None);
        };
        let size = self.part_size(oldest);
        self.remove_part(oldest)?;
        Ok(Some(size))
    }

    /// Size of a part's files in bytes, as far as they can be read.
    fn part_size(&self, number: u64) -> u64 {
        let path = self.names.part_path(number);
        tree_size(&path)
            + if self.names.part_kind == PartKind::File {
                tree_size(&partial_dir(&path))
            } else {
                0
            }
    }

    fn remove_part(&self, number: u64) -> Result<()> {
        let path = self.names.part_path(number);
        let partial = partial_dir(&path);
        for path in [path, partial] {
            if !disk::is_occupied(&path)? {
                continue;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let hidden = self.names.dir.join(format!(".{name}{REMOVED}"));
            match fs::rename(&path, &hidden) {
                // The recorder and the thread that looks after the reserve both remove parts.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                renamed => disk::with_action("remove", &path, renamed)?,
            }
            remove_path(&hidden)?;
        }
        Ok(())
    }

    /// Removes the rest of a part whose removal was interrupted by a kill.
    fn remove_leftovers(&self) -> Result<()> {
        for entry in disk::list_entries(&self.names.dir)? {
            let name = entry.file_name();
            let name = name.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(REMOVED));
            if name.is_some_and(|name| self.names.parse_number(name).is_some()) {
                remove_path(&entry.path())?;
            }
        }
        Ok(())
    }
}

/// Removes the oldest part in the directory of a series that nobody is recording. Returns its size;
/// `None` if there is none.
///
/// # Errors
///
/// The directory cannot be read, or the part cannot be removed.
pub fn remove_oldest(dir: &Path) -> Result<Option<u64>> {
    let names =
        PartNames { dir: dir.to_owned(), stem: String::new(), part_kind: PartKind::Dataset };
    PartSeries { names, keep: None, next_number: 1 }.remove_oldest()
}

/// Makes the directory of a series, which must not be a recording itself.
fn make_series_dir(dir: &Path, mode: FileMode) -> Result<()> {
    let fabric = table_path(dir, &fabric::TABLE);
    if disk::is_occupied(&fabric)? || disk::is_occupied(&partial_dir(&fabric))? {
        bail!("{} holds a recording that was not rotated: choose another directory", dir.display());
    }
    output_path::refuse_link(dir)?;
    if dir.is_dir() {
        return Ok(());
    }
    output_path::require_parent(&without_slash(dir))?;
    disk::with_action("create directory", dir, mode.create_directory(dir))
}

/// Removes a file, or a directory and its content.
fn remove_path(path: &Path) -> Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        return disk::remove_tree(path);
    }
    disk::with_action("remove", path, fs::remove_file(path))
}

/// The finished parts in the directory of a series with windows between two times of this boot's
/// `CLOCK_MONOTONIC`, ns, in order.
///
/// # Errors
///
/// The directory cannot be read.
pub fn parts_within(dir: &Path, boot: &str, times: RangeInclusive<i64>) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for path in parts_of(dir).into_iter().rev() {
        // One that is recorded, or was left, has no such file yet.
        let Ok(table) = TableFile::open(&fabric::TABLE, &table_path(&path, &fabric::TABLE)) else {
            continue;
        };
        // The clock starts again at each boot.
        if RecordingOrigin::from_metadata(table.metadata_pairs()).boot_id != boot {
            break;
        }
        let Some((begin, end)) = table.column_bounds("mono_ns") else { continue };
        if begin <= *times.end() && *times.start() <= end {
            paths.push(path);
        }
        if end < *times.start() {
            break;
        }
    }
    paths.reverse();
    Ok(paths)
}

/// Finishes the parts of a series that killed recorders left. If a part cannot be finished, a
/// warning is given and it stays as it is.
///
/// # Errors
///
/// The directory cannot be read.
pub fn repair_parts(dir: &Path) -> Result<()> {
    for path in parts_of(dir) {
        if !disk::is_occupied(&partial_dir(&table_path(&path, &fabric::TABLE)))? {
            continue;
        }
        match super::repair::repair_path(&path) {
            Ok(_) => {
                log::info!("finished the part {}, which an earlier recorder left", path.display());
            }
            Err(error) => log::warn!(
                "cannot finish an earlier part, which stays as it is: \
                                      {error:#}"
            ),
        }
    }
    Ok(())
}

/// Size in bytes of a file, or of all files below a directory.
pub fn tree_size(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    if !metadata.is_dir() {
        return metadata.len();
    }
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| tree_size(&entry.path())).sum()
}

#[cfg(test)]
mod tests;
