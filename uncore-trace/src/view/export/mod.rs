//! Recordings for other programs: CSV, Arrow, OpenMetrics, Perfetto.
//!
//! One file a format; [`csv`] and [`ipc`] write any table as it is, [`openmetrics`] and [`perfetto`]
//! show `fabric` by what was counted and by tenant ([`parts`], [`survey`]).
//!
//! Guarantees: memory grows with the number of counters, tenants and names, never with the length of
//! the recording: batches are read, written and forgotten, and where a format wants another order,
//! the table is read more than once. What is not known is left out, never 0. Names come from the
//! machine: each format writes them as text of that format, without control characters.

pub mod csv;
pub mod ipc;
pub mod openmetrics;
mod parts;
pub mod perfetto;
mod selection;
mod sums;
mod survey;

pub use selection::Selection;
