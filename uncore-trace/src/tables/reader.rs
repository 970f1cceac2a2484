//! Opens recordings and scans their tables, a few columns at a time: see [`super::file`]. A roll-up is
//! read like a recording of which there is one table: see [`super::rollup`].

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::disk;
use super::file::{self, FileScan, TableFile};
use super::names::{bare, parts_of, table_path};
use super::rollup::{self, Rollup};
use super::segment::partial_dir;
use crate::schema::origin::Origin;
use crate::schema::{ALL, TableDef, fabric};

/// A recording on disk, or a roll-up, which is read like one.
#[derive(Debug, Clone)]
pub struct Recording {
    path: PathBuf,
    dataset: bool,
    rollup: Option<Arc<Rollup>>,
}

impl Recording {
    /// Opens a file, a dataset, or a roll-up: of one, all hosts, or those that one of `hosts` names or
    /// matches with `*`.
    ///
    /// # Errors
    ///
    /// It cannot be read, or one of `hosts` is not in it.
    pub fn of_hosts(path: &Path, hosts: &[String]) -> Result<Recording> {
        if let Some(rollup) = Rollup::open(path, hosts)? {
            let rollup = Some(Arc::new(rollup));
            return Ok(Recording { path: path.to_owned(), dataset: false, rollup });
        }
        let recording = Recording::open(path)?;
        if !hosts.is_empty() {
            let host = Origin::of(recording.table(&fabric::TABLE)?.metadata()).host;
            rollup::matching(path, hosts, &[&host].into())?;
        }
        Ok(recording)
    }

    /// Opens a file or a dataset; its `fabric` table must be there and readable.
    ///
    /// # Errors
    ///
    /// It is not, or it is a roll-up.
    pub fn open(path: &Path) -> Result<Recording> {
        let dataset = path.is_dir();
        let recording = Recording { path: path.to_owned(), dataset, rollup: None };
        let fabric = recording.path_of(&fabric::TABLE);
        if !disk::occupied(&fabric)? {
            if disk::occupied(&partial_dir(&fabric))? {
                bail!(
                    "{} was not finished; run `uncore-trace repair {}` first",
                    path.display(),
                    path.display()
                );
            }
            if let Some(last) = parts_of(path).last() {
                bail!(
                    "{} was rotated: name one of its parts, such as {}, or make them one recording \
                     with `uncore-trace cut {} -o one/`; DuckDB reads all of them as one table: \
                     '{}/*/fabric.parquet'",
                    path.display(),
                    last.display(),
                    path.display(),
                    bare(path).display()
                );
            }
            if dataset && rollup::is_directory(path)? {
                return Err(file::no_recording(path));
            }
            if dataset {
                bail!("{} holds no recording: there is no fabric.parquet in it", path.display());
            }
            bail!("cannot open {}: no such file or directory", path.display());
        }
        recording.table(&fabric::TABLE)?;
        Ok(recording)
    }

    /// Whether it has the raw tables besides `fabric`.
    pub fn is_dataset(&self) -> bool {
        self.dataset
    }

    /// Whether it is a roll-up: windows of a second or longer, of one host or of many, without processes.
    /// `fabric` then has three columns more, `known_ns`, `low` and `high`, see [`rollup`].
    pub fn is_rollup(&self) -> bool {
        self.rollup.is_some()
    }

    /// That it has processes.
    ///
    /// # Errors
    ///
    /// It is a roll-up.
    pub fn require_processes(&self) -> Result<()> {
        if self.is_rollup() {
            bail!("{} is a roll-up, which has no processes: use --by cgroup", self.path.display());
        }
        Ok(())
    }

    /// What was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files that a table is in: one, but of a roll-up as many as it has.
    ///
    /// # Errors
    ///
    /// The table cannot be read.
    pub fn files(&self, def: &'static TableDef) -> Result<Vec<TableFile>> {
        match &self.rollup {
            Some(rollup) => Ok(rollup.files().cloned().collect()),
            None => Ok(vec![TableFile::open(def, &self.path_of(def))?]),
        }
    }

    /// The tables there are.
    pub fn tables(&self) -> Vec<&'static TableDef> {
        if !self.dataset {
            return vec![&fabric::TABLE];
        }
        ALL.iter().copied().filter(|def| self.path_of(def).is_file()).collect()
    }

    /// Opens a table.
    pub fn table(&self, def: &'static TableDef) -> Result<Table> {
        match &self.rollup {
            Some(rollup) if def.name == fabric::TABLE.name => Ok(Table::Rollup(Arc::clone(rollup))),
            Some(_) => {
                bail!("{} is a roll-up, which has no table {}", self.path.display(), def.name)
            }
            None => Table::open(def, &self.path_of(def)),
        }
    }

    fn path_of(&self, def: &TableDef) -> PathBuf {
        if self.dataset { table_path(&self.path, def) } else { self.path.clone() }
    }
}

