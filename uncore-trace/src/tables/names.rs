//! The names of the files of a recording: its tables, and its parts if it is rotated.
//!
//! Part N of `run/` is the dataset `run/0000000N/`, that of `run.parquet` is the file
//! `run-0000000N.parquet`: they sort by name, and `run/*/fabric.parquet` or `run-*.parquet` reads all
//! that are finished as one table.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::disk;
use super::segment::partial_dir;
use crate::schema::{TableDef, fabric};

/// Digits of a number: a part a second for three years.
const DIGITS: usize = 8;

/// Whether parts are files or directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Dataset,
}

/// How the parts of one output are named.
#[derive(Debug)]
pub(super) struct Parts {
    /// Where they are.
    pub dir: PathBuf,
    /// What their names begin with.
    pub stem: String,
    pub kind: Kind,
}

impl Parts {
    /// The numbers of the parts that are there, finished or not, in order.
    pub(super) fn numbers(&self) -> Result<Vec<u64>> {
        let mut parts = Vec::new();
        for entry in disk::doing("read", &self.dir, fs::read_dir(&self.dir))? {
            let name = disk::doing("read", &self.dir, entry)?.file_name();
            parts.extend(name.to_str().and_then(|name| self.number(name)));
        }
        parts.sort_unstable();
        // A file that is being replaced by `repair` has both names.
        parts.dedup();
        Ok(parts)
    }

    /// The number of the part that a file or directory of this name belongs to.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        let name = name.strip_prefix(&self.stem)?;
        let digits = match self.kind {
            Kind::Dataset => name,
            Kind::File => name.strip_suffix(".partial").unwrap_or(name).strip_suffix(".parquet")?,
        };
        let is_number = digits.len() >= DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok())?
    }

    pub(super) fn name(&self, part: u64) -> String {
        let suffix = if self.kind == Kind::File { ".parquet" } else { "" };
        format!("{}{part:0DIGITS$}{suffix}", self.stem)
    }

    pub(super) fn path(&self, part: u64) -> PathBuf {
        self.dir.join(self.name(part))
    }

    /// The file that the `fabric` table of a part is or will be.
    pub(super) fn fabric(&self, part: u64) -> PathBuf {
        match self.kind {
            Kind::File => self.path(part),
            Kind::Dataset => table_path(&self.path(part), &fabric::TABLE),
        }
    }
}

/// The file of a table in a dataset.
pub fn table_path(dataset: &Path, def: &TableDef) -> PathBuf {
    dataset.join(format!("{}.parquet", def.name))
}

/// `path` without a slash at its end, so that a file there is seen as one.
pub(super) fn bare(path: &Path) -> PathBuf {
    path.components().collect()
}

/// The parts in the directory of a recording that was rotated, in order; none where it is no such
/// directory.
pub fn parts_of(dir: &Path) -> Vec<PathBuf> {
    let parts = Parts { dir: dir.to_owned(), stem: String::new(), kind: Kind::Dataset };
    let fabric = table_path(dir, &fabric::TABLE);
    if fabric.exists() || partial_dir(&fabric).exists() {
        return Vec::new();
    }
    let numbers = parts.numbers().unwrap_or_default();
    numbers.into_iter().map(|part| parts.path(part)).collect()
}
