//! Holds what a guest's verifier said against the committed table, and leaves what is wrong beside it,
//! for `tests/lab/check.py`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::step::{Check, Step};
use crate::verifier;

/// What is wrong, a line each, in the directory of its step.
const FILE: &str = "verified.txt";

/// Compares the steps that say so.
pub(super) fn all(results: &Path, steps: &[Step]) -> Result<()> {
    for step in steps.iter().filter(|it| it.checks.iter().any(|it| matches!(it, Check::Verified))) {
        let dir = results.join(&step.name);
        let wrong = verifier::of_step(&dir).unwrap_or_else(|error| vec![format!("{error:#}")]);
        let file = dir.join(FILE);
        fs::write(&file, wrong.join("\n"))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}
