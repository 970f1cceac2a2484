//! Exports recordings: CSV, Arrow, Perfetto, pprof.
//!
//! One file per format. [`csv`] and [`ipc`] write any table unchanged; [`perfetto`] shows
//! `fabric` by link or event and by tenant ([`counts`], [`survey`]); [`pprof`] has sums, which are
//! complete.
//!
//! Guarantees: memory grows with the number of counters, tenants and names, not with the length of
//! the recording: batches are read, written and dropped, and if a format needs another order, the
//! table is read more than once. A value that is not known is left out, never written as 0. Each
//! format escapes names from the machine, and removes control characters.

mod counts;
pub mod csv;
pub mod ipc;
pub mod perfetto;
pub mod pprof;
mod selection;
mod sums;
mod survey;

pub use selection::SelectedRows;
