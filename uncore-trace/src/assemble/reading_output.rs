//! Where readings of counters go.

use crate::drain::TaskIdentity;
use crate::entries::CounterReading;

/// The destination of entries.
pub(super) trait ReadingOutput {
    /// The first tick that has not ended.
    fn open_tick(&self) -> u64;
    /// Logs the readings of one sample. Those that have an owner have the same one.
    fn log_readings(&mut self, readings: &[CounterReading], row: &ReadingColumns<'_>);
}

/// Columns of `readings` that the entry does not have.
#[derive(Debug, Default)]
pub(super) struct ReadingColumns<'a> {
    /// Name of what triggered the reading.
    pub trigger: &'static str,
    /// Duration of the sample, ns.
    pub width_ns: u64,
    /// The task that was on the CPU.
    pub task: Option<&'a TaskIdentity>,
}
