//! What a measurement of `stat` is asked to do.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::control::ControlAddress;

/// When counting begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// With the command.
    None,
    /// This long after the command started.
    For(Duration),
    /// When a control command enables the counters.
    Off,
}

/// Options of a measurement.
#[derive(Clone, Debug)]
pub struct StatOptions {
    /// Length of an interval; `None`: one set of rows at the end.
    pub interval: Option<Duration>,
    /// End after this many intervals.
    pub interval_count: Option<u32>,
    /// After the intervals, print the rows of the whole time.
    pub summary: bool,
    /// End after this long.
    pub timeout: Option<Duration>,
    /// When counting begins.
    pub delay: Delay,
    /// Number of runs; 0: until a signal, and each is printed.
    pub repeat: u32,
    /// Whether the length of each run is printed.
    pub table: bool,
    /// Whether what is cached is written to disks before each run.
    pub sync: bool,
    /// Command of a shell before each run.
    pub pre: Option<String>,
    /// Command of a shell after each run.
    pub post: Option<String>,
    /// Where control commands come from.
    pub control: Option<ControlAddress>,
    /// The command to run; empty for none.
    pub command: Vec<OsString>,
    /// The output file, unless that is standard output.
    pub file: Option<PathBuf>,
}
