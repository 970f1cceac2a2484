//! Writes the Parquet files of a table: from rows, from segments by encoding their rows again, or
//! from segments by copying their column chunks.
//!
//! Guarantees: memory is bounded by one row group and one batch, for any number of rows. Each file
//! has digests, and damaged data is never copied into another file ([`sound`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use arrow::array::{ArrayRef, AsArray as _, RecordBatch, RecordBatchReader as _, UInt32Array};
use arrow::compute::{SortColumn, concat_batches, lexsort_to_indices, take_record_batch};
use arrow::datatypes::Int32Type;
use arrow::error::ArrowError;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Compression;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use super::digest::{self, Footer, Groups};
use super::mode::Mode;
use super::{disk, later, pages};
use crate::schema::{Packing, TableDef, metadata};

/// Largest number of rows in a row group: the readers of DuckDB and pandas process one row group at
/// a time.
const GROUP_ROWS: usize = 1 << 20;
/// Largest size of an encoded row group in bytes: the writer holds it in memory until it is full.
const GROUP_BYTES: usize = 6 << 20;
/// Segments whose row groups have at least this many rows, or bytes, on average are copied into the
/// final file: encoding them again would keep the user waiting, and there are at most `FAN` of
/// them, which a longer recording would have merged.
const LARGE_ROWS: i64 = 1 << 16;
/// See [`LARGE_ROWS`].
const LARGE_BYTES: i64 = 1 << 20;
/// Number of rows that are decoded at a time while segments are merged. A row has at most 200 bytes
/// in memory.
const MERGE_ROWS: usize = 8192;
/// Largest number of rows in a sorted row group: sorting takes 30 MB.
const SORT_ROWS: usize = 1 << 16;

/// The properties of a file of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form<'a> {
    /// The table.
    pub def: &'static TableDef,
    /// Key-value metadata.
    pub pairs: &'a BTreeMap<String, String>,
    /// Permissions.
    pub mode: Mode,
}

impl Form<'_> {
    fn properties(&self, packing: Packing) -> WriterProperties {
        self.def
            .properties(packing)
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_max_row_group_bytes(Some(GROUP_BYTES))
            .set_key_value_metadata(Some(metadata::to_key_values(self.pairs)))
            .build()
    }

    fn create(&self, path: &Path, packing: Packing) -> Result<New> {
        let file = disk::doing("create", path, self.mode.create_file(path))?;
        let handle = disk::doing("open", path, file.try_clone())?;
        let properties = Some(self.properties(packing));
        let writer = ArrowWriter::try_new(file, (self.def.schema)(), properties);
        Ok(New { path: path.to_owned(), writer: disk::doing("write", path, writer)?, handle })
    }
}

/// A file that is being written from rows.
struct New {
    path: PathBuf,
    writer: ArrowWriter<File>,
    handle: File,
}

impl New {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        disk::doing("write", &self.path, self.writer.write(batch))
    }

    /// Writes rows as separate row groups, in the table's order.
    fn write_group(&mut self, def: &TableDef, batches: &[RecordBatch]) -> Result<()> {
        for batch in sort(def, batches)? {
            self.write(&batch)?;
            disk::doing("write", &self.path, self.writer.flush())?;
        }
        Ok(())
    }

    fn close(self) -> Result<String> {
        let closed = self
            .writer
            .into_serialized_writer()
            .and_then(|(writer, _)| digest::close(writer, &self.handle));
        disk::doing("write", &self.path, closed)
    }
}

/// The result of writing a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    /// Number of rows.
    pub rows: u64,
    /// Its digest, see [`digest`].
    pub digest: String,
}

/// Sorts the batches of one segment into the table's order.
fn sort(def: &TableDef, batches: &[RecordBatch]) -> Result<Vec<RecordBatch>> {
    if def.sort.is_empty() || batches.is_empty() {
        return Ok(batches.to_vec());
    }
    let all = concat_batches(&(def.schema)(), batches)
        .with_context(|| format!("cannot join the batches of {}", def.name))?;
    let sorted = order(def, &all).and_then(|order| take_record_batch(&all, &order));
    Ok(vec![sorted.with_context(|| format!("cannot sort the rows of {}", def.name))?])
}

/// The permutation that sorts the rows of a batch into the table's order.
fn order(def: &TableDef, batch: &RecordBatch) -> Result<UInt32Array, ArrowError> {
    let columns = def.sort.iter().filter_map(|name| batch.column_by_name(name));
    let columns: Vec<&ArrayRef> = columns.collect();
    if let [column] = *columns.as_slice()
        && let Some(keys) = column.as_primitive_opt::<Int32Type>()
    {
        // A stable sort by a few keys takes a tenth of the time of the general one.
        let mut order: Vec<u32> = (0..batch.num_rows() as u32).collect();
        order.sort_by_key(|row| keys.values().get(*row as usize));
        return Ok(order.into());
    }
    let column = |values: &ArrayRef| SortColumn { values: Arc::clone(values), options: None };
    lexsort_to_indices(&columns.into_iter().map(column).collect::<Vec<_>>(), None)
}

/// Writes the rows of `batches`, in the table's order.
pub(super) fn rows(path: &Path, form: &Form<'_>, batches: &[RecordBatch]) -> Result<Written> {
    let sorted = sort(form.def, batches)?;
    let mut file = form.create(path, Packing::Segment)?;
    let mut rows = 0;
    for batch in &sorted {
        file.write(batch)?;
        rows += batch.num_rows() as u64;
    }
    Ok(Written { rows, digest: file.close()? })
}

