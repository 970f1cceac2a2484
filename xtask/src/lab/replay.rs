//! Makes the timeline of every recording again, from its raw tables. `tests/lab/check.py` then holds
//! it against the recorded one: no recording is left out.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::step::Step;
use crate::{command, target};

/// The timeline that was made again, in the directory of its step.
const FILE: &str = "attribute.parquet";

/// What became of it, in words, where it failed.
const LOG: &str = "attribute.txt";

/// Runs `uncore-trace attribute` of this machine on what the guest recorded.
pub(super) fn all(results: &Path, steps: &[Step]) -> Result<()> {
    let program = target::debug()?;
    for step in steps {
        let dir = results.join(&step.name);
        let run = dir.join("run");
        if !run.join("runtime.parquet").exists() {
            continue;
        }
        let args: [&OsStr; 5] = [
            "attribute".as_ref(),
            run.as_ref(),
            "-o".as_ref(),
            &dir.join(FILE).into_os_string(),
            "--force".as_ref(),
        ];
        if let Err(error) = command::quietly(Command::new(&program).args(args)) {
            let file = dir.join(LOG);
            fs::write(&file, format!("{error:#}"))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(())
}
