//! The metrics of the catalog: what each says, and whether it can be computed here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use super::shown;
use crate::discover::Machine;
use crate::plan::Catalog;
use crate::plan::device::Narrowing;
use crate::plan::resolve::Resolver;
use crate::text::{lines, plain_table};

/// One metric of one family.
#[derive(Debug, Serialize)]
pub struct Row {
    name: String,
    unit: String,
    about: String,
    formula: String,
    family: String,
    /// The family that must be here too.
    only_with: Option<String>,
    /// On how many PMUs it can be computed here.
    pmus: usize,
    /// The inputs that no PMU of the family has here; empty where there is no such PMU.
    missing: Vec<String>,
    /// The family that counts the same traffic and is opened in its place.
    instead: Option<String>,
}

/// Each metric; those that are here first.
pub fn rows(machine: &Machine, catalog: &Catalog) -> Vec<Row> {
    let mut resolver = Resolver::new(machine, catalog, Narrowing::none(machine));
    let mut rows: Vec<Row> = Vec::new();
    for (family, metric) in resolver.all_metrics() {
        let measured = resolver.measured(family, metric);
        let pmus = measured.iter().filter(|one| one.missing().is_empty()).count();
        let missing: BTreeSet<_> = match pmus {
            0 => measured.iter().flat_map(|one| one.missing()).map(str::to_owned).collect(),
            _ => BTreeSet::new(),
        };
        let row = Row {
            name: metric.name.clone(),
            unit: metric.unit.clone(),
            about: metric.about.clone(),
            formula: metric.formula.to_string(),
            family: family.family.clone(),
            only_with: metric.only_with.clone(),
            pmus,
            missing: missing.into_iter().collect(),
            instead: resolver
                .better(family, metric)
                .filter(|_| !measured.is_empty())
                .map(str::to_owned),
        };
        // Of two with one name the first that can be computed counts.
        let twin = rows.iter_mut().find(|its| its.name == row.name && its.family == row.family);
        match twin {
            Some(twin) if twin.pmus == 0 && row.pmus > 0 => *twin = row,
            Some(_) => {}
            None => rows.push(row),
        }
    }
    rows.sort_by_key(|row| row.pmus == 0);
    rows
}

/// The table of the metrics whose PMUs are here, then the names of the others by family.
pub fn render(rows: &[Row]) -> String {
    let mut table = plain_table(["metric", "unit", "family", "what it is", "formula", "here"]);
    let mut absent: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for row in rows {
        let here = match (&row.instead, row.missing.as_slice()) {
            (Some(instead), _) => format!("by {instead}"),
            (None, []) if row.pmus == 0 => {
                let beside = row.only_with.as_ref().map(|other| format!(" beside {other}"));
                let family = format!("{}{}", row.family, beside.unwrap_or_default());
                absent.entry(family).or_default().push(&row.name);
                continue;
            }
            (None, []) => format!("{} PMU{}", row.pmus, if row.pmus == 1 { "" } else { "s" }),
            (None, missing) => format!("no event {}", missing.join(", ")),
        };
        table.add_row([
            shown(Some(&row.name)),
            shown(Some(&row.unit)),
            shown(Some(&row.family)),
            shown(Some(&row.about)),
            shown(Some(&row.formula)),
            shown(Some(&here)),
        ]);
    }
    let mut text = lines(&table);
    for (family, names) in absent {
        // Writing to a String cannot fail.
        let _infallible = writeln!(
            text,
            "not here: no PMU of {}: {}",
            shown(Some(&family)),
            shown(Some(&names.join(", ")))
        );
    }
    text
}
