//! `uncore-trace report`: who used how much.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::tables::reader::Recording;
use crate::terminal::{self, cells, wrap};
use crate::text::printable;
use crate::view::incomplete::Incomplete;
use crate::view::programs;
use crate::view::render::{self, Style};
use crate::view::span::Moment;
use crate::view::usage::{By, Question, Usage, top, usage};

/// Show who used how much of each event
///
/// For each event: its total, and a line for each cgroup (or container, pod, process, PMU, port,
/// device, owner). A line has the value, from where to where the truth lies in nine cases of ten
/// (`90 % interval`), the average rate, the highest rate of a window, the share of the total, the
/// confidence (average and lowest), the method of the shares, the part of the time the counter ran, the
/// number of rows without a value, the time of the first and the last value, and the value over time:
/// the highest mark is the largest of the line, blank is 0, `?` is not known.
/// Interrupts, idle time and what belongs to no owner have lines of their own and are never hidden.
///
/// On a terminal the tables fit its width: long names are shortened in the middle, and columns without
/// room are left out, which the last line says. If the recording is incomplete, the first line says
/// what is missing.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(after_help = "\
Example: the five processes with the largest values, as JSON
  uncore-trace report run.parquet --by pid --top 5 --json

The time from 2 s to 3 s after the begin, as CSV, and one hour of a day:
  uncore-trace report run.parquet --from 2s --to 3s --csv
  uncore-trace report run.parquet --from 2026-01-31T12:00:00Z \\
    --to 2026-01-31T13:00:00Z

JSON: one object a line, with event, unit, by, key, owner, value, value_low and
value_high (the 90 % interval), rate_per_s, peak_per_s, share (0 to 1),
confidence_min, confidence_avg, methods, running (0 to 1), rows, missing_rows,
begin_ns, end_ns, active_begin_ns, active_end_ns (CLOCK_MONOTONIC),
heat_step_ns, heat (the value of each step), complete, incomplete. What is not
known is null, never 0. If complete is false, incomplete has killed, left_out,
end_ns and losses, each with cause, count and first_ns; else it is null.
CSV: the same without heat and incomplete; null is empty.
With both, standard error says what an incomplete recording lacks.")]
pub struct Args {
    /// The recording: a .parquet file or the directory of a dataset
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,
    /// What a line is
    #[arg(long, value_enum, default_value = "cgroup")]
    pub by: By,
    /// Only windows that end after this: a time after the begin of the recording (2s, 1m30s; a bare
    /// number is seconds), or a wall time (2026-01-31T12:00:00Z)
    #[arg(long, value_name = "TIME")]
    pub from: Option<Moment>,
    /// Only windows that end at this time or earlier
    #[arg(long, value_name = "TIME")]
    pub to: Option<Moment>,
    /// Count cgroups deeper than N below the root towards their ancestor of depth N
    #[arg(long, value_name = "N")]
    pub cgroup_depth: Option<usize>,
    /// Print JSON lines instead of tables
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print CSV instead of tables
    #[arg(long)]
    pub csv: bool,
    /// Draw with ASCII only
    #[arg(long)]
    pub ascii: bool,
    /// Show all columns and whole names, also on a terminal
    #[arg(long)]
    pub wide: bool,
    /// Show the N largest lines of tasks, and all others as one line
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
}

/// Prints the report; exit code 0.
pub fn run(args: &Args, _root: &Path) -> Result<u8> {
    let recording = Recording::open(&args.path)?;
    let Args { by, from, to, cgroup_depth, .. } = *args;
    let mut usage = usage(&recording, &Question { by, from, to, cgroup_depth })?;
    if let Some(count) = args.top {
        top(&mut usage.events, count);
    }
    let width = terminal::columns().filter(|_| !args.wide);
    let incomplete = Incomplete::of(&recording)?;
    let told = incomplete.as_ref().map(|incomplete| tell(incomplete, &usage, args, width));
    let text = if args.json {
        programs::json(&usage, incomplete.as_ref()).context("cannot write the report as JSON")?
    } else if args.csv {
        programs::csv(&usage, incomplete.as_ref())
    } else {
        let table = render::table(&usage, Style { ascii: args.ascii, width });
        told.iter().map(|line| format!("{line}\n")).chain([table]).collect()
    };
    // What programs read is not mixed with words for people.
    if let Some(line) = told.filter(|_| args.json || args.csv) {
        log::warn!("{line}");
    }
    print(&text)?;
    Ok(0)
}

/// What the recording lacks, and the command that says more: on a line of its own if one line is
/// too long for the terminal.
fn tell(incomplete: &Incomplete, usage: &Usage, args: &Args, width: Option<usize>) -> String {
    let what = printable(&incomplete.line(usage.start_ns)).into_owned();
    let more = format!("uncore-trace check {}", printable(&args.path.display().to_string()));
    let line = format!("{what}; see `{more}`");
    match width {
        Some(width) if !args.json && !args.csv && cells(&line) > width => {
            format!("{}\n  {more}", wrap(&what, width))
        }
        _ => line,
    }
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
