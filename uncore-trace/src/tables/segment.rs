//! The sealed segments of one table while it is being recorded.
//!
//! `T.parquet.partial/` holds segments named by the range of sequence numbers they cover,
//! `000000-000000.parquet`. Guarantees: every `*.parquet` in it is at every instant a complete
//! Parquet file (temporary names end in `.tmp`); read together in name order they are the table so
//! far, except between the rename of a merged segment and the removal of its parts, which
//! [`Partial::open`] resolves by the ranges; the number of segments grows with the logarithm of
//! the recording's length up to two merges, then by one per `FAN * FAN` seals.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{SortColumn, concat_batches, lexsort_to_indices, take_record_batch};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use super::{TableDef, disk, metadata};

/// How many segments of one size become one of the next.
pub const FAN: u32 = 32;
/// Rows of a row group at most: DuckDB's and pandas' readers work a row group at a time.
const GROUP_ROWS: usize = 1 << 20;
/// Encoded bytes of a row group at most: the writer holds them in memory until it is full.
const GROUP_BYTES: usize = 6 << 20;
/// Segments whose row groups have at least this many rows, or bytes, on average go into the final
/// file as they are: encoding them again would keep the user waiting, and there are at most
/// `FAN` that a longer recording would have merged.
const LARGE_ROWS: i64 = 1 << 16;
/// See [`LARGE_ROWS`].
const LARGE_BYTES: i64 = 1 << 20;
/// Rows decoded at a time while segments are merged; a row is 200 bytes at most in memory.
const MERGE_ROWS: usize = 8192;

/// The numbers of the seals a segment covers, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// First.
    pub first: u32,
    /// Last.
    pub last: u32,
}

impl Range {
    fn span(self) -> u32 {
        self.last - self.first + 1
    }

    fn file(self) -> String {
        format!("{:06}-{:06}.parquet", self.first, self.last)
    }

    /// The range a file name stands for; none for any other file.
    fn parse(name: &str) -> Option<Range> {
        let (first, last) = name.strip_suffix(".parquet")?.split_once('-')?;
        let range = Range { first: first.parse().ok()?, last: last.parse().ok()? };
        (range.first <= range.last && range.file() == name).then_some(range)
    }
}

/// The partial directory of one table.
#[derive(Debug)]
pub struct Partial {
    /// The table.
    pub def: &'static TableDef,
    /// The directory.
    pub dir: PathBuf,
    /// Its segments in order, without gaps in meaning: a merged one stands for its parts.
    pub segments: Vec<Range>,
    next: u32,
}

/// The partial directory that belongs to the final file `target`.
pub fn partial_dir(target: &Path) -> PathBuf {
    disk::with_suffix(target, ".partial")
}

impl Partial {
    /// Makes the empty directory for a table that will be `target`.
    pub fn create(def: &'static TableDef, target: &Path) -> Result<Partial> {
        let dir = partial_dir(target);
        disk::doing("create", &dir, fs::create_dir(&dir))?;
        Ok(Partial { def, dir, segments: Vec::new(), next: 0 })
    }

    /// Opens what a recorder left, ending a merge it was killed in.
    pub fn open(def: &'static TableDef, target: &Path) -> Result<Partial> {
        let dir = partial_dir(target);
        let mut segments = Vec::new();
        for entry in disk::doing("read", &dir, fs::read_dir(&dir))? {
            let entry = disk::doing("read", &dir, entry)?;
            segments.extend(entry.file_name().to_str().and_then(Range::parse));
        }
        // Widest first among those that begin together, so that parts follow what they went into.
        segments.sort_by_key(|range| (range.first, u32::MAX - range.last));
        let mut kept: Vec<Range> = Vec::new();
        for range in segments {
            match kept.last() {
                Some(last) if range.last <= last.last => {
                    let part = dir.join(range.file());
                    disk::doing("remove", &part, fs::remove_file(&part))?;
                }
                Some(last) if range.first <= last.last => {
                    bail!(
                        "segments {} and {} in {} overlap; move one of them away",
                        last.file(),
                        range.file(),
                        dir.display()
                    );
                }
                _ => kept.push(range),
            }
        }
        let next = kept.last().map_or(0, |range| range.last + 1);
        Ok(Partial { def, dir, segments: kept, next })
    }

