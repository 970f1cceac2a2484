//! Storage of tables: writing and reading the rows of a recording.
//!
//! Guarantees: what [`writer`] has sealed survives `kill -9` and can be made into Parquet files
//! ([`repair`]). Batches from [`reader`] have the columns and types of
//! [`TableDef::schema`](crate::schema::TableDef).
//!
//! The modules are declared in four groups: what readers and writers share, readers, writers, and
//! what maintains files, which reads and writes. Readers and writers import only the shared modules
//! and each other's own; `tests/structure.rs` checks that.

// Shared.
mod absent_columns;
mod column_order;
pub mod digest;
mod disk;
mod hour_tree;
pub mod layout;
pub mod lock;
pub mod manifest;
pub mod mode;
pub mod names;
mod pages;
mod sealed;
mod sound;
mod source;
pub mod upload_journal;

// Reading.
mod decode_ahead;
pub mod file;
mod listed;
mod live;
pub mod reader;
pub mod rollup;
mod table;

// Writing.
mod encode;
mod files;
mod finish;
pub mod hours;
mod open_spans;
pub mod output;
pub mod output_path;
mod queue;
mod recovery;
mod segment;
mod stream;
pub mod thread;
pub mod writer;

// Maintenance.
pub mod hour_upkeep;
pub mod repair;
pub mod series;

#[cfg(test)]
mod tests;
