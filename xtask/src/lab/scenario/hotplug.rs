//! The reader CPU goes offline during a recording: the recording continues from the new reader CPU;
//! the gap, in which the driver moves the counters and does not count, is a loss row; no other
//! count is lost.

use anyhow::Result;

use super::super::step::{Action, Change, Check, Step, Tenant, Work};
use super::super::traffic;
use super::Setting;

/// One event of each PMU near the CPU that goes offline, which are those of the last socket; its
/// first CPU reads them. The driver of `ali_drw` uses the CPU that ran its probe, which can be any.
const EVENTS: &[(&str, &str)] = &[
    ("grace-scf", "cmem_rd_data"),
    ("grace-pcie", "rd_bytes_loc"),
    ("t410-ucf", "mem_bytes_rd"),
    ("t410-pcie", "rd_bytes"),
    ("t410-cmem", "rd_req"),
    ("t410-c2c-cpu", "in_rd_req"),
    ("yitian-mesh", "hnf_mc_reqs"),
    ("yitian-rootport", "rx_pcie_tlp_data_payload"),
    ("kunpeng-920-ddrc", "flux_rd"),
    ("kunpeng-920-hha", "rx_ops_num"),
];

/// Longer than the default: with four busy emulated CPUs the recorder would be too late to notice
/// that the CPU goes offline.
const TICK: &str = "5ms";

/// By then each counter has its first boundary: traffic before it is in no window.
const START_MS: u32 = 300;

pub(super) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let machine = setting.machine;
    let leaving = (machine.sockets - 1) * machine.cpus_per_socket;
    let mut options = ["--tick", TICK, "--interval", "50ms"].map(str::to_owned).to_vec();
    let mut checks = vec![
        Check::Exit { code: 1, says: vec!["of a counter to another CPU".to_owned()] },
        Check::Conserved,
        Check::Lost { causes: vec!["cpu_offline".to_owned(), "reader_offline".to_owned()] },
    ];
    let mut flows = Vec::new();
    let mut counter = 0;
    for (model, event) in EVENTS {
        for instance in
            machine.instances_of(model).iter().filter(|candidate| candidate.is_near(leaving))
        {
            let (spec, truth) = traffic::spec_and_truth(instance, event)?;
            options.extend(["-e".to_owned(), spec]);
            flows.extend(traffic::moves_of_event(instance, event).first());
            let (pmu, event) = (instance.name.clone(), (*event).to_owned());
            checks.push(Check::Resumed { counter, pmu, event, truth });
            counter += 1;
        }
    }
    let cpu = leaving;
    let tenant = Tenant {
        cgroup: Some("hotplug".to_owned()),
        cpus: Some(vec![0]),
        flows,
        start_ms: START_MS,
        duration_ms: 3000,
        ..Tenant::default()
    };
    let actions = vec![
        Action { after_ms: 800, change: Change::Offline { cpu } },
        Action { after_ms: 2000, change: Change::Online { cpu } },
    ];
    let work = Work { tenants: vec![tenant], actions, settle_ms: 100 };
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    Ok(vec![Step::for_record("hotplug", &options, work, checks)])
}
