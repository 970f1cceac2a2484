//! Recordings of `uncore-trace`: which tenant used the fabric, when, how much, and how sure.
//!
//! [`schema`] says which tables a recording has, with their columns. [`tables`] writes and reads
//! them: as one Parquet file, as a directory with one file for each table, as parts of a ring, as
//! roll-ups of an hour. [`units`] and [`text`] print figures and names as `uncore-trace` does.
//!
//! The tenants with the most bytes of each event of a recording:
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::path::Path;
//!
//! use uncore_trace_recording::schema::columns::{f64_column, nullable_value, word_column};
//! use uncore_trace_recording::schema::fabric;
//! use uncore_trace_recording::tables::reader::Recording;
//! use uncore_trace_recording::{text, units};
//!
//! # fn main() -> anyhow::Result<()> {
//! # let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/../samples");
//! # std::env::set_current_dir(samples)?;
//! let recording = Recording::open(Path::new("grace"))?;
//! let table = recording.open_table(&fabric::TABLE)?;
//!
//! // Bytes by event and cgroup. A row without a value was not counted: it adds nothing.
//! let mut bytes: BTreeMap<(String, String), f64> = BTreeMap::new();
//! for batch in table.scan_columns(&["event", "unit", "cgroup", "value"])? {
//!     let batch = batch?;
//!     let (event, unit) = (word_column(&batch, "event")?, word_column(&batch, "unit")?);
//!     let (cgroup, value) = (word_column(&batch, "cgroup")?, f64_column(&batch, "value")?);
//!     for row in 0..batch.num_rows() {
//!         let (Some(event), Some("bytes")) = (event.get(row), unit.get(row)) else { continue };
//!         let (Some(cgroup), Some(value)) = (cgroup.get(row), nullable_value(value, row)) else {
//!             continue;
//!         };
//!         *bytes.entry((event.to_owned(), cgroup.to_owned())).or_default() += value;
//!     }
//! }
//!
//! let mut tenants: Vec<_> = bytes.into_iter().collect();
//! tenants.sort_by(|(_, bytes), (_, other)| other.total_cmp(bytes));
//! for ((event, cgroup), bytes) in tenants.iter().take(3) {
//!     // Names come from the machine: they may hold escapes.
//!     println!("{event}: {} had {}", text::printable(cgroup), units::human(*bytes, "B"));
//! }
//! # assert_eq!(tenants[0].0, ("remote_socket_rd_data".to_owned(), "/lab/train".to_owned()));
//! # Ok(())
//! # }
//! ```
//!
//! The other modules are what `uncore-trace` and `uncore-trace-upload` share beside recordings: the
//! command line ([`cli`]), the configuration of the agent ([`config`]), privileges ([`confine`])
//! and messages of OpenTelemetry ([`otlp`]). They are no interface for other programs.

// The groups are in the order of imports: a module imports only modules of groups above its own.

pub mod bounds;
pub mod clock;
pub mod count;
mod heap;
pub mod held_messages;
mod named_values;
pub mod otlp;
pub mod priority;
pub mod protobuf;
pub mod signals;
pub mod terminal;

pub mod confine;
pub mod text;
pub mod units;

pub mod suggest;
pub mod table;

pub mod choice;

pub mod schema;

pub mod tables;

pub mod config;

pub mod cli;
