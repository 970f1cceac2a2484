//! Every PMU, with each of its events and filters: the recorded total equals the true traffic
//! exactly.
//!
//! Everything that the PMU can count moves in every step, each by a different amount, so that a
//! counter of another event or of one more port has another sum.

use anyhow::{Context as _, Result};

use super::super::machine::Instance;
use super::super::pmu::EventView;
use super::super::step::{Check, Step, Tenant, Work};
use super::super::traffic;
use super::Setting;

/// A counter to open.
struct ExactCounter<'a> {
    event: &'a str,
    view: &'a EventView,
}

pub(super) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for model in setting.machine.model_names() {
        let instances = setting.machine.instances_of(model);
        // The scenario `misses` tests events that each CPU counts for itself.
        let Some(reference) = instances.first().filter(|candidate| !candidate.pmu.is_per_cpu())
        else {
            continue;
        };
        let items = list_counters(reference);
        let (alone, shared): (Vec<ExactCounter<'_>>, Vec<ExactCounter<'_>>) =
            items.into_iter().partition(|item| item.view.alone);
        // If one recording holds all events, every instance counts all of them.
        let everywhere =
            shared.len() <= reference.pmu.at_once && reference.pmu.exclusive.is_empty();
        let mut waiting: Vec<&ExactCounter<'_>> = shared.iter().collect();
        while !waiting.is_empty() {
            let mut counters = Vec::new();
            let mut batch = Vec::new();
            for instance in &instances {
                if !everywhere || batch.is_empty() {
                    batch = take_batch(reference, &mut waiting);
                }
                counters.extend(batch.iter().map(|item| (*instance, *item)));
            }
            steps.push(build_step(model, steps.len(), &instances, &counters)?);
        }
        for item in &alone {
            let counters: Vec<_> = instances.iter().map(|instance| (*instance, item)).collect();
            steps.push(build_step(model, steps.len(), &instances, &counters)?);
        }
    }
    Ok(steps)
}

/// Every event in its first view, then some events in each of the others.
fn list_counters(instance: &Instance) -> Vec<ExactCounter<'_>> {
    let pmu = &instance.pmu;
    let firsts = pmu.events.keys().filter_map(|event| {
        let view = pmu.first_view(event)?;
        Some(ExactCounter { event, view })
    });
    let other_views = pmu.events.keys().flat_map(|event| {
        let first_view = pmu.first_view(event);
        let tried = pmu.view_events.is_empty() || pmu.view_events.contains(event);
        pmu.view
            .iter()
            .filter(move |view| {
                tried
                    && view.applies_to(event)
                    && first_view.is_some_and(|shown| !std::ptr::eq(shown, *view))
            })
            .map(move |view| ExactCounter { event, view })
    });
    firsts.chain(other_views).collect()
}

/// As many as can be counted at once, only one of the exclusive ones, and no event twice.
fn take_batch<'a, 'b>(
    instance: &Instance,
    waiting: &mut Vec<&'a ExactCounter<'b>>,
) -> Vec<&'a ExactCounter<'b>> {
    let pmu = &instance.pmu;
    let is_exclusive = |item: &ExactCounter<'_>| pmu.is_exclusive(item.event);
    let mut batch: Vec<&ExactCounter<'_>> = Vec::new();
    waiting.retain(|item| {
        let full = batch.len() == pmu.at_once
            || is_exclusive(item) && batch.iter().any(|chosen| is_exclusive(chosen))
            || pmu.distinct && batch.iter().any(|chosen| chosen.event == item.event);
        if !full {
            batch.push(item);
        }
        full
    });
    batch
}

fn build_step(
    model: &str,
    number: usize,
    instances: &[&Instance],
    counters: &[(&Instance, &ExactCounter<'_>)],
) -> Result<Step> {
    let mut options = vec!["--tick".to_owned(), "10ms".to_owned()];
    let mut checks = vec![Check::Exit { code: 0, says: Vec::new() }, Check::Conserved];
    for (counter, (instance, item)) in counters.iter().enumerate() {
        options.extend(["-e".to_owned(), traffic::event_spec(instance, item.event, item.view)]);
        let truth = traffic::truth_in_view(instance, item.event, item.view)
            .with_context(|| format!("{model} has no event {}", item.event))?;
        checks.push(Check::Exact {
            counter: counter as u32,
            pmu: instance.name.clone(),
            event: item.event.to_owned(),
            truth,
        });
    }
    let tenant = Tenant {
        cgroup: Some("exact".to_owned()),
        once: instances.iter().flat_map(|instance| traffic::all_moves(instance)).collect(),
        ..Tenant::default()
    };
    let work = Work { tenants: vec![tenant], settle_ms: 50, ..Work::default() };
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    Ok(Step::for_record(&format!("exact-{number:03}-{model}"), &options, work, checks))
}
