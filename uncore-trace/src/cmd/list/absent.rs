//! PMUs that are missing here: those that this kind of machine has but this one does not show,
//! according to the driver checks of `doctor`, and the other families of the catalog.

use std::rc::Rc;

use serde::Serialize;

use super::{CellColumn, View, cell_text, draw_rows};
use crate::catalog::group::Group;
use crate::doctor;
use crate::plan::pmus::PmuIndex;
use crate::table::ColumnFit;
use crate::text::wrapped;

/// The PMUs of one driver, or one family of PMUs.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// The family of the catalog without a PMU here.
    #[serde(skip_serializing_if = "Option::is_none")]
    family: Option<String>,
    /// The group of `-p` that the PMUs would be in.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<Group>,
    /// What is missing and why; for a family, its description.
    why: String,
    /// The command that fixes it, if there is one.
    mend: Option<String>,
}

/// The missing PMUs, or the reason why they are not known. Then the families without a PMU here.
pub(super) fn rows(pmus: &Rc<PmuIndex<'_>>) -> Vec<Row> {
    let examined = doctor::ExaminedMachine::at_root(&pmus.machine().root);
    let drivers = doctor::absent_drivers(&examined, pmus).into_iter().map(|finding| Row {
        family: None,
        group: None,
        why: finding.what,
        mend: finding.mend.into_iter().next(),
    });
    let is_here = |family: &str| !pmus.family_pmus(family).is_empty();
    let families = pmus.catalog().families.iter().filter(|family| !is_here(&family.family));
    let families = families.map(|family| Row {
        family: Some(family.family.clone()),
        group: Some(family.group),
        why: family.about.clone(),
        mend: None,
    });
    drivers.chain(families).collect()
}

/// The drivers as a table, then the number of families, or with `--all` the families.
pub(super) fn render(rows: &[Row], view: View) -> String {
    let (families, drivers): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.family.is_some());
    let mut text = String::new();
    if !drivers.is_empty() {
        let columns: [CellColumn<'_, Row>; 2] = [
            ("absent", ColumnFit::Wrap, &|row| cell_text(Some(&row.why))),
            ("what to do", ColumnFit::Wrap, &|row| cell_text(row.mend.as_deref())),
        ];
        text.push_str(&draw_rows(drivers, &columns, view));
    }
    if families.is_empty() {
        return text;
    }
    if !view.shows_all {
        let plural = if families.len() == 1 { "y has" } else { "ies have" };
        let line = format!(
            "{} known PMU famil{plural} no PMU here; `uncore-trace list --all` shows them",
            families.len()
        );
        return text + &wrapped("absent: ", &line, view.width);
    }
    let columns: [CellColumn<'_, Row>; 3] = [
        ("no PMU of family", ColumnFit::Whole, &|row| cell_text(row.family.as_deref())),
        ("group", ColumnFit::Drop(1), &|row| cell_text(row.group.map(Group::name))),
        ("what it is", ColumnFit::Wrap, &|row| cell_text(Some(&row.why))),
    ];
    let gap = if text.is_empty() { "" } else { "\n" };
    text + gap + &draw_rows(families, &columns, view)
}
