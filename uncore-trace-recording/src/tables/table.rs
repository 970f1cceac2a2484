//! An open table, and its scans: of one file, of the segments of a recording that goes on, or of a
//! roll-up.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::decode_ahead::Ahead;
use super::file::{FileScan, TableFile};
use super::rollup::{self, RollupReader};
use crate::schema::{TableDef, fabric};

/// An open table.
#[derive(Debug, Clone)]
pub enum OpenTable {
    /// In files.
    Files(FileList),
    /// The table `fabric` that a roll-up is read as.
    Rollup(Arc<RollupReader>),
}

/// The files of a table: one, or its segments while it is being recorded.
#[derive(Debug, Clone)]
pub struct FileList {
    def: &'static TableDef,
    path: PathBuf,
    /// In the order of their rows.
    files: Arc<[TableFile]>,
    pairs: BTreeMap<String, String>,
}

impl FileList {
    /// A row group by its number over all files: its file, and its number there.
    fn locate_group(&self, mut number: usize) -> Option<(&TableFile, usize)> {
        for file in self.files.iter() {
            if number < file.row_groups() {
                return Some((file, number));
            }
            number -= file.row_groups();
        }
        None
    }
}

impl OpenTable {
    /// Opens `path` as a table of that kind.
    ///
    /// # Errors
    ///
    /// See [`TableFile::open`].
    pub fn open(def: &'static TableDef, path: &Path) -> Result<OpenTable> {
        Ok(OpenTable::from_files(def, path, vec![TableFile::open(def, path)?]))
    }

    /// The table that these files are together, in this order.
    pub(super) fn from_files(
        def: &'static TableDef,
        path: &Path,
        files: Vec<TableFile>,
    ) -> OpenTable {
        // The newest has all that was known when it was written.
        let pairs = files.last().map(|file| file.metadata_pairs().clone()).unwrap_or_default();
        OpenTable::Files(FileList { def, path: path.to_owned(), files: files.into(), pairs })
    }

    /// The same with other metadata.
    pub(super) fn with_metadata(self, pairs: BTreeMap<String, String>) -> OpenTable {
        match self {
            Self::Files(files) => Self::Files(FileList { pairs, ..files }),
            rollup @ Self::Rollup(_) => rollup,
        }
    }

