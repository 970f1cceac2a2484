//! `loss`: everything that was not seen, with its time and cause.
//!
//! Guarantee: no drop is only logged; the sums by cause are the file's `uncore_trace.loss`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use super::columns::{i64s, words};
use super::kind::{I32, I64, Null, Text, Word, table};
use super::reader::Recording;

table! {
    "loss", "everything that was not seen", sorted by [];
    mono_ns: I64 => Delta, "When it was noticed, `CLOCK_MONOTONIC`, ns.";
    span_ns: I64 => Delta, "Length of time before `mono_ns` it may affect, ns.";
    cause: Word => Dict, "Why.";
    cpu: Null<I32> => Dict, "CPU; null where it is not of one.";
    counter: Null<I32> => Dict, "Counter; null where it is not of one.";
    count: I64 => Delta, "How many.";
    detail: Null<Text> => Plain, "Anything more, in words.";
}

/// Causes that cost resolution in time and no count: counters are cumulative, so the next reading
/// has it all. A recording that lost nothing else is complete. A switch that was not seen hides who
/// had a part of the time before the next one.
///
/// A CPU that is offline is not a loss of anything that was to be counted. That the counters it
/// owned went to another one is: while a driver moves them they do not count
/// (`perf_pmu_migrate_context`, kernel/events/core.c, Linux 6.18, waits for a grace period between
/// taking them off one CPU and putting them on the other).
pub const RESOLUTION: [&str; 5] =
    ["late_tick", NO_BOUNDARY, "nested_reading", "unseen_switch", CPU_OFFLINE];

/// The cause of rows that tell of a window without a reading of `counter` at its end, `mono_ns`.
pub const NO_BOUNDARY: &str = "no_boundary";

/// The cause of rows that tell of a counter that stopped; with a `span_ns`, that it counts again.
pub const COUNTER_STOPPED: &str = "counter_stopped";

/// The cause of rows that tell of a CPU's time, `span_ns` of it before `mono_ns`.
pub const RUN_GAP: &str = "run_gap";

/// The cause of rows that tell when a CPU was offline, likewise.
pub const CPU_OFFLINE: &str = "cpu_offline";

/// What the rows of one cause amount to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Total {
    /// Sum of their counts.
    pub count: i64,
    /// Begin of the first time that one of them may affect, `CLOCK_MONOTONIC`, ns.
    pub first_ns: i64,
}

/// The rows of a dataset's table, summed by cause.
///
/// # Errors
///
/// The table is not there or cannot be read.
pub fn totals(recording: &Recording) -> Result<BTreeMap<String, Total>> {
    let mut totals: BTreeMap<String, Total> = BTreeMap::new();
    for batch in recording.table(&TABLE)?.scan(&["mono_ns", "span_ns", "cause", "count"])? {
        let batch = batch?;
        let (ends, spans) = (i64s(&batch, "mono_ns")?, i64s(&batch, "span_ns")?);
        let (causes, counts) = (words(&batch, "cause")?, i64s(&batch, "count")?);
        for row in 0..batch.num_rows() {
            let cause = causes.get(row).context("a loss row without a cause")?;
            let first_ns = ends.value(row).saturating_sub(spans.value(row));
            let new = Total { count: 0, first_ns };
            let total = totals.entry(cause.to_owned()).or_insert(new);
            total.count = total.count.saturating_add(counts.value(row));
            total.first_ns = total.first_ns.min(first_ns);
        }
    }
    Ok(totals)
}
