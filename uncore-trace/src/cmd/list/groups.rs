//! The groups of `-p`, and what each opens on a machine.
//!
//! The rows are made by planning each group, so the list agrees with a recording.

use std::collections::BTreeSet;
use std::rc::Rc;

use serde::Serialize;

use super::{CellColumn, View, cell_text, draw_rows};
use crate::catalog::group::Group;
use crate::discover::name;
use crate::plan::pmus::PmuIndex;
use crate::plan::traffic::AUTO;
use crate::plan::{PlanRequest, plan_on};
use crate::table::ColumnFit;
use crate::text::{list_few, printable, wrapped};

/// One group.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) group: &'static str,
    pub(super) counters: usize,
    /// The groups under which the counters are recorded.
    #[serde(skip)]
    pub(super) subsystems: BTreeSet<String>,
    /// Names of PMUs without their instance suffix.
    pub(super) pmus: BTreeSet<String>,
    pub(super) events: BTreeSet<String>,
    notes: Vec<String>,
}

/// `auto`, then every group, also those that open nothing here.
pub(super) fn rows(pmus: &Rc<PmuIndex<'_>>) -> Vec<Row> {
    let groups = [AUTO].into_iter().chain(Group::ALL.iter().map(|(_, name)| *name));
    let rows = groups.map(|group| {
        let request = PlanRequest {
            groups: vec![group.to_owned()],
            tick_ns: 1_000_000,
            window_ns: 10_000_000,
            ..PlanRequest::default()
        };
        let (counters, notes) = match plan_on(pmus, &request) {
            Ok(plan) => (plan.counters, plan.notes),
            Err(error) => (Vec::new(), vec![format!("{error:#}")]),
        };
        Row {
            group,
            counters: counters.len(),
            subsystems: counters.iter().map(|c| c.subsystem.clone()).collect(),
            pmus: counters.iter().map(|c| name::stem(&c.pmu).to_owned()).collect(),
            events: counters.iter().map(|c| c.event.clone()).collect(),
            notes,
        }
    });
    rows.collect()
}

/// Most names in a cell; `--all` and `list events` show all.
const NAMES: usize = 6;

/// The rows as a table, then the notes of the groups that open something.
pub(super) fn render(rows: &[Row], view: View) -> String {
    let joined = |names: &BTreeSet<String>| {
        let limit = if view.shows_all { names.len() } else { NAMES };
        if names.is_empty() { cell_text(None) } else { list_few(names, limit) }
    };
    let columns: [CellColumn<'_, Row>; 4] = [
        ("group", ColumnFit::Whole, &|row| row.group.to_owned()),
        ("counters", ColumnFit::Count(1), &|row| row.counters.to_string()),
        ("PMUs", ColumnFit::Wrap, &|row| joined(&row.pmus)),
        ("events", ColumnFit::Wrap, &|row| joined(&row.events)),
    ];
    let mut text = draw_rows(rows, &columns, view);
    for row in rows.iter().filter(|row| row.counters > 0) {
        // Those of auto are mostly those of its groups.
        let is_of_group = |note| {
            rows.iter().any(|group_row| group_row.group != AUTO && group_row.notes.contains(note))
        };
        for note in row.notes.iter().filter(|note| row.group != AUTO || !is_of_group(note)) {
            let is_named =
                note.strip_prefix(row.group).is_some_and(|suffix| suffix.starts_with(' '));
            let prefix =
                if is_named { "note: ".to_owned() } else { format!("note: {}: ", row.group) };
            text.push_str(&wrapped(&prefix, &printable(note), view.width));
        }
    }
    text
}
