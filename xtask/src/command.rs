//! Runs other programs and checks their results.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

/// The first line of `TOOL --version`.
pub(crate) fn tool_version(tool: &str) -> Result<String> {
    version_of(Command::new(tool))
}

/// The first line that a command prints with `--version`.
pub(crate) fn version_of(mut command: Command) -> Result<String> {
    let tool = command.get_program().display().to_string();
    let output = command
        .arg("--version")
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot run {tool}"))?;
    ensure!(output.status.success(), "{tool} --version failed: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// A command that runs as root: directly, or through sudo.
pub(crate) fn as_root(tool: &str) -> Command {
    if rustix::process::geteuid().is_root() {
        return Command::new(tool);
    }
    let mut sudo = Command::new("sudo");
    sudo.arg(tool);
    sudo
}

/// Runs a command with its output shown; an exit code other than 0 is an error.
pub(crate) fn run_checked(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}

/// Lines of a failed command's output in an error.
const SHOWN: usize = 20;

/// Runs a command and returns its standard output and error; if it fails, the error has their last
/// lines.
pub(crate) fn run_quietly(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("{command:?} failed: {}\n{}", output.status, last_lines(&text, SHOWN));
    }
    Ok(text)
}

/// The last `count` lines of a text.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
