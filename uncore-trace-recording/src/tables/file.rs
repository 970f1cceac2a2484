//! Opens a file of a table and scans it, a few columns at a time.
//!
//! Guarantees: memory is one batch whatever the file's length; a file that is not Parquet, is cut
//! short, has a damaged footer, or is of another tool is an error of one line that says so. Each
//! row group is verified before a row of it is decoded: most of the bits that may change in one
//! would otherwise be read as other values. The Parquet decoder is not proof against everything
//! that somebody may put into a file, so a panic inside it is caught here and becomes an error.
//!
//! A file is opened anew for each scan, because a roll-up may have more of them than a process can
//! keep open. A segment stays open, because the recorder may remove it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Error, Result, anyhow, bail};
use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Encoding, PageType};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::SerializedPageReader;
use parquet::file::statistics::Statistics;

use super::digest::{self, FooterState, RowGroupDigests};
use super::mode::FileMode;
use super::pages::BATCH_ROWS;
use super::source::{OpenedFile, arrow_kind};
use super::{absent_columns, disk, pages};
use crate::schema::{TableDef, fabric, metadata};

/// A column chunk without values has fewer bytes: some 20 for each page of a row group.
const NULL_BYTES: i64 = 64 << 10;

/// An open file of a table.
#[derive(Debug, Clone)]
pub struct TableFile {
    def: &'static TableDef,
    path: PathBuf,
    /// The open file, if its name may be gone when it is read.
    kept_open: Option<OpenedFile>,
    mode: FileMode,
    footer: ArrowReaderMetadata,
    pairs: BTreeMap<String, String>,
    digest: String,
    groups: Arc<RowGroupDigests>,
}

impl TableFile {
    /// Opens `path` as a table of that kind.
    pub fn open(def: &'static TableDef, path: &Path) -> Result<Self> {
        Self::new(def, path, &OpenedFile::open(path)?)
    }

    /// Opens the segment at `path`, and reads it later even if it was removed meanwhile.
    pub(super) fn open_segment(def: &'static TableDef, path: &Path) -> Result<Self> {
        let source = OpenedFile::open(path)?;
        let table = Self::new(def, path, &source)?;
        Ok(Self { kept_open: Some(source), ..table })
    }

    fn new(def: &'static TableDef, path: &Path, source: &OpenedFile) -> Result<Self> {
        let file = &source.file;
        if source.length == 0 {
            bail!("{} is empty (0 bytes)", path.display());
        }
        if let Some(content_kind) = arrow_kind(file) {
            bail!(
                "{} is {content_kind}, as `record -o -` writes it, and only Parquet can be read \
                 here: record with -o FILE.parquet, or read it with pyarrow.ipc.open_stream",
                path.display()
            );
        }
        // Before anything is parsed: what the parser makes of a damaged footer is anybody's guess.
        let digest = match disk::with_action("read", path, digest::verify_footer(file))? {
            FooterState::Sound(digest) => Some(digest),
            FooterState::Damaged => {
                bail!("{} is damaged: its footer has changed since it was written", path.display())
            }
            FooterState::Without => None,
        };
        let footer = catch_decoder_panic(path, || {
            explained(ArrowReaderMetadata::load(source, ArrowReaderOptions::new()))
        })
        .map_err(|error| anyhow!("{} is not a readable Parquet file: {error:#}", path.display()))?;
        let pairs =
            metadata::from_key_values(footer.metadata().file_metadata().key_value_metadata());
        let groups = Arc::new(RowGroupDigests::from_footer(footer.metadata()));
        verify_table(def, path, &footer, &pairs)?;
        let digest =
            digest.with_context(|| format!("{} is damaged: it has no digest", path.display()))?;
        Ok(Self {
            def,
            path: path.to_owned(),
            kept_open: None,
            mode: source.mode,
            footer,
            pairs,
            digest,
            groups,
        })
    }

