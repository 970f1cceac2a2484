//! The reader of a log that is being written.

use std::fmt::Debug;
use std::sync::Arc;

use super::{Disorder, LogEntry, Relief};
use crate::schema::Builders;

/// Number of rows of a table after which a consumer waits to be asked for more. A window of many
/// counters and processes has hundreds of thousands of rows, which must not be in memory together.
pub const ROWS_AT_ONCE: usize = 32_768;

/// Takes the entries of a log in order, and makes rows of `fabric` and `sums`.
pub trait EntryConsumer: Debug {
    /// Takes an entry. Pending rows ([`EntryConsumer::make_rows`]) are made first, however many there
    /// are.
    ///
    /// # Errors
    ///
    /// The entry breaks the order of the log. It is ignored.
    fn take_entry(&mut self, entry: LogEntry<'_>, rows: &mut Builders) -> Result<(), Disorder>;

    /// Makes pending rows until a table has [`ROWS_AT_ONCE`]; `true` if none is left.
    fn make_rows(&mut self, rows: &mut Builders) -> bool;

    /// Makes the rows of all windows that have ended, without waiting for later ticks: the log is
    /// complete.
    fn finish_windows(&mut self, rows: &mut Builders);

    /// Whether windows wait for later ticks.
    fn has_waiting_windows(&self) -> bool;

    /// Whether the use of CPUs must be logged per tick, not per window.
    fn needs_ticks(&self) -> bool;

    /// Whether the context switches of CPUs must be logged.
    fn needs_switches(&self) -> bool;

    /// Whether all readings of `tick` must be logged before it ends.
    fn needs_readings(&self, tick: u64) -> bool;

    /// The first tick that has not ended.
    fn open_tick(&self) -> u64;

    /// The missing counts of windows since the last call.
    fn take_missing(&mut self) -> Vec<MissingCount>;

    /// What the counts say against the model by which they are divided, in plain words, one line
    /// each.
    fn misfits(&self) -> Vec<String> {
        Vec::new()
    }

    /// Number of windows so far in which only the owners with the largest shares have rows.
    fn limited_windows(&self) -> u64 {
        0
    }

    /// The steps of [`Relief`] that leave out something, least first.
    fn relief_steps(&self) -> Vec<Relief> {
        Vec::new()
    }

    /// Sets what is left out from now on, because a live recording cannot keep up.
    fn set_relief(&mut self, _relief: Relief) {}

    /// Paths of the cgroups that were credited the most bytes of memory lately, the largest first;
    /// then those without any, by CPU time. What is credited is summed from the first call on.
    fn largest_cgroups(&mut self) -> Vec<Arc<str>> {
        Vec::new()
    }
}

/// Why a window has no count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingReason {
    /// There was no reading at its end. The next window with one covers both.
    NoBoundary,
    /// The read failed with this errno.
    ReadFailed(i32),
    /// The recording ended, and no CPU could read the counter.
    NoReader,
    /// The counter was enabled but never ran.
    NotScheduled,
}

/// A missing count of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingCount {
    /// The reason.
    pub reason: MissingReason,
    /// The counter.
    pub counter: u32,
    /// The CPU on which the plan reads it.
    pub cpu: u32,
    /// End of the window, ns.
    pub time: u64,
    /// Length of the time without a count, ns.
    pub span_ns: u64,
}
