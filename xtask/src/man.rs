//! `cargo xtask man`: `docs/man/` from the help texts.

use std::process::Command;

use anyhow::Result;

use crate::command;

/// Lets the test that compares the pages with the help write them.
pub(crate) fn run() -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--locked", "--package", "uncore-trace", "--lib", "cmd::manual"]);
    command::run_quietly(cargo.env("UPDATE_DOCS", "1"))?;
    Ok(())
}
