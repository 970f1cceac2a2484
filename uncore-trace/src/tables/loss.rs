//! `loss`: everything that was not seen, with its time and cause.
//!
//! Guarantees: no drop is only logged; the sums by cause are the file's `uncore_trace.loss`; what a
//! cause costs, and the words for it, are in [`CAUSES`] and nowhere else.

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

/// What a loss takes from a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Precision in time. Counters are cumulative, so the next reading has the whole count: nothing
    /// is missing, and the recording is complete.
    Precision,
    /// Counts, or who caused them: the recording is incomplete. What the user can do about it.
    Counts(&'static str),
}

/// What helps where the ring buffer was too small or was emptied too late.
const LARGER_BUFFER: &str = "use a larger --buffer";

/// What helps where a CPU was taken offline.
const KEEP_ONLINE: &str = "keep all CPUs online while recording";

/// What helps where the reason is in the row's `detail` only.
const SEE_DETAIL: &str = "record into a directory (-o DIR/) and see `detail` in its table loss";

/// Every cause and what it costs. The first five cost precision only.
///
/// A switch that was not seen (`unseen_switch`) hides who had a part of the time before the next
/// one.
///
/// A CPU that is offline (`cpu_offline`) is no loss of anything that was to be counted. That the
/// counters it owned went to another one (`owner_offline`) is: while a driver moves them they do not
/// count (`perf_pmu_migrate_context`, kernel/events/core.c, Linux 6.18, waits for a grace period
/// between taking them off one CPU and putting them on the other).
pub const CAUSES: [(&str, Cost); 19] = [
    ("late_tick", Cost::Precision),
    (NO_BOUNDARY, Cost::Precision),
    ("nested_reading", Cost::Precision),
    ("unseen_switch", Cost::Precision),
    (CPU_OFFLINE, Cost::Precision),
    ("ring_full", Cost::Counts(LARGER_BUFFER)),
    (RUN_GAP, Cost::Counts(LARGER_BUFFER)),
    ("lost_sample", Cost::Counts(LARGER_BUFFER)),
    ("read_failed", Cost::Counts(SEE_DETAIL)),
    ("not_scheduled", Cost::Counts("record fewer events at a time")),
    ("not_opened", Cost::Counts("leave out the events that cannot be opened")),
    ("undecodable", Cost::Counts("build uncore-trace anew: its BPF programs do not fit it")),
    ("timer_stopped", Cost::Counts("use --timer run-on-cpu")),
    ("owner_offline", Cost::Counts(KEEP_ONLINE)),
    (COUNTER_STOPPED, Cost::Counts(KEEP_ONLINE)),
    ("cpu_not_planned", Cost::Counts("bring all CPUs online before recording")),
    ("io_unseen", Cost::Counts(SEE_DETAIL)),
    (
        "slices_dropped",
        Cost::Counts(
            "record without --slices, or to a faster disk; only the table slices lacks rows",
        ),
    ),
    ("unfinished", Cost::Counts("record again on a less busy machine")),
];

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

/// Loss totals in two lists: what cost precision only, and what makes the recording incomplete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Cause and how many, of those that cost precision only.
    pub precision: Vec<(String, u64)>,
    /// Cause and how many, of the others. A cause that is not in [`CAUSES`], as in a recording of a
    /// later version, is here.
    pub missing: Vec<(String, u64)>,
}

impl Losses {
    /// Sorts totals by cause, e.g. those of the metadata `uncore_trace.loss`; totals of 0 are left
    /// out.
    pub fn sort<N: Into<String>>(totals: impl IntoIterator<Item = (N, u64)>) -> Self {
        let mut lists = Self::default();
        for (cause, count) in totals {
            let cause = cause.into();
            match cost(&cause) {
                _ if count == 0 => {}
                Some(Cost::Precision) => lists.precision.push((cause, count)),
                Some(Cost::Counts(_)) | None => lists.missing.push((cause, count)),
            }
        }
        lists
    }

    /// Whether a recording with these losses is complete.
    pub const fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Words for what cost precision, e.g. `note: 12 late_tick: less precise in time, no count is
    /// missing`. Causes come from a file in most cases: print the line through
    /// [`crate::text::printable`].
    pub fn note(&self) -> Option<String> {
        let counts = Self::list(&self.precision)?;
        Some(format!("note: {counts}: less precise in time, no count is missing"))
    }

    /// Words for what is missing and what to do, e.g. `incomplete: 3 ring_full: use a larger
    /// --buffer`. To be printed as [`Losses::note`] is.
    pub fn incomplete(&self) -> Option<String> {
        let counts = Self::list(&self.missing)?;
        let mut remedies = Vec::new();
        for (cause, _) in &self.missing {
            if let Some(Cost::Counts(remedy)) = cost(cause)
                && !remedies.contains(&remedy)
            {
                remedies.push(remedy);
            }
        }
        let colon = if remedies.is_empty() { "" } else { ": " };
        Some(format!("incomplete: {counts}{colon}{}", remedies.join("; ")))
    }

    /// Both lists without advice, e.g. `incomplete: 3 ring_full; note: 12 late_tick`; empty where
    /// nothing was lost. To be printed as [`Losses::note`] is.
    pub fn brief(&self) -> String {
        let of = |word, list| Some(format!("{word}: {}", Self::list(list)?));
        let lists = [of("incomplete", &self.missing), of("note", &self.precision)];
        lists.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    fn list(list: &[(String, u64)]) -> Option<String> {
        let words: Vec<_> = list.iter().map(|(cause, count)| format!("{count} {cause}")).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// Whether a cause cost precision only.
pub fn is_precision(cause: &str) -> bool {
    cost(cause) == Some(Cost::Precision)
}

fn cost(cause: &str) -> Option<Cost> {
    CAUSES.iter().find(|(name, _)| *name == cause).map(|(_, cost)| *cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_sorted_by_what_they_cost() {
        let totals = [("late_tick", 12), ("lost_sample", 5286), ("run_gap", 1), ("ring_full", 0)];
        let losses = Losses::sort(totals);
        assert!(!losses.is_complete());
        assert_eq!(
            losses.note().unwrap(),
            "note: 12 late_tick: less precise in time, no count is missing"
        );
        assert_eq!(
            losses.incomplete().unwrap(),
            "incomplete: 5286 lost_sample, 1 run_gap: use a larger --buffer"
        );
        assert_eq!(losses.brief(), "incomplete: 5286 lost_sample, 1 run_gap; note: 12 late_tick");
    }

    #[test]
    fn precision_alone_leaves_a_recording_complete_and_an_unknown_cause_does_not() {
        let precise = Losses::sort([("cpu_offline", 1), ("unseen_switch", 3)]);
        assert!(precise.is_complete());
        assert_eq!(precise.incomplete(), None);
        let unknown = Losses::sort([("of_a_later_version", 1)]);
        assert!(!unknown.is_complete());
        assert_eq!(unknown.incomplete().unwrap(), "incomplete: 1 of_a_later_version");
        let none = Losses::sort([("run_gap", 0)]);
        assert_eq!((none.is_complete(), none.note(), none.brief()), (true, None, String::new()));
    }
}