    /// Where a segment is.
    pub fn path(&self, range: Range) -> PathBuf {
        self.dir.join(range.file())
    }

    /// Writes the batches as the next segment, then merges segments where a size is full.
    pub fn seal(
        &mut self,
        batches: &[RecordBatch],
        pairs: &BTreeMap<String, String>,
    ) -> Result<()> {
        let range = Range { first: self.next, last: self.next };
        let sorted = sort(self.def, batches)?;
        self.write_segment(range, pairs, |path, props| encode(path, self.def, props, &sorted))?;
        self.segments.push(range);
        self.next += 1;
        for size in [1, FAN] {
            let same = self.segments.iter().rev().take_while(|range| range.span() == size).count();
            if same >= FAN as usize {
                self.merge(self.segments.len() - same..self.segments.len(), pairs)?;
            }
        }
        Ok(())
    }

    /// Makes the segments of `which` (indices into `segments`) one.
    pub fn merge(
        &mut self,
        which: std::ops::Range<usize>,
        pairs: &BTreeMap<String, String>,
    ) -> Result<()> {
        let parts = self.segments[which.clone()].to_vec();
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return Ok(()) };
        let merged = Range { first: first.first, last: last.last };
        if parts.len() < 2 {
            return Ok(());
        }
        let paths: Vec<PathBuf> = parts.iter().map(|range| self.path(*range)).collect();
        self.write_segment(merged, pairs, |path, props| reencode(path, self.def, props, &paths))?;
        for path in &paths {
            disk::doing("remove", path, fs::remove_file(path))?;
        }
        self.segments.splice(which, [merged]);
        Ok(())
    }

    fn write_segment(
        &self,
        range: Range,
        pairs: &BTreeMap<String, String>,
        write: impl FnOnce(&Path, WriterProperties) -> Result<()>,
    ) -> Result<()> {
        let target = self.path(range);
        let temporary = disk::with_suffix(&target, ".tmp");
        let written = write(&temporary, properties(self.def, pairs))
            .and_then(|()| disk::doing("write", &target, fs::rename(&temporary, &target)));
        if written.is_err() {
            // The error that counts is the write's.
            fs::remove_file(&temporary).ok();
        }
        written
    }
}

fn properties(def: &TableDef, pairs: &BTreeMap<String, String>) -> WriterProperties {
    def.properties()
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_max_row_group_bytes(Some(GROUP_BYTES))
        .set_key_value_metadata(Some(metadata::to_key_values(pairs)))
        .build()
}

/// The batches in the table's order for one segment.
fn sort(def: &TableDef, batches: &[RecordBatch]) -> Result<Vec<RecordBatch>> {
    if def.sort.is_empty() || batches.is_empty() {
        return Ok(batches.to_vec());
    }
    let all = concat_batches(&(def.schema)(), batches)
        .with_context(|| format!("cannot join the batches of {}", def.name))?;
    let columns: Vec<SortColumn> = def
        .sort
        .iter()
        .filter_map(|name| all.column_by_name(name))
        .map(|column| SortColumn { values: Arc::clone(column), options: None })
        .collect();
    let order: UInt32Array = lexsort_to_indices(&columns, None)
        .with_context(|| format!("cannot sort the rows of {}", def.name))?;
    let sorted = take_record_batch(&all, &order)
        .with_context(|| format!("cannot sort the rows of {}", def.name))?;
    Ok(vec![sorted])
}

fn encode(
    path: &Path,
    def: &TableDef,
    props: WriterProperties,
    batches: &[RecordBatch],
) -> Result<()> {
    let file = disk::doing("create", path, File::create(path))?;
    let mut writer =
        disk::doing("write", path, ArrowWriter::try_new(file, (def.schema)(), Some(props)))?;
    for batch in batches {
        disk::doing("write", path, writer.write(batch))?;
    }
    disk::doing("write", path, writer.close())?;
    Ok(())
}

