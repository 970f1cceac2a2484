//! Verifies the invariants of a recording: the view behind `uncore-trace check`.
//!
//! One file per group of invariants. Guarantees: each table is scanned once, a batch at a time, so
//! memory grows with the number of counters and CPUs, not with the recording; the first offending
//! row of each invariant is named; an invariant that cannot be verified is reported with the
//! reason, never as `ok`.

use std::panic::resume_unwind;
use std::thread;

use anyhow::Result;
use arrow::array::RecordBatch;

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
mod sums;
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

impl CheckOutcome {
    /// The outcome; an error of reading is a failure.
    fn from_result(outcome: Result<Self>) -> Self {
        outcome.unwrap_or_else(|error| Self::Failed(format!("{error:#}")))
    }
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
        CheckOutcome::from_result(scan.map(|tally| tally.into_outcome(items)))
    }

    /// The outcome of a scan for a table that not every recording has; `None` without the table or
    /// without items.
    fn table_outcome(
        recording: &Recording,
        table: &TableDef,
        scan: impl FnOnce() -> Result<Self>,
        items: &str,
    ) -> Option<CheckOutcome> {
        let scanned = recording.has_table(table).then(scan)?;
        let is_empty = scanned.as_ref().is_ok_and(|tally| tally.examined == 0);
        (!is_empty).then(|| Self::scan_outcome(scanned, items))
    }

    /// The outcome for the rows of a table that not every recording has: see [`Self::scan_table`].
    fn rows_outcome(
        recording: &Recording,
        table: &'static TableDef,
        columns: &[&str],
        examine: impl FnMut(&RecordBatch, u64, &mut Self) -> Result<()>,
    ) -> Option<CheckOutcome> {
        let scan = || Self::scan_table(recording, table, columns, examine);
        Self::table_outcome(recording, table, scan, &format!("rows of {}", table.name))
    }

    /// Examines all rows of a table, a batch at a time; `examine` gets the number of rows before
    /// the batch.
    fn scan_table(
        recording: &Recording,
        table: &'static TableDef,
        columns: &[&str],
        mut examine: impl FnMut(&RecordBatch, u64, &mut Self) -> Result<()>,
    ) -> Result<Self> {
        let (mut tally, mut number) = (Self::default(), 0);
        for batch in recording.open_table(table)?.scan_columns(columns)? {
            let batch = batch?;
            examine(&batch, number, &mut tally)?;
            number += batch.num_rows() as u64;
        }
        Ok(tally)
    }
}

/// The text of the first fault that is there.
fn find_fault<const N: usize>(faults: [(bool, &'static str); N]) -> Option<&'static str> {
    faults.into_iter().find_map(|(is_there, fault)| is_there.then_some(fault))
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
    let optional = [
        ("files are in their place", intact::verify_places(recording)),
        ("counters read on their CPUs", readers::verify_reader_cpus(recording)),
        ("seconds sum up windows", sums::verify_sum_rows(recording, &facts)),
        ("device bytes are valid", io::verify_io_rows(recording)),
        ("holders are valid", holders::verify_holder_rows(recording)),
        ("holders hold", held::verify_held_shares(recording)),
        ("assignments are valid", assignments::verify_assignment_rows(recording)),
        ("accounts are valid", accounts::verify_account_rows(recording)),
        ("marks are valid", marks::verify_marks(recording, &facts)),
    ];
    let present = optional.into_iter().filter_map(|(name, outcome)| Some(finding(name, outcome?)));
    findings.extend(present);
    Ok(findings)
}

#[cfg(test)]
mod tests;
