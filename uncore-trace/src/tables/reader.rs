//! Opens recordings and scans their tables, a few columns at a time.
//!
//! Guarantees: memory is one batch whatever the file's length; a file that is not Parquet, is cut
//! short, has a damaged footer, or is of another tool is an error of one line that says so. Each row
//! group is verified before a row of it is decoded: most of the bits that may change in one would
//! otherwise be read as other values. The Parquet decoder is not proof against everything that somebody
//! may put into a file, so a panic inside it is caught here and becomes an error.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;

use super::digest::{self, Footer, Groups};
use super::rollup::{self, Rollup};
use super::segment::partial_dir;
use super::writer::table_path;
use super::{disk, place, series, stream};
use crate::schema::origin::Origin;
use crate::schema::{ALL, TableDef, fabric, metadata};

/// Rows of a batch: at 200 bytes a row in memory under 2 MiB.
pub(super) const BATCH_ROWS: usize = 8192;

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
            if dataset && rollup::is_directory(path)? {
                return Err(rollup::is_none(path));
            }
            if dataset {
                bail!("{} holds no recording: there is no fabric.parquet in it", path.display());
            }
            bail!("cannot open {}: no such file or directory", path.display());
        }
        recording.table(&fabric::TABLE)?;
        Ok(recording)
    }

    /// Whether it has the raw tables beside `fabric`.
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
    pub fn files(&self, def: &'static TableDef) -> Result<Vec<Table>> {
        match &self.rollup {
            Some(rollup) => Ok(rollup.files().cloned().collect()),
            None => Ok(vec![self.table(def)?]),
        }
    }

    /// The tables there are.
    pub fn tables(&self) -> Vec<&'static TableDef> {
        if !self.dataset {
            return vec![&fabric::TABLE];
        }
        ALL.iter().copied().filter(|def| self.path_of(def).is_file()).collect()
    }

    /// Opens one table.
    pub fn table(&self, def: &'static TableDef) -> Result<Table> {
        match &self.rollup {
            Some(rollup) if def.name == fabric::TABLE.name => {
                Ok(Table::of_rollup(&self.path, Arc::clone(rollup)))
            }
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

/// One open table.
#[derive(Debug, Clone)]
pub struct Table {
    def: &'static TableDef,
    path: PathBuf,
    pairs: BTreeMap<String, String>,
    digest: String,
    rows: Rows,
}

/// Where its rows are.
#[derive(Debug, Clone)]
enum Rows {
    /// In its file.
    File(ArrowReaderMetadata, Arc<Groups>),
    /// In those of a roll-up.
    Rollup(Arc<Rollup>),
}

impl Table {
    /// Opens `path` as a table of that kind.
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
        // Before anything is parsed: what the parser makes of a damaged footer is anybody's guess.
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
        verify(def, path, &footer, &pairs)?;
        let digest =
            digest.with_context(|| format!("{} is damaged: it has no digest", path.display()))?;
        Ok(Table { def, path: path.to_owned(), pairs, digest, rows: Rows::File(footer, groups) })
    }

    /// The table `fabric` that a roll-up is read as.
    fn of_rollup(path: &Path, rollup: Arc<Rollup>) -> Table {
        let (path, pairs) = (path.to_owned(), rollup.pairs().clone());
        let rows = Rows::Rollup(rollup);
        Table { def: &fabric::TABLE, path, pairs, digest: String::new(), rows }
    }

    /// The table's definition.
    pub fn def(&self) -> &'static TableDef {
        self.def
    }

    /// The columns that can be scanned: a roll-up has a few more.
    pub fn schema(&self) -> SchemaRef {
        match &self.rows {
            Rows::File(..) => (self.def.schema)(),
            Rows::Rollup(_) => rollup::schema(),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The digest of the file, see [`digest`]; empty where a roll-up is read.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The numbers of the row groups whose bytes are not what was written; reads the whole file. Of a
    /// roll-up they are in [`Recording::files`].
    pub fn damaged_groups(&self) -> Result<Vec<usize>> {
        let Rows::File(_, groups) = &self.rows else { return Ok(Vec::new()) };
        let file = disk::doing("open", &self.path, File::open(&self.path))?;
        disk::doing("read", &self.path, groups.damaged(&file))
    }

    /// Rows, as the footer has it.
    pub fn rows(&self) -> i64 {
        match &self.rows {
            Rows::File(footer, _) => footer.metadata().file_metadata().num_rows(),
            Rows::Rollup(rollup) => rollup.files().map(Table::rows).sum(),
        }
    }

    /// The row groups of its file; a roll-up has those of [`Recording::files`].
    fn groups(&self) -> &[RowGroupMetaData] {
        match &self.rows {
            Rows::File(footer, _) => footer.metadata().row_groups(),
            Rows::Rollup(_) => &[],
        }
    }

    /// That no row group is damaged; reads the whole file.
    ///
    /// # Errors
    ///
    /// One is, or the file cannot be read.
    pub fn require_sound(&self) -> Result<()> {
        if let Some(group) = self.damaged_groups()?.first() {
            bail!("{} is damaged in row group {group}", self.path.display());
        }
        Ok(())
    }

    /// Rows of each row group.
    pub fn group_rows(&self) -> Vec<i64> {
        self.groups().iter().map(RowGroupMetaData::num_rows).collect()
    }

    /// Row groups.
    pub fn row_groups(&self) -> usize {
        self.groups().len()
    }

    /// Key-value metadata of ours.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.pairs
    }

    /// The least and greatest value of an `int64` column, by the row groups' statistics; none
    /// where one has none.
    pub fn bounds(&self, column: &str) -> Option<(i64, i64)> {
        if let Rows::Rollup(rollup) = &self.rows {
            return rollup.bounds(column);
        }
        let groups = self.groups().iter();
        let bounds: Option<Vec<(i64, i64)>> =
            groups.filter(|group| group.num_rows() > 0).map(|group| range(group, column)).collect();
        bounds?.into_iter().reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
    }

    /// The least value of an `int64` column in a row group, by its statistics; `None` where the group
    /// is empty or has none.
    pub fn lowest(&self, group: usize, column: &str) -> Option<i64> {
        self.range(group, column).map(|(lowest, _)| lowest)
    }

    /// The least and the greatest, as [`Self::lowest`].
    pub(super) fn range(&self, group: usize, column: &str) -> Option<(i64, i64)> {
        range(self.groups().get(group)?, column)
    }

    /// Scans the named columns from the first row to the last.
    pub fn scan(&self, columns: &[&str]) -> Result<Scan> {
        match &self.rows {
            Rows::File(..) => self.scan_groups(columns, (0..self.row_groups()).collect()),
            Rows::Rollup(rollup) => Ok(Scan::Rollup(rollup::Scan::new(rollup, columns, None)?)),
        }
    }

    /// Scans the named columns of every row group that may hold a row whose `int64` column
    /// `within` is in the range; other rows come too.
    pub fn scan_within(
        &self,
        columns: &[&str],
        within: &str,
        wanted: RangeInclusive<i64>,
    ) -> Result<Scan> {
        if let Rows::Rollup(rollup) = &self.rows {
            let wanted = (within == rollup::TIME).then_some(wanted);
            return Ok(Scan::Rollup(rollup::Scan::new(rollup, columns, wanted)?));
        }
        let groups = self.groups().iter().enumerate();
        let overlaps = |group: &RowGroupMetaData| {
            range(group, within)
                .is_none_or(|(least, most)| least <= *wanted.end() && *wanted.start() <= most)
        };
        let groups = groups.filter(|(_, group)| overlaps(group)).map(|(number, _)| number);
        self.scan_groups(columns, groups.collect())
    }

    /// Scans the named columns of one row group: of a table that is sorted, rows are sorted within
    /// each.
    pub fn scan_group(&self, columns: &[&str], group: usize) -> Result<Scan> {
        self.scan_groups(columns, vec![group])
    }

    fn scan_groups(&self, columns: &[&str], groups: Vec<usize>) -> Result<Scan> {
        let Rows::File(footer, digests) = &self.rows else {
            bail!("{} is a roll-up: it is scanned as a whole", self.path.display());
        };
        let mut expected = 0;
        let mut unverified = VecDeque::with_capacity(groups.len());
        for &group in &groups {
            unverified.push_back((expected, group));
            expected += footer.metadata().row_group(group).num_rows();
        }
        let file = disk::doing("open", &self.path, File::open(&self.path))?;
        let handle = disk::doing("open", &self.path, file.try_clone())?;
        let reader = guard(&self.path, || {
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, footer.clone());
            let mask = ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied());
            builder
                .with_projection(mask)
                .with_batch_size(BATCH_ROWS)
                .with_row_groups(groups)
                .build()
                .map_err(|error| anyhow!("{}", disk::explain(&error)))
        })
        .with_context(|| format!("cannot read {}", self.path.display()))?;
        Ok(Scan::File(FileScan {
            path: self.path.clone(),
            reader: Some(reader),
            rows: 0,
            expected,
            file: handle,
            groups: Arc::clone(digests),
            unverified,
        }))
    }
}

