//! `uncore-trace`: parse, run the subcommand, turn its result into an exit code.
#![expect(clippy::print_stderr, reason = "errors go to standard error")]

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use uncore_trace::{cmd, text::printable};

/// Which tenant used the fabric, when, how much, and how sure are we
///
/// Reads uncore perf counters (memory fabric, PCIe, chip-to-chip links, mesh) from BPF on their
/// owner CPUs, and gives them to the processes and cgroups that ran.
#[derive(Debug, Parser)]
#[command(name = "uncore-trace", version, arg_required_else_help = true)]
struct Cli {
    /// Read the machine's files under DIR instead of /
    #[arg(long, global = true, value_name = "DIR", default_value = "/", hide_default_value = true)]
    root: PathBuf,

    #[command(subcommand)]
    command: cmd::Command,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    cmd::log::install();
    match cli.command.run(&cli.root) {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // One line whatever the machine put into it.
            eprintln!("uncore-trace: {}", printable(&format!("{error:#}")));
            ExitCode::from(2)
        }
    }
}

/// Whoever read our output has gone, e.g. `head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
