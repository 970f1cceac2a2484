//! Counters of the CPU itself: each task's own, and nobody's estimate.
//!
//! The emulated core PMU has two events whose truth is known: the guest's clock is the number of
//! instructions executed (`-icount`), and a cycle is a nanosecond of it (`target/arm/helper.c`, QEMU
//! 7.2: `instructions_get_count`, `cycles_get_count`, `ARM_CPU_FREQ`).

use anyhow::Result;

use super::super::qemu;
use super::super::step::{Check, Step, Tenant, Work};
use super::Setting;

/// How long the tenants run.
const DURATION_MS: u32 = 1500;

/// How far the two events may be apart: they are read one after the other.
const WITHIN: f64 = 0.005;

/// Two tenants on one CPU, one of which sleeps half of the time, and one that is free.
#[expect(clippy::unnecessary_wraps, reason = "the type of every scenario")]
pub fn steps(_setting: &Setting<'_>) -> Result<Vec<Step>> {
    let tenant = |cgroup: &str| Tenant {
        cgroup: cgroup.to_owned(),
        duration_ms: DURATION_MS,
        ..Tenant::default()
    };
    let tenants = vec![
        Tenant { cpus: Some(vec![1]), ..tenant("steady") },
        Tenant { cpus: Some(vec![1]), duty: Some(0.3), ..tenant("sleepy") },
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
    Ok(vec![Step::record("core-exact", &options, work, checks)])
}
