//! The subcommands, one file each: `Args` is what was typed, `run` runs the stages for it and
//! returns the exit code. Adding one adds a file, its `mod` line and its line in [`Command`]'s list.

pub mod after;
pub mod attribute;
pub mod catalog;
pub mod check;
pub mod completions;
pub mod doctor;
pub mod list;
pub mod log;
mod output;
pub mod record;
pub mod repair;
pub mod report;
pub mod select;
pub mod stat;
mod witness;

use std::path::PathBuf;

/// Which tenant used the fabric, when, how much, and how sure are we
///
/// Reads uncore perf counters (memory fabric, PCIe, chip-to-chip links, mesh) with BPF on their
/// reader CPUs, and divides the counts among the processes and cgroups that ran.
#[derive(Debug, clap::Parser)]
#[command(name = "uncore-trace", version, arg_required_else_help = true)]
pub struct Cli {
    /// Read the machine's files under DIR instead of /
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        default_value = "/",
        hide_default_value = true,
        display_order = 1000
    )]
    pub root: PathBuf,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

macro_rules! commands {
    ($($module:ident: $name:ident,)*) => {
        /// What was asked for.
        #[derive(Debug, clap::Subcommand)]
        pub enum Command {
            $(
                #[expect(missing_docs, reason = "clap takes the help text from the arguments' own doc")]
                $name(Box<$module::Args>),
            )*
        }

        impl Command {
            /// Runs it on the machine whose files are under `root`; returns the exit code.
            pub fn run(&self, root: &std::path::Path) -> anyhow::Result<u8> {
                match self {
                    $(Self::$name(args) => $module::run(args, root),)*
                }
            }
        }
    };
}

commands! {
    record: Record,
    stat: Stat,
    report: Report,
    check: Check,
    attribute: Attribute,
    repair: Repair,
    list: List,
    doctor: Doctor,
    completions: Completions,
}

#[cfg(test)]
mod manual;

#[cfg(test)]
mod tests {
    use clap::Subcommand as _;

    use super::*;
    use crate::terminal::cells;

    /// clap wraps a longer line wherever it has to: an example could not be copied.
    #[test]
    fn examples_and_notes_of_the_help_fit_80_columns() {
        let whole = Command::augment_subcommands(clap::Command::new("uncore-trace"));
        for command in whole.get_subcommands() {
            let shown = command.clone().term_width(80).render_long_help().to_string();
            let after = command.get_after_long_help().or(command.get_after_help());
            let after = after.map(ToString::to_string).unwrap_or_default();
            for line in after.lines() {
                assert!(cells(line) <= 80, "{}: {line}", command.get_name());
                assert!(shown.lines().any(|other| other == line), "{line}\n{shown}");
            }
        }
    }
}
