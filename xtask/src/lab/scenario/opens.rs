//! Drivers without a device model, on a processor whose counters QEMU does not emulate: each group
//! is planned, the driver accepts every counter, and the recording is complete, although all counts
//! are 0. Every CPU of a socket reads the counters of Intel's uncore at its switches.

use anyhow::Result;

use super::super::step::{Check, Step, Tenant, Work, recording_dir};
use super::Setting;

/// How long a tenant runs.
const DURATION_MS: u32 = 500;

#[expect(clippy::unnecessary_wraps, reason = "the type of every scenario")]
pub(super) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let tenant = Tenant {
        cgroup: Some("opens".to_owned()),
        threads: 1,
        duration_ms: DURATION_MS,
        ..Tenant::default()
    };
    let work = Work { tenants: vec![tenant.clone()], settle_ms: 50, ..Work::default() };
    let name = "opens-all";
    let complete = || Check::Exit { code: 0, says: Vec::new() };
    let (sockets, cpus) = (setting.machine.sockets, setting.machine.cpus_per_socket);
    let sockets: Vec<Vec<u32>> =
        (0..sockets).map(|socket| (socket * cpus..(socket + 1) * cpus).collect()).collect();
    // On each CPU something runs and sleeps.
    let tenant_on = |cpu: u32| Tenant { cpus: Some(vec![cpu]), duty: 0.5, ..tenant.clone() };
    let everywhere = sockets.iter().flatten().map(|cpu| tenant_on(*cpu)).collect();
    let switches = Work { tenants: everywhere, settle_ms: 50, ..Work::default() };
    Ok(vec![
        Step::for_record(
            "opens-switches",
            &[
                "-p",
                "all",
                "--tick",
                "10ms",
                "--interval",
                "50ms",
                "--sample-on",
                "sched",
                "--min-gap",
                "2ms",
            ],
            switches,
            vec![
                Check::Recorded,
                Check::Conserved,
                Check::ReadAtSwitches { pmus: "uncore_%".to_owned(), sockets },
            ],
        ),
        Step::plain_command("opens-list", &["/bin/uncore-trace", "list"], vec![complete()]),
        Step::for_record(
            name,
            &["-p", "all", "--tick", "10ms", "--interval", "50ms"],
            work,
            vec![complete(), Check::Conserved],
        ),
        Step::plain_command(
            "opens-check",
            &["/bin/uncore-trace", "check", &recording_dir(name)],
            vec![complete()],
        ),
    ])
}
