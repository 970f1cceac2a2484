//! The kernel accepts every BPF program, and its verifier's work is near the figures in
//! `docs/verifier.md`.

use anyhow::Result;

use super::super::step::{Check, Step};
use super::Setting;

#[expect(clippy::unnecessary_wraps, reason = "the type of every scenario")]
pub(super) fn build_steps(_setting: &Setting<'_>) -> Result<Vec<Step>> {
    let argv = ["/bin/uncore-trace", "doctor", "--verifier", "--json"];
    Ok(vec![Step::plain_command("verifier", &argv, vec![Check::Verified])])
}
