//! What no counter counts, and who should know it: PMUs and CPUs that are offline, sockets and
//! boxes without a counter, and PMUs whose events no group opens.
//!
//! `record`, `stat` and `top` say it as warnings of the plan, `list` and `doctor` for all of the
//! machine.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::assembly::Assembly;
use super::pmu_cpus::offline_readers;
use super::pmus::PmuIndex;
use super::resolve::{ResolvedEvent, Resolver};
use super::{Counter, PlanRequest, plan_on};
use crate::catalog::family::PmuKind;
use crate::catalog::group::Group;
use crate::catalog::pmu_words::PmuWords;
use crate::discover::cpus::TopologyLevel;
use crate::discover::{CpuList, name};
use crate::suggest::list_names;
use crate::text::{list_few, printable};

/// Groups of units that each socket has. A socket may have no root port or no energy counter.
const OF_EACH_SOCKET: [Group; 4] = [Group::Mem, Group::Cache, Group::C2c, Group::Mesh];

/// Names of PMUs in a text before the rest is given as a number.
const FEW: usize = 3;

/// What no counter of this machine counts although a PMU for it is here, one line each.
pub fn find_uncounted(pmus: &Rc<PmuIndex<'_>>) -> Vec<String> {
    let all_groups = PlanRequest {
        groups: vec!["all".to_owned()],
        tick_ns: 1_000_000,
        window_ns: 10_000_000,
        ..PlanRequest::default()
    };
    let offline = |words: &PmuWords<'_>| offline_readers(pmus.machine, *words, "");
    let mut lines: Vec<String> = pmus.all_pmus().iter().filter_map(offline).collect();
    lines.extend(plan_on(pmus, &all_groups).map(|plan| plan.warnings).unwrap_or_default());
    let mut seen = BTreeSet::new();
    lines.retain(|line| seen.insert(line.clone()));
    lines
}

impl<'a> Resolver<'a> {
    /// The uncore PMUs with events of which no group opens one.
    fn by_name_only(&self) -> impl Iterator<Item = PmuWords<'a>> + use<'a> {
        let pmus = Rc::clone(&self.pmus);
        self.pmu_words().filter(move |words| {
            words.pmu.cpumask.is_some()
                && words.pmu.statistics.is_none()
                && words.family.is_none_or(|family| family.kind == PmuKind::Uncore)
                && words.all_events().next().is_some()
                && !Group::ALL.iter().any(|(group, _)| pmus.has_group_events(*words, *group))
        })
    }

    /// How the PMUs that no group opens are counted, in one line: all of them, or those of one
    /// group's families. `None` if there are none.
    pub fn by_name_hint(&self, group: Option<Group>) -> Option<String> {
        let of_group = |words: &PmuWords<'_>| match group {
            Some(group) => words.family.is_some_and(|family| family.group == group),
            None => true,
        };
        let pmus: Vec<PmuWords<'a>> = self.by_name_only().filter(of_group).collect();
        let example = pmus.first()?;
        let stems: BTreeSet<&str> = pmus.iter().map(|words| name::stem(&words.pmu.name)).collect();
        let events: Vec<&str> = example.all_events().map(|event| event.name).collect();
        let is_clock = |name: &&&str| name.ends_with("cycles");
        let event = events.iter().find(|name| !is_clock(name)).or(events.first())?;
        Some(format!(
            "{} {} counted with -e only, such as -e {}/{}/ (`uncore-trace list events`)",
            list_few(stems.iter().copied(), FEW),
            if stems.len() == 1 { "is" } else { "are" },
            printable(name::stem(&example.pmu.name)),
            printable(event),
        ))
    }

    /// A warning on the boxes of a group that have none of its events, unlike others of their kind.
    pub(super) fn boxes_left_out(
        group: Group,
        pmus: &[PmuWords<'a>],
        resolved: &[ResolvedEvent<'a>],
    ) -> Option<String> {
        let counted: BTreeSet<&str> = resolved.iter().map(|event| event.words.pmu_name()).collect();
        let kinds: BTreeSet<&str> = counted.iter().map(|pmu| name::stem(pmu)).collect();
        let is_left_out = |words: &&PmuWords<'_>| {
            let pmu = words.pmu_name();
            !counted.contains(pmu) && kinds.contains(name::stem(pmu))
        };
        let left_out: Vec<&str> = pmus.iter().filter(is_left_out).map(PmuWords::pmu_name).collect();
        (!left_out.is_empty()).then(|| {
            format!(
                "{group} does not count {}: unlike others of the same kind, this kernel names no \
                 event of the group there",
                list_names(left_out)
            )
        })
    }
}

impl Assembly<'_> {
    /// Adds warnings on the sockets that the counters so far do not count although the PMUs of a
    /// family count others.
    pub(super) fn warn_of_sockets(&mut self) {
        let cpus = &self.machine.cpus;
        let mut sockets: BTreeMap<i16, CpuList> = BTreeMap::new();
        for cpu in cpus.online.iter() {
            let Some(socket) = cpus.cpu_location(cpu).package else { continue };
            let socket_cpus = || cpus.cpus_sharing(cpu, TopologyLevel::Package).unwrap_or_default();
            sockets.entry(socket).or_insert_with(socket_cpus);
        }
        let mut families: BTreeMap<&str, Vec<&Counter>> = BTreeMap::new();
        for counter in self.plan.counters.iter().filter(|counter| is_socket_counter(counter)) {
            families.entry(&counter.family).or_default().push(counter);
        }
        let mut warnings = Vec::new();
        for (family, counters) in families {
            let near: Vec<CpuList> =
                counters.iter().map(|counter| counter.sees.difference(&counter.far)).collect();
            let near: CpuList = near.iter().collect();
            let counted: BTreeSet<i16> =
                counters.iter().filter_map(|candidate| candidate.socket).collect();
            let is_counted = |socket: i16, cpus: &CpuList| {
                counted.contains(&socket) || !near.intersection(cpus).is_empty()
            };
            let missing = sockets.iter().filter(|(socket, cpus)| !is_counted(**socket, cpus));
            let missing: Vec<String> = missing.map(|(socket, _)| socket.to_string()).collect();
            if !missing.is_empty() {
                let plural = if missing.len() == 1 { "" } else { "s" };
                warnings.push(format!(
                    "{family} does not count socket{plural} {}: no PMU of the family has a reader \
                     CPU there",
                    list_names(missing)
                ));
            }
        }
        self.plan.warnings.extend(warnings);
    }

    /// Adds a warning, unless it exists.
    pub(super) fn add_warning(&mut self, warning: String) {
        if !self.plan.warnings.contains(&warning) {
            self.plan.warnings.push(warning);
        }
    }
}

/// Whether each socket has a unit that such a counter counts, and the counter says which one it is.
fn is_socket_counter(counter: &Counter) -> bool {
    let is_of = |group: &Group| group.name() == counter.subsystem;
    OF_EACH_SOCKET.iter().any(is_of)
        && !counter.per_cpu
        && counter.socket.is_some()
        && !counter.sees.is_empty()
}
