//! `uncore-trace cut`.

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::heading::{SPAN, WRITE};
use super::output::{self, ModeArg};
use super::print_written;
use crate::cut;
use crate::cut::WantedTime;
use crate::tables::lock::LockingCommand;
use crate::tables::output_path;
use crate::tables::writer::{CreateOptions, RecordingTarget};
use crate::text::printable_path;
use crate::view::span::{SpanEdge, TimePoint};

/// Copy a span of time to a new recording, or join the parts of a rotated recording
///
/// Copies the whole windows between two times to a new directory. If DIR was written by `record
/// --rotate`, its parts become one recording, which all commands can read. Shares are copied and
/// not computed again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uncore-trace cut run/ -o one/                 # the parts of record --rotate
  uncore-trace cut run/ --from 10s --to 15s -o five/
  uncore-trace cut run/ --from 'mark:epoch 1' --to 'mark:epoch 1' -o epoch/")]
pub struct Args {
    /// The directory given to `record -o`, or one of its parts
    #[arg(value_name = "DIR")]
    path: PathBuf,

    /// Directory to write; its name ends with /
    #[arg(short, long, value_name = "DIR", allow_hyphen_values = true,
          value_parser = output::path(), help_heading = WRITE)]
    output: PathBuf,

    /// Replace the recording in the directory, if there is one
    #[arg(long, help_heading = WRITE)]
    force: bool,

    #[command(flatten)]
    permissions: ModeArg,

    /// Only windows that end after this: a time after the start of the recording (2s, 1m30s; a bare
    /// number is seconds), a wall time (2026-01-31T12:00:00Z), or the first mark of a name
    /// (mark:NAME)
    #[arg(long, value_name = "TIME", help_heading = SPAN)]
    from: Option<TimePoint>,

    /// Only windows that begin before this; mark:NAME is the end of a span
    #[arg(long, value_name = "TIME", help_heading = SPAN)]
    to: Option<TimePoint>,
}

/// Writes the recording and prints a summary.
pub fn run(args: &Args) -> Result<u8> {
    let RecordingTarget::Dataset(target) = output_path::parse_target(&args.output)? else {
        let path = printable_path(&args.output);
        bail!("cannot write {path}: name a directory, as in -o cut/");
    };
    let recordings = cut::open_parts(&args.path)?;
    output_path::require_outside_series(&args.path, &target)?;
    let find_moment = |moment: &Option<TimePoint>, edge| {
        moment.as_ref().map(|moment| moment.resolve_across(&recordings, edge)).transpose()
    };
    let wanted = WantedTime {
        from_ns: find_moment(&args.from, SpanEdge::Begin)?,
        to_ns: find_moment(&args.to, SpanEdge::End)?,
    };
    if let (Some(begin), Some(end)) = (wanted.from_ns, wanted.to_ns)
        && begin >= end
    {
        bail!("--to is not after --from: choose a later time for --to");
    }
    let create = CreateOptions {
        overwrite: args.force,
        mode: args.permissions.mode,
        command: LockingCommand::Cut,
    };
    let finished = cut::cut_recordings(&recordings, wanted, &target, create)?;
    print_written(&args.output, finished)?;
    Ok(0)
}
