//! Ports: counters of the traffic of a few CPUs, by which the counts of all CPUs are divided.
//!
//! The catalog names the events ([`Family::witnesses`](crate::catalog::family::Family::witnesses)
//! of a PMU that is not a core's), and the PMU says which CPUs it sees. Method `ports` divides a
//! counter by them if they see each of its CPUs once.

use anyhow::{Result, bail, ensure};

use super::assembly::Assembly;
use super::pmu_cpus::{ReaderSpot, Sight, reader_spots};
use super::resolve::Resolver;
use super::weights::{CpusCounter, WitnessCpus, WitnessEvent, WitnessReaders, name_counters};
use super::{Counter, Plan};
use crate::catalog::family::PmuKind;
use crate::catalog::pmu_words::PmuWords;
use crate::catalog::source::TrafficCause;
use crate::discover::CpuList;
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
        let seen = self.counters_of_cpus();
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
        let (divided, lacking): (Vec<CpusCounter>, Vec<_>) =
            seen.into_iter().partition(|counter| uncovered_by_ports(&counter.sees).is_empty());
        let lacking: Vec<CpusCounter> =
            lacking.into_iter().filter(|counter| !is_as_small(&counter.sees)).collect();
        let why = lacking.first().map(|counter| {
            let uncovered = uncovered_by_ports(&counter.sees);
            format!("no ports for {}: CPU {uncovered} has none", name_counters(&lacking))
        });
        if divided.is_empty() {
            let why =
                why.unwrap_or_else(|| "no selected counter counts more CPUs than a port".into());
            bail!("--witness ports: {why}; leave it out, or select counters of other CPUs");
        }
        self.add_notes(why);
        let serves = |port: &PortCandidate<'_>| {
            divided.iter().any(|counter| is_part(&port.sees, &counter.sees))
        };
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
                let causes = [TrafficCause::Cpu].into();
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
        let mut readers = WitnessReaders::default();
        for PortCandidate { source, spot, .. } in candidates {
            if readers.add_reader(*source, spot.cpu) {
                ensure!(
                    self.has_counter(*source)?,
                    "--witness ports: no counter of {} is left for {}: count fewer of its events",
                    printable(&source.words.pmu.name),
                    source.event.name
                );
            }
            self.push_weight(&source.resolve_event()?, *spot, source.witness);
        }
        for WitnessCpus { event, cpus, unseen } in readers.list_events() {
            self.add_note(format!(
                "{named} are divided by port {event}, read on CPU {cpus}; the port does not show \
                 {unseen}"
            ));
        }
        Ok(())
    }
}

/// The first port of an uncore PMU's family for its processor that the PMU has.
fn port_event(words: PmuWords<'_>) -> Option<WitnessEvent<'_>> {
    WitnessEvent::find_first(words).filter(|_| words.is_kind(PmuKind::Uncore))
}
