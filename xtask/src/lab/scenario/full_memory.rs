//! Two tenants fill a memory: `top` shows both, `report` shows how full it was, and the exports
//! contain it.

use anyhow::Result;

use super::super::step::{Check, Move, Step, Tenant, Work, recording_dir};
use super::super::traffic;
use super::Setting;

/// Long enough for an emulated machine to show a minute of it.
const DURATION_MS: u32 = 20_000;

/// PMU, event, counts a ms of the two tenants: 32 bytes each, so 6.4 and 1.6 GB/s.
const MOVED: &[(&str, &str, [u64; 2])] = &[
    ("grace-scf", "cmem_rd_data", [200_000, 50_000]),
    ("grace-scf", "cmem_wr_total_bytes", [400_000, 100_000]),
];

pub(super) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let tenants = |duration_ms| -> Result<Vec<Tenant>> {
        ["large", "small"]
            .iter()
            .enumerate()
            .map(|(number, cgroup)| {
                let mut flows = Vec::new();
                for (model, event, amounts) in MOVED {
                    for instance in setting.machine.instances_of(model).into_iter().take(1) {
                        let first_move =
                            traffic::moves_of_event(instance, event).into_iter().next();
                        flows.extend(
                            first_move.map(|flow| Move { amount: amounts[number], ..flow }),
                        );
                    }
                }
                Ok(Tenant {
                    cgroup: Some((*cgroup).to_owned()),
                    cpus: Some(vec![number as u32]),
                    flows,
                    duty: 0.5,
                    duration_ms,
                    ..Tenant::default()
                })
            })
            .collect()
    };
    let work = |duration_ms| -> Result<Work> {
        Ok(Work { tenants: tenants(duration_ms)?, settle_ms: 50, ..Work::default() })
    };
    let says = |words: &[&str]| {
        vec![Check::Exit { code: 0, says: words.iter().map(|&word| word.to_owned()).collect() }]
    };
    // On an emulated machine one tenant may have nearly all for some seconds, after which `top` would
    // show processes.
    let top =
        ["/bin/uncore-trace", "top", "-p", "mem", "--by", "cgroup", "--once", "--after", "5s"];
    let wanted = ["memory 0", "memory 1", "GPU memory 0", "/large", "/small", "of peak"];
    let run = recording_dir("seen-record");
    let report = ["/bin/uncore-trace", "report", &run, "--links"];
    let html = ["/bin/uncore-trace", "report", &run, "--html", "/out/seen-report-html/page.html"];
    let options = ["-p", "mem,latency,pcie", "--tick", "1ms", "--interval", "20ms", "--slices"];
    let checks = vec![Check::Exit { code: 0, says: Vec::new() }, Check::Conserved];
    Ok(vec![
        Step::beside_work("seen-top", &top, work(DURATION_MS)?, says(&wanted)),
        Step::for_record("seen-record", &options, work(4000)?, checks),
        Step::plain_command("seen-report", &report, says(&["memory 0", "peak of memory 0"])),
        Step::plain_command("seen-report-html", &html, says(&[])),
    ])
}
