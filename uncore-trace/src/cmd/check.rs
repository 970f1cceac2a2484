//! `uncore-trace check`: do the invariants hold on this recording?

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::tables::reader::Recording;
use crate::text::printable;
use crate::view::check::{Outcome, check};

use super::report::print;

/// Verify that a recording is intact and that its values add up
///
/// Prints a line for each invariant: `ok`, `FAILED` with the first row that breaks it, or `not
/// verifiable here` with the reason (a single file has no raw tables to compare with). The first two
/// lines say whether all tables of the recording exist, and whether their bytes are what was written.
/// Exit code: 0 if none failed, 1 if one failed, 2 if the recording cannot be read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  uncore-trace check run.parquet && echo trustworthy")]
pub struct Args {
    /// The recording: a .parquet file or the directory of a dataset
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,
}

/// Prints the findings; 0 or 1. An error means the recording cannot be read: exit code 2.
pub fn run(args: &Args, _root: &Path) -> Result<u8> {
    let recording = Recording::open(&args.path)?;
    let findings = check(&recording)?;
    let mut text = String::new();
    for finding in &findings {
        let (word, detail) = match &finding.outcome {
            Outcome::Ok(detail) => ("ok", detail),
            Outcome::Failed(detail) => ("FAILED", detail),
            Outcome::NotHere(detail) => ("not verifiable here", detail),
        };
        // Writing to a String cannot fail.
        writeln!(text, "{:<24} {word}: {}", finding.name, printable(detail)).unwrap_or_default();
    }
    print(&text)?;
    Ok(u8::from(findings.iter().any(|finding| matches!(finding.outcome, Outcome::Failed(_)))))
}
