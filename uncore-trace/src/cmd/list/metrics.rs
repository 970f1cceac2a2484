//! The metrics of the catalog, and whether each can be computed here.

use std::collections::BTreeSet;
use std::rc::Rc;

use serde::Serialize;

use super::{CellColumn, View, cell_text, draw_rows};
use crate::plan::measure::ResolvedMetric;
use crate::plan::pmus::PmuIndex;
use crate::plan::resolve::Resolver;
use crate::table::ColumnFit;
use crate::text::wrapped;

/// One metric of one family.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    name: String,
    unit: String,
    about: String,
    formula: String,
    family: String,
    /// Another family that must be present too.
    only_with: Option<String>,
    /// Number of PMUs on which it can be computed here.
    pmus: usize,
    /// The inputs that no PMU of the family has here; empty without such a PMU.
    missing: Vec<String>,
    /// The family that counts the same traffic and is opened instead.
    instead: Option<String>,
    /// Whether the name is the vendor's.
    vendor: bool,
}

/// Every metric; those of PMUs that are here come first.
pub(super) fn rows(pmus: &Rc<PmuIndex<'_>>) -> Vec<Row> {
    let mut resolver = Resolver::for_whole_machine(pmus);
    let mut rows: Vec<Row> = Vec::new();
    for (family, metric) in resolver.all_metrics() {
        let measured = resolver.resolve_by_vocabulary(family, metric);
        let is_whole =
            |(metric, _): &&(ResolvedMetric<'_>, usize)| metric.missing_inputs().is_empty();
        let pmus = measured.iter().filter(is_whole).map(|(_, count)| count).sum();
        let missing: BTreeSet<_> = match pmus {
            0 => measured
                .iter()
                .flat_map(|(candidate, _)| candidate.missing_inputs())
                .map(str::to_owned)
                .collect(),
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
                .better_family_for_metric(family, metric)
                .filter(|_| !measured.is_empty())
                .map(str::to_owned),
            vendor: metric.vendor,
        };
        // Vendor metrics of other machines are left out.
        if row.vendor && row.pmus == 0 {
            continue;
        }
        // If two have one name, the first that can be computed is used.
        let twin =
            rows.iter_mut().find(|listed| listed.name == row.name && listed.family == row.family);
        match twin {
            Some(twin) if twin.pmus == 0 && row.pmus > 0 => *twin = row,
            Some(_) => {}
            None => rows.push(row),
        }
    }
    rows.sort_by_key(|row| row.pmus == 0);
    rows
}

impl Row {
    /// The name, if the metric can be computed here.
    pub(super) fn computed_name(&self) -> Option<&str> {
        (self.pmus > 0).then_some(&self.name)
    }

    /// Whether a PMU here has the metric, even if it lacks an event for it.
    fn is_here(&self) -> bool {
        self.pmus > 0 || self.instead.is_some() || !self.missing.is_empty()
    }

    /// The PMUs on which it can be computed here, or why there is none.
    fn availability(&self) -> String {
        match (&self.instead, self.missing.as_slice()) {
            (Some(instead), _) => format!("by {instead}"),
            (None, []) if self.pmus == 0 => {
                let beside = self.only_with.as_ref().map(|partner| format!(" beside {partner}"));
                format!("no PMU{}", beside.unwrap_or_default())
            }
            (None, []) => format!("{} PMU{}", self.pmus, if self.pmus == 1 { "" } else { "s" }),
            (None, missing) => format!("no event {}", missing.join(", ")),
        }
    }
}

/// The metrics of PMUs that are here as a table, then the number of the others, or with `--all`
/// these too.
pub(super) fn render(rows: &[Row], view: View) -> String {
    let columns: [CellColumn<'_, Row>; 6] = [
        ("metric", ColumnFit::Whole, &|row| cell_text(Some(&row.name))),
        ("unit", ColumnFit::Drop(3), &|row| cell_text(Some(&row.unit))),
        ("family", ColumnFit::Drop(4), &|row| cell_text(Some(&row.family))),
        ("what it is", ColumnFit::Wrap, &|row| cell_text(Some(&row.about))),
        ("formula", ColumnFit::Drop(1), &|row| cell_text(Some(&row.formula))),
        ("here", ColumnFit::Drop(2), &|row| cell_text(Some(&row.availability()))),
    ];
    let is_shown = |row: &&Row| view.shows_all || row.is_here() && !row.vendor;
    let shown_rows: Vec<_> = rows.iter().filter(is_shown).collect();
    let mut text = String::new();
    if !shown_rows.is_empty() {
        text = draw_rows(shown_rows.iter().copied(), &columns, view);
    }
    let hidden = |vendor| {
        rows.iter().filter(|candidate| candidate.vendor == vendor && !is_shown(candidate)).count()
    };
    let (vendor_count, missing_count) = (hidden(true), hidden(false));
    if vendor_count > 0 {
        let line =
            format!("{vendor_count} more by the vendor's names: `list metrics --all` shows them");
        text.push_str(&wrapped("metrics: ", &line, view.width));
    }
    if missing_count > 0 {
        let quantity = if shown_rows.is_empty() { "all" } else { "another" };
        let line = format!(
            "{quantity} {missing_count} need PMUs that are not here; `uncore-trace list metrics \
             --all` shows them"
        );
        text.push_str(&wrapped("metrics: ", &line, view.width));
    }
    text
}
