//! The names of the files of a recording: its tables, and its parts if it is rotated.
//!
//! Part N of `run/` is the dataset `run/0000000N/`, that of `run.parquet` is the file
//! `run-0000000N.parquet`: they sort by name, and `run/*/fabric.parquet` or `run-*.parquet` reads
//! all that are finished as one table.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::disk;
use super::sealed::partial_dir;
use crate::schema::{TableDef, fabric};

/// Digits of a number: a part a second for three years.
const DIGITS: usize = 8;

/// Whether parts are files or directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    File,
    Dataset,
}

/// How the parts of one output are named.
#[derive(Debug)]
pub(super) struct PartNames {
    /// The directory of the parts.
    pub dir: PathBuf,
    /// The prefix of the names of the parts.
    pub stem: String,
    pub part_kind: PartKind,
}

impl PartNames {
    /// The numbers of the parts that are there, finished or not, in order.
    pub(super) fn list_numbers(&self) -> Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in disk::list_entries(&self.dir)? {
            let name = entry.file_name();
            numbers.extend(name.to_str().and_then(|name| self.parse_number(name)));
        }
        numbers.sort_unstable();
        // A file that is being replaced by `repair` has both names.
        numbers.dedup();
        Ok(numbers)
    }

    /// The number of the part that a file or directory of this name belongs to.
    pub(super) fn parse_number(&self, name: &str) -> Option<u64> {
        let name = name.strip_prefix(&self.stem)?;
        let digits = match self.part_kind {
            PartKind::Dataset => name,
            PartKind::File => {
                name.strip_suffix(".partial").unwrap_or(name).strip_suffix(".parquet")?
            }
        };
        let is_number = digits.len() >= DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok())?
    }

    pub(super) fn file_name(&self, number: u64) -> String {
        let suffix = if self.part_kind == PartKind::File { ".parquet" } else { "" };
        format!("{}{number:0DIGITS$}{suffix}", self.stem)
    }

    pub(super) fn part_path(&self, number: u64) -> PathBuf {
        self.dir.join(self.file_name(number))
    }

    /// The file that the `fabric` table of a part is or will be.
    pub(super) fn fabric_path(&self, number: u64) -> PathBuf {
        match self.part_kind {
            PartKind::File => self.part_path(number),
            PartKind::Dataset => table_path(&self.part_path(number), &fabric::TABLE),
        }
    }
}

/// The file of a table in a dataset.
pub fn table_path(dataset: &Path, def: &TableDef) -> PathBuf {
    dataset.join(format!("{}.parquet", def.name))
}

/// `path` without a slash at its end, so that a file there is seen as one.
pub(super) fn without_slash(path: &Path) -> PathBuf {
    path.components().collect()
}

/// The parts in the directory of a recording that was rotated, in order; none where it is no such
/// directory.
pub fn parts_of(dir: &Path) -> Vec<PathBuf> {
    let names =
        PartNames { dir: dir.to_owned(), stem: String::new(), part_kind: PartKind::Dataset };
    let fabric = table_path(dir, &fabric::TABLE);
    if fabric.exists() || partial_dir(&fabric).exists() {
        return Vec::new();
    }
    let numbers = names.list_numbers().unwrap_or_default();
    numbers.into_iter().map(|number| names.part_path(number)).collect()
}
