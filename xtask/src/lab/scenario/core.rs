//! Counters of the CPU itself: shares are exact.
//!
//! The emulated core PMU has two events with known counts: the guest's clock is the number of
//! executed instructions (`-icount`), and a cycle is a nanosecond of it (`target/arm/helper.c`,
//! QEMU 7.2: `instructions_get_count`, `cycles_get_count`, `ARM_CPU_FREQ`).

use anyhow::Result;

use super::super::qemu;
use super::super::step::{Check, Step, Tenant, Work, recording_dir};
use super::Setting;

/// How long the tenants run.
const DURATION_MS: u32 = 1500;

/// Largest relative difference of the two events, which are read one after the other.
const WITHIN: f64 = 0.005;

/// The same over a whole machine, where some CPUs may be idle at the start and at the end.
const IPC_WITHIN: f64 = 0.05;

/// Two tenants on one CPU, one of which sleeps half of the time, and one that is not pinned.
#[expect(clippy::unnecessary_wraps, reason = "the type of every scenario")]
pub(super) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let tenant = |cgroup: &str| Tenant {
        cgroup: Some(cgroup.to_owned()),
        duration_ms: DURATION_MS,
        ..Tenant::default()
    };
    let tenants = vec![
        Tenant { cpus: Some(vec![1]), ..tenant("steady") },
        Tenant { cpus: Some(vec![1]), duty: 0.3, ..tenant("sleepy") },
        tenant("free"),
    ];
    let cgroups = ["/lab/steady", "/lab/sleepy", "/lab/free"].map(str::to_owned).to_vec();
    let work = Work { tenants, settle_ms: 50, ..Work::default() };
    let checks = vec![
        Check::Exit { code: 0, says: Vec::new() },
        Check::Conserved,
        Check::Method { method: "exact".to_owned() },
        Check::Paced {
            event: "cycles".to_owned(),
            other: "instructions".to_owned(),
            ratio: f64::from(qemu::NS_PER_INSTRUCTION),
            within: WITHIN,
            cgroups,
        },
    ];
    let options = ["-e", "cycles", "-e", "instructions", "--tick", "5ms", "--interval", "20ms"];
    let name = "core-exact";
    let busy = Tenant { threads: 2 * setting.machine.cpu_count(), ..tenant("busy") };
    let busy = Work { tenants: vec![busy], ..Work::default() };
    let ipc = Check::Value {
        metric: "ipc".to_owned(),
        value: 1.0 / f64::from(qemu::NS_PER_INSTRUCTION),
        within: IPC_WITHIN,
    };
    let counted = vec![Check::Exit { code: 0, says: Vec::new() }, ipc];
    Ok(vec![
        Step::for_stat("core-ipc", &["-M", "ipc"], busy, counted),
        Step::for_record(name, &options, work, checks),
        Step::plain_command(
            "core-check",
            &["/bin/uncore-trace", "check", &recording_dir(name)],
            vec![Check::Exit { code: 0, says: Vec::new() }],
        ),
    ])
}
