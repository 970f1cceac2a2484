//! The parts of a rotated recording: their names, and which of them are kept.
//!
//! Part N of `run/` is the dataset `run/0000000N/`, and part N of `run.parquet` is the file
//! `run-0000000N.parquet`. They sort by name, and `run/*/fabric.parquet` or `run-*.parquet` matches
//! all finished parts.
//!
//! Guarantees: a part is never replaced; numbers continue after the highest existing one. Two
//! recorders cannot use one series. A part is renamed out of the series before its files are
//! removed, so everything that matches the pattern is complete.

use std::ffi::OsStr;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Result, anyhow, bail};
use bytesize::ByteSize;

use super::mode::Mode;
use super::reader::Table;
use super::segment::partial_dir;
use super::writer::{Target, table_path};
use super::{disk, lock, place};
use crate::confine::Needs;
use crate::schema::fabric;
use crate::schema::origin::Origin;

/// Digits of a part's number: enough for a part per second for three years.
const DIGITS: usize = 8;

/// Suffix of the name of a part that is being removed. The name begins with a dot, so that no
/// pattern matches it.
const REMOVED: &str = ".removed";

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
            Ok(parts) => Self::Parts(parts),
            Err(_) => Self::Bytes(bytes(text)?),
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
pub fn bytes(text: &str) -> Result<u64, String> {
    let size = text.parse::<ByteSize>().ok().filter(|_| is_size(text));
    size.map(|size| size.as_u64())
        .ok_or_else(|| format!("{text:?} is no size: write 256MiB, 20GiB or 1GB"))
}

/// Whether a text has a unit of size, not of time.
pub fn is_size(text: &str) -> bool {
    text.ends_with(['B', 'b'])
}

/// Whether parts are files or directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Dataset,
}

/// The parts of one output.
#[derive(Debug)]
pub struct Series {
    /// Their directory.
    dir: PathBuf,
    /// Prefix of their names.
    stem: String,
    kind: Kind,
    keep: Option<Keep>,
    /// The number of the next part.
    next: u64,
}

impl Series {
    /// Opens the series of `target`. Its directory is created if missing.
    ///
    /// # Errors
    ///
    /// The target is neither a file nor a directory, or is a recording that was not rotated;
    /// another process records into the series; the directory cannot be created or read.
    pub fn open(target: &Target, keep: Option<Keep>, mode: Mode) -> Result<Self> {
        let (dir, stem, kind) = match target {
            Target::Dataset(path) => (path.clone(), String::new(), Kind::Dataset),
            Target::File(path) => {
                let stem = path.file_stem().and_then(OsStr::to_str);
                let stem = stem.ok_or_else(|| {
                    anyhow!("the name {} is not UTF-8: choose another", path.display())
                })?;
                (disk::parent(path).to_owned(), format!("{stem}-"), Kind::File)
            }
            Target::Stream(_) | Target::Pieces(_) | Target::Table(..) | Target::Nowhere => {
                bail!("a stream has no parts: give --rotate a file or a directory, e.g. -o run/")
            }
        };
        match kind {
            Kind::File => place::parent_exists(&dir.join("part"))?,
            Kind::Dataset => make(&dir, mode)?,
        }
        let mut series = Self { dir, stem, kind, keep, next: 1 };
        for part in series.parts()? {
            if let Some(holder) = lock::holder(&series.fabric(part)) {
                return Err(lock::in_use(&series.path(part), holder));
            }
            series.next = part + 1;
        }
        series.clean()?;
        Ok(series)
    }

    /// What creating and removing parts needs.
    pub fn needs(&self) -> Needs {
        Needs { writes: vec![self.dir.clone()], ..Needs::default() }
    }

    /// The target of the next part.
    pub fn next_target(&mut self) -> Target {
        let path = self.path(self.next);
        self.next += 1;
        match self.kind {
            Kind::File => Target::File(path),
            Kind::Dataset => Target::Dataset(path),
        }
    }

    /// Removes the oldest parts beyond those to keep, if the live part has `live` bytes. An
    /// unfinished part counts like any other.
    ///
    /// # Errors
    ///
    /// A part cannot be removed.
    pub fn trim(&self, live: u64) -> Result<()> {
        let Some(keep) = self.keep else { return Ok(()) };
        let mut finished = self.parts()?;
        finished.retain(|&part| lock::holder(&self.fabric(part)).is_none());
        let mut sizes: Vec<(u64, u64)> =
            finished.into_iter().map(|part| (part, self.size(part))).collect();
        let mut bytes = live + sizes.iter().map(|(_, size)| size).sum::<u64>();
        sizes.reverse();
        while let Some(&(part, size)) = sizes.last() {
            let is_kept = match keep {
                Keep::Parts(most) => sizes.len() <= most as usize,
                Keep::Bytes(most) => bytes <= most,
            };
            if is_kept {
                break;
            }
            self.remove(part)?;
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
        let is_free = |part: &u64| lock::holder(&self.fabric(*part)).is_none();
        self.parts()?.into_iter().find(is_free).map_or(Ok(()), |oldest| self.remove(oldest))
    }

    /// The numbers of the existing parts, finished or not, in order.
    fn parts(&self) -> Result<Vec<u64>> {
        let mut parts = Vec::new();
        for entry in disk::doing("read", &self.dir, fs::read_dir(&self.dir))? {
            let name = disk::doing("read", &self.dir, entry)?.file_name();
            parts.extend(name.to_str().and_then(|name| self.number(name)));
        }
        parts.sort_unstable();
        // During `repair` a part has both names.
        parts.dedup();
        Ok(parts)
    }

    /// The number of the part to which a file or directory of this name belongs.
    fn number(&self, name: &str) -> Option<u64> {
        let name = name.strip_prefix(&self.stem)?;
        let digits = match self.kind {
            Kind::Dataset => name,
            Kind::File => name.strip_suffix(".partial").unwrap_or(name).strip_suffix(".parquet")?,
        };
        let is_number = digits.len() >= DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok())?
    }

