//! Where cargo builds: the one answer for every task, as the tests find it too.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

/// The part of `cargo metadata` that is read.
#[derive(Deserialize)]
struct TargetMetadata {
    target_directory: PathBuf,
}

/// The target directory: `CARGO_TARGET_DIR`, else what `cargo metadata` says.
pub(crate) fn target_dir() -> Result<PathBuf> {
    if let Some(dir) = env::var_os("CARGO_TARGET_DIR").filter(|dir| !dir.is_empty()) {
        return std::path::absolute(&dir)
            .with_context(|| format!("CARGO_TARGET_DIR {} is not a path", dir.display()));
    }
    let output = cargo_command()
        .args(["metadata", "--format-version=1", "--no-deps"])
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: TargetMetadata = serde_json::from_slice(&output.stdout).context(
        "cannot parse the output of cargo \
                                                        metadata",
    )?;
    Ok(metadata.target_directory)
}

/// The cargo that runs this task, in the workspace.
pub(crate) fn cargo_command() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(uncore_trace_ebpf::stamp::workspace_root());
    command
}

/// Builds the release binary of `uncore-trace`; gives its path.
pub(crate) fn release_binary() -> Result<PathBuf> {
    build_binary(&["--release"], "release")
}

/// Builds the debug binary of `uncore-trace`, which the tests have built too; gives its path.
pub(crate) fn debug_binary() -> Result<PathBuf> {
    build_binary(&[], "debug")
}

fn build_binary(options: &[&str], profile: &str) -> Result<PathBuf> {
    let status = cargo_command()
        .args(["build", "--locked", "--quiet", "--package", "uncore-trace"])
        .args(options)
        .status()
        .context("cannot run cargo build")?;
    ensure!(status.success(), "building uncore-trace failed: {status}");
    let bin = target_dir()?.join(profile).join("uncore-trace");
    ensure!(bin.exists(), "cargo built no {}", bin.display());
    Ok(bin)
}
