//! Runs `attribute` on every recording. `tests/lab/check.py` then compares the result with the
//! recorded `fabric`.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::step::Step;
use crate::{command, target};

/// The `fabric` that was computed again, in the directory of its step.
const FILE: &str = "attribute.parquet";

/// The error of `attribute`, if it failed.
const LOG: &str = "attribute.txt";

/// Runs `uncore-trace attribute` of this machine on the guest's recordings.
pub(super) fn replay_steps(results: &Path, steps: &[Step]) -> Result<()> {
    let program = target::debug_binary()?;
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
        if let Err(error) = command::run_quietly(Command::new(&program).args(args)) {
            let file = dir.join(LOG);
            fs::write(&file, format!("{error:#}"))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(())
}
