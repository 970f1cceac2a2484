//! TABLES: how the rows of a recording are stored and read.
//!
//! Guarantees: what [`writer`] sealed survives `kill -9` and opens as Parquet ([`repair`]); what
//! [`reader`] hands out has the columns and types of [`TableDef::schema`](crate::schema::TableDef).

pub mod digest;
mod disk;
mod encode;
pub mod file;
mod files;
mod finish;
pub mod hours;
pub mod lock;
mod lost;
pub mod manifest;
pub mod mode;
pub mod names;
mod open_spans;
pub mod output;
pub mod place;
mod queue;
pub mod reader;
pub mod repair;
pub mod rollup;
mod segment;
pub mod sent;
pub mod series;
pub mod stream;
pub mod thread;
pub mod writer;

#[cfg(test)]
mod tests;