    /// The table's definition.
    pub fn table_def(&self) -> &'static TableDef {
        self.def
    }

    /// The path of the file.
    pub fn file_path(&self) -> &Path {
        &self.path
    }

    /// Who may read the file.
    pub fn file_mode(&self) -> FileMode {
        self.mode
    }

    fn open_source(&self) -> Result<OpenedFile> {
        self.kept_open.clone().map_or_else(|| OpenedFile::open(&self.path), Ok)
    }

    /// The digest of the file, see [`digest`].
    pub(crate) fn file_digest(&self) -> &str {
        &self.digest
    }

    /// The numbers of the row groups whose bytes are not what was written; reads the whole file.
    pub fn damaged_groups(&self) -> Result<Vec<usize>> {
        let damaged = self.groups.damaged_groups(&self.open_source()?.file);
        disk::with_action("read", &self.path, damaged)
    }

    /// Rows, as the footer has it.
    pub fn row_count(&self) -> i64 {
        self.footer.metadata().file_metadata().num_rows()
    }

    fn group_metadata(&self) -> &[RowGroupMetaData] {
        self.footer.metadata().row_groups()
    }

    /// Rows of each row group.
    pub fn group_rows(&self) -> Vec<i64> {
        self.group_metadata().iter().map(RowGroupMetaData::num_rows).collect()
    }

    /// Row groups.
    pub fn row_groups(&self) -> usize {
        self.group_metadata().len()
    }

    /// Key-value metadata of ours.
    pub fn metadata_pairs(&self) -> &BTreeMap<String, String> {
        &self.pairs
    }

    /// The least and greatest value of an `int64` column, by the row groups' statistics; `None`
    /// where one has none.
    pub fn column_bounds(&self, column: &str) -> Option<(i64, i64)> {
        let groups = self.group_metadata().iter();
        let bounds: Option<Vec<(i64, i64)>> = groups
            .filter(|group| group.num_rows() > 0)
            .map(|group| chunk_bounds(group, column))
            .collect();
        bounds?.into_iter().reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
    }

    /// The least and greatest value of an `int64` column in a row group, by its statistics; `None`
    /// where the group is empty or has none.
    pub(crate) fn group_bounds(&self, group: usize, column: &str) -> Option<(i64, i64)> {
        chunk_bounds(self.group_metadata().get(group)?, column)
    }

    /// Scans the named columns from the first row to the last.
    pub fn scan_columns(&self, columns: &[&str]) -> Result<FileScan> {
        self.scan_groups(columns, (0..self.row_groups()).collect())
    }

    /// Scans the named columns of every row group that may hold a row whose `int64` column
    /// `within` is in the range; other rows come too.
    pub fn scan_within(
        &self,
        columns: &[&str],
        within: &str,
        wanted: RangeInclusive<i64>,
    ) -> Result<FileScan> {
        let groups = self.group_metadata().iter().enumerate();
        let overlaps = |group: &RowGroupMetaData| {
            chunk_bounds(group, within).is_none_or(|(lowest, highest)| {
                lowest <= *wanted.end() && *wanted.start() <= highest
            })
        };
        let groups = groups.filter(|(_, group)| overlaps(group)).map(|(number, _)| number);
        self.scan_groups(columns, groups.collect())
    }

    /// Scans the named columns of one row group: of a table that is sorted, rows are sorted within
    /// each.
    pub fn scan_group(&self, columns: &[&str], group: usize) -> Result<FileScan> {
        self.scan_groups(columns, vec![group])
    }

    fn scan_groups(&self, columns: &[&str], groups: Vec<usize>) -> Result<FileScan> {
        let mut absent = absent_columns::absent_columns(self.def, self.footer.schema());
        absent.retain(|field| columns.contains(&field.name().as_str()));
        let stored_fields = self.footer.schema().fields().iter();
        let wanted =
            stored_fields.filter(|field| columns.contains(&field.name().as_str())).cloned();
        Ok(FileScan {
            path: self.path.clone(),
            footer: self.footer.clone(),
            source: self.open_source()?,
            groups: Arc::clone(&self.groups),
            columns: wanted.collect(),
            absent,
            remaining_groups: groups.into(),
            group: None,
            rows: 0,
        })
    }
}

