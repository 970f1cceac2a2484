//! `uncore-trace repair`: makes a readable file from what a killed recorder left.

use std::path::{Path, PathBuf};

use anyhow::Result;

mod thaw;

use super::output::print;
use super::print_written;
use crate::record::{canary, monitors};
use crate::tables::names::parts_of;
use crate::tables::repair::{Repaired, repair_path};
use crate::text::{printable, printable_path};

/// Finish the files of a recorder that was killed
///
/// A recorder keeps its data in FILE.partial/ until it ends. If it was killed, `repair` puts
/// everything up to the last flush into FILE (or into the tables of DIR) and marks it as
/// incomplete. A finished recording is not changed, and one that is being written is refused. FILE
/// has the permissions of FILE.partial/. If the recording was rotated, all parts in DIR are
/// repaired. Also removes empty cgroups of killed canaries and monitoring groups of killed
/// recorders from this machine, and thaws cgroups that an older version left frozen.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uncore-trace repair run.parquet
  uncore-trace repair run/")]
pub struct Args {
    /// The file or directory given to `record -o`, or the .partial directory itself
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,
}

/// Repairs, and prints what was done. Exit code 0, or 1 if segments had to be left out.
pub fn run(args: &Args) -> Result<u8> {
    for (action, paths) in [
        ("removed the cgroup of a canary", canary::remove_left_cgroups()),
        ("thawed", thaw::thaw_noted_in(Path::new("/run"))),
        ("removed the monitoring group", monitors::remove_left_groups()),
    ] {
        for path in paths {
            print(&format!("{action}: {}\n", printable_path(&path)))?;
        }
    }
    let part_paths = parts_of(&args.path);
    if part_paths.is_empty() {
        return repair_recording(&args.path);
    }
    part_paths.iter().try_fold(0, |code, part_path| Ok(code.max(repair_recording(part_path)?)))
}

/// Repairs one recording, or one part of a rotated one.
fn repair_recording(path: &Path) -> Result<u8> {
    match repair_path(path)? {
        Repaired::Good => {
            let path = printable_path(path);
            print(&format!("{path} is a finished recording: it was not changed\n"))?;
            Ok(0)
        }
        Repaired::Done { path, finished, unreadable } => {
            for reason in &unreadable {
                print(&format!("left out: {}\n", printable(reason)))?;
            }
            print_written(&path, finished)?;
            Ok(u8::from(!unreadable.is_empty()))
        }
    }
}
