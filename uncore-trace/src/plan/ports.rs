//! Ports: counters of the traffic of a few CPUs, by which the counts of all CPUs are divided.
//!
//! The catalog names the events ([`Family::witnesses`](crate::catalog::family::Family::witnesses)
//! of a PMU that is not a core's), and the PMU says which CPUs it sees. Method `ports` divides a
//! counter by them if they see each of its CPUs once.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};

use super::assembly::Assembly;
use super::misses::{WitnessEvent, name_counters};
use super::pmu_cpus::{ReaderSpot, Sight, reader_spots};
use super::resolve::Resolver;
use super::{Counter, CounterRole, Plan};
use crate::catalog::family::PmuKind;
use crate::catalog::pmu_words::PmuWords;
use crate::catalog::source::Cause;
use crate::discover::CpuList;
use crate::suggest::list_names;
use crate::text::printable;

impl Counter {
    /// Whether its counts serve to divide those of counters that see more CPUs.
    pub const fn is_port(&self) -> bool {
        self.role.is_weight() && !self.per_cpu
    }

    /// Whether a port sees a part of the CPUs that this counter sees.
    pub fn has_port(&self, port: &Self) -> bool {
        port.is_port() && is_part(&port.sees, &self.sees)
    }
}

/// Whether some of these CPUs, but not all, are those of a port.
fn is_part(port: &CpuList, cpus: &CpuList) -> bool {
    port != cpus && port.is_subset(cpus)
}

impl Plan {
    /// Whether CPUs cause what a counter counts, and ports see each of its CPUs once.
    pub fn has_ports_of(&self, counter: &Counter) -> bool {
        if !counter.is_of_cpus() || counter.is_port() || counter.sees.is_empty() {
            return false;
        }
        let mut seen = CpuList::default();
        for port in self.counters.iter().filter(|port| counter.has_port(port)) {
            if !seen.intersection(&port.sees).is_empty() {
                return false;
            }
            seen = seen.union_with(&port.sees);
        }
        seen == counter.sees
    }
}

/// A port that a PMU can count.
struct PortCandidate<'a> {
    source: WitnessEvent<'a>,
    spot: ReaderSpot,
    sees: CpuList,
}

impl<'a> Assembly<'a> {
    /// Adds ports for each counter of more CPUs, if they see each of its CPUs.
    ///
    /// # Errors
    ///
    /// No counter has ports.
    pub(super) fn add_ports(&mut self, resolver: &Resolver<'a>) -> Result<()> {
        let of_cpus = self.plan.counters.iter().filter(|counter| counter.is_of_cpus());
        let seen: Vec<(u32, CpuList)> =
            of_cpus.map(|candidate| (candidate.id, candidate.sees.clone())).collect();
        ensure!(
            !seen.is_empty(),
            "--witness ports divides traffic of CPUs, and no selected counter counts it: leave it \
             out, or select a counter whose cause is cpu in `uncore-trace list events`"
        );
        let candidates = self.find_ports(resolver);
        ensure!(
            !candidates.is_empty(),
            "this machine has no ports, which are counters of an L3 of AMD or of a cluster of Arm: \
             leave out --witness ports"
        );
        let uncovered_by_ports = |cpus: &CpuList| -> CpuList {
            let ports = candidates.iter().filter(|port| is_part(&port.sees, cpus));
            cpus.difference(&ports.map(|port| &port.sees).collect())
        };
        let is_as_small = |cpus: &CpuList| candidates.iter().any(|port| cpus.is_subset(&port.sees));
        let (divided, lacking): (Vec<_>, Vec<_>) =
            seen.into_iter().partition(|(_, cpus)| uncovered_by_ports(cpus).is_empty());
        let lacking: Vec<_> = lacking.into_iter().filter(|entry| !is_as_small(&entry.1)).collect();
        let why = lacking.first().map(|(_, cpus)| {
            let uncovered = uncovered_by_ports(cpus);
            format!("no ports for {}: CPU {uncovered} has none", name_counters(&lacking))
        });
        if divided.is_empty() {
            let why =
                why.unwrap_or_else(|| "no selected counter counts more CPUs than a port".into());
            bail!("--witness ports: {why}; leave it out, or select counters of other CPUs");
        }
        if let Some(why) = why {
            self.add_note(why);
        }
        let serves =
            |port: &PortCandidate<'_>| divided.iter().any(|(_, cpus)| is_part(&port.sees, cpus));
        self.add_candidates(candidates.iter().filter(|port| serves(port)), &name_counters(&divided))
    }

