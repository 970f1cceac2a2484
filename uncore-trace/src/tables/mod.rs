//! Storage of tables: writing and reading the rows of a recording.
//!
//! Guarantees: what [`writer`] has sealed survives `kill -9` and can be made into Parquet files
//! ([`repair`]). Batches from [`reader`] have the columns and types of
//! [`TableDef::schema`](crate::schema::TableDef).

mod ahead;
mod column_order;
pub mod digest;
mod disk;
mod encode;
pub mod file;
mod files;
mod finish;
pub mod hours;
mod later;
pub mod layout;
mod live;
pub mod lock;
mod lost;
pub mod manifest;
pub mod mode;
pub mod names;
mod open_spans;
pub mod output;
mod pages;
pub mod place;
mod queue;
pub mod reader;
pub mod repair;
pub mod rollup;
mod segment;
pub mod sent;
pub mod series;
mod source;
pub mod stream;
mod table;
pub mod thread;
pub mod writer;

#[cfg(test)]
mod tests;
