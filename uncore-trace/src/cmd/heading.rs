//! Headings of the help. Options are grouped by purpose, under the same headings in every
//! subcommand.

/// Counters.
pub(super) const COUNT: &str = "What to count";
/// Output files.
pub(super) const WRITE: &str = "Where to write";
/// The agent's configuration file.
pub(super) const FILE: &str = "Which configuration";
/// Begin and end of the measurement.
pub(super) const TIME: &str = "How long";
/// Which owners have rows of their own.
pub(super) const OWNER: &str = "For whom";
/// Windows and methods.
pub(super) const DIVIDE: &str = "How to divide";
/// Options that trade overhead for accuracy.
pub(super) const COST: &str = "Cost and accuracy";
/// How counts are grouped in lines.
pub(super) const LINE: &str = "What a line is";
/// The selected windows.
pub(super) const SPAN: &str = "Which time";
/// The selected hosts of a roll-up.
pub(super) const HOST: &str = "Which hosts";
/// Export formats.
pub(super) const FORMAT: &str = "What to write";
/// The mark and its recorder.
pub(super) const MARK: &str = "What to mark";
/// The load of `calibrate`.
pub(super) const MEASURE: &str = "How to measure";
/// Form of the output.
pub(super) const PRINT: &str = "What to print";
/// Exit codes for scripts.
pub(super) const FAIL: &str = "When to fail";
/// Options of every subcommand; comes last.
pub const OTHER: &str = "Other options";