/// An open table.
#[derive(Debug)]
pub enum Table {
    /// In a file.
    File(TableFile),
    /// The table `fabric` that a roll-up is read as.
    Rollup(Arc<Rollup>),
}

impl Table {
    /// Opens `path` as a table of that kind.
    ///
    /// # Errors
    ///
    /// See [`TableFile::open`].
    pub fn open(def: &'static TableDef, path: &Path) -> Result<Table> {
        TableFile::open(def, path).map(Table::File)
    }

    /// Its file.
    fn file(&self) -> Option<&TableFile> {
        match self {
            Self::File(file) => Some(file),
            Self::Rollup(_) => None,
        }
    }

    /// The table's definition.
    pub fn def(&self) -> &'static TableDef {
        self.file().map_or(&fabric::TABLE, TableFile::def)
    }

    /// The columns that can be scanned: of a roll-up a few more than the definition has.
    pub fn schema(&self) -> SchemaRef {
        self.file().map_or_else(rollup::schema, |file| (file.def().schema)())
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(file) => file.path(),
            Self::Rollup(rollup) => rollup.path(),
        }
    }

    /// The digest of the file, see [`super::digest`]; a roll-up has none of its own.
    pub fn digest(&self) -> &str {
        self.file().map_or("", TableFile::digest)
    }

    /// The numbers of the row groups whose bytes are not what was written; reads the whole file. Those of a
    /// roll-up are in [`Recording::files`].
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn damaged_groups(&self) -> Result<Vec<usize>> {
        self.file().map_or_else(|| Ok(Vec::new()), TableFile::damaged_groups)
    }

    /// Rows, as the footers have it.
    pub fn rows(&self) -> i64 {
        match self {
            Self::File(file) => file.rows(),
            Self::Rollup(rollup) => rollup.files().map(TableFile::rows).sum(),
        }
    }

    /// Checks that no row group is damaged. Reads the whole file.
    ///
    /// # Errors
    ///
    /// A row group is damaged, or the file cannot be read.
    pub fn require_sound(&self) -> Result<()> {
        if let Some(group) = self.damaged_groups()?.first() {
            bail!("{} is damaged in row group {group}", self.path().display());
        }
        Ok(())
    }

    /// Row groups; those of a roll-up are in [`Recording::files`].
    pub fn row_groups(&self) -> usize {
        self.file().map_or(0, TableFile::row_groups)
    }

    /// The file's metadata with [`metadata::PREFIX`].
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        match self {
            Self::File(file) => file.metadata(),
            Self::Rollup(rollup) => rollup.pairs(),
        }
    }

    /// The least and greatest value of an `int64` column, by the row groups' statistics; none
    /// where one has none. A roll-up has them of the order's column.
    pub fn bounds(&self, column: &str) -> Option<(i64, i64)> {
        match self {
            Self::File(file) => file.bounds(column),
            Self::Rollup(rollup) => rollup.bounds(column),
        }
    }

    /// Minimum of an `int64` column in a row group, from its statistics; `None` if the group is
    /// empty or has none.
    pub fn lowest(&self, group: usize, column: &str) -> Option<i64> {
        self.file()?.range(group, column).map(|(lowest, _)| lowest)
    }

    /// Scans the named columns from the first row to the last.
    ///
    /// # Errors
    ///
    /// The table cannot be read.
    pub fn scan(&self, columns: &[&str]) -> Result<Scan> {
        Ok(match self {
            Self::File(file) => Scan::File(file.scan(columns)?),
            Self::Rollup(rollup) => Scan::Rollup(rollup::Scan::new(rollup, columns, None)),
        })
    }

    /// Scans the named columns of every row group that may hold a row whose `int64` column
    /// `within` is in the range; other rows come too.
    ///
    /// # Errors
    ///
    /// As of [`Self::scan`].
    pub fn scan_within(
        &self,
        columns: &[&str],
        within: &str,
        wanted: RangeInclusive<i64>,
    ) -> Result<Scan> {
        Ok(match self {
            Self::File(file) => Scan::File(file.scan_within(columns, within, wanted)?),
            Self::Rollup(rollup) => {
                let wanted = (within == rollup::TIME).then_some(wanted);
                Scan::Rollup(rollup::Scan::new(rollup, columns, wanted))
            }
        })
    }

    /// Scans the named columns of one row group: of a table that is sorted, rows are sorted within
    /// each.
    ///
    /// # Errors
    ///
    /// As of [`Self::scan`].
    pub fn scan_group(&self, columns: &[&str], group: usize) -> Result<Scan> {
        match self {
            Self::File(file) => Ok(Scan::File(file.scan_group(columns, group)?)),
            Self::Rollup(_) => self.scan(columns),
        }
    }
}

/// The batches of a table, in order.
#[derive(Debug)]
pub enum Scan {
    /// Those of its file.
    File(FileScan),
    /// Those of a roll-up.
    Rollup(rollup::Scan),
}

impl Iterator for Scan {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::File(scan) => scan.next(),
            Self::Rollup(scan) => scan.next(),
        }
    }
}
