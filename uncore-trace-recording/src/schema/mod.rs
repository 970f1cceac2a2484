//! The tables of a recording: the contract between the recorder and everything that reads a
//! recording.
//!
//! Each table has a file with its row, Arrow schema, builder, encodings and column documentation. A
//! new table is a file, its `mod` line and its line in the registry below. Rows hold plain values,
//! so this module imports no stage.

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, SchemaRef};
use parquet::basic::{Compression, Encoding as Parquet, ZstdLevel};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

pub mod accounts;
pub mod assignments;
pub mod canary;
pub mod cgroups;
pub mod column_type;
pub mod columns;
pub mod confidence;
pub mod counters;
pub mod cpus;
pub mod fabric;
pub mod held;
pub mod holders;
pub mod io;
pub mod irqs;
pub mod link;
pub mod links;
pub mod loss;
pub mod marks;
pub mod metadata;
pub mod metric;
pub mod monitors;
pub mod origin;
pub mod owner;
pub mod readings;
pub mod rollup;
pub mod row_limit;
pub mod row_time;
pub mod run;
pub mod runtime;
pub mod slices;
pub mod sums;
pub mod tasks;

use column_type::Encoding;
use row_time::RowTime;

/// Version of the table [`rollup`]. It grows when a column changes its meaning or is removed. A new
/// column does not change it, because readers select columns by name.
pub(crate) const ROLLUP_VERSION: u32 = 1;

/// Version of the schemas below. It grows when a column changes its meaning or is removed. A new
/// column does not change it, if it is in [`TableDef::later`].
pub const SCHEMA_VERSION: u32 = 2;

/// Makes the registry of tables from their names.
macro_rules! tables {
    ($($name:ident,)*) => {
        /// Every table, in the order in which they are written and finished.
        pub static ALL: &[&TableDef] = &[$(&$name::TABLE,)*];

        /// Rows of every table.
        #[derive(Debug, Default)]
        pub struct Builders {
            $(
                #[doc = concat!("Rows of `", stringify!($name), "`.")]
                pub $name: $name::Builder,
            )*
        }

        impl Builders {
            /// The number of rows of the longest table.
            pub fn max_table_rows(&self) -> usize {
                [$(self.$name.len(),)*].into_iter().max().unwrap_or_default()
            }

            /// Passes the rows of each table that has at least `minimum_rows` rows, and any, to
            /// `write`, and clears their builders.
            pub fn finish(
                &mut self,
                minimum_rows: usize,
                mut write: impl FnMut(&'static TableDef, RecordBatch) -> anyhow::Result<()>,
            ) -> anyhow::Result<()> {
                $(
                    if self.$name.len() >= minimum_rows.max(1) {
                        write(&$name::TABLE, self.$name.finish())?;
                    }
                )*
                Ok(())
            }
        }
    };
}

// `fabric` is last: its partial directory has the lock, and the metadata that `repair` needs for
// the others.
tables! {
    readings,
    runtime,
    slices,
    irqs,
    io,
    holders,
    held,
    assignments,
    accounts,
    monitors,
    tasks,
    cgroups,
    counters,
    links,
    cpus,
    marks,
    canary,
    loss,
    run,
    sums,
    fabric,
}

/// The destination of rows.
pub trait RowStore {
    /// Whether rows of the table are kept.
    fn wants_table(&self, table: &TableDef) -> bool;

    /// Writes rows. Waits for room.
    ///
    /// # Errors
    ///
    /// The rows cannot be written.
    fn write_rows(&mut self, table: &'static TableDef, rows: RecordBatch) -> anyhow::Result<()>;

    /// Writes rows without waiting. `false` if there is no room; the rows are dropped then.
    ///
    /// # Errors
    ///
    /// Those of [`RowStore::write_rows`].
    fn offer_rows(&mut self, table: &'static TableDef, rows: RecordBatch) -> anyhow::Result<bool>;
}

/// The definition of a table for the writer and the readers.
#[derive(Debug)]
pub struct TableDef {
    /// Name of the table, and stem of its file in a dataset.
    pub name: &'static str,
    /// Description in one line.
    pub doc: &'static str,
    /// Its Arrow schema.
    pub schema: fn() -> SchemaRef,
    /// The encoding of each column; the table's file has the reasons.
    pub encodings: &'static [(&'static str, Encoding)],
    /// Documentation of each column: unit, nulls, reliability.
    pub column_docs: &'static [(&'static str, &'static str)],
    /// Columns by which the rows of a segment are sorted; rows with equal values are in order of
    /// arrival.
    pub sort_columns: &'static [&'static str],
    /// Whether the rows of each row group of every file are sorted, not only those of segments.
    /// Readers can then skip row groups by their words.
    pub sorts_groups: bool,
    /// A column that never decreases in the whole table, if there is one. Row groups are marked as
    /// sorted by it, so that readers need not sort.
    pub order: &'static [&'static str],
    /// Columns that files of an older program may lack: they read as null. They are the last ones,
    /// and nullable.
    pub later: &'static [&'static str],
    /// Which time a row belongs to.
    pub when: RowTime,
}

