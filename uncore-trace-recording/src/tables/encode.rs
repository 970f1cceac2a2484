//! Writes the Parquet files of a table: from rows, from segments by encoding their rows again, or
//! from segments by copying their column chunks.
//!
//! Guarantees: memory is bounded by one row group and one batch, for any number of rows. Each file
//! has digests, and damaged data is never copied into another file ([`open_sound`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use arrow::array::{ArrayRef, AsArray as _, RecordBatch, RecordBatchReader as _, UInt32Array};
use arrow::compute::{SortColumn, concat_batches, lexsort_to_indices, take_record_batch};
use arrow::datatypes::Int32Type;
use arrow::error::ArrowError;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::basic::Compression;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use super::digest;
use super::mode::FileMode;
use super::sound::{open_reader, open_sound, read_footer};
use super::{absent_columns, disk};
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
pub(super) struct FileProperties<'a> {
    /// The table.
    pub def: &'static TableDef,
    /// Key-value metadata.
    pub pairs: &'a BTreeMap<String, String>,
    /// Permissions.
    pub mode: FileMode,
}

impl FileProperties<'_> {
    fn writer_properties(&self, packing: Packing) -> WriterProperties {
        self.def
            .writer_properties(packing)
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_max_row_group_bytes(Some(GROUP_BYTES))
            .set_key_value_metadata(Some(metadata::to_key_values(self.pairs)))
            .build()
    }

    fn create_file(&self, path: &Path, packing: Packing) -> Result<RowFileWriter> {
        let file = disk::with_action("create", path, self.mode.create_file(path))?;
        let handle = disk::with_action("open", path, file.try_clone())?;
        let properties = Some(self.writer_properties(packing));
        let writer = ArrowWriter::try_new(file, (self.def.schema)(), properties);
        Ok(RowFileWriter {
            path: path.to_owned(),
            writer: disk::with_action("write", path, writer)?,
            handle,
        })
    }
}

/// A file that is being written from rows.
struct RowFileWriter {
    path: PathBuf,
    writer: ArrowWriter<File>,
    handle: File,
}

impl RowFileWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        disk::with_action("write", &self.path, self.writer.write(batch))
    }

    /// Writes rows as separate row groups, in the table's order.
    fn write_group(&mut self, def: &TableDef, batches: &[RecordBatch]) -> Result<()> {
        for batch in sort_batches(def, batches)? {
            self.write(&batch)?;
            disk::with_action("write", &self.path, self.writer.flush())?;
        }
        Ok(())
    }

    fn close_file(self) -> Result<String> {
        let closed = self
            .writer
            .into_serialized_writer()
            .and_then(|(writer, _)| digest::close_with_digests(writer, &self.handle));
        disk::with_action("write", &self.path, closed)
    }
}

/// Sorts the batches of one segment into the table's order.
fn sort_batches(def: &TableDef, batches: &[RecordBatch]) -> Result<Vec<RecordBatch>> {
    if def.sort_columns.is_empty() || batches.is_empty() {
        return Ok(batches.to_vec());
    }
    let joined = concat_batches(&(def.schema)(), batches)
        .with_context(|| format!("cannot join the batches of {}", def.name))?;
    let sorted = sort_order(def, &joined).and_then(|order| take_record_batch(&joined, &order));
    Ok(vec![sorted.with_context(|| format!("cannot sort the rows of {}", def.name))?])
}

