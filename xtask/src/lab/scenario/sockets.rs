//! Groups on a machine with several sockets: each PMU is opened once, on a CPU of its own socket,
//! and is read only there.

use anyhow::Result;

use super::super::machine::Instance;
use super::super::pmu::DeviceModelKind;
use super::super::step::{Check, ReadOn, Step, Tenant, Work};
use super::super::traffic;
use super::Setting;

/// Descriptions of PMUs with events in each group.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "pcie,c2c",
        &[
            "grace-scf",
            "grace-pcie",
            "grace-c2c0",
            "grace-c2c1",
            "grace-cnvlink",
            "t410-pcie",
            "t410-pcie-tgt",
            "t410-c2c-gpu",
            "t410-c2c-cpu",
            "t410-clink",
            "t410-dlink",
            "yitian-mesh",
            "yitian-rootport",
        ],
    ),
    ("mem", &["grace-scf", "t410-ucf", "yitian-mesh", "yitian-drw", "kunpeng-920-ddrc"]),
    ("mesh", &["kunpeng-920-hha"]),
    ("cache", &["kunpeng-920-l3c"]),
    (
        "latency",
        &[
            "grace-scf",
            "grace-pcie",
            "grace-c2c0",
            "grace-c2c1",
            "t410-pcie",
            "t410-cmem",
            "t410-c2c-gpu",
            "t410-c2c-cpu",
            "t410-clink",
            "t410-dlink",
        ],
    ),
];

#[expect(clippy::unnecessary_wraps, reason = "the type of every scenario")]
pub(super) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for (groups, models) in GROUPS {
        let shown = setting.machine.instances.iter();
        let shown: Vec<_> =
            shown.filter(|pmu_instance| models.contains(&pmu_instance.model.as_str())).collect();
        if shown.is_empty() {
            continue;
        }
        let owned =
            |cpus: u64| (0..setting.machine.cpu_count()).filter(move |cpu| cpus >> cpu & 1 == 1);
        // The driver uses the CPU that ran its probe, which can be any.
        let anywhere = |pmu_instance: &Instance| pmu_instance.pmu.kind == DeviceModelKind::Drw;
        let pmus = shown
            .iter()
            .map(|pmu_instance| {
                let cpus = if anywhere(pmu_instance) { u64::MAX } else { pmu_instance.cpus };
                ReadOn { pmu: pmu_instance.name.clone(), cpus: owned(cpus).collect() }
            })
            .collect();
        let tenant = Tenant {
            cgroup: Some("sockets".to_owned()),
            once: shown.iter().flat_map(|instance| traffic::all_moves(instance)).collect(),
            ..Tenant::default()
        };
        let work = Work { tenants: vec![tenant], settle_ms: 100, ..Work::default() };
        let mut checks = vec![Check::OnReaders { pmus }, Check::Conserved];
        // If events are multiplexed, one of them may not run in a short window.
        if shown.iter().all(|pmu_instance| pmu_instance.pmu.exclusive.is_empty()) {
            checks.push(Check::Exit { code: 0, says: Vec::new() });
        }
        let name = format!("sockets-{}", groups.replace(',', "-"));
        steps.push(Step::for_record(&name, &["-p", groups, "--tick", "5ms"], work, checks));
    }
    Ok(steps)
}