/// Decodes `parts` and writes their rows, in order, into one file with large row groups.
pub(super) fn merged(path: &Path, form: &Form<'_>, parts: &[PathBuf]) -> Result<()> {
    let mut new = form.create(path, Packing::Kept)?;
    let (mut unsorted, mut rows) = (Vec::new(), 0);
    for part in parts {
        let reader = reader(part, MERGE_ROWS)?;
        let absent = later::absent(form.def, &reader.schema());
        for batch in reader {
            let batch = later::completed(disk::doing("read", part, batch)?, &absent)?;
            if !form.def.sorts_groups {
                new.write(&batch)?;
                continue;
            }
            rows += batch.num_rows();
            unsorted.push(batch);
            if rows >= SORT_ROWS {
                new.write_group(form.def, &std::mem::take(&mut unsorted))?;
                rows = 0;
            }
        }
    }
    new.write_group(form.def, &unsorted)?;
    new.close()?;
    Ok(())
}

/// Opens a file and verifies that its footer is intact.
///
/// # Errors
///
/// The file cannot be read, or its footer was changed.
pub(super) fn footer(path: &Path) -> Result<(File, ArrowReaderMetadata)> {
    let file = disk::open(path)?;
    let digest = disk::doing("read", path, digest::footer(&file))?;
    if !matches!(digest, Footer::Sound(_)) {
        bail!("cannot read {}: it is damaged or not complete", path.display());
    }
    let footer = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new());
    Ok((file, disk::doing("read", path, footer)?))
}

/// Opens a file and verifies all of it: a file made from a damaged one would hide the damage.
///
/// # Errors
///
/// Those of [`footer`], or a row group is damaged.
pub(super) fn sound(path: &Path) -> Result<(File, ArrowReaderMetadata)> {
    let (file, footer) = footer(path)?;
    let damaged = disk::doing("read", path, Groups::of(footer.metadata()).damaged(&file))?;
    if let Some(group) = damaged.first() {
        bail!("cannot read {}: its row group {group} is damaged", path.display());
    }
    Ok((file, footer))
}

/// Reads a file that is sound and not larger than what is read, in batches of at most `rows` rows.
///
/// # Errors
///
/// Those of [`sound`], or a part of it is larger.
pub(super) fn reader(path: &Path, rows: usize) -> Result<ParquetRecordBatchReader> {
    let (file, footer) = sound(path)?;
    let mut least = rows;
    for group in footer.metadata().row_groups() {
        least = pages::batch_rows(&file, footer.schema(), group, |_| true, least)
            .with_context(|| format!("cannot read {}", path.display()))?;
    }
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, footer);
    disk::doing("read", path, reader.with_batch_size(least).build())
}

/// Whether a file is compressed as a final file ([`Packing::Kept`]), with all columns of the table.
pub(super) fn is_kept(def: &TableDef, footer: &ArrowReaderMetadata) -> bool {
    let groups = footer.metadata().row_groups();
    let mut columns = groups.iter().flat_map(RowGroupMetaData::columns);
    // The zstd level is not in the footer.
    columns.all(|column| matches!(column.compression(), Compression::ZSTD(_)))
        && later::absent(def, footer.schema()).is_empty()
}

/// Whether the row groups of a segment are large enough to be copied unchanged.
pub(super) fn is_large(def: &TableDef, footer: &ArrowReaderMetadata) -> bool {
    let file = footer.metadata();
    let groups = file.num_row_groups() as i64;
    let bytes: i64 = file.row_groups().iter().map(RowGroupMetaData::compressed_size).sum();
    groups > 0
        && is_kept(def, footer)
        && (file.file_metadata().num_rows() / groups >= LARGE_ROWS || bytes / groups >= LARGE_BYTES)
}

/// Writes one file from the encoded column chunks of `parts`, in order.
///
/// No value is decoded. Memory is one copy buffer and the new footer.
pub(super) fn concatenated(path: &Path, form: &Form<'_>, parts: &[PathBuf]) -> Result<Written> {
    let Some(first) = parts.first() else {
        return rows(path, form, &[]);
    };
    let (_, first) = footer(first)?;
    let first = first.metadata().file_metadata();
    // The Arrow schema is in a pair of its own; without it dictionaries would read as strings.
    let mut all = metadata::to_key_values(form.pairs);
    let arrow = first.key_value_metadata().into_iter().flatten();
    all.extend(arrow.filter(|pair| pair.key == parquet::arrow::ARROW_SCHEMA_META_KEY).cloned());
    let props =
        form.properties(Packing::Kept).into_builder().set_key_value_metadata(Some(all)).build();
    let file = disk::doing("create", path, form.mode.create_file(path))?;
    let handle = disk::doing("open", path, file.try_clone())?;
    let schema = first.schema_descr().root_schema_ptr();
    let writer = SerializedFileWriter::new(file, schema, Arc::new(props));
    let mut writer = disk::doing("write", path, writer)?;
    let mut rows = 0;
    for part in parts {
        rows += copy_groups(&mut writer, path, part)?;
    }
    let digest = disk::doing("write", path, digest::close(writer, &handle))?;
    Ok(Written { rows, digest })
}

fn copy_groups(writer: &mut SerializedFileWriter<File>, path: &Path, part: &Path) -> Result<u64> {
    let (file, footer) = sound(part)?;
    let mut rows = 0;
    for group in footer.metadata().row_groups() {
        let mut out = disk::doing("write", path, writer.next_row_group())?;
        for column in group.columns() {
            let close = ColumnCloseResult {
                bytes_written: column.compressed_size() as u64,
                rows_written: group.num_rows() as u64,
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            disk::doing("write", path, out.append_column(&file, close))?;
        }
        disk::doing("write", path, out.close())?;
        rows += group.num_rows() as u64;
    }
    Ok(rows)
}
