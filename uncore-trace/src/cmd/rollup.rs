//! `uncore-trace rollup`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::heading::{TIME, WRITE};
use super::output::{ModeArg, print};
use super::record::seconds;
use super::select::to_nanos;
use crate::config;
use crate::schema::{TableDef, fabric, metadata, rollup, sums};
use crate::tables::hours::Hours;
use crate::tables::reader::{OpenTable, Recording};
use crate::tables::writer::RecordingSize;
use crate::text::{count_noun, printable_path};
use crate::units;
use crate::view::rollup::{RollupForm, RollupSummer, WallTimeSource};
use crate::view::summed_time::SummedTime;

/// Sum recordings in longer windows, as files for many hosts
///
/// Writes Parquet files with each owner's share of each counter, in windows of a second or longer,
/// without processes: `DIR/cluster=C/date=D/hour=H/host=NAME/BOOT_SECOND.parquet`.
/// `uncore-trace agent` makes the same files while it records. The shares of a window still sum to
/// the count; each has its 90 % interval.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uncore-trace rollup run.parquet -o rollups/
  uncore-trace rollup run/0000* -o rollups/ --window 1s --cluster lab")]
pub struct Args {
    /// Recordings that `record -o` wrote: files, directories, or the parts of a rotated recording
    /// in their order
    #[arg(value_name = "RECORDING", required = true)]
    paths: Vec<PathBuf>,

    /// Directory for the files
    #[arg(short, long, value_name = "DIR", help_heading = WRITE)]
    output: PathBuf,

    /// Length of a window: a whole number of windows of the recording; a bare number is seconds
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = seconds,
          help_heading = TIME)]
    window: Duration,

    /// How many cgroups have a row of their own for each counter and window; the others share one
    /// row
    #[arg(long, value_name = "COUNT", default_value_t = 100, help_heading = WRITE)]
    owners: usize,

    /// Cluster of the host [default: as recorded, or `default`]
    #[arg(long, value_name = "NAME", value_parser = config::cluster, help_heading = WRITE)]
    cluster: Option<String>,

    #[command(flatten)]
    permissions: ModeArg,
}

/// Writes the files and prints a summary.
pub fn run(args: &Args) -> Result<u8> {
    ensure!(
        (config::SHORTEST_WINDOW..=config::LONGEST_WINDOW).contains(&args.window),
        "--window {} is out of range: choose 1s to 5min",
        humantime::format_duration(args.window)
    );
    ensure!(args.owners > 0, "--owners 0 leaves no cgroup a row of its own: choose at least 1");
    let (mut written, mut total) = (BTreeSet::new(), RecordingSize::default());
    for path in &args.paths {
        for (file, finished) in sum_recording(args, &Recording::open(path)?, &written)? {
            written.insert(file);
            total += finished;
        }
    }
    let named = printable_path(&args.output);
    let size = units::human(total.bytes as f64, "bytes");
    print(&format!(
        "{named}: {}, {} rows, {size}\n",
        count_noun(written.len(), "file"),
        total.rows
    ))?;
    Ok(0)
}

/// The ends of all windows.
const ALL_TIMES: RangeInclusive<i64> = i64::MIN..=i64::MAX;

/// Sums one recording. Returns the files that it writes. Two recordings may have parts of one
/// window, so earlier files are kept.
fn sum_recording(
    args: &Args,
    recording: &Recording,
    earlier_files: &BTreeSet<PathBuf>,
) -> Result<Vec<(PathBuf, RecordingSize)>> {
    let table = recording.open_table(&fabric::TABLE)?;
    let mut pairs = table.metadata_pairs().clone();
    let window_ns = to_nanos(args.window);
    let recorded_ns = pairs.get(metadata::INTERVAL_NS).and_then(|text| text.parse::<u64>().ok());
    ensure!(
        recorded_ns.is_none_or(|length| length > 0 && window_ns.is_multiple_of(length)),
        "--window {} is not a multiple of the windows of {}: choose another",
        humantime::format_duration(args.window),
        recording.recording_path().display()
    );
    if let Some(cluster) = &args.cluster {
        pairs.insert(metadata::CLUSTER.to_owned(), cluster.clone());
    }
    let form = RollupForm { window_ns: window_ns as i64, owners: args.owners, slack_ns: 0 };
    let mut summer = RollupSummer::new(form);
    summer.read_metadata(&pairs)?;
    let hours = Hours::open(&args.output, args.permissions.mode, rollup::file_metadata(&pairs))?;
    let mut hours = hours.allow_existing(earlier_files.clone());
    let mut written: Vec<(PathBuf, RecordingSize)> = Vec::new();
    let mut sum_rows = |table: &OpenTable, def: &TableDef, ends: RangeInclusive<i64>| {
        for batch in table.scan_within(&def.column_names(), "mono_ns", ends.clone())? {
            summer.add_rows(0, &batch?, &ends)?;
            while let Some(rows) = summer.close_complete_window(WallTimeSource::Recorded) {
                written.extend(hours.write(rows.end, &rows.batch)?);
            }
        }
        anyhow::Ok(())
    };
    match SummedTime::find_seconds(recording, &ALL_TIMES)? {
        Some(SummedTime { table: seconds, ends }) => {
            let (begin, end) = (*ends.start(), *ends.end());
            sum_rows(&table, &fabric::TABLE, i64::MIN..=begin.saturating_sub(1))?;
            sum_rows(&seconds, &sums::TABLE, ends)?;
            sum_rows(&table, &fabric::TABLE, end.saturating_add(1)..=i64::MAX)?;
        }
        None => sum_rows(&table, &fabric::TABLE, ALL_TIMES)?,
    }
    while let Some(rows) = summer.close_oldest_window(WallTimeSource::Recorded) {
        written.extend(hours.write(rows.end, &rows.batch)?);
    }
    written.extend(hours.finish_hour()?);
    Ok(written)
}