/// How much effort goes into compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// For a segment, which is rewritten soon. Snappy in place of zstd saves the recorder a seventh
    /// of its time: zstd creates a context for each column of each segment, which takes as long as
    /// the compression.
    Segment,
    /// For final files. It writes 78 698 rows of `fabric` of a busy virtual machine with 3.9 bytes
    /// and 0.48 us per row; zstd level 3 with pages of 20 000 rows takes 4.3 bytes and 0.32 us,
    /// level 9 3.8 bytes and 0.66 us (pyarrow 26, one thread).
    Kept,
}

impl Packing {
    fn parquet_compression(self) -> Compression {
        match self {
            Packing::Segment => Compression::SNAPPY,
            Packing::Kept => Compression::ZSTD(ZstdLevel::try_new(6).unwrap_or_default()),
        }
    }

    /// Largest number of rows in a page. Until a page is full, the encoder holds 8 bytes per row
    /// for each of some 20 dictionary columns (`DictEncoder::indices`, parquet 60): 3 and 5 MiB
    /// with these values.
    const fn page_rows(self) -> usize {
        match self {
            Packing::Segment => 20_000,
            Packing::Kept => 32_768,
        }
    }
}

/// Largest size of a page in bytes. Each column holds a page in memory before compression.
const PAGE_BYTES: usize = 256 << 10;

impl TableDef {
    /// The names of all columns.
    pub fn column_names(&self) -> Vec<&'static str> {
        self.encodings.iter().map(|(name, _)| *name).collect()
    }

    /// The settings of the Parquet writer for this table, without row group limits and metadata.
    ///
    /// There are no page indexes: readers scan the time line, and the indexes would be in memory
    /// until the file is finished. Numbers and times have chunk statistics, from which DuckDB skips
    /// row groups. Words have none: nearly every row group contains all of them, and the encoder
    /// would compare every row for the minimum and maximum. Words have statistics in tables with
    /// sorted row groups, which are read from many files: `host` lets readers skip files of other
    /// hosts, and Iceberg takes the partition of a file from `cluster`.
    pub(crate) fn writer_properties(&self, packing: Packing) -> WriterPropertiesBuilder {
        let mut builder = WriterProperties::builder()
            .set_compression(packing.parquet_compression())
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_data_page_row_count_limit(packing.page_rows())
            .set_data_page_size_limit(PAGE_BYTES)
            .set_created_by(concat!("uncore-trace ", env!("CARGO_PKG_VERSION")).to_owned());
        let column_index = |order: &&str| self.encodings.iter().position(|(name, _)| name == order);
        let sorted = self.order.iter().filter_map(column_index).map(|index| SortingColumn {
            column_idx: index as i32,
            descending: false,
            nulls_first: false,
        });
        let sorted: Vec<_> = sorted.collect();
        builder = builder.set_sorting_columns((!sorted.is_empty()).then_some(sorted));
        let schema = (self.schema)();
        let is_number =
            |field: &Field| field.data_type().is_numeric() || field.data_type().is_temporal();
        for (field, (column, encoding)) in schema.fields().iter().zip(self.encodings) {
            let path = ColumnPath::from(*column);
            let plain = match encoding {
                // A dictionary of numbers takes a hash for each number.
                Encoding::Dict if packing == Packing::Segment && is_number(field) => {
                    Some(Parquet::PLAIN)
                }
                Encoding::Dict => None,
                Encoding::Delta => Some(Parquet::DELTA_BINARY_PACKED),
                Encoding::Plain => Some(Parquet::PLAIN),
            };
            builder = builder.set_column_dictionary_enabled(path.clone(), plain.is_none());
            if let Some(plain) = plain {
                builder = builder.set_column_encoding(path.clone(), plain);
            }
            if !is_number(field) && !self.sorts_groups {
                builder = builder.set_column_statistics_enabled(path, EnabledStatistics::None);
            }
        }
        builder
    }

    /// The table with this name.
    pub fn by_name(name: &str) -> Option<&'static TableDef> {
        ALL.iter().copied().find(|table| table.name == name)
    }
}

#[cfg(test)]
mod document;
