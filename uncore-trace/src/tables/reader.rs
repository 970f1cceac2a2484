//! Opens recordings and scans their tables, a few columns at a time.
//!
//! Guarantees: memory is one batch, for files of any length. A file that is not Parquet, is
//! truncated, has a damaged footer, or comes from another tool is an error in one line. Each row
//! group is verified before a row is decoded: most bit errors would otherwise be read as other
//! values. The Parquet decoder may panic on crafted files, so its panics are caught here and become
//! errors.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use arrow::array::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;

use super::digest::{self, Footer, Groups};
use super::segment::partial_dir;
use super::writer::table_path;
use super::{disk, place, series, stream};
use crate::schema::{ALL, TableDef, fabric, metadata};

/// Number of rows in a batch: at 200 bytes per row, below 2 MiB.
const BATCH_ROWS: usize = 8192;

/// A recording on disk.
#[derive(Debug, Clone)]
pub struct Recording {
    path: PathBuf,
    dataset: bool,
}

impl Recording {
    /// Opens a file or a dataset, whose table `fabric` must be readable.
    pub fn open(path: &Path) -> Result<Recording> {
        let dataset = path.is_dir();
        let recording = Recording { path: path.to_owned(), dataset };
        let fabric = recording.path_of(&fabric::TABLE);
        if !disk::occupied(&fabric)? {
            if disk::occupied(&partial_dir(&fabric))? {
                bail!(
                    "{} was not finished; run `uncore-trace repair {}` first",
                    path.display(),
                    path.display()
                );
            }
            if let Some(last) = series::parts_of(path).last() {
                bail!(
                    "{} was rotated: name one of its parts, such as {}, or make them one recording \
                     with `uncore-trace cut {} -o one/`; DuckDB reads all of them as one table: \
                     '{}/*/fabric.parquet'",
                    path.display(),
                    last.display(),
                    path.display(),
                    place::bare(path).display()
                );
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

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tables that exist.
    pub fn tables(&self) -> Vec<&'static TableDef> {
        if !self.dataset {
            return vec![&fabric::TABLE];
        }
        ALL.iter().copied().filter(|def| self.path_of(def).is_file()).collect()
    }

    /// Opens a table.
    pub fn table(&self, def: &'static TableDef) -> Result<Table> {
        Table::open(def, &self.path_of(def))
    }

    fn path_of(&self, def: &TableDef) -> PathBuf {
        if self.dataset { table_path(&self.path, def) } else { self.path.clone() }
    }
}

/// An open table.
#[derive(Debug)]
pub struct Table {
    def: &'static TableDef,
    path: PathBuf,
    footer: ArrowReaderMetadata,
    pairs: BTreeMap<String, String>,
    digest: String,
    groups: Arc<Groups>,
}

impl Table {
    /// Opens `path` as a table of this kind.
    pub fn open(def: &'static TableDef, path: &Path) -> Result<Table> {
        let file = disk::doing("open", path, File::open(path))?;
        let length = disk::doing("read", path, file.metadata())?.len();
        if length == 0 {
            bail!("{} is empty (0 bytes)", path.display());
        }
        if let Some(kind) = stream::arrow_kind(&file) {
            bail!(
                "{} is {kind}, as `record -o -` writes it, and only Parquet can be read here: \
                 record with -o FILE.parquet, or read it with pyarrow.ipc.open_stream",
                path.display()
            );
        }
        // The digest is checked before parsing, because the parser may misread a damaged footer.
        let digest = match disk::doing("read", path, digest::footer(&file))? {
            Footer::Sound(digest) => Some(digest),
            Footer::Damaged => {
                bail!("{} is damaged: its footer is not what was written", path.display())
            }
            Footer::Without => None,
        };
        let footer = guard(path, || {
            ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())
                .map_err(|error| anyhow!("{}", disk::explain(&error)))
        })
        .map_err(|error| anyhow!("{} is not a readable Parquet file: {error:#}", path.display()))?;
        let pairs =
            metadata::from_key_values(footer.metadata().file_metadata().key_value_metadata());
        let groups = Arc::new(Groups::of(footer.metadata()));
        let unknown = String::new();
        let mut table =
            Table { def, path: path.to_owned(), footer, pairs, digest: unknown, groups };
        table.verify()?;
        table.digest =
            digest.with_context(|| format!("{} is damaged: it has no digest", path.display()))?;
        Ok(table)
    }

    /// Checks that the file was written by a compatible version of this program and has the table's
    /// columns.
    fn verify(&self) -> Result<()> {
        let path = self.path.display();
        metadata::require_version(&self.path, &self.pairs)?;
        for wanted in (self.def.schema)().fields() {
            let found = self.footer.schema().field_with_name(wanted.name());
            if found.ok().is_none_or(|found| found.data_type() != wanted.data_type()) {
                bail!(
                    "{path} is not a {} table: column {} is missing or of another type",
                    self.def.name,
                    wanted.name()
                );
            }
        }
        Ok(())
    }

    /// The table's definition.
    pub fn def(&self) -> &'static TableDef {
        self.def
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The digest of the file, see [`digest`].
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The numbers of the damaged row groups. Reads the whole file.
    pub fn damaged_groups(&self) -> Result<Vec<usize>> {
        let file = disk::doing("open", &self.path, File::open(&self.path))?;
        disk::doing("read", &self.path, self.groups.damaged(&file))
    }

    /// Number of rows, from the footer.
    pub fn rows(&self) -> i64 {
        self.footer.metadata().file_metadata().num_rows()
    }

    /// Checks that no row group is damaged. Reads the whole file.
    ///
    /// # Errors
    ///
    /// A row group is damaged, or the file cannot be read.
    pub fn require_sound(&self) -> Result<()> {
        if let Some(group) = self.damaged_groups()?.first() {
            bail!("{} is damaged in row group {group}", self.path.display());
        }
        Ok(())
    }

    /// Number of rows in each row group.
    pub fn group_rows(&self) -> Vec<i64> {
        self.footer.metadata().row_groups().iter().map(RowGroupMetaData::num_rows).collect()
    }

    /// Number of row groups.
    pub fn row_groups(&self) -> usize {
        self.footer.metadata().num_row_groups()
    }

    /// The file's metadata with [`metadata::PREFIX`].
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.pairs
    }

