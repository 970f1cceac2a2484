//! Tests of the units: systemd accepts them, and their exposure is at most that in docs/install.md.
#![expect(clippy::print_stdout, reason = "a task tells what it did")]

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use uncore_trace_ebpf::stamp::workspace_root;

use crate::command::run_quietly;

const UNITS: [&str; 2] = ["uncore-trace.service", "uncore-trace-upload.service"];

/// Verifies both units, and records with the privileges of the first.
pub(super) fn check_units(program: &Path) -> Result<()> {
    let folder = workspace_root().join("packaging/systemd");
    let docs = workspace_root().join("docs/install.md");
    let docs =
        fs::read_to_string(&docs).with_context(|| format!("cannot read {}", docs.display()))?;
    for unit in UNITS {
        verify_unit(&folder.join(unit))?;
        let score = unit_exposure(&folder.join(unit))?;
        println!("dist: {unit}: exposure {score}");
        let documented = documented_exposure(&docs, unit)?;
        ensure!(
            score <= documented,
            "{unit} has the exposure {score}, but docs/install.md says {documented}: restrict the \
             unit or change the document"
        );
    }
    test_recording(&folder.join(UNITS[0]), program)
}

/// Records as an unprivileged user with the capabilities and the priority of the unit. This does
/// not test systemd's sandbox, because systemd may not be running here.
fn test_recording(unit: &Path, program: &Path) -> Result<()> {
    let text =
        fs::read_to_string(unit).with_context(|| format!("cannot read {}", unit.display()))?;
    let value =
        |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    let names = |prefix: &str| {
        let names = value("AmbientCapabilities=")
            .split(' ')
            .filter_map(|capability| capability.strip_prefix("CAP_"));
        names.map(|name| format!("{prefix}{}", name.to_lowercase())).collect::<Vec<_>>().join(",")
    };
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let copy = dir.path().join("uncore-trace");
    // The user may not be able to read the build directory.
    fs::copy(program, &copy).with_context(|| format!("cannot write {}", copy.display()))?;
    let state = dir.path().join("state");
    run_quietly(
        Command::new("install").args(["--directory", "--owner=nobody", "--mode=750"]).arg(&state),
    )?;
    run_quietly(Command::new("chmod").arg("755").arg(dir.path()))?;
    let mut command = Command::new("nice");
    command
        .args(["-n", value("Nice=")])
        .args(["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--no-new-privs"])
        .arg(format!("--bounding-set=-all,{}", names("+")))
        .arg(format!("--inh-caps=-all,{}", names("+")))
        .arg(format!("--ambient-caps=-all,{}", names("+")))
        .arg(&copy)
        .args(["record", "-p", "host", "--duration", "1s", "-o"])
        .arg(state.join("run/"));
    let output = command.output().context("cannot run setpriv")?;
    let stderr_text = String::from_utf8_lossy(&output.stderr);
    // Exit code 1: records were lost because the machine is busy.
    let has_recorded = state.join("run/fabric.parquet").exists();
    ensure!(
        matches!(output.status.code(), Some(0 | 1)) && has_recorded,
        "with {} it cannot record: {stderr_text}",
        names("")
    );
    Ok(())
}

/// Checks a unit with systemd. The program is not installed here, so a copy of the unit names
/// another program.
fn verify_unit(unit: &Path) -> Result<()> {
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let text =
        fs::read_to_string(unit).with_context(|| format!("cannot read {}", unit.display()))?;
    let copy = dir.path().join(unit.file_name().unwrap_or_default());
    let text = text.replace("/usr/bin/uncore-trace", "/bin/true");
    fs::write(&copy, text).with_context(|| format!("cannot write {}", copy.display()))?;
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no", "--recursive-errors=no"]).arg(&copy);
    let warnings = run_quietly(&mut command)?;
    // For an unknown key, systemd-analyze prints a warning but does not fail.
    ensure!(warnings.trim().is_empty(), "{}: {warnings}", unit.display());
    Ok(())
}

/// The exposure level of a unit from `systemd-analyze security`, from 0 to 10.
fn unit_exposure(unit: &Path) -> Result<f64> {
    let mut command = Command::new("systemd-analyze");
    let table = run_quietly(command.args(["security", "--offline=true", "--no-pager"]).arg(unit))?;
    let line = table.lines().find_map(|line| line.split_once("Overall exposure level for "));
    let number = line
        .and_then(|(_, score_text)| score_text.split_once(": ")?.1.split(' ').next()?.parse().ok());
    number.with_context(|| format!("systemd-analyze gives no score:\n{table}"))
}

/// The exposure level of a unit in the document's table.
fn documented_exposure(docs: &str, unit: &str) -> Result<f64> {
    let row = docs.lines().find(|line| line.starts_with(&format!("| `{unit}` | ")));
    let cell = row.and_then(|row| row.split(" | ").nth(1)?.split(' ').next()?.parse().ok());
    cell.with_context(|| format!("docs/install.md has no score of {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_from_the_table() {
        let docs = "| unit | exposure |\n|---|---|\n| `a.service` | 1.9 of 10 |\n";
        assert!((documented_exposure(docs, "a.service").unwrap() - 1.9).abs() < 1e-9);
        assert!(documented_exposure(docs, "b.service").is_err());
    }
}