/// The permutation that sorts the rows of a batch into the table's order.
fn sort_order(def: &TableDef, batch: &RecordBatch) -> Result<UInt32Array, ArrowError> {
    let columns = def.sort_columns.iter().filter_map(|name| batch.column_by_name(name));
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

/// Writes the rows of `batches`, in the table's order. Returns the file's digest.
pub(super) fn write_rows(
    path: &Path,
    properties: &FileProperties<'_>,
    batches: &[RecordBatch],
) -> Result<String> {
    let sorted = sort_batches(properties.def, batches)?;
    let mut file = properties.create_file(path, Packing::Segment)?;
    sorted.iter().try_for_each(|batch| file.write(batch))?;
    file.close_file()
}

/// Decodes `inputs` and writes their rows, in order, into one file with large row groups.
pub(super) fn merge_files(
    path: &Path,
    properties: &FileProperties<'_>,
    inputs: &[PathBuf],
) -> Result<()> {
    let mut new = properties.create_file(path, Packing::Kept)?;
    let (mut unsorted, mut rows) = (Vec::new(), 0);
    for input in inputs {
        let reader = open_reader(input, MERGE_ROWS)?;
        let absent = absent_columns::absent_columns(properties.def, &reader.schema());
        for batch in reader {
            let batch = absent_columns::add_absent_columns(
                disk::with_action("read", input, batch)?,
                &absent,
            )?;
            if !properties.def.sorts_groups {
                new.write(&batch)?;
                continue;
            }
            rows += batch.num_rows();
            unsorted.push(batch);
            if rows >= SORT_ROWS {
                new.write_group(properties.def, &std::mem::take(&mut unsorted))?;
                rows = 0;
            }
        }
    }
    new.write_group(properties.def, &unsorted)?;
    new.close_file()?;
    Ok(())
}

/// Whether a file is compressed as a final file ([`Packing::Kept`]), with all columns of the table.
pub(super) fn is_kept(def: &TableDef, footer: &ArrowReaderMetadata) -> bool {
    let mut columns = footer.metadata().row_groups().iter().flat_map(RowGroupMetaData::columns);
    // The zstd level is not in the footer.
    columns.all(|column| matches!(column.compression(), Compression::ZSTD(_)))
        && absent_columns::absent_columns(def, footer.schema()).is_empty()
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

/// Writes one file from the encoded column chunks of `inputs`, in order. Returns its rows and its
/// digest.
///
/// No value is decoded. Memory is one copy buffer and the new footer.
pub(super) fn concatenate_files(
    path: &Path,
    properties: &FileProperties<'_>,
    inputs: &[PathBuf],
) -> Result<(u64, String)> {
    let Some(first_input) = inputs.first() else {
        return Ok((0, write_rows(path, properties, &[])?));
    };
    let (_, first_footer) = read_footer(first_input)?;
    let first_metadata = first_footer.metadata().file_metadata();
    // The Arrow schema is in a pair of its own; without it dictionaries would read as strings.
    let mut key_values = metadata::to_key_values(properties.pairs);
    let arrow = first_metadata.key_value_metadata().into_iter().flatten();
    key_values
        .extend(arrow.filter(|pair| pair.key == parquet::arrow::ARROW_SCHEMA_META_KEY).cloned());
    let props = properties
        .writer_properties(Packing::Kept)
        .into_builder()
        .set_key_value_metadata(Some(key_values))
        .build();
    let file = disk::with_action("create", path, properties.mode.create_file(path))?;
    let handle = disk::with_action("open", path, file.try_clone())?;
    let schema = first_metadata.schema_descr().root_schema_ptr();
    let writer = SerializedFileWriter::new(file, schema, Arc::new(props));
    let mut writer = disk::with_action("write", path, writer)?;
    let mut rows = 0;
    for input in inputs {
        rows += copy_groups(&mut writer, path, input)?;
    }
    let digest = disk::with_action("write", path, digest::close_with_digests(writer, &handle))?;
    Ok((rows, digest))
}

fn copy_groups(writer: &mut SerializedFileWriter<File>, path: &Path, input: &Path) -> Result<u64> {
    let (file, footer) = open_sound(input)?;
    let mut rows = 0;
    for group in footer.metadata().row_groups() {
        let mut row_group = disk::with_action("write", path, writer.next_row_group())?;
        for column in group.columns() {
            let close = ColumnCloseResult {
                bytes_written: column.compressed_size() as u64,
                rows_written: group.num_rows() as u64,
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            disk::with_action("write", path, row_group.append_column(&file, close))?;
        }
        disk::with_action("write", path, row_group.close())?;
        rows += group.num_rows() as u64;
    }
    Ok(rows)
}
