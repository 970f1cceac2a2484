//! The subcommands, one file each: `Args` are the options, and `run` runs the stages and returns
//! the exit code. To add a subcommand, add a file, its `mod` line and its line in [`Command`]'s
//! list.

pub mod agent;
pub mod attribute;
pub mod calibrate;
pub mod catalog;
pub mod check;
pub mod command_end;
pub mod completions;
pub mod cut;
pub mod diff;
pub mod doctor;
pub mod export;
mod host;
pub mod list;
pub mod mark;
mod page;
pub mod perf_options;
pub mod record;
pub mod repair;
pub mod report;
pub mod rollup;
mod root;
pub mod select;
pub mod stat;
pub mod top;
mod trust;
pub mod upload;
mod values;
mod witness;

use std::path::Path;

use anyhow::Result;
use clap::ArgAction;

use self::heading::OTHER;
use crate::cli::{heading, output};
use crate::discover::{self, Machine};
use crate::plan::Plan;
use crate::tables::writer::RecordingSize;
use crate::text::printable_path;
use crate::units;

/// Show which tenant used the fabric, when, how much, and how sure that is
///
/// Reads uncore perf counters (memory, PCIe, chip-to-chip links, mesh) with BPF, and divides the
/// counts among the processes and cgroups that ran at that time.
#[derive(Debug, clap::Parser)]
#[command(name = "uncore-trace", version, arg_required_else_help = true, disable_help_flag = true,
          disable_version_flag = true, after_help = BEGIN)]
pub struct Cli {
    /// Print this help; -h is the short form
    #[arg(short, long, global = true, action = ArgAction::Help, help_heading = OTHER)]
    help: Option<bool>,

    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version, help_heading = OTHER)]
    version: Option<bool>,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The first steps of a new user, below the list of commands.
const BEGIN: &str = "\
First steps, as root:
  uncore-trace doctor                     # what this machine lacks, and the fix
  uncore-trace list                       # what can be counted here
  uncore-trace record -o run.parquet -- ./train.sh
  uncore-trace report run.parquet         # who used how much, and how sure

`uncore-trace COMMAND --help` shows the options of a command, and examples.";

macro_rules! commands {
    ($($module:ident: $name:ident,)*) => {
        /// The subcommand.
        #[derive(Debug, clap::Subcommand)]
        pub enum Command {
            $(
                #[expect(missing_docs, reason = "clap takes the help text from the arguments' own doc")]
                $name(Box<$module::Args>),
            )*
        }

        impl Command {
            /// Runs it; returns the exit code.
            pub fn run(&self) -> Result<u8> {
                match self {
                    $(Self::$name(args) => $module::run(args),)*
                }
            }
        }
    };
}

// In the order of use, which is also that of the help.
commands! {
    doctor: Doctor,
    list: List,
    record: Record,
    top: Top,
    report: Report,
    export: Export,
    stat: Stat,
    diff: Diff,
    check: Check,
    attribute: Attribute,
    cut: Cut,
    mark: Mark,
    rollup: Rollup,
    repair: Repair,
    calibrate: Calibrate,
    agent: Agent,
    upload: Upload,
    completions: Completions,
}

/// The machine under `root`. Problems of its files are warnings.
fn discover_machine(root: &Path) -> Result<Machine> {
    let machine = discover::machine(root)?;
    for problem in &machine.problems {
        log::warn!("{problem}");
    }
    Ok(machine)
}

/// Prints the path and the size of a recording that was written.
fn print_written(path: &Path, written: RecordingSize) -> Result<()> {
    let size = units::human(written.bytes as f64, "bytes");
    output::print(&format!("{}: {} rows, {size}\n", printable_path(path), written.rows))
}

/// Prints what a plan leaves out as warnings, and its notes at level `info`.
fn log_plan_notices(plan: &Plan) {
    for warning in &plan.warnings {
        log::warn!("{warning}");
    }
    for note in &plan.notes {
        log::info!("{note}");
    }
}

#[cfg(test)]
mod manual;

#[cfg(test)]
mod tests;
