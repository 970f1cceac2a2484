//! The CPUs on which a PMU is read, and the CPUs whose traffic its counters can see.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use super::pmus::PmuIndex;
use crate::catalog::domain::RegisterDomain;
use crate::catalog::near::Near;
use crate::catalog::pmu_words::PmuWords;
use crate::catalog::source::TrafficCause;
use crate::discover::cpus::{CpuCache, TopologyLevel};
use crate::discover::{CpuList, Machine, Pmu};
use crate::text::printable;

/// A reader CPU of a PMU: a CPU on which it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReaderSpot {
    /// The reader CPU.
    pub cpu: u32,
    /// Its package.
    pub socket: Option<i16>,
}

/// The online CPUs whose traffic a counter can see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sight {
    /// All of them.
    pub sees: CpuList,
    /// Those of them that are far from the PMU, if others are near.
    pub far: CpuList,
}

impl Sight {
    /// The CPUs whose traffic with these causes a counter of `event` on `cpu` sees. Without causes,
    /// as for a clock, the CPUs near the PMU.
    ///
    /// A per-CPU PMU sees its CPU. For other PMUs, near CPUs are determined in this order: the
    /// catalog, `associated_cpus`, the part of the machine that has one reader CPU (package, die,
    /// NUMA node), all CPUs. For an uncore PMU without a `cpumask`, the reader CPU has no meaning.
    pub(super) fn for_counter<'a>(
        pmus: &PmuIndex<'a>,
        words: PmuWords<'a>,
        event: &str,
        cpu: u32,
        causes: &BTreeSet<TrafficCause>,
    ) -> Self {
        if words.is_per_cpu() {
            return Self { sees: CpuList::from_iter([cpu]), far: CpuList::default() };
        }
        let machine = pmus.machine;
        let near = || near_cpus(pmus, words, event, cpu);
        let far = |near: &CpuList| machine.cpus.online.difference(near);
        let has_cause = |cause| causes.contains(&cause);
        match (causes.is_empty() || has_cause(TrafficCause::Cpu), has_cause(TrafficCause::Remote)) {
            (true, true) => {
                let (near, online) = (near(), &machine.cpus.online);
                Self { sees: near.union_with(online), far: far(&near) }
            }
            (true, false) => Self { sees: near(), far: CpuList::default() },
            (false, true) => Self { sees: far(&near()), far: CpuList::default() },
            (false, false) => Self::default(),
        }
    }
}

/// The reader CPUs of an event of a PMU, on one die if given. An error says why there are none.
///
/// A PMU with a `cpumask` is read on those CPUs, on one of each domain that has only one register.
/// A per-CPU PMU without one is read on every online CPU (in its `cpus`, for a core PMU). Any other
/// PMU without one is read on the first CPU, which says nothing about its location.
pub(super) fn reader_spots(
    machine: &Machine,
    words: PmuWords<'_>,
    event: &str,
    die: Option<u32>,
) -> Result<Vec<ReaderSpot>> {
    let pmu = words.pmu;
    let online = &machine.cpus.online;
    let first_cpu: CpuList = online.first_cpu().into_iter().collect();
    let wanted = match (&pmu.cpumask, &pmu.cpus) {
        (Some(mask), _) => mask,
        (None, Some(cpus)) => cpus,
        (None, None) if words.is_per_cpu() => online,
        (None, None) => &first_cpu,
    };
    let owners = wanted.intersection(online);
    if let (true, Some(why)) = (owners.is_empty(), unreadable_reason(machine, pmu, wanted)) {
        bail!("{why}");
    }
    let spot = |cpu| {
        let socket = machine.cpus.cpu_location(cpu).package;
        ReaderSpot { cpu, socket: socket.filter(|_| pmu.cpumask.is_some() || words.is_per_cpu()) }
    };
    let on_die = |cpu: &u32| die.is_none_or(|die| machine.cpus.die_number(*cpu) == Some(die));
    let owners: CpuList = owners.iter().filter(on_die).collect();
    let owners = one_cpu_per_domain(
        machine,
        &owners,
        words.family.and_then(|family| family.register_domain(pmu, event)),
    );
    let spots: Vec<ReaderSpot> = owners.iter().map(spot).collect();
    if let (Some(die), true) = (die, spots.is_empty()) {
        bail!(
            "{} has no CPU online on die {die}: bring one of its CPUs online",
            printable(&words.pmu.name)
        );
    }
    Ok(spots)
}

/// Why a PMU cannot be read on some of the CPUs on which it is read; `None` if all are online.
fn unreadable_reason(machine: &Machine, pmu: &Pmu, wanted: &CpuList) -> Option<String> {
    let name = printable(&pmu.name);
    if wanted.is_empty() {
        let bring = pmu.associated_cpus.as_ref().filter(|cpus| !cpus.is_empty());
        return Some(format!(
            "the cpumask of {name} is empty, which means that every CPU it can be read on is \
             offline: bring one online{} (echo 1 > /sys/devices/system/cpu/cpuN/online)",
            bring.map_or_else(String::new, |cpus| format!(", one of {cpus}"))
        ));
    }
    let offline = wanted.difference(&machine.cpus.online);
    let offline_cpu = offline.first_cpu()?;
    let bring = format!("bring it back (echo 1 > /sys/devices/system/cpu/cpu{offline_cpu}/online)");
    Some(if offline == *wanted {
        format!("{name} can only be read on CPU {wanted}, which is offline: {bring}")
    } else {
        format!(
            "{name} is not counted on CPU {offline} of its cpumask, which is offline: what is \
             read there is missing, {bring}"
        )
    })
}

