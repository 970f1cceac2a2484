//! What reads a log while it is written.

use std::fmt::Debug;

use super::{Disorder, Entry};
use crate::schema::fabric;

/// Rows of `fabric` after which a consumer waits to be asked for more: a window of many counters and
/// processes has hundreds of thousands, which are not held in memory together.
pub const ROWS_AT_ONCE: usize = 32_768;

/// Takes the entries of a log, one by one and in their order, and makes rows of `fabric`.
pub trait Consumer: Debug {
    /// Takes an entry. Rows that are still to be made ([`Consumer::more`]) are made first, whatever their
    /// number.
    ///
    /// # Errors
    ///
    /// The entry breaks the order of the log. It is left out.
    fn take(&mut self, entry: Entry<'_>, fabric: &mut fabric::Builder) -> Result<(), Disorder>;

    /// Makes rows that are still to be made, until `fabric` has [`ROWS_AT_ONCE`]; `true` if none is left.
    fn more(&mut self, fabric: &mut fabric::Builder) -> bool;

    /// Makes the rows of the windows that have ended and wait for what comes after them: nothing more comes.
    fn finish(&mut self, fabric: &mut fabric::Builder);

    /// Whether rows of a window wait for what comes after it.
    fn waits(&self) -> bool;

    /// Whether the use of CPUs must be logged by tick and not by window.
    fn needs_ticks(&self) -> bool;

    /// Whether all readings of `tick` must be logged before it ends.
    fn needs_readings(&self, tick: u64) -> bool;

    /// The first tick that has not ended.
    fn open_tick(&self) -> u64;

    /// The counts that windows lack, since they were last taken.
    fn take_missing(&mut self) -> Vec<Missing>;
}

/// Why a window lacks a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// There was no reading at its end: the next window that has one covers both.
    NoBoundary,
    /// The kernel refused the reading with this errno.
    ReadFailed(i32),
    /// The recording ended, and no CPU could read the counter any longer.
    NoReader,
    /// The counter was enabled but never ran.
    NotScheduled,
}

/// A count that a window lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Why.
    pub lack: Lack,
    /// Which counter.
    pub counter: u32,
    /// The CPU on which the plan reads it.
    pub cpu: u32,
    /// End of the window, ns.
    pub time: u64,
    /// Length of what it covers, ns.
    pub span_ns: u64,
}
