//! Drivers without a device model, on a processor whose counters QEMU does not emulate: each group
//! is planned, the driver accepts every counter, and the recording is complete, although all counts
//! are 0.

use anyhow::Result;

use super::super::step::{Check, Step, Tenant, Work, recording};
use super::Setting;

/// How long a tenant runs.
const DURATION_MS: u32 = 500;

#[expect(clippy::unnecessary_wraps, reason = "the type of every scenario")]
pub(super) fn steps(_setting: &Setting<'_>) -> Result<Vec<Step>> {
    let tenant = Tenant {
        cgroup: Some("opens".to_owned()),
        threads: 1,
        duration_ms: DURATION_MS,
        ..Tenant::default()
    };
    let work = Work { tenants: vec![tenant], settle_ms: 50, ..Work::default() };
    let name = "opens-all";
    let complete = || Check::Exit { code: 0, says: Vec::new() };
    Ok(vec![
        Step::command("opens-list", &["/bin/uncore-trace", "list"], vec![complete()]),
        Step::record(
            name,
            &["-p", "all", "--tick", "10ms", "--interval", "50ms"],
            work,
            vec![complete(), Check::Conserved],
        ),
        Step::command(
            "opens-check",
            &["/bin/uncore-trace", "check", &recording(name)],
            vec![complete()],
        ),
    ])
}
