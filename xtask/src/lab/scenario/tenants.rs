//! Eight tenants in four cgroups, with all kinds of behaviour: in every window the shares sum to
//! the total, and the totals sum to the true traffic. `attribute` computes the same rows again.

use anyhow::Result;

use super::super::step::{Burst, Check, Move, Phase, Step, Tenant, Work, recording_dir};
use super::super::traffic;
use super::Setting;

const DURATION_MS: u32 = 3000;

/// PMUs, and the two events that the tenants move there.
const MOVED: &[(&str, [&str; 2])] = &[
    ("grace-scf", ["cmem_rd_data", "cmem_wr_total_bytes"]),
    ("grace-pcie", ["rd_bytes_loc", "wr_bytes_rem"]),
    ("t410-ucf", ["mem_bytes_rd", "mem_bytes_wr"]),
    ("t410-pcie", ["rd_bytes", "wr_bytes"]),
    ("yitian-mesh", ["ccla_rx_cxs", "hnf_mc_reqs"]),
    ("yitian-drw", ["hif_rd", "hif_wr"]),
    ("kunpeng-920-ddrc", ["flux_rd", "flux_wr"]),
];

pub(super) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let mut options = ["--tick", "1ms", "--interval", "20ms"].map(str::to_owned).to_vec();
    let mut checks = vec![Check::Recorded, Check::Conserved];
    let mut moves: Vec<Vec<Move>> = Vec::new();
    let mut counter = 0;
    for (model, events) in MOVED {
        for instance in setting.machine.instances_of(model) {
            for event in events {
                let (spec, truth) = traffic::spec_and_truth(instance, event)?;
                options.extend(["-e".to_owned(), spec]);
                moves.push(traffic::moves_of_event(instance, event));
                let (pmu, event) = (instance.name.clone(), (*event).to_owned());
                checks.push(Check::Exact { counter, pmu, event, truth });
                counter += 1;
            }
        }
    }
    let tenants = (0..8).map(|number| build_tenant(setting, number, &moves)).collect();
    let work = Work { tenants, settle_ms: 50, ..Work::default() };
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let name = "tenants";
    let file = "attributed.parquet";
    let (run, attributed_path) = (recording_dir(name), format!("/out/tenants-attribute/{file}"));
    let attribute = ["/bin/uncore-trace", "attribute", &run, "-o", &attributed_path];
    let same_rows = Check::SameRows { step: name.to_owned(), file: file.to_owned() };
    let exit = Check::Exit { code: 0, says: Vec::new() };
    Ok(vec![
        Step::for_record(name, &options, work, checks),
        Step::plain_command("tenants-attribute", &attribute, vec![exit, same_rows]),
    ])
}

/// Two of each kind: one pinned, one not, in four cgroups.
fn build_tenant(setting: &Setting<'_>, number: u32, moves: &[Vec<Move>]) -> Tenant {
    let flows = moves.iter().filter_map(|of_event| {
        let flow = of_event.get(number as usize % of_event.len().max(1))?;
        Some(Move { amount: 1 + flow.amount % 5000 * u64::from(number + 1), ..*flow })
    });
    let cgroup = ["a", "b", "c", "d"][number as usize % 4].to_owned();
    let mut tenant = Tenant {
        cgroup: Some(cgroup),
        cpus: (number < 4).then(|| vec![number % setting.machine.cpu_count()]),
        flows: flows.collect(),
        duration_ms: DURATION_MS,
        ..Tenant::default()
    };
    match number / 2 {
        0 => tenant.duty = 0.25,
        1 => {
            let (busy_phase, idle_phase) =
                (Phase { ms: 150, scale: 1.0 }, Phase { ms: 50, scale: 0.0 });
            tenant.phases = vec![busy_phase, idle_phase];
        }
        2 => tenant.burst = Some(Burst { every: 10, factor: 20.0 }),
        _ => {
            tenant.threads = 2;
            tenant.start_ms = 500;
            tenant.duration_ms = DURATION_MS - 1000;
        }
    }
    tenant
}
