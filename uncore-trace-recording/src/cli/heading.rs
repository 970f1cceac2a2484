//! Headings of the help. Options are grouped by purpose, under the same headings in every
//! subcommand.

/// Counters.
pub const COUNT: &str = "What to count";
/// Output files.
pub const WRITE: &str = "Where to write";
/// The agent's configuration file.
pub const FILE: &str = "Which configuration";
/// Begin and end of the measurement.
pub const TIME: &str = "How long";
/// Which owners have rows of their own.
pub const OWNER: &str = "For whom";
/// Windows and methods.
pub const DIVIDE: &str = "How to divide";
/// Options that trade overhead for accuracy.
pub const COST: &str = "Cost and accuracy";
/// How counts are grouped in lines.
pub const LINE: &str = "What a line is";
/// The selected windows.
pub const SPAN: &str = "Which time";
/// The selected hosts of a roll-up.
pub const HOST: &str = "Which hosts";
/// Export formats.
pub const FORMAT: &str = "What to write";
/// The mark and its recorder.
pub const MARK: &str = "What to mark";
/// The load of `calibrate`.
pub const MEASURE: &str = "How to measure";
/// Form of the output.
pub const PRINT: &str = "What to print";
/// Exit codes for scripts.
pub const FAIL: &str = "When to fail";
/// Options of every subcommand; comes last.
pub const OTHER: &str = "Other options";
