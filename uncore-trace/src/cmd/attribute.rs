//! `uncore-trace attribute`: computes the table `fabric` of a recording again, with another method
//! or other windows.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;

use super::heading::{DIVIDE, WRITE};
use super::output::{self, ModeArg};
use super::print_written;
use super::record::{check_lag, millis, seconds};
use super::select::to_nanos;
use super::witness::percent;
use crate::attribute::Effort;
use crate::choice::MethodChoice;
use crate::replay::{self, Overrides};
use crate::schema::row_limit::RowLimit;
use crate::tables::lock::LockingCommand;
use crate::tables::reader::Recording;
use crate::tables::writer::{CreateOptions, RecordingTarget};
use crate::text::printable_path;

/// Divide the counts of a recording again
///
/// Makes the table `fabric` again from the raw tables of a directory that `record -o DIR/` wrote.
/// The method and the length of the windows may differ from those of the recording. Counters that
/// were read at every context switch stay exact.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uncore-trace attribute run/ --method residency -o by-time.parquet
  uncore-trace attribute run/ --interval 1s -o by-second.parquet")]
pub struct Args {
    /// The directory given to `record -o`
    #[arg(value_name = "DIR")]
    path: PathBuf,

    /// FILE.parquet to write
    #[arg(short, long, value_name = "FILE", allow_hyphen_values = true,
          value_parser = output::path(), help_heading = WRITE)]
    output: PathBuf,

    /// Replace FILE if it exists; in DIR only fabric.parquet can be replaced
    #[arg(long, help_heading = WRITE)]
    force: bool,

    #[command(flatten)]
    permissions: ModeArg,

    /// How to divide the counts [default: the method of the recording]
    #[arg(long, value_name = "METHOD", help_heading = DIVIDE)]
    method: Option<MethodChoice>,

    /// Length of a window: a whole number of the recording's ticks [default: as recorded]
    #[arg(short = 'I', long, value_name = "TIME", value_parser = millis, help_heading = DIVIDE)]
    interval: Option<Duration>,

    /// How much time after a window a method that learns uses to divide that window; a bare number
    /// is seconds [default: as in the recording]
    #[arg(long, value_name = "TIME", value_parser = seconds, help_heading = DIVIDE)]
    lag: Option<Duration>,

    /// Merge processes whose share is below this percentage of the window's total; 0 merges nothing
    /// [default: as in the recording]
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = DIVIDE)]
    min_share: Option<f64>,

    /// Rows in a second at most, or `all` [default: as in the recording]
    #[arg(long, value_name = "N", help_heading = DIVIDE)]
    rows: Option<RowLimit>,

    /// How thoroughly a method that learns computes its rates
    #[arg(long, value_name = "EFFORT", default_value = "live", help_heading = DIVIDE)]
    effort: Effort,
}

/// Writes the file and prints a summary.
pub fn run(args: &Args) -> anyhow::Result<u8> {
    if args.output.extension().is_none_or(|extension| extension != "parquet") {
        let path = printable_path(&args.output);
        bail!("cannot write {path}: name a file that ends with .parquet");
    }
    let recording = Recording::open(&args.path)?;
    let target = RecordingTarget::File(args.output.clone());
    args.lag.map_or(Ok(()), check_lag)?;
    let overrides = Overrides {
        method: args.method,
        interval_ns: args.interval.map(to_nanos),
        lag_ns: args.lag.map(to_nanos),
        effort: args.effort,
        min_share: args.min_share.map(|percent| percent / 100.0),
        rows: args.rows,
    };
    let create = CreateOptions {
        overwrite: args.force,
        mode: args.permissions.mode,
        command: LockingCommand::Attribute,
    };
    let finished = replay::attribute(&recording, overrides, target, create)?;
    print_written(&args.output, finished)?;
    Ok(0)
}
