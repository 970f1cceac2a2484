//! Where the counters of a PMU are read, and whose traffic each can see.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::catalog::family::Sees;
use crate::catalog::words::Words;
use crate::discover::cpus::Place;
use crate::discover::{CpuList, Machine};
use crate::text::printable;

/// One CPU a PMU is read on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spot {
    /// The reader CPU.
    pub cpu: u32,
    /// Its package.
    pub socket: Option<i16>,
    /// The CPUs whose traffic is seen there.
    pub sees: CpuList,
}

/// The reader CPUs of a PMU, of one die where that is given; an error says why there are none.
///
/// A PMU with a `cpumask` is read on those CPUs, one without on every online CPU (of its `cpus`,
/// for a core PMU). What an uncore PMU sees is, in this order: its `associated_cpus`, what the
/// catalog says, the owner's package, its NUMA node, every CPU.
pub(super) fn spots(machine: &Machine, words: Words<'_>, die: Option<u32>) -> Result<Vec<Spot>> {
    let pmu = words.pmu;
    let online = &machine.cpus.online;
    let wanted = match (&pmu.cpumask, &pmu.cpus) {
        (Some(mask), _) => mask,
        (None, Some(cpus)) => cpus,
        (None, None) => online,
    };
    if wanted.is_empty() {
        let bring = pmu.associated_cpus.as_ref().filter(|cpus| !cpus.is_empty());
        bail!(
            "the cpumask of {} is empty, which means that every CPU it can be read on is offline: \
             bring one online{} (echo 1 > /sys/devices/system/cpu/cpuN/online)",
            printable(&pmu.name),
            bring.map_or_else(String::new, |cpus| format!(", one of {cpus}"))
        );
    }
    let owners = wanted.and(online);
    if owners.is_empty() {
        bail!(
            "{} can only be read on CPU {wanted}, which is offline: bring it back \
             (echo 1 > /sys/devices/system/cpu/cpu{}/online)",
            printable(&pmu.name),
            wanted.iter().next().unwrap_or_default()
        );
    }
    let spot = |cpu| Spot {
        cpu,
        socket: machine.cpus.place(cpu).package,
        sees: if pmu.is_per_cpu() { CpuList::from_iter([cpu]) } else { sees(machine, words, cpu) },
    };
    let on_die = |cpu: &u32| die.is_none_or(|die| die_number(machine, *cpu) == Some(die));
    let spots: Vec<Spot> = owners.iter().filter(on_die).map(spot).collect();
    if let (Some(die), true) = (die, spots.is_empty()) {
        bail!(
            "{} has no CPU online on die {die}: bring one of its CPUs online",
            printable(&words.pmu.name)
        );
    }
    Ok(spots)
}

/// The number of a CPU's die, counted over all packages in their order, as the kernel numbers them
/// (`topology_logical_die_id`, arch/x86/kernel/cpu/topology.c, Linux 7.2).
fn die_number(machine: &Machine, cpu: u32) -> Option<u32> {
    let of = |place: Place| Some((place.package?, place.die.unwrap_or_default()));
    let mine = of(machine.cpus.place(cpu))?;
    let dies: BTreeSet<_> = machine.cpus.places.values().filter_map(|place| of(*place)).collect();
    dies.iter().position(|die| *die == mine).and_then(|at| u32::try_from(at).ok())
}

fn sees(machine: &Machine, words: Words<'_>, cpu: u32) -> CpuList {
    let online = &machine.cpus.online;
    let associated = words.pmu.associated_cpus.as_ref().map(|cpus| cpus.and(online));
    if let Some(associated) = associated.filter(|cpus| !cpus.is_empty()) {
        return associated;
    }
    let socket = || machine.cpus.sharing(cpu, |place| place.package);
    let node = || machine.cpus.sharing(cpu, |place| place.node);
    let known = match words.family.and_then(|family| family.sees) {
        Some(Sees::All) => None,
        Some(Sees::Node) => node(),
        Some(Sees::Socket) | None => socket().or_else(node),
    };
    known.unwrap_or_else(|| online.clone())
}
