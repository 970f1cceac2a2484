//! Verifies the invariants of a recording: the view behind `uncore-trace check`.
//!
//! One file per group of invariants. Guarantees: each table is scanned once, a batch at a time, so
//! memory grows with the number of counters and CPUs, not with the recording; the first offending
//! row of each invariant is named; an invariant that cannot be verified is reported with the
//! reason, never as `ok`.

use std::panic::resume_unwind;
use std::thread;

use anyhow::Result;

use crate::schema::{TableDef, fabric};
use crate::tables::reader::Recording;

mod accounts;
mod assignments;
pub(super) mod facts;
mod held;
mod holders;
mod intact;
mod io;
mod marks;
mod raw;
mod readers;
mod rows;
mod time;
mod window;

use facts::MetadataFacts;

/// Result of one invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckOutcome {
    /// It holds; says what was examined.
    Ok(String),
    /// It does not hold; says where first.
    Failed(String),
    /// It cannot be verified on this recording; says why.
    NotVerifiable(String),
}

/// One invariant and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckFinding {
    /// The invariant, in a few words.
    pub name: &'static str,
    /// The result of the verification.
    pub outcome: CheckOutcome,
}

/// The first violation of an invariant, and the number of items examined.
#[derive(Debug, Default)]
struct FaultTally {
    first_fault: Option<String>,
    examined: u64,
}

impl FaultTally {
    /// Counts one item; `find_fault` returns its fault, if any.
    fn examine_item(&mut self, find_fault: impl FnOnce() -> Option<String>) {
        self.examined += 1;
        self.note_fault(find_fault);
    }

    /// Notes a fault of something that is no item.
    fn note_fault(&mut self, find_fault: impl FnOnce() -> Option<String>) {
        if self.first_fault.is_none() {
            self.first_fault = find_fault();
        }
    }

    /// The outcome; without any item it is not `ok`.
    fn into_outcome(self, items: &str) -> CheckOutcome {
        match (self.first_fault, self.examined) {
            (Some(failed), _) => CheckOutcome::Failed(failed),
            (None, 0) => CheckOutcome::NotVerifiable(format!("the recording has no {items}")),
            (None, seen) => CheckOutcome::Ok(format!("{seen} {items}")),
        }
    }

    /// The outcome of a scan; an error of reading is a failure.
    fn scan_outcome(scan: Result<Self>, items: &str) -> CheckOutcome {
        match scan {
            Ok(tally) => tally.into_outcome(items),
            Err(error) => CheckOutcome::Failed(format!("{error:#}")),
        }
    }

    /// The outcome of a scan for a table that not every recording has; `None` without the table or
    /// without items.
    fn table_outcome(
        recording: &Recording,
        table: &TableDef,
        scan: impl FnOnce(&Recording) -> Result<Self>,
        items: &str,
    ) -> Option<CheckOutcome> {
        recording.list_tables().iter().find(|listed| listed.name == table.name)?;
        let scanned = scan(recording);
        let is_empty = scanned.as_ref().is_ok_and(|tally| tally.examined == 0);
        (!is_empty).then(|| Self::scan_outcome(scanned, items))
    }
}

/// Verifies every invariant.
pub fn verify_recording(recording: &Recording) -> Result<Vec<CheckFinding>> {
    let facts =
        MetadataFacts::from_metadata(recording.open_table(&fabric::TABLE)?.metadata_pairs());
    let finding = |name, outcome| CheckFinding { name, outcome };
    let (rows, (tables, bytes, ticks, readings)) = thread::scope(|scope| {
        let rows = scope.spawn(|| rows::verify_fabric_rows(recording, &facts));
        let other_outcomes = (
            intact::verify_tables(recording),
            intact::verify_bytes(recording),
            time::verify_ticks(recording, &facts),
            raw::verify_totals(recording),
        );
        (rows.join().unwrap_or_else(|panic| resume_unwind(panic)), other_outcomes)
    });
    let mut findings = vec![
        finding("all tables are there", tables),
        finding("bytes are as written", bytes),
        finding("shares sum to totals", rows.conservation),
        finding("CPU time adds up", time::verify_cpu_time(&facts)),
        finding("time adds up per tick", ticks),
        finding("values are valid", rows.values),
        finding("windows are contiguous", rows.sequence),
        finding("losses are recorded", facts::verify_losses(recording, &facts)),
        finding("tables are readable", rows.readable),
        finding("totals agree with readings", readings),
        finding("wall time agrees", rows.clock),
    ];
    findings.extend(
        intact::verify_places(recording)
            .map(|outcome| finding("files are in their place", outcome)),
    );
    findings.extend(
        readers::verify_reader_cpus(recording)
            .map(|outcome| finding("counters read on their CPUs", outcome)),
    );
    findings.extend(
        io::verify_io_rows(recording).map(|outcome| finding("device bytes are valid", outcome)),
    );
    findings.extend(
        holders::verify_holder_rows(recording).map(|outcome| finding("holders are valid", outcome)),
    );
    findings.extend(
        held::verify_held_shares(recording).map(|outcome| finding("holders hold", outcome)),
    );
    let assigned = assignments::verify_assignment_rows(recording);
    findings.extend(assigned.map(|outcome| finding("assignments are valid", outcome)));
    findings.extend(
        accounts::verify_account_rows(recording)
            .map(|outcome| finding("accounts are valid", outcome)),
    );
    findings.extend(
        marks::verify_marks(recording, &facts).map(|outcome| finding("marks are valid", outcome)),
    );
    Ok(findings)
}

#[cfg(test)]
mod tests;