    fn name(&self, part: u64) -> String {
        let suffix = if self.kind == Kind::File { ".parquet" } else { "" };
        format!("{}{part:0DIGITS$}{suffix}", self.stem)
    }

    fn path(&self, part: u64) -> PathBuf {
        self.dir.join(self.name(part))
    }

    /// The path of a part's table `fabric`, whether it exists or not.
    fn fabric(&self, part: u64) -> PathBuf {
        match self.kind {
            Kind::File => self.path(part),
            Kind::Dataset => table_path(&self.path(part), &fabric::TABLE),
        }
    }

    /// Size of a part's files in bytes, as far as they can be read.
    fn size(&self, part: u64) -> u64 {
        let path = self.path(part);
        tree_size(&path) + if self.kind == Kind::File { tree_size(&partial_dir(&path)) } else { 0 }
    }

    fn remove(&self, part: u64) -> Result<()> {
        let path = self.path(part);
        let partial = partial_dir(&path);
        for path in [path, partial] {
            if !disk::occupied(&path)? {
                continue;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let hidden = self.dir.join(format!(".{name}{REMOVED}"));
            disk::doing("remove", &path, fs::rename(&path, &hidden))?;
            remove(&hidden)?;
        }
        Ok(())
    }

    /// Removes the rest of a part whose removal was interrupted by a kill.
    fn clean(&self) -> Result<()> {
        for entry in disk::doing("read", &self.dir, fs::read_dir(&self.dir))? {
            let entry = disk::doing("read", &self.dir, entry)?;
            let name = entry.file_name();
            let name = name.to_str().and_then(|it| it.strip_prefix('.')?.strip_suffix(REMOVED));
            if name.is_some_and(|name| self.number(name).is_some()) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

/// The parts in the directory of a rotated recording, in order; empty if it is not such a
/// directory.
pub fn parts_of(dir: &Path) -> Vec<PathBuf> {
    let (stem, keep, next) = (String::new(), None, 0);
    let series = Series { dir: dir.to_owned(), stem, kind: Kind::Dataset, keep, next };
    let fabric = table_path(dir, &fabric::TABLE);
    if fabric.exists() || partial_dir(&fabric).exists() {
        return Vec::new();
    }
    let parts = series.parts().unwrap_or_default();
    parts.into_iter().map(|part| series.path(part)).collect()
}

/// Creates the directory of a series, which must not be a recording itself.
fn make(dir: &Path, mode: Mode) -> Result<()> {
    let fabric = table_path(dir, &fabric::TABLE);
    if disk::occupied(&fabric)? || disk::occupied(&partial_dir(&fabric))? {
        bail!("{} holds a recording that was not rotated: choose another directory", dir.display());
    }
    place::no_link(dir)?;
    if dir.is_dir() {
        return Ok(());
    }
    place::parent_exists(&place::bare(dir))?;
    disk::doing("create directory", dir, mode.create_directory(dir))
}

/// Removes a file, or a directory and its content.
fn remove(path: &Path) -> Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        return disk::remove_tree(path);
    }
    disk::doing("remove", path, fs::remove_file(path))
}

/// The finished parts in the directory of a series with windows between two times of this boot's
/// `CLOCK_MONOTONIC`, ns, in order.
///
/// # Errors
///
/// The directory cannot be read.
pub fn within(dir: &Path, boot: &str, times: RangeInclusive<i64>) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for part in parts_of(dir).into_iter().rev() {
        // A part that is being recorded or was left has no such file yet.
        let Ok(table) = Table::open(&fabric::TABLE, &table_path(&part, &fabric::TABLE)) else {
            continue;
        };
        // The clock starts again at each boot.
        if Origin::of(table.metadata()).boot_id != boot {
            break;
        }
        let Some((begin, end)) = table.bounds("mono_ns") else { continue };
        if begin <= *times.end() && *times.start() <= end {
            found.push(part);
        }
        if end < *times.start() {
            break;
        }
    }
    found.reverse();
    Ok(found)
}

/// Finishes the parts of a series that killed recorders left. If a part cannot be finished, a
/// warning is given and it stays as it is.
///
/// # Errors
///
/// The directory cannot be read.
pub fn repair(dir: &Path) -> Result<()> {
    for part in parts_of(dir) {
        if !disk::occupied(&partial_dir(&table_path(&part, &fabric::TABLE)))? {
            continue;
        }
        match super::repair::repair(&part) {
            Ok(_) => log::info!("finished the part {} that was left", part.display()),
            Err(error) => log::warn!("a part that was not finished is left as it is: {error:#}"),
        }
    }
    Ok(())
}

/// Size in bytes of a file, or of all files below a directory.
pub fn tree_size(path: &Path) -> u64 {
    let Ok(found) = fs::symlink_metadata(path) else { return 0 };
    if !found.is_dir() {
        return found.len();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| tree_size(&entry.path())).sum()
}

#[cfg(test)]
mod tests;
