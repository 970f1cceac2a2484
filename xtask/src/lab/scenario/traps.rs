//! Requests that a driver accepts but does not count, or that flood the kernel's log: the plan
//! refuses them with the reason before anything is opened, or opens the intended counter.

use anyhow::{Context as _, Result};

use super::super::machine::Instance;
use super::super::step::{Check, Step, Tenant, Work};
use super::super::traffic;
use super::Setting;

/// Words in the drivers' messages in the kernel's log.
pub(super) const PMU_LOGS: &[&str] = &["BDF", "grouping", "ali_drw", "mutually exclusive"];

/// A request, with `PMU` for the name of the PMU, and words that the refusal must contain.
struct Trap {
    name: &'static str,
    model: &'static str,
    events: &'static [&'static str],
    says: &'static [&'static str],
}

const TRAPS: &[Trap] = &[
    Trap {
        name: "bdf-without-enable",
        model: "t410-pcie",
        events: &["PMU/rd_bytes,src_bdf=0x100/"],
        says: &["src_bdf", "src_bdf_en"],
    },
    Trap {
        name: "bdf-and-port-mask",
        model: "t410-pcie",
        events: &["PMU/rd_bytes,src_rp_mask=0x1,src_bdf=0x100,src_bdf_en=1/"],
        says: &["src_rp_mask", "src_bdf_en"],
    },
];

/// Groups that the driver refuses, or opens but never runs: a description and its events.
const GROUPS: &[(&str, [&str; 2])] = &[
    ("yitian-drw", ["hif_rd", "hif_wr"]),
    ("yitian-rootport", ["rx_memory_read,lane=0", "rx_memory_write,lane=0"]),
];

pub(super) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let refused_of = |trap: &'static Trap| {
        let instances = setting.machine.instances_of(trap.model);
        instances.first().map(|instance| refused_step(trap, instance))
    };
    let mut steps: Vec<Step> = TRAPS.iter().filter_map(refused_of).collect();
    for (model, events) in GROUPS {
        let knows = |instance: &&Instance| {
            let mut events = events.iter().map(|event| event.split(',').next().unwrap_or(event));
            events.all(|event| instance.pmu.events.contains_key(event))
        };
        if let Some(instance) = setting.machine.instances_of(model).into_iter().find(knows) {
            steps.push(grouped_step(model, instance, events)?);
        }
    }
    Ok(steps)
}

/// A group in braces that must be counted anyway.
fn grouped_step(model: &str, instance: &Instance, events: &[&str]) -> Result<Step> {
    let members: Vec<String> =
        events.iter().map(|event| format!("{}/{event}/", instance.name)).collect();
    let mut checks = vec![
        Check::Exit { code: 0, says: Vec::new() },
        Check::KernelSilent { about: PMU_LOGS.iter().map(|&words| words.to_owned()).collect() },
    ];
    for (counter, event) in events.iter().enumerate() {
        let (event, lane) =
            event.split_once(',').map_or((*event, ""), |(event, lane)| (event, lane));
        let views = &instance.pmu.view;
        let view = views.iter().find(|view| view.applies_to(event) && view.terms == lane);
        let truth = view.and_then(|view| traffic::truth_in_view(instance, event, view));
        let truth = truth.with_context(|| format!("{model} has no event {event}"))?;
        let (pmu, event) = (instance.name.clone(), event.to_owned());
        checks.push(Check::Exact { counter: counter as u32, pmu, event, truth });
    }
    let tenant = Tenant {
        cgroup: Some("group".to_owned()),
        once: traffic::all_moves(instance),
        ..Tenant::default()
    };
    let work = Work { tenants: vec![tenant], settle_ms: 50, ..Work::default() };
    let group = format!("{{{}}}", members.join(","));
    Ok(Step::for_record(&format!("traps-group-{model}"), &["-e", &group], work, checks))
}

fn refused_step(trap: &Trap, instance: &Instance) -> Step {
    let name = format!("traps-{}", trap.name);
    let events = trap
        .events
        .iter()
        .flat_map(|event| ["-e".to_owned(), event.replace("PMU", &instance.name)]);
    let options: Vec<String> = events.collect();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let says = trap.says.iter().map(|&words| words.to_owned()).collect();
    let checks = vec![
        Check::Exit { code: 2, says },
        Check::NoRecording,
        Check::KernelSilent { about: PMU_LOGS.iter().map(|&words| words.to_owned()).collect() },
    ];
    Step::for_record(&name, &options, Work::default(), checks)
}
