//! Adds metrics to a plan: their inputs become counters, and events of one ratio are counted at the
//! same time.

use std::collections::BTreeSet;

use anyhow::Result;

use super::assembly::Assembly;
use super::measure::ResolvedMetric;
use super::pmu_cpus::{ReaderSpot, reader_spots};
use super::resolve::ResolvedEvent;
use crate::catalog::budget::find_overcommitted;
use crate::catalog::family::PmuKind;
use crate::catalog::metric::{Input, Metric, PlannedMetric};
use crate::catalog::pmu_words::PmuWords;

/// Largest number of members in a group that metrics share: a CMN crosspoint, a memory controller
/// of Intel or AMD, and a core shared by two threads can all count these at once. A larger group
/// waits longer for its turn beside other tools.
pub(super) const FEW: usize = 4;

impl<'a> Assembly<'a> {
    /// Adds metrics. An input that is already planned is not added again. A PMU without a CPU to
    /// read it is an error if there is no other, and a note otherwise.
    pub(super) fn add_metrics(&mut self, metrics: &[ResolvedMetric<'a>]) -> Result<()> {
        let mut unreadable = Vec::new();
        let metric_count = self.plan.metrics.len();
        for measured in metrics {
            let first_event = measured.inputs.iter().find_map(|(_, event)| event.as_ref());
            let (name, die) =
                first_event.map_or(("", None), |resolved| (&*resolved.encoded.event, resolved.die));
            match reader_spots(self.machine, measured.words, name, die) {
                Ok(spots) => {
                    for event in measured.inputs.iter().filter_map(|(_, event)| event.as_ref()) {
                        self.agreement.add_event(event, None)?;
                        self.add_event(event.clone());
                    }
                    for spot in spots {
                        self.add_metric(measured, spot);
                    }
                }
                Err(error) => unreadable.push(error),
            }
        }
        self.warn_of_unreadable(unreadable, self.plan.metrics.len() == metric_count)
    }

    /// The formula of a metric on values in the units of its counters.
    fn scaled_formula(&self, metric: &Metric, inputs: &[Input]) -> String {
        let formula = metric.formula.to_string();
        if !metric.vendor {
            return formula;
        }
        let in_counts = formula.split(' ').map(|word| {
            let input = inputs.iter().find(|input| input.name == word);
            let counter = input.and_then(|input| self.plan.counters.get(input.counter? as usize));
            match counter.map(|counter| counter.scale) {
                Some(scale) if scale.to_bits() != 1_f64.to_bits() => {
                    format!("( {word} / {scale} )")
                }
                _ => word.to_owned(),
            }
        });
        in_counts.collect::<Vec<_>>().join(" ")
    }

    /// Adds one metric on one CPU.
    fn add_metric(&mut self, measured: &ResolvedMetric<'a>, spot: ReaderSpot) {
        let ResolvedMetric { metric, words, .. } = measured;
        let mut inputs = Vec::new();
        for (name, event) in &measured.inputs {
            let counter = event.as_ref().map(|event| self.push(event, spot, None).0);
            inputs.push(Input { name: (*name).to_owned(), counter });
        }
        if measured.is_ratio() && words.family.is_some_and(|family| family.groupable) {
            self.group_counters(*words, inputs.iter().filter_map(|input| input.counter).collect());
        }
        self.plan.metrics.push(PlannedMetric {
            name: metric.name.clone(),
            about: metric.about.clone(),
            unit: metric.unit.clone(),
            formula: self.scaled_formula(metric, &inputs),
            across: metric.across,
            family: words.family_name().to_owned(),
            pmu: words.pmu.name.clone(),
            filter: measured.common_filter(),
            cpu: spot.cpu,
            socket: spot.socket,
            per_cpu: words.is_per_cpu(),
            inputs,
            constants: measured.constants.clone(),
        });
    }

    /// Makes one group of these counters of one PMU and CPU, and of those grouped with them, if it
    /// is small enough; otherwise of those that are in no group. Groups that the user typed are not
    /// changed.
    fn group_counters(&mut self, words: PmuWords<'a>, ids: Vec<u32>) {
        let max_members = ids.len().max(FEW);
        let root = |id: u32| self.plan.counters[id as usize].leader.unwrap_or(id);
        let free = ids.into_iter().map(root).filter(|root| !self.typed.contains(root));
        let mut roots: BTreeSet<u32> = free.collect();
        let leads = |id: &u32| self.siblings.contains_key(id);
        if words.is_kind(PmuKind::Core) {
            // The number of free counters of a core is unknown (a watchdog may hold one), so
            // existing groups do not grow.
            roots.retain(|root| !leads(root));
        }
        let led = roots.iter().filter_map(|root| self.siblings.get(root)).flatten();
        let mut members: Vec<u32> = roots.iter().chain(led).copied().collect();
        members.sort_unstable();
        if members.len() > max_members || !self.fits_together(words, &members) {
            members = roots.into_iter().filter(|root| !leads(root)).collect();
            if members.len() > max_members || !self.fits_together(words, &members) {
                return;
            }
        }
        // In the order of their ids, because a leader comes before its siblings.
        let Some((leader, siblings)) = members.split_first() else { return };
        self.set_leader(siblings, *leader);
    }

    /// Whether the PMU can count all of these at once, as far as known.
    fn fits_together(&self, words: PmuWords<'a>, ids: &[u32]) -> bool {
        let is_member = |event: &&ResolvedEvent<'_>| {
            let mut counters = ids.iter().map(|id| &self.plan.counters[*id as usize]);
            counters.any(|counter| {
                counter.pmu == event.words.pmu.name && counter.config == event.encoded.config
            })
        };
        let event_indexes = self.events_of.get(words.pmu_name()).into_iter().flatten();
        let pmu_events = event_indexes.filter_map(|index| self.events.get(*index));
        let events: Vec<_> = pmu_events.filter(is_member).map(|event| &event.encoded).collect();
        find_overcommitted(words, &events).iter().all(|limit| limit.unsure)
    }
}
