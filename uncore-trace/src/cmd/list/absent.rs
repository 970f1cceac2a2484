//! The PMUs that this kind of machine has and this one does not show: what the doctor knows of
//! their drivers.

use serde::Serialize;

use super::shown;
use crate::discover::Machine;
use crate::doctor;
use crate::plan::Catalog;
use crate::text::{lines, plain_table};

/// PMUs of one driver.
#[derive(Debug, Serialize)]
pub struct Row {
    /// What is missing and why.
    why: String,
    /// The command that mends it, where one can.
    mend: Option<String>,
}

/// What is absent; where not even that can be told, why not.
pub fn rows(machine: &Machine, _catalog: &Catalog) -> Vec<Row> {
    let findings = doctor::absent_pmus(&doctor::Machine::at(&machine.root));
    findings.into_iter().map(|finding| Row { why: finding.what, mend: finding.mend }).collect()
}

/// The rows as a table, or that there are none.
pub fn render(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "nothing is known to be absent\n".to_owned();
    }
    let mut table = plain_table(["absent", "what to do"]);
    for row in rows {
        table.add_row([shown(Some(&row.why)), shown(row.mend.as_deref())]);
    }
    lines(&table)
}
