//! What can be counted on a machine and how to begin, in six lines: the beginning of `list` and
//! `doctor`.

use std::rc::Rc;

use super::groups;
use crate::catalog::Catalog;
use crate::catalog::group::Group;
use crate::discover::Machine;
use crate::plan::pmus::PmuIndex;
use crate::plan::resolve::Resolver;
use crate::plan::traffic::AUTO;
use crate::suggest::list_names;
use crate::terminal::cells;
use crate::text::{list_few, wrapped};

/// Cells of a line, unless the terminal is narrower.
const WIDTH: usize = 80;

/// Explains what a confidence is.
const CONFIDENCE: [&str; 2] = [
    "A share with a confidence of 0.9 is within 10 % of the truth in 90 of 100 cases.",
    "Those of -p host, -p core and -p io are exact: counted for each task.",
];

/// The lines, of at most `width` cells if there is a limit.
pub fn summary_text(machine: &Machine, catalog: &Catalog, width: Option<usize>) -> String {
    let pmus = Rc::new(PmuIndex::new(machine, catalog));
    groups_summary(&pmus, &groups::rows(&pmus), width)
}

/// The same with the rows of all groups.
pub(super) fn groups_summary(
    pmus: &Rc<PmuIndex<'_>>,
    rows: &[groups::Row],
    width: Option<usize>,
) -> String {
    summary_lines(pmus, rows).iter().map(|line| wrapped("", line, width)).collect()
}

fn summary_lines(pmus: &Rc<PmuIndex<'_>>, rows: &[groups::Row]) -> Vec<String> {
    let open = rows.iter().filter(|row| row.counters > 0 && row.group != AUTO);
    let of_cpus = [Group::Core, Group::Host].map(Group::name);
    let (per_cpu, not_per_cpu): (Vec<_>, Vec<_>) =
        open.partition(|row| of_cpus.contains(&row.group));
    let (io, uncore): (Vec<_>, Vec<_>) =
        not_per_cpu.into_iter().partition(|row| row.group == Group::Io.name());
    let mut lines = vec![match uncore.as_slice() {
        [] => explain_none(pmus),
        groups => fit_names("Uncore counters here: ", groups, pmu_names(groups)),
    }];
    // Events of the core PMU first: they are more useful than those of the kernel.
    let events = per_cpu.iter().flat_map(|row| &row.events).map(String::as_str).collect();
    lines.push(fit_names("Per CPU: ", &per_cpu, events));
    if !io.is_empty() {
        lines.push(fit_names("Disks and interfaces: ", &io, pmu_names(&io)));
    }
    let auto = rows.iter().find(|row| row.group == AUTO);
    let counts = auto.map_or_else(String::new, |row| list_names(&row.subsystems));
    lines.push(format!("Begin with: uncore-trace record -- COMMAND (it counts {counts})."));
    lines.extend(CONFIDENCE.map(str::to_owned));
    lines
}

fn pmu_names<'a>(groups: &[&'a groups::Row]) -> Vec<&'a str> {
    groups.iter().flat_map(|row| &row.pmus).map(String::as_str).collect()
}

/// Why there are no uncore counters, if that is known.
fn explain_none(pmus: &Rc<PmuIndex<'_>>) -> String {
    let hidden = pmus.machine().processor.as_ref().is_some_and(|cpu| cpu.hypervisor);
    let gaps = pmus.gaps();
    let is_unknown = gaps.first().is_some_and(|gap| gap.driver.is_some());
    let by_name = || Resolver::for_whole_machine(pmus).by_name_hint(None);
    if let Some(by_name) = Some(()).filter(|()| !is_unknown).and_then(|()| by_name()) {
        // The example does not fit into the line.
        let (pmus, _) = by_name.split_once(", such as").unwrap_or((&by_name, ""));
        return format!("Uncore counters here: {pmus} (list events).");
    }
    let why = match gaps.first() {
        Some(gap) if gap.driver.is_some() => "this kernel does not know them (uncore-trace doctor)",
        Some(_) => "no event of them is known (uncore-trace doctor)",
        None if hidden => "this is a virtual machine, whose host hides them",
        None => "`uncore-trace doctor` says whether a driver is missing",
    };
    format!("No uncore counters here: {why}.")
}

/// `-p GROUPS (name, name and 3 more)` behind `head`, with as many names as fit in a line, possibly
/// none.
fn fit_names(head: &str, groups: &[&groups::Row], mut names: Vec<&str>) -> String {
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(*name));
    let groups: Vec<_> = groups.iter().map(|row| row.group).collect();
    let groups = groups.join(",");
    let line = |count| format!("{head}-p {groups} ({})", list_few(&names, count));
    let best_count = (1..=names.len()).rev().find(|count| cells(&line(*count)) <= WIDTH);
    best_count.map_or_else(|| format!("{head}-p {groups}"), line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_meaning_of_a_confidence_fits_its_lines() {
        assert!(CONFIDENCE.iter().all(|line| cells(line) <= WIDTH), "{CONFIDENCE:?}");
    }
}
