//! The counters of last-level misses that method `misses` divides by: one on each CPU whose traffic a
//! counter sees that CPUs alone cause.
//!
//! Which event that is stands in the catalog ([`Family::misses`](crate::catalog::family::Family::misses)), how
//! it is encoded in sysfs or the catalog as for any other. Of several core PMUs each CPU has its own.
//! Where a CPU has none, what counters see that see it is divided otherwise, and a note says so.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::assembly::Assembly;
use super::place::Spot;
use super::resolve::{Resolved, Resolver};
use super::{Counter, Plan};
use crate::catalog::encode::Encoded;
use crate::catalog::family::Kind;
use crate::catalog::source::Cause;
use crate::catalog::spec::{Term, TermValue};
use crate::catalog::suggest::list;
use crate::catalog::words::{Known, Words};
use crate::discover::CpuList;
use crate::schema::counters;
use crate::text::printable;

/// Whether miss counters are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wanted {
    /// They are not.
    #[default]
    No,
    /// Those that are counted anyway: one more costs time at every switch of its CPU.
    IfCounted,
    /// Nothing is planned without them.
    Surely,
}

/// What a counter is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Its counts are divided.
    #[default]
    Counted,
    /// Others are divided by its counts; it has no rows of its own.
    Weight,
    /// Both.
    Both,
}

impl Role {
    /// The word for the `role` column.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::Weight => counters::WEIGHT,
            Self::Both => "both",
        }
    }

    /// Whether others are divided by its counts.
    pub const fn weighs(self) -> bool {
        !matches!(self, Self::Counted)
    }

    /// Whether its counts are divided.
    pub const fn counts(self) -> bool {
        !matches!(self, Self::Weight)
    }

    /// Whether it is as most are, and goes without saying.
    pub const fn is_counted(&self) -> bool {
        matches!(self, Self::Counted)
    }
}

/// The event that a CPU's misses are counted with.
#[derive(Clone, Copy)]
struct Source<'a> {
    words: Words<'a>,
    event: Known<'a>,
}

impl Plan {
    /// Whether CPUs alone cause what a counter counts, and the misses of each of them are counted.
    pub fn has_misses_of(&self, counter: &Counter) -> bool {
        let weighed = |cpu| self.counters.iter().any(|its| its.role.weighs() && its.cpu == cpu);
        counter.is_of_cpus() && !counter.sees.is_empty() && counter.sees.iter().all(weighed)
    }

    /// Whether any misses are counted.
    pub fn has_misses(&self) -> bool {
        self.counters.iter().any(|counter| counter.role.weighs())
    }
}

impl Counter {
    /// Whether several CPUs, and nothing else, cause what it counts.
    pub fn is_of_cpus(&self) -> bool {
        self.cause == Some(Cause::Cpu) && !self.per_cpu
    }
}

impl<'a> Assembly<'a> {
    /// Adds a miss counter for each CPU whose traffic is to be divided.
    ///
    /// # Errors
    ///
    /// One that is surely wanted cannot be had.
    pub(super) fn add_misses(&mut self, resolver: &Resolver<'a>, wanted: Wanted) -> Result<()> {
        let of_cpus = self.plan.counters.iter().filter(|counter| counter.is_of_cpus());
        let mut seen: Vec<(u32, CpuList)> = of_cpus.map(|its| (its.id, its.sees.clone())).collect();
        if wanted == Wanted::No || seen.is_empty() && wanted != Wanted::Surely {
            return Ok(());
        }
        if seen.is_empty() {
            bail!(
                "--method misses divides what CPUs alone cause, and nothing asked for counts that: \
                 leave it out, or ask for a counter whose cause is cpu in \
                 `uncore-trace list events`"
            );
        }
        let cpus: CpuList = seen.iter().flat_map(|(_, cpus)| cpus.iter()).collect();
        let sources: BTreeMap<u32, Source<'a>> =
            cpus.iter().filter_map(|cpu| Some((cpu, source(resolver, cpu)?))).collect();
        let without: CpuList = cpus.iter().filter(|cpu| !sources.contains_key(cpu)).collect();
        if !without.is_empty() {
            let why = why(resolver, &without);
            if wanted == Wanted::Surely {
                bail!("--method misses: {why}; choose --method regression");
            }
            self.note(format!("not divided by misses: {why}"));
        }
        seen.retain(|(_, cpus)| cpus.iter().all(|cpu| sources.contains_key(&cpu)));
        if wanted == Wanted::IfCounted {
            return self.use_misses(&sources, &seen);
        }
        let needed: CpuList = seen.iter().flat_map(|(_, cpus)| cpus.iter()).collect();
        let mut by_event: BTreeMap<(&str, &str), Vec<u32>> = BTreeMap::new();
        for cpu in needed.iter() {
            let Some(source) = sources.get(&cpu) else { continue };
            self.add_weight(*source, cpu)?;
            by_event.entry((&source.words.pmu.name, source.event.name)).or_default().push(cpu);
        }
        let ids: CpuList = seen.iter().map(|(id, _)| *id).collect();
        for ((pmu, event), cpus) in by_event {
            self.note(format!(
                "{}/{event}/ is read at every switch on CPU {} to divide counter{} {ids} by misses; \
                 another --method goes without",
                printable(pmu),
                CpuList::from_iter(cpus),
                if seen.len() == 1 { "" } else { "s" },
            ));
        }
        Ok(())
    }

