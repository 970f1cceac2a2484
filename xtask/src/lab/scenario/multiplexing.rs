//! More events than counters: each runs part of the time, its scaled count is right for steady
//! traffic, and a window in which it did not run has no count, not a count of zero.

use anyhow::{Context as _, Result};

use super::super::machine::Instance;
use super::super::step::{Check, Move, Step, Tenant, Work};
use super::super::traffic;
use super::Setting;

/// Long enough for hundreds of rotations (`perf_event_mux_interval_ms` is 4).
const DURATION_MS: u32 = 6000;

/// How far scaled counts may be off.
const WITHIN: f64 = 0.03;

/// Descriptions of PMUs whose counters are few.
const MODELS: &[&str] = &["grace-scf", "t410-ucf", "yitian-rootport"];

pub fn steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for model in MODELS {
        if let Some(instance) = setting.machine.of(model).first() {
            steps.push(step(setting, instance)?);
        }
    }
    Ok(steps)
}

fn step(setting: &Setting<'_>, instance: &Instance) -> Result<Step> {
    let pmu = &instance.pmu;
    let exclusive: Vec<&str> =
        pmu.exclusive.iter().map(String::as_str).filter(|event| event.contains("pcie")).collect();
    let events: Vec<&str> = if exclusive.is_empty() {
        let all = pmu.events.keys().map(String::as_str).filter(|event| *event != "cycles");
        all.take(2 * pmu.at_once).collect()
    } else {
        exclusive
    };
    let mut options = ["--tick", "1ms", "--interval", "2ms"].map(str::to_owned).to_vec();
    let mut checks = vec![Check::Exit { code: 0, says: Vec::new() }, Check::Conserved];
    let mut flows: Vec<Move> = Vec::new();
    for (counter, event) in events.iter().enumerate() {
        let view = pmu.first_view(event).context("an event without a view")?;
        options.extend(["-e".to_owned(), traffic::spec(instance, event, view)]);
        let truth = traffic::seen(instance, event, view).context("an event without a number")?;
        flows.extend(traffic::of_event(instance, event).first());
        checks.push(Check::Near {
            counter: counter as u32,
            pmu: instance.name.clone(),
            event: (*event).to_owned(),
            truth,
            within: WITHIN,
        });
    }
    checks.push(Check::Multiplexed { counters: events.len() as u32 });
    // On a CPU of its own, or its pace would not be steady.
    let tenant = Tenant {
        cgroup: "steady".to_owned(),
        cpus: Some(vec![setting.machine.cpus() - 1]),
        flows,
        duration_ms: DURATION_MS,
        ..Tenant::default()
    };
    let work = Work { tenants: vec![tenant], settle_ms: 50, ..Work::default() };
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    Ok(Step::record(&format!("multiplexing-{}", instance.model), &options, work, checks))
}
