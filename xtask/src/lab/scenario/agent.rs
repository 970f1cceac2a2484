//! The agent: a tenant fills a link for a second; the recording that the trigger saves must contain
//! that.

use anyhow::{Context as _, Result};

use super::super::step::{Check, Move, Step, Tenant, Work};
use super::super::traffic;
use super::Setting;

/// Event for bytes that come in through a root port.
const EVENT: &str = "wr_bytes_loc";

/// Begin and length of the burst. Before it the traffic is a hundredth of it.
const BURST_MS: u32 = 4000;
const BURST_FOR_MS: u32 = 1000;

/// Counts per ms of CPU time: the level of the trigger in `tests/lab/agent.toml` is well between
/// the two.
const QUIET: u64 = 50_000;
const LOUD: u64 = 5_000_000;

pub(super) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let instance =
        setting.machine.instances_of("grace-pcie").first().copied().context("no grace-pcie")?;
    let (_, truth) = traffic::spec_and_truth(instance, EVENT)?;
    let first_move = traffic::moves_of_event(instance, EVENT).first().copied();
    let first_move = first_move.with_context(|| format!("nothing moves {EVENT}"))?;
    let tenant = |cgroup: &str, amount, start_ms, duration_ms| Tenant {
        cgroup: Some(cgroup.to_owned()),
        cpus: Some(vec![0]),
        flows: vec![Move { amount, ..first_move }],
        start_ms,
        duration_ms,
        ..Tenant::default()
    };
    let tenants =
        vec![tenant("quiet", QUIET, 0, BURST_MS), tenant("loud", LOUD, BURST_MS, BURST_FOR_MS)];
    let work = Work { tenants, settle_ms: 50, ..Work::default() };
    let says = ["trigger burst: saved"].map(str::to_owned).to_vec();
    let checks = vec![
        Check::Exit { code: 0, says },
        Check::Kept { event: EVENT.to_owned(), truth, cgroup: "/lab/loud".to_owned() },
    ];
    let agent = ["/bin/uncore-trace", "agent", "--config", "/lab/agent.toml", "--duration", "9s"];
    Ok(vec![Step::beside_work("agent", &agent, work, checks)])
}
