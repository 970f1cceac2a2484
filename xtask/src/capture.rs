//! `cargo xtask capture`: copies what discovery and planning read of a machine, for a fixture or for
//! somebody else to look at.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::path::PathBuf;

use anyhow::Result;
use uncore_trace_lab::capture::capture;

/// Options of `cargo xtask capture`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory to make, e.g. tests/fixtures/machines/NAME
    to: PathBuf,
    /// Read the machine's files under this directory
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    root: PathBuf,
}

/// Copies and says what to do with it.
pub fn run(args: &Args) -> Result<()> {
    let pmus = capture(&args.root, &args.to)?;
    let to = args.to.display();
    println!("capture: {pmus} PMUs in {to}; look at it with `uncore-trace --root {to} list`");
    Ok(())
}
