//! Witnesses: one more counter on each CPU whose traffic is counted, such as its last-level cache
//! misses. Method `misses` divides traffic by them.
//!
//! The catalog names the event ([`Family::witnesses`](crate::catalog::family::Family::witnesses));
//! its encoding comes from sysfs or the catalog, as for any other. With several core PMUs, each CPU
//! uses its own. If a CPU has no witness, the counters that see it are divided by another method,
//! and a note says so.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Result, bail};

use super::allowance::WitnessAllowance;
use super::assembly::Assembly;
use super::pmu_cpus::ReaderSpot;
use super::resolve::{ResolvedEvent, Resolver};
use super::weights::{
    CpusCounter, WitnessCpus, WitnessEvent, WitnessReaders, all_seen, name_counters,
};
use super::{Counter, CounterRole, Plan};
use crate::catalog::family::PmuKind;
use crate::catalog::group::Group;
use crate::catalog::pmu_words::PmuWords;
use crate::catalog::source::TrafficCause;
use crate::discover::CpuList;
use crate::suggest::list_names;
use crate::text::printable;

/// Whether witnesses are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum WitnessDemand {
    /// No.
    #[default]
    No,
    /// Those that are counted anyway, and others within this allowance.
    Within(WitnessAllowance),
    /// Yes; otherwise planning fails.
    Surely,
}

impl Plan {
    /// Whether CPUs cause what a counter counts, and each CPU that it sees has a witness.
    pub fn has_misses_of(&self, counter: &Counter) -> bool {
        self.has_witnesses_of(counter, |_| true)
    }

    /// Whether any witness is counted.
    pub fn has_misses(&self) -> bool {
        self.counters.iter().any(Counter::is_witness)
    }

    /// The counters that are only witnesses.
    pub fn only_witnesses(&self) -> impl Iterator<Item = &Counter> {
        let witnesses = self.counters.iter().filter(|counter| counter.is_witness());
        witnesses.filter(|counter| counter.role == CounterRole::Weight)
    }

    /// The counters that are only witnesses and become useless without those in `removed`: a
    /// counter needs the witnesses of all CPUs that it sees.
    pub fn useless_witnesses(&self, removed: &BTreeSet<u32>) -> Vec<u32> {
        let whole =
            |counter: &&Counter| self.has_witnesses_of(counter, |id| !removed.contains(&id));
        let divided: CpuList =
            self.counters.iter().filter(whole).map(|counter| &counter.sees).collect();
        let is_useless = |witness: &&Counter| !divided.contains(witness.cpu);
        let remaining = self.only_witnesses().filter(|witness| !removed.contains(&witness.id));
        remaining.filter(is_useless).map(|witness| witness.id).collect()
    }

    fn has_witnesses_of(&self, counter: &Counter, is_there: impl Fn(u32) -> bool) -> bool {
        if !counter.is_of_cpus() || counter.sees.is_empty() {
            return false;
        }
        let is_witness = |counter: &&Counter| counter.is_witness() && is_there(counter.id);
        let witnesses = self.counters.iter().filter(is_witness);
        let covered: CpuList = witnesses.map(|witness| witness.cpu).collect();
        counter.sees.is_subset(&covered)
    }
}

impl Counter {
    /// Whether its counts serve to divide those of counters that see its CPU.
    pub const fn is_witness(&self) -> bool {
        self.role.is_weight() && self.per_cpu
    }

    /// Whether it is a witness, and nothing else, that does not count virtual machines.
    pub fn is_blind_witness(&self) -> bool {
        self.is_witness() && self.exclude_guest && self.role == CounterRole::Weight
    }

    /// Whether several CPUs cause at least a part of what it counts, through their caches: accesses
    /// to PCIe devices are not cached, and energy is not traffic.
    pub fn is_of_cpus(&self) -> bool {
        let by_cpus =
            self.cause == Some(TrafficCause::Cpu) || self.causes.contains(&TrafficCause::Cpu);
        let is_uncached =
            [Group::Pcie, Group::Energy].iter().any(|group| group.name() == self.subsystem);
        by_cpus && !is_uncached && !self.per_cpu
    }
}

