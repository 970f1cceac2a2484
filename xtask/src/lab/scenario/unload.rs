//! The driver of a PMU is unloaded during a recording. A module with open events cannot be
//! unloaded, so the recording is not affected. If the driver is unbound from its device in sysfs
//! instead, the events of the PMU stop: no window has a count until the driver is back, and then
//! they count again.

use anyhow::Result;

use super::super::machine::Instance;
use super::super::step::{Action, Change, Check, Move, Step, Tenant, Work};
use super::super::traffic;
use super::Setting;

/// One event each, and the modules that cannot be unloaded while it is open.
const HELD: &[(&str, &str, &[&str])] = &[
    ("yitian-mesh", "hnf_mc_reqs", &["arm_cmn"]),
    ("yitian-rootport", "rx_pcie_tlp_data_payload", &["dwc_pcie_pmu"]),
    ("yitian-drw", "hif_rd", &["alibaba_uncore_drw_pmu"]),
];

/// PMUs whose drivers can be unbound in sysfs, because they do not set `suppress_bind_attrs`. Some
/// come back when their module is loaded again: its name in the kernel, and its file.
const UNBOUND: &[(&str, Option<(&str, &str)>)] = &[
    ("yitian-rootport", None),
    ("yitian-drw", Some(("alibaba_uncore_drw_pmu", "alibaba_uncore_drw_pmu.ko"))),
];

/// From this version on, the kernel removes events from a PMU that goes; earlier ones continue to
/// use the PMU after it was freed (`perf_pmu_unregister`, kernel/events/core.c).
const REVOKES: &str = "6.15";

/// By then each counter has its first boundary: traffic before it is in no window.
const START_MS: u32 = 300;

/// Length of the traffic.
const DURATION_MS: u32 = 3500;

pub(super) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let mut steps = vec![held_step(setting)?];
    let unbound: Vec<_> = UNBOUND
        .iter()
        .flat_map(|(model, module)| {
            setting.machine.instances_of(model).into_iter().map(move |instance| (instance, *module))
        })
        .collect();
    if !unbound.is_empty() && setting.is_since(REVOKES)? {
        steps.push(unbound_step(setting, &unbound)?);
    }
    Ok(steps)
}

/// The kernel refuses to unload the modules, and nothing is lost.
fn held_step(setting: &Setting<'_>) -> Result<Step> {
    let mut options = vec!["--tick".to_owned(), "5ms".to_owned()];
    let mut checks = vec![Check::Exit { code: 0, says: Vec::new() }, Check::Conserved];
    let (mut flows, mut actions, mut counter) = (Vec::new(), Vec::new(), 0);
    for (model, event, modules) in HELD {
        for instance in setting.machine.instances_of(model) {
            let (spec, flow, truth) = counter_with_move(instance, event)?;
            options.extend(["-e".to_owned(), spec]);
            flows.extend(flow);
            let (pmu, event) = (instance.name.clone(), (*event).to_owned());
            checks.push(Check::Exact { counter, pmu, event, truth });
            counter += 1;
            actions
                .extend(modules.iter().map(|module| Change::Held { module: (*module).to_owned() }));
        }
    }
    let timed_action = |(number, change)| Action { after_ms: 800 + 20 * number as u32, change };
    let actions = actions.into_iter().enumerate().map(timed_action).collect();
    Ok(record_step("unload-held", &options, flows, actions, checks))
}

/// PMUs that go and come back, beside others that stay.
fn unbound_step(
    setting: &Setting<'_>,
    unbound: &[(&Instance, Option<(&'static str, &'static str)>)],
) -> Result<Step> {
    let mut options = ["--tick", "5ms", "--interval", "50ms"].map(str::to_owned).to_vec();
    let mut checks = vec![
        Check::Exit { code: 1, says: vec!["of a counter".to_owned(), "drivers".to_owned()] },
        Check::Conserved,
        Check::Lost { causes: vec!["counter_stopped".to_owned()] },
    ];
    let (mut flows, mut counter) = (Vec::new(), 0);
    for (model, event, _) in HELD {
        for instance in setting.machine.instances_of(model) {
            let (spec, flow, truth) = counter_with_move(instance, event)?;
            options.extend(["-e".to_owned(), spec]);
            flows.extend(flow);
            let (pmu, event) = (instance.name.clone(), (*event).to_owned());
            checks.push(if unbound.iter().any(|(stopped, _)| stopped.name == instance.name) {
                Check::Resumed { counter, pmu, event, truth }
            } else {
                Check::Exact { counter, pmu, event, truth }
            });
            counter += 1;
        }
    }
    // With a value above 2, which is Debian's default, its kernels open events only with
    // CAP_SYS_ADMIN.
    let mut actions = vec![Action { after_ms: 0, change: Change::Paranoid { level: 2 } }];
    for (instance, _) in unbound {
        let pmu = instance.name.clone();
        actions.push(Action { after_ms: 800, change: Change::Unbind { pmu } });
    }
    let mut modules: Vec<(&str, &str)> = unbound.iter().filter_map(|(_, module)| *module).collect();
    modules.dedup();
    for (module, file) in modules {
        actions
            .push(Action { after_ms: 1000, change: Change::Unload { module: module.to_owned() } });
        actions.push(Action { after_ms: 2200, change: Change::Load { module: file.to_owned() } });
    }
    for (instance, _) in unbound.iter().filter(|(_, module)| module.is_none()) {
        let pmu = instance.name.clone();
        actions.push(Action { after_ms: 2000, change: Change::Bind { pmu } });
    }
    Ok(record_step("unload-unbound", &options, flows, actions, checks))
}

/// The event as typed, its traffic, and the part of it that the counter counts.
fn counter_with_move(
    instance: &Instance,
    event: &str,
) -> Result<(String, Option<Move>, super::super::step::Truth)> {
    let (spec, truth) = traffic::spec_and_truth(instance, event)?;
    Ok((spec, traffic::moves_of_event(instance, event).first().copied(), truth))
}

fn record_step(
    name: &str,
    options: &[String],
    flows: Vec<Move>,
    actions: Vec<Action>,
    checks: Vec<Check>,
) -> Step {
    let tenant = Tenant {
        cgroup: Some("unload".to_owned()),
        cpus: Some(vec![0]),
        flows,
        start_ms: START_MS,
        duration_ms: DURATION_MS,
        ..Tenant::default()
    };
    let work = Work { tenants: vec![tenant], actions, settle_ms: 100 };
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    Step::for_record(name, &options, work, checks)
}