/// Decodes `parts` and encodes their rows, in order, into one file with large row groups.
fn reencode(path: &Path, def: &TableDef, props: WriterProperties, parts: &[PathBuf]) -> Result<()> {
    let file = disk::doing("create", path, File::create(path))?;
    let mut writer =
        disk::doing("write", path, ArrowWriter::try_new(file, (def.schema)(), Some(props)))?;
    for part in parts {
        let file = disk::doing("open", part, File::open(part))?;
        let reader = disk::doing("read", part, ParquetRecordBatchReaderBuilder::try_new(file))?;
        let reader = disk::doing("read", part, reader.with_batch_size(MERGE_ROWS).build())?;
        for batch in reader {
            let batch = disk::doing("read", part, batch)?;
            disk::doing("write", path, writer.write(&batch))?;
        }
    }
    disk::doing("write", path, writer.close())?;
    Ok(())
}

/// Reads a segment's footer.
pub fn footer(path: &Path) -> Result<Arc<ParquetMetaData>> {
    let file = disk::doing("open", path, File::open(path))?;
    let loaded =
        disk::doing("read", path, ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()))?;
    Ok(Arc::clone(loaded.metadata()))
}

/// Whether the row groups of a segment are large enough to be copied as they are.
pub fn is_large(footer: &ParquetMetaData) -> bool {
    let groups = footer.num_row_groups() as i64;
    let bytes: i64 = footer.row_groups().iter().map(RowGroupMetaData::compressed_size).sum();
    groups > 0
        && (footer.file_metadata().num_rows() / groups >= LARGE_ROWS
            || bytes / groups >= LARGE_BYTES)
}

/// Writes one file from the encoded column chunks of the segments, in order; returns its rows.
///
/// No value is decoded: memory is one copy buffer and the footer being built.
pub fn concatenate(
    partial: &Partial,
    path: &Path,
    pairs: &BTreeMap<String, String>,
) -> Result<u64> {
    let props = properties(partial.def, pairs);
    let Some(first) = partial.segments.first() else {
        encode(path, partial.def, props, &[])?;
        return Ok(0);
    };
    let first = footer(&partial.path(*first))?;
    // The Arrow schema rides in a pair of its own; without it dictionaries would read as strings.
    let mut all = metadata::to_key_values(pairs);
    let arrow = first.file_metadata().key_value_metadata().into_iter().flatten();
    all.extend(arrow.filter(|pair| pair.key == parquet::arrow::ARROW_SCHEMA_META_KEY).cloned());
    let props = props.into_builder().set_key_value_metadata(Some(all)).build();
    let file = disk::doing("create", path, File::create(path))?;
    let schema = first.file_metadata().schema_descr().root_schema_ptr();
    let writer = SerializedFileWriter::new(file, schema, Arc::new(props));
    let mut writer = disk::doing("write", path, writer)?;
    let mut rows = 0;
    for range in &partial.segments {
        let part = partial.path(*range);
        rows += copy_groups(&mut writer, path, &part)?;
    }
    disk::doing("write", path, writer.close())?;
    Ok(rows)
}

fn copy_groups(writer: &mut SerializedFileWriter<File>, path: &Path, part: &Path) -> Result<u64> {
    let footer = footer(part)?;
    let file = disk::doing("open", part, File::open(part))?;
    let mut rows = 0;
    for group in footer.row_groups() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_range_is_found_again_in_its_file_name(first in 0_u32..5_000_000, span in 0_u32..2000) {
            let range = Range { first, last: first + span };
            prop_assert_eq!(Range::parse(&range.file()), Some(range));
        }

        #[test]
        fn other_names_are_no_segments(name in "\\PC*") {
            if let Some(range) = Range::parse(&name) {
                prop_assert_eq!(range.file(), name);
            }
        }
    }

    #[test]
    fn temporary_and_backward_names_are_no_segments() {
        assert_eq!(Range::parse("000000-000000.parquet.tmp"), None);
        assert_eq!(Range::parse("000002-000001.parquet"), None);
        assert_eq!(Range::parse("0-1.parquet"), None);
    }
}