impl<'a> Assembly<'a> {
    /// Adds a witness for each CPU whose traffic is divided.
    ///
    /// # Errors
    ///
    /// A witness is required and cannot be opened.
    pub(super) fn add_misses(
        &mut self,
        resolver: &Resolver<'a>,
        wanted: WitnessDemand,
    ) -> Result<()> {
        let mut seen = self.counters_of_cpus();
        if wanted == WitnessDemand::No || seen.is_empty() && wanted != WitnessDemand::Surely {
            return Ok(());
        }
        if seen.is_empty() {
            bail!(
                "--method misses divides traffic of CPUs, and no selected counter counts it: leave \
                 it out, or select a counter whose cause is cpu in `uncore-trace list events`"
            );
        }
        let cpus = all_seen(&seen);
        let sources = witness_sources(resolver, &cpus);
        let witnessed: CpuList = sources.keys().copied().collect();
        let uncovered = cpus.difference(&witnessed);
        if !uncovered.is_empty() {
            let why = missing_reason(resolver, &uncovered);
            if wanted == WitnessDemand::Surely {
                bail!("--method misses: {why}; choose --method regression");
            }
            let lacking = seen.extract_if(.., |counter| !counter.sees.is_subset(&witnessed));
            let lacking: Vec<_> = lacking.collect();
            self.add_note(format!("no witness for {}: {why}", name_counters(&lacking)));
        }
        if let WitnessDemand::Within(allowance) = wanted {
            if self.machine.mediated_pmu.is_none() {
                self.use_counted(&sources, &mut seen)?;
            }
            self.add_within(&sources, &seen, allowance)
        } else {
            let note = "--method residency or regression needs none";
            self.add_weights(&sources, &seen, note)
        }
    }

    /// Removes counters from `seen` whose witnesses are counted anyway.
    fn use_counted(
        &mut self,
        sources: &BTreeMap<u32, WitnessEvent<'a>>,
        seen: &mut Vec<CpusCounter>,
    ) -> Result<()> {
        let mut encoder = WitnessEncoder::default();
        let mut missing = Vec::new();
        for (cpu, source) in sources {
            let event = &encoder.resolve_event(*source)?.encoded;
            if !self.seen.contains_key(&(event.attr_type, event.config, *cpu)) {
                missing.push(*cpu);
            }
        }
        let missing: CpuList = missing.into_iter().collect();
        let has_all = |counter: &mut CpusCounter| counter.sees.intersection(&missing).is_empty();
        let counted: Vec<_> = seen.extract_if(.., has_all).collect();
        for cpu in all_seen(&counted).iter() {
            if let Some(source) = sources.get(&cpu) {
                self.add_weight(*source, cpu, &mut encoder)?;
            }
        }
        Ok(())
    }

    /// Adds the witnesses of these counters, or a note with the reason why not.
    fn add_within(
        &mut self,
        sources: &BTreeMap<u32, WitnessEvent<'a>>,
        seen: &[CpusCounter],
        allowance: WitnessAllowance,
    ) -> Result<()> {
        let cpus = all_seen(seen);
        let Some(first_source) = cpus.iter().find_map(|cpu| sources.get(&cpu)) else {
            return Ok(());
        };
        let mut counters: HashMap<u32, usize> = HashMap::new();
        for counter in self.plan.counters.iter().filter(|counter| cpus.contains(counter.cpu)) {
            *counters.entry(counter.cpu).or_default() += 1;
        }
        let max_counters = counters.into_values().max().unwrap_or_default();
        let tick_ns = self.plan.tick_ns;
        let refusal = allowance.refusal_reason(tick_ns, cpus.len(), max_counters);
        let why = refusal.map(|refusal| allowance.explain_refusal(refusal));
        let why = match why {
            None => self.no_counter_left(sources, &cpus)?,
            reason => reason,
        };
        if let Some(why) = why {
            let WitnessEvent { words, event, .. } = first_source;
            let pmu = printable(&words.pmu.name);
            self.add_note(format!(
                "no witness {pmu}/{}/ for {}: {why}",
                event.name,
                name_counters(seen)
            ));
            return Ok(());
        }
        let budget = allowance.percent;
        let note = match (allowance.witness_cost(tick_ns), allowance.switches) {
            (Some(cost), Some(switches)) => format!(
                "this takes {cost:.2} % of the time of each CPU at {switches:.0} context switches \
                 a second, --witness-budget is {budget} %"
            ),
            _ => format!(
                "--witness-budget is {budget} %, the rate of context switches is measured when \
                 a recording starts"
            ),
        };
        self.add_weights(sources, seen, &note)
    }

    /// Why the core PMUs of these CPUs have no counter left.
    fn no_counter_left(
        &self,
        sources: &BTreeMap<u32, WitnessEvent<'a>>,
        cpus: &CpuList,
    ) -> Result<Option<String>> {
        let mut looked_at = BTreeSet::new();
        for source in cpus.iter().filter_map(|cpu| sources.get(&cpu)) {
            let pmu = source.words.pmu_name();
            if !looked_at.insert(pmu) {
                continue;
            }
            if !self.has_counter(*source)? {
                return Ok(Some(format!("no counter of {} is left for it", printable(pmu))));
            }
        }
        Ok(None)
    }