/// Checks that the file is ours, of this version, and has the table's columns.
fn verify_table(
    def: &TableDef,
    path: &Path,
    footer: &ArrowReaderMetadata,
    pairs: &BTreeMap<String, String>,
) -> Result<()> {
    metadata::require_version(path, pairs)?;
    if def.name == fabric::TABLE.name && pairs.contains_key(metadata::ROLLUP_VERSION) {
        return Err(not_a_recording(path));
    }
    let path = path.display();
    let absent = absent_columns::absent_columns(def, footer.schema());
    for wanted in (def.schema)().fields().iter().filter(|wanted| !absent.contains(wanted)) {
        let stored = footer.schema().field_with_name(wanted.name());
        if stored.ok().is_none_or(|field| field.data_type() != wanted.data_type()) {
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
fn chunk_bounds(group: &RowGroupMetaData, column: &str) -> Option<(i64, i64)> {
    let chunk = group.columns().iter().find(|chunk| chunk.column_path().string() == column)?;
    match chunk.statistics()? {
        Statistics::Int64(values) => values.min_opt().copied().zip(values.max_opt().copied()),
        _ => None,
    }
}

/// The error of a command that takes recordings only, if it is given a roll-up.
pub(super) fn not_a_recording(path: &Path) -> Error {
    anyhow!(
        "{} is a roll-up, not a recording: `report`, `export`, `diff` and `check` read roll-ups",
        path.display()
    )
}

/// The batches of a file: none of them has rows of two row groups, whose dictionaries differ.
pub struct FileScan {
    path: PathBuf,
    footer: ArrowReaderMetadata,
    source: OpenedFile,
    groups: Arc<RowGroupDigests>,
    /// Columns that are asked for and that the file has.
    columns: Vec<FieldRef>,
    /// Columns that are asked for and that the file lacks.
    absent: Vec<FieldRef>,
    /// The row groups that are still to be opened.
    remaining_groups: VecDeque<usize>,
    group: Option<GroupScan>,
    /// Rows so far.
    rows: i64,
}

/// The batches of a row group.
struct GroupScan {
    reader: ParquetRecordBatchReader,
    rows: i64,
    expected: i64,
    /// For each column of the scan, its values if all of them are null: they are not decoded.
    nulls: Vec<Option<ArrayRef>>,
    schema: SchemaRef,
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
    fn read_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some(group) = &mut self.group else {
                let Some(number) = self.remaining_groups.pop_front() else { return Ok(None) };
                self.group = Some(self.open_group(number)?);
                continue;
            };
            let batch =
                catch_decoder_panic(&self.path, || explained(group.reader.next().transpose()))?;
            let Some(batch) = batch else {
                let GroupScan { rows, expected, .. } = *group;
                if rows != expected {
                    bail!("a row group has {rows} rows, but the footer says {expected}");
                }
                self.group = None;
                continue;
            };
            pages::check_text_lengths(&batch)?;
            group.rows += batch.num_rows() as i64;
            self.rows += batch.num_rows() as i64;
            return absent_columns::add_absent_columns(group.insert_nulls(batch)?, &self.absent)
                .map(Some);
        }
    }

    /// Opens a row group that is intact.
    fn open_group(&self, number: usize) -> Result<GroupScan> {
        let is_sound = self.groups.is_sound(&self.source.file, number);
        if !disk::with_action("read", &self.path, is_sound)? {
            bail!("row group {number} has changed since it was written");
        }
        let group = self.footer.metadata().row_group(number);
        let is_wanted = |name: &str| self.columns.iter().any(|field| field.name() == name);
        let schema = self.footer.schema();
        let batch_size = pages::batch_rows(&self.source, schema, group, is_wanted, BATCH_ROWS)?;
        let length = usize::try_from(group.num_rows()).unwrap_or(batch_size).min(batch_size);
        let null = |field: &FieldRef| {
            let is_null = is_null(&self.source, group, field)?;
            Ok(is_null.then(|| new_null_array(field.data_type(), length)))
        };
        let nulls = catch_decoder_panic(&self.path, || {
            self.columns.iter().map(null).collect::<Result<Vec<_>>>()
        })?;
        let decoded = self.columns.iter().zip(&nulls).filter(|(_, null)| null.is_none());
        let decoded: Vec<&str> = decoded.map(|(field, _)| field.name().as_str()).collect();
        let reader = catch_decoder_panic(&self.path, || {
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(
                self.source.clone(),
                self.footer.clone(),
            );
            let mask = ProjectionMask::columns(builder.parquet_schema(), decoded.iter().copied());
            let builder = builder.with_projection(mask).with_batch_size(batch_size);
            explained(builder.with_row_groups(vec![number]).build())
        })?;
        let pairs = self.footer.schema().metadata().clone();
        let schema = Arc::new(Schema::new_with_metadata(self.columns.clone(), pairs));
        Ok(GroupScan { reader, rows: 0, expected: group.num_rows(), nulls, schema })
    }
}

impl GroupScan {
    /// The batch with the columns that were not decoded.
    fn insert_nulls(&self, batch: RecordBatch) -> Result<RecordBatch> {
        if self.nulls.iter().all(Option::is_none) {
            return Ok(batch);
        }
        let rows = batch.num_rows();
        let (_, decoded, _) = batch.into_parts();
        let mut decoded = decoded.into_iter();
        let columns = self.nulls.iter().filter_map(|null| match null {
            Some(null) => Some(null.slice(0, rows)),
            None => decoded.next(),
        });
        RecordBatch::try_new(Arc::clone(&self.schema), columns.collect())
            .context("cannot add a column without values")
    }
}

/// Whether a column has no value in a row group. The decoder takes longer for a dictionary column
/// of nulls than for one with values, because it hashes each row.
fn is_null(source: &OpenedFile, group: &RowGroupMetaData, field: &FieldRef) -> Result<bool> {
    let mut chunks = group.columns().iter();
    let chunk = chunks.find(|chunk| chunk.column_path().string() == *field.name());
    let Some(chunk) = chunk.filter(|_| field.is_nullable()) else { return Ok(false) };
    if let Some(nulls) = chunk.statistics().and_then(Statistics::null_count_opt) {
        return Ok(u64::try_from(group.num_rows()) == Ok(nulls));
    }
    if chunk.uncompressed_size() > NULL_BYTES || chunk.dictionary_page_offset().is_none() {
        return Ok(false);
    }
    // Columns of strings have no statistics. Without a value, their dictionary is empty.
    let rows = usize::try_from(group.num_rows()).unwrap_or(0);
    for page in SerializedPageReader::new(Arc::new(source.clone()), chunk, rows, None)? {
        let page = page?;
        let is_empty = match page.page_type() {
            PageType::DICTIONARY_PAGE => page.num_values() == 0,
            _ => page.encoding() == Encoding::RLE_DICTIONARY,
        };
        if !is_empty {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Iterator for FileScan {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let rows = self.rows;
        let read = self
            .read_batch()
            .with_context(|| format!("{} is damaged after row {rows}", self.path.display()));
        if !matches!(read, Ok(Some(_))) {
            self.remaining_groups.clear();
            self.group = None;
        }
        read.transpose()
    }
}

/// The result of the Parquet decoder, with the wording of its error.
fn explained<T, E: std::error::Error + 'static>(decoded: Result<T, E>) -> Result<T> {
    decoded.map_err(|error| anyhow!("{}", disk::explain_error(&error)))
}

/// Runs a piece of the Parquet decoder; a panic in it is an error.
fn catch_decoder_panic<T>(path: &Path, decode: impl FnOnce() -> Result<T>) -> Result<T> {
    quiet::run_quietly(|| catch_unwind(AssertUnwindSafe(decode)))
        .unwrap_or_else(|_| Err(anyhow!("the data in {} is damaged", path.display())))
}

/// Keeps the panic hook from printing a panic that [`catch_decoder_panic`] turns into an error.
mod quiet {
    use std::cell::Cell;
    use std::panic;
    use std::sync::Once;

    thread_local! {
        static QUIET: Cell<bool> = const { Cell::new(false) };
    }
    static HOOK: Once = Once::new();

    /// Runs `run` with this thread's panics unprinted; other threads' are printed as ever.
    pub(super) fn run_quietly<T>(run: impl FnOnce() -> T) -> T {
        HOOK.call_once(|| {
            let previous_hook = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                if !QUIET.with(Cell::get) {
                    previous_hook(info);
                }
            }));
        });
        QUIET.with(|quiet| quiet.set(true));
        let result = run();
        QUIET.with(|quiet| quiet.set(false));
        result
    }
}
