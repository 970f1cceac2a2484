//! The groups of `-p` and what each opens on a machine.
//!
//! Shows what planning them gives, so the list and a recording cannot disagree.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;

use super::shown;
use crate::discover::{Machine, name};
use crate::plan::{Catalog, Group, Request, plan};
use crate::text::{lines, plain_table, printable};

/// One group.
#[derive(Debug, Serialize)]
pub struct Row {
    group: Group,
    counters: usize,
    /// Names of PMUs without their instance suffix.
    pmus: BTreeSet<String>,
    events: BTreeSet<String>,
    notes: Vec<String>,
}

/// Every group, those that open nothing here too.
pub fn rows(machine: &Machine, catalog: &Catalog) -> Vec<Row> {
    let rows = Group::ALL.iter().map(|(group, name)| {
        let request = Request {
            groups: vec![(*name).to_owned()],
            tick_ns: 1_000_000,
            window_ns: 10_000_000,
            ..Request::default()
        };
        let planned = plan(machine, catalog, &request);
        let (counters, notes) = match planned {
            Ok(plan) => (plan.counters, plan.notes),
            Err(error) => (Vec::new(), vec![format!("{error:#}")]),
        };
        Row {
            group: *group,
            counters: counters.len(),
            pmus: counters.iter().map(|c| name::stem(&c.pmu).to_owned()).collect(),
            events: counters.iter().map(|c| c.event.clone()).collect(),
            notes,
        }
    });
    rows.collect()
}

/// The rows as a table, then the notes of the groups that open something.
pub fn render(rows: &[Row]) -> String {
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