    /// Minimum and maximum of an `int64` column, from the statistics of the row groups; `None` if a
    /// row group has none.
    pub fn bounds(&self, column: &str) -> Option<(i64, i64)> {
        let groups = self.footer.metadata().row_groups().iter();
        let bounds: Option<Vec<(i64, i64)>> =
            groups.filter(|group| group.num_rows() > 0).map(|group| range(group, column)).collect();
        bounds?.into_iter().reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
    }

    /// Minimum of an `int64` column in a row group, from its statistics; `None` if the group is
    /// empty or has none.
    pub fn lowest(&self, group: usize, column: &str) -> Option<i64> {
        range(self.footer.metadata().row_groups().get(group)?, column).map(|(lowest, _)| lowest)
    }

    /// Scans the named columns of all rows.
    pub fn scan(&self, columns: &[&str]) -> Result<Scan> {
        self.scan_groups(columns, (0..self.row_groups()).collect())
    }

    /// Scans the named columns of every row group that may have a row whose `int64` column `within`
    /// is in the range. Other rows of these groups are included.
    pub fn scan_within(
        &self,
        columns: &[&str],
        within: &str,
        wanted: RangeInclusive<i64>,
    ) -> Result<Scan> {
        let groups = self.footer.metadata().row_groups().iter().enumerate();
        let overlaps = |group: &RowGroupMetaData| {
            range(group, within)
                .is_none_or(|(least, most)| least <= *wanted.end() && *wanted.start() <= most)
        };
        let groups = groups.filter(|(_, group)| overlaps(group)).map(|(number, _)| number);
        self.scan_groups(columns, groups.collect())
    }

    /// Scans the named columns of one row group. In a sorted table, rows are sorted within each row
    /// group.
    pub fn scan_group(&self, columns: &[&str], group: usize) -> Result<Scan> {
        self.scan_groups(columns, vec![group])
    }

