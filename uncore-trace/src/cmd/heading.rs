//! The headings of the help: options are grouped by what they are for, under the same words in every
//! subcommand.

/// Which counters.
pub(super) const COUNT: &str = "What to count";
/// The files that are written.
pub(super) const WRITE: &str = "Where to write";
/// The file that says all this.
pub(super) const FILE: &str = "Which configuration";
/// Begin and end.
pub(super) const TIME: &str = "How long";
/// Which owners are told apart.
pub(super) const OWNER: &str = "For whom";
/// Windows and methods.
pub(super) const DIVIDE: &str = "How to divide";
/// What is exact for more overhead.
pub(super) const COST: &str = "Cost and accuracy";
/// Which counts are one line.
pub(super) const LINE: &str = "What a line is";
/// Which windows.
pub(super) const SPAN: &str = "Which time";
/// Which machines of many.
pub(super) const HOST: &str = "Which hosts";
/// The formats of other programs.
pub(super) const FORMAT: &str = "What to write";
/// An instant or a span, and of whom.
pub(super) const MARK: &str = "What to mark";
/// Loads that are made.
pub(super) const MEASURE: &str = "How to measure";
/// The form of the output.
pub(super) const PRINT: &str = "What to print";
/// Exit codes for scripts.
pub(super) const FAIL: &str = "When to fail";
/// What every subcommand has; comes last.
pub(super) const OTHER: &str = "Other options";
