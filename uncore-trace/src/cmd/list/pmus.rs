//! The PMUs of a machine, and what the catalog says about each.

use std::collections::HashMap;
use std::rc::Rc;

use serde::Serialize;

use super::{CellColumn, View, cell_text, draw_rows};
use crate::catalog::group::Group;
use crate::catalog::scope::PmuScope;
use crate::discover::{CpuList, Pmu};
use crate::plan::pmus::PmuIndex;
use crate::table::ColumnFit;

/// One PMU.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    name: String,
    /// `None` for a disk or an interface, which has no perf event.
    attr_type: Option<u32>,
    /// `None`: sysfs has no such file.
    cpumask: Option<CpuList>,
    /// Whether it counts on each CPU separately.
    per_cpu: bool,
    events: usize,
    /// `None`: not in the catalog.
    family: Option<String>,
    group: Option<Group>,
    /// What each instance covers: a socket, a die, ...
    scope: Option<PmuScope>,
    about: Option<String>,
}

/// The PMUs in the machine's order, without the devices that a group leaves out.
pub(super) fn rows(pmus: &Rc<PmuIndex<'_>>) -> Vec<Row> {
    let counts_again =
        |pmu: &&Pmu| pmu.statistics.as_ref().is_some_and(|statistics| statistics.counts_again);
    let mut event_counts = HashMap::new();
    let rows = pmus.all_pmus().iter().filter(|words| !counts_again(&words.pmu)).map(|&words| {
        let pmu = words.pmu;
        let count_events = || words.all_events().count();
        let vocabulary = pmus.vocabulary_of(words);
        Row {
            name: pmu.name.clone(),
            attr_type: pmu.statistics.is_none().then_some(pmu.attr_type),
            cpumask: pmu.cpumask.clone(),
            per_cpu: words.is_per_cpu(),
            events: *event_counts.entry(vocabulary).or_insert_with(count_events),
            family: words.family.map(|family| family.family.clone()),
            group: words.family.map(|family| family.group),
            scope: words.family.and_then(|family| family.scope),
            about: words.family.map(|family| family.about.clone()),
        }
    });
    rows.collect()
}

/// The rows as a table.
pub(super) fn render(rows: &[Row], view: View) -> String {
    let attr_type = |row: &Row| row.attr_type.map(|number| number.to_string());
    let cpumask = |row: &Row| match &row.cpumask {
        None if row.per_cpu => "each".to_owned(),
        None => "none".to_owned(),
        Some(cpus) if cpus.is_empty() => "(offline)".to_owned(),
        Some(cpus) => cpus.to_string(),
    };
    let columns: [CellColumn<'_, Row>; 8] = [
        ("PMU", ColumnFit::Whole, &|row| cell_text(Some(&row.name))),
        ("type", ColumnFit::Count(1), &|row| cell_text(attr_type(row).as_deref())),
        ("cpumask", ColumnFit::Drop(5), &cpumask),
        ("events", ColumnFit::Count(3), &|row| row.events.to_string()),
        ("family", ColumnFit::Drop(4), &|row| cell_text(row.family.as_deref())),
        ("group", ColumnFit::Drop(6), &|row| cell_text(row.group.map(Group::name))),
        ("one per", ColumnFit::Drop(2), &|row| cell_text(row.scope.map(PmuScope::name))),
        ("what it is", ColumnFit::Wrap, &|row| cell_text(row.about.as_deref())),
    ];
    draw_rows(rows, &columns, view)
}
