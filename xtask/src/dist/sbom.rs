//! Software bills of materials: the packages that are linked into a program, as `CycloneDX`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use uncore_trace_ebpf::stamp::workspace_root;

use super::PROGRAMS;
use super::binary::target_of;
use super::packages::{Tool, commit_time};
use crate::command::run_quietly;
use crate::lab::kernel::Arch;
use crate::target;

const CARGO_CYCLONEDX: Tool =
    Tool { name: "cargo-cyclonedx", version: "0.5.9", subcommand: &["cyclonedx"] };

/// Name of the tool's output files, without `.json`.
const NAME: &str = "sbom.cdx";

/// The part of the output of `cargo metadata` that is used.
#[derive(Deserialize)]
struct MemberMetadata {
    packages: Vec<Member>,
}

/// A package of this repository.
#[derive(Deserialize)]
struct Member {
    name: String,
    manifest_path: PathBuf,
}

/// Writes the list of each program of an architecture into `dir`.
pub(super) fn write_sboms(arch: Arch, dir: &Path) -> Result<()> {
    let root = workspace_root();
    let mut command = Command::new(CARGO_CYCLONEDX.installed_program()?);
    command
        .current_dir(&root)
        .args(CARGO_CYCLONEDX.subcommand)
        .args(["--format", "json", "--spec-version", "1.5", "--no-build-deps", "--quiet"])
        .args(["--target", target_of(arch), "--override-filename", NAME, "--manifest-path"])
        .arg(root.join("Cargo.toml"));
    if let Some(time) = commit_time() {
        command.env("SOURCE_DATE_EPOCH", time);
    }
    run_quietly(&mut command)?;
    let mut written = 0;
    // The tool writes a file beside the manifest of each package of the repository.
    for Member { name, manifest_path } in workspace_members()? {
        let tool_output = manifest_path.with_file_name(format!("{NAME}.json"));
        if PROGRAMS.contains(&name.as_str()) {
            let text = fs::read_to_string(&tool_output)
                .with_context(|| format!("cannot read {}", tool_output.display()))?;
            // Replaces local paths, as in the program.
            let text = text.replace(&root.display().to_string(), "/uncore-trace");
            let version = env!("CARGO_PKG_VERSION");
            let path = dir.join(format!("{name}-{version}-{}.cdx.json", arch.uname_machine()));
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            written += 1;
        }
        if tool_output.exists() {
            fs::remove_file(&tool_output)
                .with_context(|| format!("cannot remove {}", tool_output.display()))?;
        }
    }
    ensure!(written == PROGRAMS.len(), "not all of {PROGRAMS:?} are packages");
    Ok(())
}

fn workspace_members() -> Result<Vec<Member>> {
    let mut cargo = target::cargo_command();
    let output = cargo
        .args(["metadata", "--locked", "--no-deps", "--format-version", "1"])
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let metadata: MemberMetadata = serde_json::from_slice(&output.stdout)
        .context("cannot read the output of cargo metadata")?;
    Ok(metadata.packages)
}
