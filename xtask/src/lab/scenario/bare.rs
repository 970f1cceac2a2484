//! A machine without uncore PMUs: the program says so, with the reason, and records the events of
//! every kernel.

use anyhow::Result;

use super::super::step::{Check, Step, Tenant, Work};
use super::Setting;

#[expect(clippy::unnecessary_wraps, reason = "the type of every scenario")]
pub(super) fn build_steps(_setting: &Setting<'_>) -> Result<Vec<Step>> {
    let exit_check = |code, words: &[&str]| {
        vec![Check::Exit { code, says: words.iter().map(|&words| words.to_owned()).collect() }]
    };
    let mut refused = exit_check(2, &["no PMU of this machine is in the group pcie"]);
    refused.push(Check::NoRecording);
    let busy = Tenant {
        cgroup: Some("host".to_owned()),
        duration_ms: 1000,
        threads: 2,
        ..Tenant::default()
    };
    let work = Work { tenants: vec![busy], settle_ms: 50, ..Work::default() };
    let mut recorded = exit_check(0, &[]);
    recorded.push(Check::Conserved);
    Ok(vec![
        Step::plain_command(
            "bare-doctor",
            &["/bin/uncore-trace", "doctor"],
            exit_check(0, &["uncore PMUs", "none here", "record -p host"]),
        ),
        Step::plain_command("bare-list", &["/bin/uncore-trace", "list"], exit_check(0, &[])),
        Step::for_record("bare-pcie", &["-p", "pcie"], Work::default(), refused),
        Step::for_record("bare-host", &["-p", "host"], work, recorded),
    ])
}