    fn scan_groups(&self, columns: &[&str], groups: Vec<usize>) -> Result<Scan> {
        let mut expected = 0;
        let mut unverified = VecDeque::with_capacity(groups.len());
        for &group in &groups {
            unverified.push_back((expected, group));
            expected += self.footer.metadata().row_group(group).num_rows();
        }
        let file = disk::doing("open", &self.path, File::open(&self.path))?;
        let handle = disk::doing("open", &self.path, file.try_clone())?;
        let reader = guard(&self.path, || {
            let builder =
                ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.footer.clone());
            let mask = ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied());
            builder
                .with_projection(mask)
                .with_batch_size(BATCH_ROWS)
                .with_row_groups(groups)
                .build()
                .map_err(|error| anyhow!("{}", disk::explain(&error)))
        })
        .with_context(|| format!("cannot read {}", self.path.display()))?;
        Ok(Scan {
            path: self.path.clone(),
            reader: Some(reader),
            rows: 0,
            expected,
            file: handle,
            groups: Arc::clone(&self.groups),
            unverified,
        })
    }
}

/// Minimum and maximum of an `int64` column in a row group, from its statistics.
fn range(group: &RowGroupMetaData, column: &str) -> Option<(i64, i64)> {
    let chunk = group.columns().iter().find(|chunk| chunk.column_path().string() == column)?;
    match chunk.statistics()? {
        Statistics::Int64(values) => values.min_opt().copied().zip(values.max_opt().copied()),
        _ => None,
    }
}

/// The batches of a table, in order.
pub struct Scan {
    path: PathBuf,
    reader: Option<ParquetRecordBatchReader>,
    rows: i64,
    expected: i64,
    file: File,
    groups: Arc<Groups>,
    /// The row groups that are not verified yet, each with the number of rows before it.
    unverified: VecDeque<(i64, usize)>,
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan")
            .field("path", &self.path)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl Scan {
    fn read(&mut self) -> Result<Option<RecordBatch>> {
        let ahead = self.rows + BATCH_ROWS as i64;
        while let Some((_, group)) = self.unverified.pop_front_if(|(before, _)| *before < ahead) {
            if !disk::doing("read", &self.path, self.groups.is_sound(&self.file, group))? {
                bail!("row group {group} is not what was written");
            }
        }
        let Some(reader) = &mut self.reader else { return Ok(None) };
        let batch = guard(&self.path, || {
            reader.next().transpose().map_err(|error| anyhow!("{}", disk::explain(&error)))
        });
        match batch {
            Ok(Some(batch)) => {
                self.rows += batch.num_rows() as i64;
                Ok(Some(batch))
            }
            Ok(None) if self.rows != self.expected => {
                Err(anyhow!("it holds {} rows, its footer says {}", self.rows, self.expected))
            }
            other => other,
        }
    }
}

impl Iterator for Scan {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let rows = self.rows;
        let read = self
            .read()
            .with_context(|| format!("{} is damaged after row {rows}", self.path.display()));
        if !matches!(read, Ok(Some(_))) {
            self.reader = None;
        }
        read.transpose()
    }
}

/// Runs a part of the Parquet decoder, and turns a panic into an error.
fn guard<T>(path: &Path, decode: impl FnOnce() -> Result<T>) -> Result<T> {
    quiet::during(|| catch_unwind(AssertUnwindSafe(decode)))
        .unwrap_or_else(|_| Err(anyhow!("the data in {} is damaged", path.display())))
}

/// Keeps the panic hook from printing panics that [`guard`] turns into errors.
mod quiet {
    use std::cell::Cell;
    use std::panic;
    use std::sync::Once;

    thread_local! {
        static QUIET: Cell<bool> = const { Cell::new(false) };
    }
    static HOOK: Once = Once::new();

    /// Runs `run` without printing this thread's panics; those of other threads are printed.
    pub(super) fn during<T>(run: impl FnOnce() -> T) -> T {
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                if !QUIET.with(Cell::get) {
                    before(info);
                }
            }));
        });
        QUIET.with(|quiet| quiet.set(true));
        let result = run();
        QUIET.with(|quiet| quiet.set(false));
        result
    }
}
