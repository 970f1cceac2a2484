//! More events than counters: each runs part of the time, its scaled count is right for steady
//! traffic, and a window in which it did not run has no count, not a count of 0.

use anyhow::{Context as _, Result};

use super::super::machine::Instance;
use super::super::step::{Check, Move, Step, Tenant, Work};
use super::super::traffic;
use super::Setting;
use super::traps::PMU_LOGS;

/// Long enough for hundreds of rotations (`perf_event_mux_interval_ms` is 4), most of which may be
/// late in a guest on a busy host.
const STEADY_MS: u32 = 8000;

/// Long enough for windows without a rotation.
const SHORT_MS: u32 = 1000;

/// Largest relative error of scaled counts.
const WITHIN: f64 = 0.03;

/// A description of a PMU that selects one requester at a time, and an event.
const REQUESTERS: (&str, &str) = ("t410-pcie", "rd_bytes");

/// Descriptions of PMUs with few counters.
const MODELS: &[&str] = &["grace-scf", "t410-ucf", "yitian-rootport", "kunpeng-920-l3c"];

pub(super) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for model in MODELS {
        if let Some(instance) = setting.machine.instances_of(model).first() {
            steps.push(scaled_step(setting, instance)?);
            steps.push(unscheduled_step(setting, instance)?);
        }
    }
    for instance in setting.machine.instances_of(REQUESTERS.0).into_iter().take(1) {
        steps.push(requesters_step(setting, instance)?);
    }
    Ok(steps)
}

/// One event for all requesters and for each of two, of which the PMU selects one at a time. The
/// driver must not be asked for two at once: it would write that into the kernel's log at each
/// rotation.
fn requesters_step(setting: &Setting<'_>, instance: &Instance) -> Result<Step> {
    let (_, event) = REQUESTERS;
    let mut options = time_options("10ms", "1s");
    let mut checks = vec![
        Check::Conserved,
        Check::KernelSilent { about: PMU_LOGS.iter().map(|&words| words.to_owned()).collect() },
    ];
    let whole = instance.pmu.first_view(event);
    let views = whole.into_iter().chain(instance.pmu.view.iter().filter(|view| view.alone));
    for (counter, view) in (0..).zip(views) {
        options.extend(["-e".to_owned(), traffic::event_spec(instance, event, view)]);
        let truth =
            traffic::truth_in_view(instance, event, view).context("there is no such event")?;
        let (pmu, event) = (instance.name.clone(), event.to_owned());
        checks.push(Check::Near { counter, pmu, event, truth, within: WITHIN });
    }
    checks.push(Check::TookTurns { counters: checks.len() as u32 - 2 });
    let flows = traffic::moves_of_event(instance, event);
    Ok(tenant_step("requesters", setting, instance, &options, flows, STEADY_MS, checks))
}

/// Twice as many events as can be counted at once.
fn event_names(instance: &Instance) -> Vec<&str> {
    let pmu = &instance.pmu;
    if pmu.exclusive.is_empty() {
        let events = pmu.events.keys().map(String::as_str).filter(|event| *event != "cycles");
        return events.take(2 * pmu.at_once).collect();
    }
    let events = pmu.events.keys().map(String::as_str);
    events.filter(|event| pmu.is_exclusive(event) && event.contains("pcie")).collect()
}

/// Windows that are much longer than a rotation.
fn scaled_step(setting: &Setting<'_>, instance: &Instance) -> Result<Step> {
    let mut options = time_options("10ms", "1s");
    // Estimating rates takes so much of the host's time that the tenant's pace becomes uneven.
    options.extend(["--method", "residency"].map(str::to_owned));
    // The exit code depends on the length of the last window.
    let mut checks = vec![Check::Conserved];
    for (counter, event) in event_names(instance).into_iter().enumerate() {
        let (spec, truth) = traffic::spec_and_truth(instance, event)?;
        options.extend(["-e".to_owned(), spec]);
        let (counter, pmu, event) = (counter as u32, instance.name.clone(), event.to_owned());
        checks.push(Check::Near { counter, pmu, event, truth, within: WITHIN });
    }
    checks.push(Check::TookTurns { counters: checks.len() as u32 - 1 });
    Ok(tenant_step("scaled", setting, instance, &options, first_moves(instance), STEADY_MS, checks))
}

/// Windows that are shorter than a rotation.
fn unscheduled_step(setting: &Setting<'_>, instance: &Instance) -> Result<Step> {
    let mut options = time_options("1ms", "2ms");
    let events = event_names(instance);
    for event in &events {
        options.extend(["-e".to_owned(), traffic::spec_and_truth(instance, event)?.0]);
    }
    let checks = vec![
        Check::Exit { code: 1, says: vec!["a counter did not run in a window".to_owned()] },
        Check::TookTurns { counters: events.len() as u32 },
        Check::NeverRan,
        Check::Conserved,
    ];
    Ok(tenant_step("windows", setting, instance, &options, first_moves(instance), SHORT_MS, checks))
}

fn time_options(tick: &str, interval: &str) -> Vec<String> {
    ["--tick", tick, "--interval", interval].map(str::to_owned).to_vec()
}

/// A move of each event.
fn first_moves(instance: &Instance) -> Vec<Move> {
    let events = event_names(instance);
    let first_move = |event: &&str| traffic::moves_of_event(instance, event).first().copied();
    events.iter().filter_map(first_move).collect()
}

/// A recording beside one tenant that moves these all the time.
fn tenant_step(
    label: &str,
    setting: &Setting<'_>,
    instance: &Instance,
    options: &[String],
    flows: Vec<Move>,
    duration_ms: u32,
    checks: Vec<Check>,
) -> Step {
    // On its own CPU, so that its pace is steady.
    let tenant = Tenant {
        cgroup: Some("steady".to_owned()),
        cpus: Some(vec![setting.machine.cpu_count() - 1]),
        flows,
        duration_ms,
        ..Tenant::default()
    };
    let work = Work { tenants: vec![tenant], settle_ms: 50, ..Work::default() };
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let name = format!("multiplexing-{label}-{}", instance.model);
    Step::for_record(&name, &options, work, checks)
}
