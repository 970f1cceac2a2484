//! Tests of the packages: the checkers of both distributions find nothing.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use uncore_trace_ebpf::stamp::workspace_root;

use crate::apt::Apt;
use crate::command::tool_version;

/// Runs lintian and rpmlint. What they may find is in the package's overrides and in
/// `packaging/rpm/rpmlintrc`, with the reason.
pub(super) fn lint_packages(deb: &Path, rpm: &Path, apt: &Apt) -> Result<()> {
    for tool in ["lintian", "rpmlint"] {
        if tool_version(tool).is_err() {
            apt.install_packages(&[tool])?;
        }
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on=error,warning", "--no-tag-display-limit"]);
    run_checker(lintian.arg(deb))?;
    let mut rpmlint = Command::new("rpmlint");
    rpmlint.arg("--rpmlintrc").arg(workspace_root().join("packaging/rpm/rpmlintrc"));
    let lint_output = run_checker(rpmlint.arg(rpm))?;
    let summary = lint_output.lines().find(|line| line.contains(" errors, "));
    let is_clean = summary.is_some_and(|line| line.contains(" 0 errors, 0 warnings, "));
    ensure!(is_clean, "{} is not accepted:\n{lint_output}", rpm.display());
    Ok(())
}

/// Runs a checker; fails if it finds anything.
fn run_checker(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {program}"))?;
    let output_bytes = [output.stdout, output.stderr].concat();
    let output_text = String::from_utf8_lossy(&output_bytes).into_owned();
    ensure!(output.status.success(), "{program}: {}:\n{output_text}", output.status);
    Ok(output_text)
}
