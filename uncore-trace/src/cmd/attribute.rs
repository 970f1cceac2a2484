//! `uncore-trace attribute`: the timeline of a recording again, by another method.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::report::print;
use crate::{
    attribute::Choice,
    replay,
    tables::{reader::Recording, writer::Target},
    text::printable,
    units,
};

/// Divide the counts of a recording again
///
/// Makes the timeline again from the raw tables of a directory that `record -o DIR/` wrote, by
/// another method or by the same. Counters that were read at every switch stay exact.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  uncore-trace attribute run/ --method residency -o by-time.parquet")]
pub struct Args {
    /// The directory given to `record -o`
    #[arg(value_name = "DIR")]
    path: PathBuf,

    /// FILE.parquet to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// How counts are divided [default: as the recording was]
    #[arg(long, value_name = "METHOD")]
    method: Option<Choice>,

    /// Replace FILE if it exists
    #[arg(long)]
    force: bool,
}

/// Makes the file and says what it has.
pub fn run(args: &Args, _root: &Path) -> Result<u8> {
    let named = printable(&args.output.display().to_string()).into_owned();
    if args.output.extension().is_none_or(|extension| extension != "parquet") {
        bail!("cannot write {named}: name a file that ends with .parquet");
    }
    let recording = Recording::open(&args.path)?;
    let target = Target::File(args.output.clone());
    let finished = replay::attribute(&recording, args.method, target, args.force)?;
    let size = units::human(finished.bytes as f64, "bytes");
    print(&format!("{named}: {} rows, {size}\n", finished.rows))?;
    Ok(0)
}
