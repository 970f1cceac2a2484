//! The development tasks, run as `cargo xtask TASK`: one file each, dispatched here.
#![expect(clippy::print_stderr, reason = "errors go to standard error")]

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod apt;
mod bench;
mod bpf;
mod capture;
mod command;
mod dist;
mod engines;
mod fixture;
mod fleet;
mod fuzz;
mod import;
mod lab;
mod man;
mod oracle;
mod pictures;
mod readers;
mod samples;
mod setup;
mod soak;
mod target;
mod test;
mod venv;
mod verifier;

/// The project's own tasks
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct XtaskCli {
    #[command(subcommand)]
    task: XtaskTask,
}

#[derive(Debug, Subcommand)]
enum XtaskTask {
    /// Compile the BPF programs and replace the committed object
    Bpf {
        /// Change nothing, and fail if the committed object differs from the compiled sources
        #[arg(long)]
        check: bool,
    },
    /// Copy the files that a plan reads on this machine to a fixture
    Capture(capture::Args),
    /// Measure what recording costs
    #[command(subcommand)]
    Bench(bench::BenchTask),
    /// Build the static programs and packages of a release, and test them
    Dist(dist::Args),
    /// Compare the answers of Spark, `ClickHouse`, `DuckDB`, Polars and pandas about a recording,
    /// and the rows that old and new versions of readers read
    Engines,
    /// Compare the answers of `DuckDB`, `ClickHouse`, Polars and Spark about roll-ups of many hosts
    Fleet(fleet::Args),
    /// Run the fuzz targets
    Fuzz(fuzz::Args),
    /// Make the committed data of the catalog from publications of vendors
    #[command(subcommand)]
    Import(import::Import),
    /// Test with the real uncore drivers in emulated guests
    Lab(lab::Args),
    /// Make the manual pages from the help texts
    Man,
    /// Compare the opened events and computed metrics on captured machines with perf
    Oracle(oracle::Args),
    /// Make the fixture of a captured machine from a directory
    Pack(fixture::Pack),
    /// Make the pictures and the terminal screens in docs/
    Pictures(pictures::Args),
    /// Make the recordings in samples/
    Samples(samples::Args),
    /// Install the tools for building the BPF programs and running the tests
    Setup(setup::Args),
    /// Run the agent for a long time, and check that its memory and CPU time stay the same
    Soak(soak::Args),
    /// Compare the verifier's figures for the BPF programs with docs/verifier.md
    Verifier(verifier::Args),
    /// Run the tests that need nothing but this checkout
    Test(test::Args),
    /// Make a directory for `--root` from the fixture of a captured machine
    Unpack(fixture::Unpack),
}

fn main() -> ExitCode {
    match run(XtaskCli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(task: XtaskTask) -> Result<()> {
    match task {
        XtaskTask::Bpf { check } => bpf::run(check),
        XtaskTask::Capture(args) => capture::run(&args),
        XtaskTask::Bench(bench) => bench::run(&bench),
        XtaskTask::Dist(args) => dist::run(&args),
        XtaskTask::Engines => engines::run(),
        XtaskTask::Fleet(args) => fleet::run(&args),
        XtaskTask::Fuzz(args) => fuzz::run(&args),
        XtaskTask::Import(import) => import::run(&import),
        XtaskTask::Lab(args) => lab::run(&args),
        XtaskTask::Man => man::run(),
        XtaskTask::Oracle(args) => oracle::run(&args),
        XtaskTask::Pack(args) => fixture::pack_fixture(&args),
        XtaskTask::Pictures(args) => pictures::run(&args),
        XtaskTask::Samples(args) => samples::run(&args),
        XtaskTask::Setup(args) => setup::run(&args),
        XtaskTask::Soak(args) => soak::run(&args),
        XtaskTask::Test(args) => test::run(&args),
        XtaskTask::Unpack(args) => fixture::unpack_fixture(&args),
        XtaskTask::Verifier(args) => verifier::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use uncore_trace_ebpf::stamp::workspace_root;

    use super::*;

    #[test]
    fn tasks_that_are_named_exist() {
        let mut tried = 0;
        for file in [
            ".ci/run",
            ".github/workflows/ci.yml",
            ".github/workflows/release.yml",
            "CONTRIBUTING.md",
            "docs/install.md",
        ] {
            let text = fs::read_to_string(workspace_root().join(file)).unwrap();
            for (_, rest) in text.lines().filter_map(|line| line.split_once("cargo xtask ")) {
                let line = rest.split(['#', '`', ';', ')', '&']).next().unwrap_or_default();
                let words = line.split_whitespace().map(|word| word.trim_matches('"'));
                // Of a variable of the shell the task is what can be checked.
                let words = words.take_while(|word| !word.starts_with('$'));
                let parsed = XtaskCli::try_parse_from(["xtask"].into_iter().chain(words));
                parsed.unwrap_or_else(|error| panic!("{file}: {line}: {error}"));
                tried += 1;
            }
        }
        assert!(tried > 20, "{tried}");
    }
}