/// That the file is ours, of this version, and has the table's columns.
fn verify(
    def: &TableDef,
    path: &Path,
    footer: &ArrowReaderMetadata,
    pairs: &BTreeMap<String, String>,
) -> Result<()> {
    metadata::require_version(path, pairs)?;
    if def.name == fabric::TABLE.name && pairs.contains_key(metadata::ROLLUP_VERSION) {
        return Err(rollup::is_none(path));
    }
    let path = path.display();
    for wanted in (def.schema)().fields() {
        let found = footer.schema().field_with_name(wanted.name());
        if found.ok().is_none_or(|found| found.data_type() != wanted.data_type()) {
            bail!(
                "{path} is not a {} table: column {} is missing or of another type",
                def.name,
                wanted.name()
            );
        }
    }
    Ok(())
}

/// The least and greatest value of an `int64` column in a row group, if its statistics say.
fn range(group: &RowGroupMetaData, column: &str) -> Option<(i64, i64)> {
    let chunk = group.columns().iter().find(|chunk| chunk.column_path().string() == column)?;
    match chunk.statistics()? {
        Statistics::Int64(values) => values.min_opt().copied().zip(values.max_opt().copied()),
        _ => None,
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

/// The batches of a file.
pub struct FileScan {
    path: PathBuf,
    reader: Option<ParquetRecordBatchReader>,
    rows: i64,
    expected: i64,
    file: File,
    groups: Arc<Groups>,
    /// The row groups that are still to be verified, each with the number of rows before it.
    unverified: VecDeque<(i64, usize)>,
}

impl std::fmt::Debug for FileScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileScan")
            .field("path", &self.path)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl FileScan {
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

impl Iterator for FileScan {
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

/// Runs a piece of the Parquet decoder; a panic in it is an error.
fn guard<T>(path: &Path, decode: impl FnOnce() -> Result<T>) -> Result<T> {
    quiet::during(|| catch_unwind(AssertUnwindSafe(decode)))
        .unwrap_or_else(|_| Err(anyhow!("the data in {} is damaged", path.display())))
}

/// Keeps the panic hook from printing a panic that [`guard`] turns into an error.
mod quiet {
    use std::cell::Cell;
    use std::panic;
    use std::sync::Once;

    thread_local! {
        static QUIET: Cell<bool> = const { Cell::new(false) };
    }
    static HOOK: Once = Once::new();

    /// Runs `run` with this thread's panics unprinted; other threads' are printed as ever.
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
