//! `cargo xtask capture`: copies the files of a machine that discovery and planning read into one
//! text file, as a fixture or for inspection.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::path::PathBuf;

use anyhow::Result;
use uncore_trace_lab::capture::capture_machine;

use crate::fixture;

/// Options of `cargo xtask capture`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File to make, such as tests/fixtures/machines/NAME.toml
    file: PathBuf,
    /// Read the machine's files under this directory
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    root: PathBuf,
}

/// Copies the files, and prints what to do with the result.
pub(crate) fn run(args: &Args) -> Result<()> {
    let (tree, pmus) = capture_machine(&args.root)?;
    fixture::write_new(&tree, &args.file)?;
    let file = args.file.display();
    println!(
        "capture: {pmus} PMUs in {file}; look at it with `cargo xtask unpack {file} DIR` and \
         `uncore-trace list --root DIR`"
    );
    Ok(())
}
