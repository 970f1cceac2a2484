//! Compares the verifier's figures of a guest with the committed table, and writes the differences
//! for `tests/lab/check.py`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::step::{Check, Step};
use crate::verifier;

/// The differences, one per line, in the directory of the step.
const FILE: &str = "verified.txt";

/// Compares the steps that have such a check.
pub(super) fn write_differences(results: &Path, steps: &[Step]) -> Result<()> {
    for step in steps
        .iter()
        .filter(|candidate| candidate.checks.iter().any(|check| matches!(check, Check::Verified)))
    {
        let dir = results.join(&step.name);
        let wrong =
            verifier::step_problems(&dir).unwrap_or_else(|error| vec![format!("{error:#}")]);
        let file = dir.join(FILE);
        fs::write(&file, wrong.join("\n"))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}
