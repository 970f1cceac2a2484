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

use facts::Facts;

/// Result of one invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It holds; says what was examined.
    Ok(String),
    /// It does not hold; says where first.
    Failed(String),
    /// It cannot be verified on this recording; says why.
    NotHere(String),
}

/// One invariant and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The invariant, in a few words.
    pub name: &'static str,
    /// Its result.
    pub outcome: Outcome,
}

/// The first violation of an invariant, and the number of items examined.
#[derive(Debug, Default)]
struct First {
    failed: Option<String>,
    seen: u64,
}

impl First {
    /// Counts one item; `wrong` returns its fault, if any.
    fn look(&mut self, wrong: impl FnOnce() -> Option<String>) {
        self.seen += 1;
        self.also(wrong);
    }

    /// Notes a fault of something that is no item.
    fn also(&mut self, wrong: impl FnOnce() -> Option<String>) {
        if self.failed.is_none() {
            self.failed = wrong();
        }
    }

    /// The outcome; without any item it is not `ok`.
    fn outcome(self, what: &str) -> Outcome {
        match (self.failed, self.seen) {
            (Some(failed), _) => Outcome::Failed(failed),
            (None, 0) => Outcome::NotHere(format!("the recording has no {what}")),
            (None, seen) => Outcome::Ok(format!("{seen} {what}")),
        }
    }

    /// The outcome of a scan; an error of reading is a failure.
    fn of_scan(scan: Result<Self>, what: &str) -> Outcome {
        match scan {
            Ok(first) => first.outcome(what),
            Err(error) => Outcome::Failed(format!("{error:#}")),
        }
    }

    /// The outcome of a scan for a table that not every recording has; `None` without the table or
    /// without items.
    fn of_table(
        recording: &Recording,
        table: &TableDef,
        scan: impl FnOnce(&Recording) -> Result<Self>,
        what: &str,
    ) -> Option<Outcome> {
        recording.list_tables().iter().find(|its| its.name == table.name)?;
        let scanned = scan(recording);
        let is_empty = scanned.as_ref().is_ok_and(|first| first.seen == 0);
        (!is_empty).then(|| Self::of_scan(scanned, what))
    }
}

/// Verifies every invariant.
pub fn check(recording: &Recording) -> Result<Vec<Finding>> {
    let facts = Facts::of(recording.open_table(&fabric::TABLE)?.metadata_pairs());
    let finding = |name, outcome| Finding { name, outcome };
    let (rows, (tables, bytes, ticks, readings)) = thread::scope(|scope| {
        let rows = scope.spawn(|| rows::scan(recording, &facts));
        let others = (
            intact::tables(recording),
            intact::bytes(recording),
            time::per_tick(recording, &facts),
            raw::compare(recording),
        );
        (rows.join().unwrap_or_else(|panic| resume_unwind(panic)), others)
    });
    let mut findings = vec![
        finding("all tables are there", tables),
        finding("bytes are as written", bytes),
        finding("shares sum to totals", rows.conservation),
        finding("CPU time adds up", time::summed(&facts)),
        finding("time adds up per tick", ticks),
        finding("values are valid", rows.values),
        finding("windows are contiguous", rows.sequence),
        finding("losses are recorded", facts::loss(recording, &facts)),
        finding("tables are readable", rows.readable),
        finding("totals agree with readings", readings),
        finding("wall time agrees", rows.clock),
    ];
    findings.extend(
        intact::places(recording).map(|outcome| finding("files are in their place", outcome)),
    );
    findings.extend(
        readers::readings(recording).map(|outcome| finding("counters read on their CPUs", outcome)),
    );
    findings.extend(io::rows(recording).map(|outcome| finding("device bytes are valid", outcome)));
    findings.extend(holders::rows(recording).map(|outcome| finding("holders are valid", outcome)));
    findings.extend(held::shares(recording).map(|outcome| finding("holders hold", outcome)));
    let assigned = assignments::rows(recording);
    findings.extend(assigned.map(|outcome| finding("assignments are valid", outcome)));
    findings
        .extend(accounts::rows(recording).map(|outcome| finding("accounts are valid", outcome)));
    findings
        .extend(marks::marks(recording, &facts).map(|outcome| finding("marks are valid", outcome)));
    Ok(findings)
}

#[cfg(test)]
mod tests;
