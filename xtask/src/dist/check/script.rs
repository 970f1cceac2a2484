//! Tests of `install.sh` and of the archive for this machine, below a directory of their own.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::super::PROGRAMS;
use super::super::archive::INSTALLER;
use super::check_version;
use crate::command::run_quietly;

/// Files beside the programs.
const FILES: [&str; 6] = [
    "share/man/man1/uncore-trace.1",
    "share/bash-completion/completions/uncore-trace",
    "share/zsh/site-functions/_uncore-trace",
    "share/fish/vendor_completions.d/uncore-trace.fish",
    "share/doc/uncore-trace/agent.toml",
    "share/doc/uncore-trace/third-party-licences.txt",
];

/// Installs the archive of the release in `dir`, and runs the programs.
pub(super) fn test_script(dir: &Path) -> Result<()> {
    let scratch = tempfile::tempdir().context("cannot create a temporary directory")?;
    let prefix = scratch.path().join("a prefix");
    let mut script = Command::new("sh");
    script.arg(dir.join(INSTALLER)).arg("--prefix").arg(&prefix).arg("--from").arg(dir);
    run_quietly(script.env("TMPDIR", scratch.path()))?;
    for program in PROGRAMS {
        let path = prefix.join("bin").join(program);
        check_version(program, &run_quietly(Command::new(path).arg("--version"))?)?;
    }
    for file in FILES {
        ensure!(prefix.join(file).is_file(), "{INSTALLER} has not installed {file}");
    }
    let entries = fs::read_dir(scratch.path()).context("cannot list the temporary directory")?;
    ensure!(entries.count() == 1, "{INSTALLER} has left temporary files");
    Ok(())
}