    /// Divides by the misses that are counted anyway; where none are, says that they could be.
    fn use_misses(
        &mut self,
        sources: &BTreeMap<u32, Source<'a>>,
        seen: &[(u32, CpuList)],
    ) -> Result<()> {
        let mut without = Vec::new();
        for (id, cpus) in seen {
            let of_cpu = |cpu| Some((cpu, *sources.get(&cpu)?));
            let all: Vec<(u32, Source<'a>)> = cpus.iter().filter_map(of_cpu).collect();
            let mut counted = true;
            for (cpu, source) in &all {
                counted &= self.is_planned(*source, *cpu)?;
            }
            if !counted {
                without.push(*id);
                continue;
            }
            for (cpu, source) in all {
                self.add_weight(source, cpu)?;
            }
        }
        if !without.is_empty() {
            self.note(format!(
                "--method misses would divide counter{} {} by the last-level misses of each task, \
                 for some 0.7 us at every switch",
                if without.len() == 1 { "" } else { "s" },
                CpuList::from_iter(without),
            ));
        }
        Ok(())
    }

    fn is_planned(&self, source: Source<'a>, cpu: u32) -> Result<bool> {
        let encoded = encode(source)?;
        Ok(self.seen.contains_key(&(encoded.attr_type, encoded.config, cpu)))
    }

    fn add_weight(&mut self, source: Source<'a>, cpu: u32) -> Result<()> {
        let Source { words, event } = source;
        let encoded = encode(source)?;
        let group = words.family.map_or("other", |family| family.group_of(event.name).name());
        let event = Resolved { words, group, encoded, die: None };
        let place = self.machine.cpus.place(cpu);
        let spot = Spot { cpu, socket: place.package };
        let (id, new) = self.push(&event, spot, None);
        if let Some(counter) = self.plan.counters.get_mut(id as usize) {
            counter.role = if new { Role::Weight } else { Role::Both };
            counter.at_switch = true;
        }
        self.events.push(event);
        Ok(())
    }
}

fn encode(source: Source<'_>) -> Result<Encoded> {
    let name = source.event.name.to_owned();
    let terms = [Term { name, value: TermValue::Bare, column: 1 }];
    source.words.encode(&terms, &[]).map_err(|error| anyhow::anyhow!("{error}"))
}

/// The core PMUs with the CPU.
fn cores<'a>(resolver: &Resolver<'a>, cpu: u32) -> impl Iterator<Item = Words<'a>> + use<'a> {
    let has = move |words: &Words<'_>| {
        let core = words.family.is_some_and(|family| family.kind == Kind::Core);
        let cpus = words.pmu.cpus.as_ref();
        core && words.is_per_cpu() && cpus.is_none_or(|cpus| cpus.contains(cpu))
    };
    resolver.words().filter(has)
}

/// The first of the events of its core PMU's family that the PMU has.
fn source<'a>(resolver: &Resolver<'a>, cpu: u32) -> Option<Source<'a>> {
    cores(resolver, cpu).find_map(|words| {
        let events = &words.family?.misses;
        let event = events.iter().find_map(|name| words.event(name))?;
        Some(Source { words, event })
    })
}

fn why(resolver: &Resolver<'_>, without: &CpuList) -> String {
    let mut pmus: Vec<Words<'_>> = Vec::new();
    for words in without.iter().flat_map(|cpu| cores(resolver, cpu)) {
        if !pmus.iter().any(|known| known.pmu.name == words.pmu.name) {
            pmus.push(words);
        }
    }
    if pmus.is_empty() {
        return format!("CPU {without} shows no core PMU (a virtual machine without counters?)");
    }
    let events = pmus.iter().filter_map(|words| words.family).flat_map(|family| &family.misses);
    let mut events: Vec<&str> = events.map(String::as_str).collect();
    events.dedup();
    format!(
        "{} on CPU {without} counts no misses of the last cache{}",
        list(pmus.iter().map(|words| words.pmu.name.as_str())),
        if events.is_empty() { String::new() } else { format!(" (no event {})", list(events)) }
    )
}