    /// Adds the witnesses of these counters.
    fn add_weights(
        &mut self,
        sources: &BTreeMap<u32, WitnessEvent<'a>>,
        seen: &[CpusCounter],
        note: &str,
    ) -> Result<()> {
        let mut encoder = WitnessEncoder::default();
        let mut readers = WitnessReaders::default();
        for cpu in all_seen(seen).iter() {
            let Some(source) = sources.get(&cpu) else { continue };
            self.add_weight(*source, cpu, &mut encoder)?;
            readers.add_reader(*source, cpu);
        }
        let guests = self.machine.mediated_pmu.map_or_else(String::new, |parameter| {
            format!(
                "; {parameter} is on, so it does not count virtual machines: where one ran in a \
                 window, the method is regression or residency"
            )
        });
        for WitnessCpus { event, cpus, unseen } in readers.list_events() {
            self.add_note(format!(
                "witness {event} of {} is read at every context switch on CPU {cpus}; it does not \
                 count {unseen}; {note}{guests}",
                name_counters(seen),
            ));
        }
        Ok(())
    }

    fn add_weight(
        &mut self,
        source: WitnessEvent<'a>,
        cpu: u32,
        encoder: &mut WitnessEncoder<'a>,
    ) -> Result<()> {
        let event = encoder.resolve_event(source)?;
        let spot = ReaderSpot { cpu, socket: self.machine.cpus.cpu_location(cpu).package };
        if self.machine.mediated_pmu.is_some() {
            // Readings of a witness that does not count guests are marked, those of the user's are
            // not: it is another counter.
            let key = (event.encoded.attr_type, event.encoded.config, cpu);
            let counted =
                |id: &u32| self.plan.counters.get(*id as usize).map(|planned| planned.role);
            if self.seen.get(&key).and_then(counted) == Some(CounterRole::Counted) {
                self.seen.remove(&key);
            }
        }
        if let Some(counter) = self.push_weight(event, spot, source.witness) {
            counter.at_switch = true;
        }
        Ok(())
    }
}

/// The events of witnesses, which are encoded once for each PMU and not for each CPU.
#[derive(Default)]
struct WitnessEncoder<'a> {
    by_pmu: HashMap<&'a str, ResolvedEvent<'a>>,
}

impl<'a> WitnessEncoder<'a> {
    fn resolve_event(&mut self, source: WitnessEvent<'a>) -> Result<&ResolvedEvent<'a>> {
        Ok(match self.by_pmu.entry(&source.words.pmu.name) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(source.resolve_event()?),
        })
    }
}

/// The core PMUs of the machine.
fn core_pmus<'a>(resolver: &Resolver<'a>) -> Vec<PmuWords<'a>> {
    let is_core = |words: &PmuWords<'_>| words.is_per_cpu() && words.is_kind(PmuKind::Core);
    resolver.pmu_words().filter(is_core).collect()
}

/// Whether a core PMU is of the CPU.
fn has_cpu(words: PmuWords<'_>, cpu: u32) -> bool {
    words.pmu.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu))
}

/// For each CPU that has one, the first witness of its core PMU's family for its processor that the
/// PMU has.
fn witness_sources<'a>(resolver: &Resolver<'a>, cpus: &CpuList) -> BTreeMap<u32, WitnessEvent<'a>> {
    let witness_events: Vec<WitnessEvent<'a>> =
        core_pmus(resolver).into_iter().filter_map(WitnessEvent::find_first).collect();
    let of_cpu =
        |cpu| Some((cpu, *witness_events.iter().find(|source| has_cpu(source.words, cpu))?));
    cpus.iter().filter_map(of_cpu).collect()
}

fn missing_reason(resolver: &Resolver<'_>, uncovered: &CpuList) -> String {
    let cores = core_pmus(resolver);
    let mut pmus: Vec<PmuWords<'_>> = Vec::new();
    for words in uncovered
        .iter()
        .flat_map(|cpu| cores.iter().filter(move |core_pmu| has_cpu(**core_pmu, cpu)))
    {
        if !pmus.iter().any(|known| known.pmu.name == words.pmu.name) {
            pmus.push(*words);
        }
    }
    if pmus.is_empty() {
        return format!("CPU {uncovered} has no core PMU (a virtual machine without counters?)");
    }
    let families = pmus.iter().filter_map(|words| words.family);
    let mut events: Vec<&str> = families
        .flat_map(|family| &family.witnesses)
        .map(|witness| witness.event.as_str())
        .collect();
    events.dedup();
    format!(
        "{} on CPU {uncovered} has none of its events{}",
        list_names(pmus.iter().map(PmuWords::pmu_name)),
        if events.is_empty() { String::new() } else { format!(", {}", list_names(events)) }
    )
}
