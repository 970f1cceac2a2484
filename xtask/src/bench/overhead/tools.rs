//! Programs that only this benchmark needs, installed when it runs.
#![expect(clippy::print_stderr, reason = "a task tells what it does")]

use anyhow::{Context as _, Result};

use crate::apt::Apt;
use crate::command::tool_version;

/// Installs `tool` if it is missing.
///
/// # Errors
///
/// It is missing, and `package` cannot be installed.
pub(super) fn install_tool(tool: &str, package: &str) -> Result<()> {
    let Err(error) = tool_version(tool) else { return Ok(()) };
    eprintln!("installing {package} ({error:#})");
    Apt::new().install_packages(&[package]).with_context(|| format!("no {tool}"))?;
    tool_version(tool).map(drop).with_context(|| format!("{tool} is still not usable"))
}
