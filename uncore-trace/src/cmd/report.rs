//! `uncore-trace report`: who used how much.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::report::render;
use crate::report::usage::{By, top, usage};
use crate::tables::reader::Recording;

/// Say who used how much of each event
///
/// For each event: its total, and a line for each cgroup (or process, PMU, owner) with its value,
/// average rate, share of the total, confidence (average and lowest), the method the shares were
/// made by, how much of the time the counter was running, and how many rows have no value.
/// Interrupts, idle and what could not be attributed have lines of their own and are never hidden.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: the five processes that used most, as JSON
  uncore-trace report run.parquet --by pid --top 5 --json

JSON: one object a line, with event, unit, by, key, owner, value, rate_per_s, share (0 to 1),
confidence_min, confidence_avg, methods, running (0 to 1), rows, missing_rows, begin_ns, end_ns
(CLOCK_MONOTONIC). What is not known is null, never 0.")]
pub struct Args {
    /// The recording: a .parquet file or the directory of a dataset
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,
    /// What to make lines of
    #[arg(long, value_enum, default_value = "cgroup")]
    pub by: By,
    /// Print JSON lines instead of tables
    #[arg(long)]
    pub json: bool,
    /// Show the N largest lines of tasks and sum up the others in one line
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
}

/// Prints the report; exit code 0.
pub fn run(args: &Args, _root: &Path) -> Result<u8> {
    let recording = Recording::open(&args.path)?;
    let mut events = usage(&recording, args.by)?;
    if let Some(count) = args.top {
        top(&mut events, count);
    }
    let text = if args.json {
        render::json(&events, args.by).context("cannot write the report as JSON")?
    } else {
        render::table(&events, args.by)
    };
    print(&text)?;
    Ok(0)
}

/// Writes to stdout; a reader that left early (`| head`) is no error.
pub(super) fn print(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to stdout")
        }
        _ => Ok(()),
    }
}