    /// The ports that PMUs can count, no two of them of one CPU.
    fn find_ports(&mut self, resolver: &Resolver<'a>) -> Vec<PortCandidate<'a>> {
        let mut candidates: Vec<PortCandidate<'a>> = Vec::new();
        let mut seen = CpuList::default();
        for source in resolver.pmu_words().filter_map(port_event) {
            let WitnessEvent { words, event, .. } = source;
            let spots = match reader_spots(self.machine, words, event.name, None) {
                Ok(spots) => spots,
                Err(error) => {
                    self.add_warning(format!("{error:#}"));
                    continue;
                }
            };
            for spot in spots {
                let causes = [Cause::Cpu].into();
                let Sight { sees, .. } =
                    Sight::for_counter(&self.pmus, words, event.name, spot.cpu, &causes);
                if seen.intersection(&sees).is_empty() && !sees.is_empty() {
                    seen = seen.union_with(&sees);
                    candidates.push(PortCandidate { source, spot, sees });
                }
            }
        }
        candidates
    }

    fn add_candidates<'f>(
        &mut self,
        candidates: impl Iterator<Item = &'f PortCandidate<'a>>,
        named: &str,
    ) -> Result<()>
    where
        'a: 'f,
    {
        let mut by_event: BTreeMap<(&str, &str), (WitnessEvent<'a>, Vec<u32>)> = BTreeMap::new();
        for PortCandidate { source, spot, .. } in candidates {
            let WitnessEvent { words, event, .. } = *source;
            let key = (words.pmu.name.as_str(), event.name);
            if !by_event.contains_key(&key) {
                ensure!(
                    self.has_counter(*source)?,
                    "--witness ports: no counter of {} is left for {}: count fewer of its events",
                    printable(key.0),
                    event.name
                );
            }
            self.add_port(*source, *spot)?;
            by_event.entry(key).or_insert((*source, Vec::new())).1.push(spot.cpu);
        }
        for ((pmu, event), (source, cpus)) in by_event {
            self.add_note(format!(
                "{named} are divided by port {}/{event}/, read on CPU {}; the port does not \
                 show {}",
                printable(pmu),
                CpuList::from_iter(cpus),
                list_names(source.witness.unseen.iter().map(String::as_str)),
            ));
        }
        Ok(())
    }

    fn add_port(&mut self, source: WitnessEvent<'a>, spot: ReaderSpot) -> Result<()> {
        let event = source.resolve_event()?;
        let (id, new) = self.push(&event, spot, None);
        if let Some(counter) = self.plan.counters.get_mut(id as usize) {
            counter.role = if new { CounterRole::Weight } else { CounterRole::Both };
            counter.witness_bytes = Some(source.witness.bytes);
        }
        if new {
            self.add_event(event);
        }
        Ok(())
    }
}

/// The first port of an uncore PMU's family for its processor that the PMU has.
fn port_event(words: PmuWords<'_>) -> Option<WitnessEvent<'_>> {
    let family = words.family.filter(|family| family.kind == PmuKind::Uncore)?;
    let mut ports = family.witnesses.iter().filter(|candidate| candidate.applies_to_pmu(words.pmu));
    ports.find_map(|witness| {
        Some(WitnessEvent { words, event: words.find_event(&witness.event)?, witness })
    })
}