/// What offline CPUs of its `cpumask` keep from being counted by an event of an uncore PMU; `None`
/// if nothing. Where all its CPUs read one register, any of them is enough.
pub(super) fn offline_readers(
    machine: &Machine,
    words: PmuWords<'_>,
    event: &str,
) -> Option<String> {
    let wanted = words.pmu.cpumask.as_ref()?;
    let domain = words.family.and_then(|family| family.register_domain(words.pmu, event));
    let is_read = domain == Some(RegisterDomain::Machine)
        && !wanted.intersection(&machine.cpus.online).is_empty();
    unreadable_reason(machine, words.pmu, wanted).filter(|_| !is_read)
}

/// The first CPU of each domain. CPUs at unknown locations may be in different ones.
fn one_cpu_per_domain(
    machine: &Machine,
    cpus: &CpuList,
    domain: Option<RegisterDomain>,
) -> CpuList {
    let mut seen = BTreeSet::new();
    let mut is_first = |cpu: &u32| match domain {
        None => true,
        Some(RegisterDomain::Machine) => seen.insert(None),
        Some(RegisterDomain::Package) => {
            let package = machine.cpus.cpu_location(*cpu).package;
            package.is_none() || seen.insert(package)
        }
    };
    cpus.iter().filter(&mut is_first).collect()
}

fn near_cpus<'a>(pmus: &PmuIndex<'a>, words: PmuWords<'a>, event: &str, cpu: u32) -> CpuList {
    let cpus = &pmus.machine.cpus;
    let socket = || cpus.cpus_sharing(cpu, TopologyLevel::Package);
    let node = || cpus.cpus_sharing(cpu, TopologyLevel::Node);
    let associated = || {
        let associated =
            words.pmu.associated_cpus.as_ref().map(|mask| mask.intersection(&cpus.online));
        associated.filter(|cpus| !cpus.is_empty())
    };
    let Some(readers) = &words.pmu.cpumask else {
        return associated().unwrap_or_else(|| cpus.online.clone());
    };
    let rule = words.family.and_then(|family| family.near_rule(event));
    let known = rule.and_then(|rule| match (rule.cpus, rule.index) {
        (Near::All, _) => Some(cpus.online.clone()),
        (Near::Socket, _) => socket(),
        (Near::Node, _) => node(),
        (Near::Core, _) => cpus.cpus_sharing(cpu, TopologyLevel::Core),
        (Near::Cache, None) => cpus.cpus_sharing(cpu, TopologyLevel::Cache),
        (Near::Cache, Some(index)) => nth_cache(pmus.machine, cpu, index),
    });
    let domain = words.family.and_then(|family| family.register_domain(words.pmu, event));
    let known = known.or_else(|| match domain {
        Some(RegisterDomain::Machine) => Some(cpus.online.clone()),
        Some(RegisterDomain::Package) => socket(),
        None => None,
    });
    let known = known.or_else(associated).or_else(|| cpus_of_instance(pmus, words, readers, cpu));
    known.or_else(socket).or_else(node).unwrap_or_else(|| cpus.online.clone())
}

/// The parts of a machine that can have an instance of a PMU each, the largest first.
const PARTS: [TopologyLevel; 5] = [
    TopologyLevel::Package,
    TopologyLevel::Die,
    TopologyLevel::Node,
    TopologyLevel::PackageCache,
    TopologyLevel::Core,
];

/// The parts that instances of different PMUs can have: the first of [`PARTS`]. Drivers may choose
/// any CPU of such a part, so that smaller ones say nothing.
const LARGE: usize = 3;

/// The online CPUs of the part of the machine that has the instance of a PMU at `cpu`: the largest
/// kind of part of which no two reader CPUs share one. The readers are those of the PMU, or if it
/// has only one those of all PMUs of its kind. `None` if no kind of part distinguishes them.
///
/// A driver has one reader CPU for each instance of the hardware: on x86 in one PMU
/// (`perf_event.h`, `enum perf_pmu_scope`, Linux 7.2), on Arm mostly in one PMU for each instance.
fn cpus_of_instance<'a>(
    pmus: &PmuIndex<'a>,
    words: PmuWords<'a>,
    readers: &CpuList,
    cpu: u32,
) -> Option<CpuList> {
    let cpus = &pmus.machine.cpus;
    let own_readers = readers.intersection(&cpus.online);
    let (readers, levels) = if own_readers.len() > 1 {
        (own_readers, &PARTS[..])
    } else {
        (pmus.readers_of_kind(words).intersection(&cpus.online), &PARTS[..LARGE])
    };
    let distinguishes = |level: &&TopologyLevel| {
        let mut seen = BTreeSet::new();
        readers.iter().all(|cpu| {
            level.topology_key(cpus.cpu_location(cpu)).is_some_and(|key| seen.insert(key))
        })
    };
    cpus.cpus_sharing(cpu, *levels.iter().find(distinguishes)?)
}

/// The online CPUs of the last-level cache with this number within the socket of `cpu`.
fn nth_cache(machine: &Machine, cpu: u32, index: usize) -> Option<CpuList> {
    let cpus = &machine.cpus;
    let socket = cpus.cpus_sharing(cpu, TopologyLevel::Package)?;
    let caches: BTreeSet<CpuCache> =
        socket.iter().filter_map(|cpu| cpus.cpu_location(cpu).cache).collect();
    cpus.cpus_sharing(caches.iter().nth(index)?.first_cpu, TopologyLevel::Cache)
}