    /// The table's definition.
    pub fn table_def(&self) -> &'static TableDef {
        match self {
            Self::Files(table) => table.def,
            Self::Rollup(_) => &fabric::TABLE,
        }
    }

    /// The columns that can be scanned: of a roll-up a few more than the definition has.
    pub fn scan_schema(&self) -> SchemaRef {
        match self {
            Self::Files(table) => (table.def.schema)(),
            Self::Rollup(_) => rollup::scan_schema(),
        }
    }

    /// The path of the file, or of the directory of its segments.
    pub fn source_path(&self) -> &Path {
        match self {
            Self::Files(table) => &table.path,
            Self::Rollup(rollup) => &rollup.path,
        }
    }

    /// The files of the table, in the order of their rows; those of a roll-up in no order.
    pub fn table_files(&self) -> Vec<TableFile> {
        match self {
            Self::Files(table) => table.files.to_vec(),
            Self::Rollup(rollup) => rollup.hour_tables().cloned().collect(),
        }
    }

    /// The digest of the file, see [`super::digest`]; a table of any other number of files has none
    /// of its own.
    pub(crate) fn file_digest(&self) -> &str {
        match self {
            Self::Files(FileList { files, .. }) if files.len() == 1 => files[0].file_digest(),
            _ => "",
        }
    }

    /// Rows, as the footers have it.
    pub fn row_count(&self) -> i64 {
        match self {
            Self::Files(table) => table.files.iter().map(TableFile::row_count).sum(),
            Self::Rollup(rollup) => rollup.hour_tables().map(TableFile::row_count).sum(),
        }
    }

    /// Checks that no row group is damaged. Reads all files.
    ///
    /// # Errors
    ///
    /// A row group is damaged, or a file cannot be read.
    pub fn require_sound(&self) -> Result<()> {
        for file in self.table_files() {
            if let Some(group) = file.damaged_groups()?.first() {
                bail!("{} is damaged in row group {group}", file.file_path().display());
            }
        }
        Ok(())
    }

    /// Row groups; those of a roll-up are in [`Self::table_files`].
    pub fn row_groups(&self) -> usize {
        match self {
            Self::Files(table) => table.files.iter().map(TableFile::row_groups).sum(),
            Self::Rollup(_) => 0,
        }
    }

    /// The metadata with [`crate::schema::metadata::PREFIX`].
    pub fn metadata_pairs(&self) -> &BTreeMap<String, String> {
        match self {
            Self::Files(table) => &table.pairs,
            Self::Rollup(rollup) => &rollup.pairs,
        }
    }

    /// The least and greatest value of an `int64` column, by the row groups' statistics; `None`
    /// where one has none. A roll-up has them of the order's column.
    pub fn column_bounds(&self, column: &str) -> Option<(i64, i64)> {
        match self {
            Self::Files(table) => {
                let files = table.files.iter().filter(|file| file.row_count() > 0);
                let bounds: Option<Vec<_>> = files.map(|file| file.column_bounds(column)).collect();
                bounds?.into_iter().reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
            }
            Self::Rollup(rollup) => rollup.time_bounds(column),
        }
    }

    /// Minimum of an `int64` column in a row group, from its statistics; `None` if the group is
    /// empty or has none.
    pub fn group_minimum(&self, group: usize, column: &str) -> Option<i64> {
        let Self::Files(table) = self else { return None };
        let (file, group) = table.locate_group(group)?;
        file.group_bounds(group, column).map(|(lowest, _)| lowest)
    }

    /// Scans the named columns from the first row to the last.
    ///
    /// # Errors
    ///
    /// The table cannot be read.
    pub fn scan_columns(&self, columns: &[&str]) -> Result<TableScan> {
        match self {
            Self::Files(table) => {
                TableScan::from_files(table.files.iter().map(|file| file.scan_columns(columns)))
            }
            Self::Rollup(rollup) => {
                Ok(TableScan::Rollup(Box::new(rollup::RollupScan::new(rollup, columns, None))))
            }
        }
    }

    /// Scans the named columns of every row group that may hold a row whose `int64` column
    /// `within` is in the range; other rows come too.
    ///
    /// # Errors
    ///
    /// As of [`Self::scan_columns`].
    pub fn scan_within(
        &self,
        columns: &[&str],
        within: &str,
        wanted: RangeInclusive<i64>,
    ) -> Result<TableScan> {
        match self {
            Self::Files(table) => {
                let files = table.files.iter();
                TableScan::from_files(
                    files.map(|file| file.scan_within(columns, within, wanted.clone())),
                )
            }
            Self::Rollup(rollup) => {
                let wanted = (within == rollup::TIME).then_some(wanted);
                Ok(TableScan::Rollup(Box::new(rollup::RollupScan::new(rollup, columns, wanted))))
            }
        }
    }

    /// Scans the named columns of one row group: of a table that is sorted, rows are sorted within
    /// each.
    ///
    /// # Errors
    ///
    /// As of [`Self::scan_columns`].
    pub fn scan_group(&self, columns: &[&str], group: usize) -> Result<TableScan> {
        match self {
            Self::Files(table) => {
                let group = table.locate_group(group).into_iter();
                TableScan::from_files(group.map(|(file, number)| file.scan_group(columns, number)))
            }
            Self::Rollup(_) => self.scan_columns(columns),
        }
    }
}

/// The batches of a table, in order.
#[derive(Debug)]
pub enum TableScan {
    /// Those of files that were not read to their end; none after an error.
    Files(VecDeque<FileScan>),
    /// Those of a roll-up.
    Rollup(Box<rollup::RollupScan>),
}

impl TableScan {
    fn from_files(files: impl Iterator<Item = Result<FileScan>>) -> Result<Self> {
        files.collect::<Result<_>>().map(Self::Files)
    }

    /// The same batches, decoded in another thread before they are asked for.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn decode_ahead(self) -> Result<Ahead> {
        Ahead::new(self)
    }
}

impl Iterator for TableScan {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let files = match self {
            Self::Files(files) => files,
            Self::Rollup(scan) => return scan.next(),
        };
        loop {
            match files.front_mut()?.next() {
                Some(Err(error)) => {
                    files.clear();
                    return Some(Err(error));
                }
                Some(batch) => return Some(batch),
                None => drop(files.pop_front()),
            }
        }
    }
}
