//! Every metric of every PMU: with known traffic, `stat -M` prints the value of the lab's own
//! formula.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use super::super::machine::Instance;
use super::super::pmu::{LabFormula, LabPmu};
use super::super::step::{Check, Step, Tenant, Truth, Work};
use super::super::traffic;
use super::Setting;

/// Relative tolerance: values are computed from integer counts and a time in ns.
const WITHIN: f64 = 1e-6;

/// A metric and its events.
struct MetricItem<'a> {
    name: &'a str,
    formula: &'a LabFormula,
    events: Vec<&'a str>,
}

pub(super) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for model in setting.machine.model_names() {
        let instances = setting.machine.instances_of(model);
        let Some(reference) = instances.first() else {
            continue;
        };
        // The program sums instances with one name, of any description.
        let alike = |instance: &Instance| {
            instance.model != reference.model && instance.pmu.name == reference.pmu.name
        };
        let apart = setting.machine.instances.iter().any(alike);
        let mut waiting = measurable_metrics(&reference.pmu);
        while !waiting.is_empty() {
            let batch = take_batch(&reference.pmu, &mut waiting);
            steps.push(build_step(model, steps.len(), &instances, apart, &batch)?);
        }
    }
    Ok(steps)
}

/// The metrics whose events all exist on this kernel.
fn measurable_metrics(pmu: &LabPmu) -> Vec<MetricItem<'_>> {
    let items = pmu.metrics.iter().map(|(name, formula)| {
        let events = formula.value.split(|c: char| !c.is_alphanumeric() && c != '_');
        let events = events.filter(|word| pmu.events.contains_key(*word)).collect();
        MetricItem { name, formula, events }
    });
    items.filter(|item| !item.events.is_empty()).collect()
}

/// As many as can be counted at once; one that needs single sources is counted alone.
fn take_batch<'a>(pmu: &LabPmu, waiting: &mut Vec<MetricItem<'a>>) -> Vec<MetricItem<'a>> {
    let mut batch: Vec<MetricItem<'a>> = Vec::new();
    let mut postponed = Vec::new();
    for item in waiting.drain(..) {
        let mut events: Vec<&str> = batch.iter().flat_map(|chosen| chosen.events.clone()).collect();
        events.extend(&item.events);
        events.sort_unstable();
        events.dedup();
        let exclusive = events.iter().filter(|event| pmu.is_exclusive(event)).count();
        let alone = batch.iter().chain([&item]).any(|item| item.formula.by_source());
        let fits = events.len() <= pmu.at_once && exclusive <= 1 && !alone;
        if batch.is_empty() || fits {
            batch.push(item);
        } else {
            postponed.push(item);
        }
    }
    *waiting = postponed;
    batch
}

fn build_step(
    model: &str,
    number: usize,
    instances: &[&Instance],
    apart: bool,
    batch: &[MetricItem<'_>],
) -> Result<Step> {
    let mut checks = vec![Check::Exit { code: 0, says: Vec::new() }];
    for item in batch {
        let mut inputs: Vec<BTreeMap<String, Truth>> = Vec::new();
        for instance in instances {
            let truths = item.events.iter().map(|event| {
                let view = instance.pmu.first_view(event).context("an event without a view")?;
                let truth = traffic::truth_in_view(instance, event, view);
                let mut truth = truth.context("an event without a number")?;
                if item.formula.by_source() {
                    truth.sources = None;
                }
                Ok(((*event).to_owned(), truth))
            });
            inputs.push(truths.collect::<Result<_>>()?);
        }
        checks.push(Check::Metric {
            metric: item.name.to_owned(),
            formula: item.formula.clone(),
            inputs,
            pmus: instances.iter().map(|instance| instance.name.clone()).collect(),
            within: WITHIN,
        });
    }
    let tenant = Tenant {
        cgroup: Some("metrics".to_owned()),
        once: instances.iter().flat_map(|instance| traffic::all_moves(instance)).collect(),
        ..Tenant::default()
    };
    let work = Work { tenants: vec![tenant], settle_ms: 50, ..Work::default() };
    let names: Vec<&str> = batch.iter().map(|item| item.name).collect();
    let names = names.join(",");
    let mut options = vec!["-M", &names, "-e", "duration_time"];
    if apart {
        options.push("--no-merge");
    }
    Ok(Step::for_stat(&format!("metrics-{number:03}-{model}"), &options, work, checks))
}
