//! `uncore-trace list`: the PMUs, groups and events of a machine, as text or JSON.
//!
//! Groups show what planning them gives, so the list and a recording cannot disagree.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::catalog::CatalogArgs;
use crate::discover::{self, CpuList, Machine, name};
use crate::plan::words::Words;
use crate::plan::{Catalog, Group, Request, plan};
use crate::text::{lines, plain_table, printable};

/// List the PMUs, groups and events of this machine
///
/// A group shows the counters that `record -p GROUP` would open here.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: what `record -p pcie` would open
  uncore-trace list groups")]
pub struct Args {
    /// Which part
    #[arg(value_enum, default_value = "all")]
    what: What,

    #[command(flatten)]
    catalog: CatalogArgs,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Lists the machine under `root`; exit code 0.
pub fn run(args: &Args, root: &Path) -> Result<u8> {
    let text = list(&discover::machine(root)?, &args.catalog.load()?, args.what, args.json)?;
    io::stdout().lock().write_all(text.as_bytes()).context("cannot write the list")?;
    Ok(0)
}

/// Which part to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// All of it.
    All,
    /// The PMUs.
    Pmus,
    /// The groups of `-p` and what they open here.
    Groups,
    /// The events of each kind of PMU.
    Events,
}

#[derive(Debug, Serialize)]
struct List {
    #[serde(skip_serializing_if = "Option::is_none")]
    pmus: Option<Vec<PmuRow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<GroupRow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<Vec<EventRow>>,
    /// What could not be read or is not as its name says, one line each.
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct PmuRow {
    name: String,
    attr_type: u32,
    /// `None`: each CPU on its own.
    cpumask: Option<CpuList>,
    events: usize,
    /// `None`: not in the catalog.
    family: Option<String>,
    group: Option<Group>,
    about: Option<String>,
}

#[derive(Debug, Serialize)]
struct GroupRow {
    group: Group,
    counters: usize,
    /// Names of PMUs without their instance suffix.
    pmus: BTreeSet<String>,
    events: BTreeSet<String>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct EventRow {
    /// Without the instance suffix: as `-e` takes it for all instances.
    pmu: String,
    event: String,
    unit: String,
    scale: f64,
    /// `perf_event_attr.type`, where it is not that of the PMU.
    attr_type: Option<u32>,
    encoding: String,
}

/// The list of `what` for `machine`, ending in a newline.
pub fn list(machine: &Machine, catalog: &Catalog, what: What, json: bool) -> Result<String> {
    let wanted = |part| what == What::All || what == part;
    let list = List {
        pmus: wanted(What::Pmus).then(|| pmus(machine, catalog)),
        groups: wanted(What::Groups).then(|| groups(machine, catalog)),
        events: wanted(What::Events).then(|| events(machine, catalog)),
        problems: problems(machine, catalog),
    };
    if json {
        let text = serde_json::to_string_pretty(&list);
        return Ok(text.context("cannot write the list as JSON")? + "\n");
    }
    Ok(list.render())
}

fn pmus(machine: &Machine, catalog: &Catalog) -> Vec<PmuRow> {
    let rows = machine.pmus.iter().map(|pmu| {
        let words = Words::new(catalog, pmu);
        PmuRow {
            name: pmu.name.clone(),
            attr_type: pmu.attr_type,
            cpumask: pmu.cpumask.clone(),
            events: words.events().count(),
            family: words.family.map(|family| family.family.clone()),
            group: words.family.map(|family| family.group),
            about: words.family.map(|family| family.about.clone()),
        }
    });
    rows.collect()
}

fn groups(machine: &Machine, catalog: &Catalog) -> Vec<GroupRow> {
    let rows = Group::ALL.iter().map(|(group, name)| {
        let request = Request {
            groups: vec![(*name).to_owned()],
            events: Vec::new(),
            tick_ns: 1_000_000,
            window_ns: 10_000_000,
        };
        let planned = plan(machine, catalog, &request);
        let (counters, notes) = match planned {
            Ok(plan) => (plan.counters, plan.notes),
            Err(error) => (Vec::new(), vec![format!("{error:#}")]),
        };
        GroupRow {
            group: *group,
            counters: counters.len(),
            pmus: counters.iter().map(|c| name::stem(&c.pmu).to_owned()).collect(),
            events: counters.iter().map(|c| c.event.clone()).collect(),
            notes,
        }
    });
    rows.collect()
}

fn events(machine: &Machine, catalog: &Catalog) -> Vec<EventRow> {
    let mut seen = BTreeSet::new();
    let mut rows = Vec::new();
    for pmu in &machine.pmus {
        let words = Words::new(catalog, pmu);
        for event in words.events() {
            let stem = name::stem(&pmu.name);
            if !seen.insert((stem, event.name)) {
                continue;
            }
            let (unit, scale) = words.unit(Some(event));
            rows.push(EventRow {
                pmu: stem.to_owned(),
                event: event.name.to_owned(),
                unit,
                scale,
                attr_type: (event.attr_type != pmu.attr_type).then_some(event.attr_type),
                encoding: event.alias.text(),
            });
        }
    }
    rows
}

fn problems(machine: &Machine, catalog: &Catalog) -> Vec<String> {
    let mut problems = machine.problems.clone();
    for pmu in &machine.pmus {
        if let (Some(family), Some(identifier)) = (catalog.impostor(pmu), &pmu.identifier) {
            problems.push(format!(
                "{}: its identifier {} is not that of {}: the kernel's driver may be older than \
                 the hardware, groups leave it out",
                printable(&pmu.name),
                printable(identifier),
                family.family
            ));
        }
    }
    problems
}

impl List {
    fn render(&self) -> String {
        let parts = [
            self.pmus.as_deref().map(render_pmus),
            self.groups.as_deref().map(render_groups),
            self.events.as_deref().map(render_events),
        ];
        let mut text = parts.into_iter().flatten().collect::<Vec<_>>().join("\n");
        for (at, problem) in self.problems.iter().enumerate() {
            let gap = if at == 0 { "\n" } else { "" };
            // Writing to a String cannot fail.
            let _infallible = writeln!(text, "{gap}problem: {}", printable(problem));
        }
        text
    }
}

fn shown(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).map_or_else(|| "-".to_owned(), |t| printable(t).into())
}

fn render_pmus(rows: &[PmuRow]) -> String {
    let mut table = plain_table(["PMU", "type", "cpumask", "events", "family", "group", "what it is"]);
    for row in rows {
        let cpumask = match &row.cpumask {
            None => "each".to_owned(),
            Some(cpus) if cpus.is_empty() => "(offline)".to_owned(),
            Some(cpus) => cpus.to_string(),
        };
        table.add_row([
            shown(Some(&row.name)),
            row.attr_type.to_string(),
            cpumask,
            row.events.to_string(),
            shown(row.family.as_deref()),
            shown(row.group.map(Group::name)),
            shown(row.about.as_deref()),
        ]);
    }
    lines(&table)
}

fn render_groups(rows: &[GroupRow]) -> String {
    let mut table = plain_table(["group", "counters", "PMUs", "events"]);
    let joined = |names: &BTreeSet<String>| {
        let names: Vec<_> = names.iter().map(|name| printable(name)).collect();
        shown(Some(&names.join(",")))
    };
    for row in rows {
        table.add_row([
            row.group.to_string(),
            row.counters.to_string(),
            joined(&row.pmus),
            joined(&row.events),
        ]);
    }
    let mut text = lines(&table);
    for row in rows.iter().filter(|row| row.counters > 0) {
        for note in &row.notes {
            let _infallible = writeln!(text, "note: {}: {}", row.group, printable(note));
        }
    }
    text
}

fn render_events(rows: &[EventRow]) -> String {
    let mut table = plain_table(["PMU", "event", "unit", "scale", "encoding"]);
    for row in rows {
        table.add_row([
            shown(Some(&row.pmu)),
            shown(Some(&row.event)),
            shown(Some(&row.unit)),
            row.scale.to_string(),
            row.attr_type.map_or_else(String::new, |of| format!("type {of}: "))
                + &shown(Some(&row.encoding)),
        ]);
    }
    lines(&table)
}
