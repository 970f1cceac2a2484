//! Many CPUs: the events of every kernel are recorded on all of them while the second half goes
//! offline and comes back. No record is lost, and memory stays within a bound.

use anyhow::Result;

use super::super::step::{Action, Change, Check, Step, Tenant, Work};
use super::Setting;

/// All CPUs are emulated by one of the host.
const TICK: &str = "20ms";

/// MiB: 97 were measured, with four counters on each CPU. The goal of docs/cost.md is 96 for ten
/// counters.
const MOST_MIB: u32 = 128;

/// Cgroups with a process each.
const CGROUPS: u32 = 20;

#[expect(clippy::unnecessary_wraps, reason = "the type of every scenario")]
pub(super) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let machine = setting.machine;
    let cpus = machine.sockets * machine.cpus_per_socket;
    let tenant = |number| Tenant {
        cgroup: Some(format!("scale-{number}")),
        duration_ms: 3000,
        duty: 0.2,
        ..Tenant::default()
    };
    let leaving = (cpus / 2..cpus).zip(0u32..);
    let actions = leaving.flat_map(|(cpu, index)| {
        [
            Action { after_ms: 500 + 10 * index, change: Change::Offline { cpu } },
            Action { after_ms: 1800 + 10 * index, change: Change::Online { cpu } },
        ]
    });
    let mut actions: Vec<Action> = actions.collect();
    actions.sort_by_key(|action| action.after_ms);
    let work = Work { tenants: (0..CGROUPS).map(tenant).collect(), actions, settle_ms: 100 };
    let causes = |causes: &[&str]| causes.iter().map(|&cause| cause.to_owned()).collect();
    let allowed = [
        "cpu_offline",
        "counter_stopped",
        "late_tick",
        "nested_reading",
        "no_boundary",
        "overload",
        // One change of CPUs is followed in a drain, and a drain of this machine takes some 0.1 s:
        // the time of a CPU that leaves last may be a gap before it is known to be offline.
        "run_gap",
        "unseen_switch",
    ];
    let checks = vec![
        Check::Conserved,
        Check::Lost { causes: causes(&["cpu_offline"]) },
        Check::LostOnly { causes: causes(&allowed) },
        Check::Memory { most_mib: MOST_MIB },
    ];
    let options = ["-p", "host", "--tick", TICK, "--interval", "200ms"];
    Ok(vec![Step::for_record("scale", &options, work, checks)])
}
