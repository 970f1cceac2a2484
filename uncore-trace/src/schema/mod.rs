//! SCHEMA: what a recording holds, the contract between the recorder and everything that reads a
//! recording.
//!
//! One file per table, each with its row, Arrow schema, builder, encodings and the docs of its
//! columns. Adding a table adds a file, its `mod` line and its line in the registry below. Rows carry
//! plain values, so this module imports no stage.

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, SchemaRef};
use parquet::basic::{Compression, Encoding as Parquet, ZstdLevel};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

pub mod cgroups;
pub mod columns;
pub mod counters;
pub mod cpus;
pub mod fabric;
pub mod io;
pub mod irqs;
pub mod kind;
pub mod link;
pub mod links;
pub mod loss;
pub mod marks;
pub mod metadata;
pub mod metric;
pub mod origin;
pub mod owner;
pub mod readings;
pub mod rollup;
pub mod run;
pub mod runtime;
pub mod slices;
pub mod tasks;
pub mod when;

use kind::Encoding;
use when::When;

/// Version of the table [`rollup`]; grows when a column changes its meaning or goes away. A column more
/// does not change it: readers take columns by name.
pub const ROLLUP_VERSION: u32 = 1;

/// Version of the schemas below; grows when a column changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 2;

/// Makes the registry of tables from their names.
macro_rules! tables {
    ($($name:ident,)*) => {
        /// Every table, in the order they are written and finished.
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
            /// The rows of the table that has most.
            pub fn most(&self) -> usize {
                [$(self.$name.len(),)*].into_iter().max().unwrap_or_default()
            }

            /// Hands the rows of each table that has at least `least` of them, and any, to `write`;
            /// their builders start anew.
            pub fn finish(
                &mut self,
                least: usize,
                mut write: impl FnMut(&'static TableDef, RecordBatch) -> anyhow::Result<()>,
            ) -> anyhow::Result<()> {
                $(
                    if self.$name.len() >= least.max(1) {
                        write(&$name::TABLE, self.$name.finish())?;
                    }
                )*
                Ok(())
            }
        }
    };
}

// `fabric` is last: its partial directory carries the lock, and the metadata that mending the others
// needs.
tables! {
    readings,
    runtime,
    slices,
    irqs,
    io,
    tasks,
    cgroups,
    counters,
    links,
    cpus,
    marks,
    loss,
    run,
    fabric,
}

/// Where rows go.
pub trait Store {
    /// Whether rows of the table are kept.
    fn wants(&self, table: &TableDef) -> bool;

    /// Takes rows; waits where it must.
    ///
    /// # Errors
    ///
    /// They cannot be written.
    fn write(&mut self, table: &'static TableDef, rows: RecordBatch) -> anyhow::Result<()>;

    /// Takes rows, but does not wait: `false` where there is no room for them, and they are dropped.
    ///
    /// # Errors
    ///
    /// As [`Store::write`].
    fn offer(&mut self, table: &'static TableDef, rows: RecordBatch) -> anyhow::Result<bool>;
}

/// What the writer and the readers need to know of a table.
#[derive(Debug)]
pub struct TableDef {
    /// Name, and stem of its file in a dataset.
    pub name: &'static str,
    /// One line on what it holds.
    pub doc: &'static str,
    /// Its Arrow schema.
    pub schema: fn() -> SchemaRef,
    /// How each column is encoded; the table's file says why.
    pub encodings: &'static [(&'static str, Encoding)],
    /// What each column says: unit, nulls, trust.
    pub column_docs: &'static [(&'static str, &'static str)],
    /// Columns the rows of one segment are sorted by; those with the same are in order of arrival.
    pub sort: &'static [&'static str],
    /// Whether the rows of each row group of every file are sorted, not only those of a segment: for readers
    /// that skip row groups by the words in them.
    pub sorts_groups: bool,
    /// A column that never decreases from one row of the whole table to the next, if there is one:
    /// row groups are marked as sorted by it, so that readers need not sort again.
    pub order: &'static [&'static str],
    /// Of which time a row is.
    pub when: When,
}

/// How much work goes into a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// A segment, which is written again soon. With Snappy instead of zstd the recorder takes a seventh less
    /// time: a zstd context is made anew for each column of each segment, and takes as long as the compression.
    Segment,
    /// Rows that stay as they are. Of 78 698 rows of `fabric` of a busy virtual machine it makes 3.9 bytes each
    /// in 0.48 us; zstd level 3 with pages of 20 000 rows 4.3 in 0.32 us, level 9 3.8 in 0.66 us (pyarrow 26,
    /// one thread).
    Kept,
}

impl Packing {
    fn compression(self) -> Compression {
        match self {
            Packing::Segment => Compression::SNAPPY,
            Packing::Kept => Compression::ZSTD(ZstdLevel::try_new(6).unwrap_or_default()),
        }
    }

    /// Rows of a page at most: the encoder holds 8 bytes a row for each of some 20 dictionary columns until
    /// a page is full (`DictEncoder::indices`, parquet 60), 3 and 5 MiB with these.
    const fn page_rows(self) -> usize {
        match self {
            Packing::Segment => 20_000,
            Packing::Kept => 32_768,
        }
    }
}

/// Bytes of a page at most: held before compression for each column.
const PAGE_BYTES: usize = 256 << 10;

impl TableDef {
    /// The Parquet writer's settings for this table, without row group limits and metadata.
    ///
    /// Page indexes are left out: readers of a timeline scan it, and they would be held in memory
    /// until the file is finished. Chunk statistics stay for numbers and times, DuckDB skips row groups by
    /// them. Words have none: nearly every row group has all of them, so that none is skipped, and the
    /// encoder compares every row's for the least and the greatest. Where row groups are sorted for readers of
    /// many files they have them: `host` is why a file of another host is not read, and Iceberg takes the
    /// partition of a file from those of `cluster`.
    pub fn properties(&self, packing: Packing) -> WriterPropertiesBuilder {
        let mut builder = WriterProperties::builder()
            .set_compression(packing.compression())
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_data_page_row_count_limit(packing.page_rows())
            .set_data_page_size_limit(PAGE_BYTES)
            .set_created_by(concat!("uncore-trace ", env!("CARGO_PKG_VERSION")).to_owned());
        let place = |order: &&str| self.encodings.iter().position(|(name, _)| name == order);
        let sorted = self.order.iter().filter_map(place).map(|at| SortingColumn {
            column_idx: at as i32,
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
                // A dictionary of numbers takes a hash for each.
                Encoding::Dict if packing == Packing::Segment && is_number(field) => {
                    Some(Parquet::PLAIN)
                }
                Encoding::Dict => None,
                Encoding::Delta => Some(Parquet::DELTA_BINARY_PACKED),
                Encoding::Plain => Some(Parquet::PLAIN),
            };
            builder = builder.set_column_dictionary_enabled(path.clone(), plain.is_none());
            if let Some(plain) = plain {
                builder = builder.set_column_encoding(path, plain);
            }
        }
        for field in schema.fields() {
            if !is_number(field) && !self.sorts_groups {
                let path = ColumnPath::from(field.name().as_str());
                builder = builder.set_column_statistics_enabled(path, EnabledStatistics::None);
            }
        }
        builder
    }

    /// The table of that name.
    pub fn by_name(name: &str) -> Option<&'static TableDef> {
        ALL.iter().copied().find(|table| table.name == name)
    }
}

#[cfg(test)]
mod document;
