//! Other programs that the tasks run: installing packages, and commands that must succeed.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

/// The first line of `TOOL --version`.
pub fn version(tool: &str) -> Result<String> {
    let output = Command::new(tool)
        .arg("--version")
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot run {tool}"))?;
    ensure!(output.status.success(), "{tool} --version failed: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Installs packages, or says what to install where there is no apt or no such package.
pub fn apt(packages: &[&str]) -> Result<()> {
    let list = packages.join(" ");
    if version("apt-get").is_err() {
        bail!("no apt here: install what your distribution has for `{list}`");
    }
    for package in packages {
        let output = Command::new("apt-cache")
            .args(["show", "--no-all-versions", package])
            .output()
            .context("cannot run apt-cache")?;
        ensure!(
            output.status.success() && !output.stdout.is_empty(),
            "apt knows no package {package}: run `apt-get update`, or install it another way"
        );
    }
    let mut command = as_root("apt-get");
    command.args(["install", "--yes", "--no-install-recommends"]);
    // Another apt may be at work, as those that renew a machine by themselves are.
    command.args(["-o", "DPkg::Lock::Timeout=600"]).args(packages);
    succeed(command.env("DEBIAN_FRONTEND", "noninteractive"))
}

/// A command that runs as root: by itself, or through sudo.
pub fn as_root(tool: &str) -> Command {
    if rustix::process::geteuid().is_root() {
        return Command::new(tool);
    }
    let mut sudo = Command::new("sudo");
    sudo.arg(tool);
    sudo
}

/// Runs a command with its output shown; fails if it does.
pub fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}

/// Lines of a failed command that are shown.
const SHOWN: usize = 20;

/// Runs a command and gives what it wrote, both streams; the end of it is in the error if it
/// fails.
pub fn quietly(command: &mut Command) -> Result<String> {
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
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
