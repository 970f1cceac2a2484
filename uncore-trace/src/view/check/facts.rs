//! Parses a recording's metadata, and checks them against the table `loss`.
//!
//! Guarantee: missing or malformed metadata are reported with a reason; no default replaces them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::super::losses;
use super::CheckOutcome;
use crate::clock::Snapshot;
use crate::schema::loss::Losses;
use crate::schema::metadata;
use crate::tables::reader::Recording;

/// Time of one CPU by kind of owner, ns.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct RecordedCpuTime {
    pub(super) cpu: i32,
    pub(super) begin_ns: i64,
    pub(super) end_ns: i64,
    pub(super) task_ns: i64,
    pub(super) irq_ns: i64,
    pub(super) softirq_ns: i64,
    pub(super) idle_ns: i64,
    pub(super) unattributed_ns: i64,
    /// Missing in recordings of versions that did not support CPU hotplug.
    #[serde(default)]
    pub(super) offline_ns: i64,
    pub(super) worst_window_error_ns: i64,
}

/// The metadata; each field holds its value or the reason why it is missing.
#[derive(Debug)]
pub(in crate::view) struct MetadataFacts {
    pub(super) clocks: Result<Vec<Snapshot>, String>,
    pub(super) cpu_time: Result<Vec<RecordedCpuTime>, String>,
    pub(in crate::view) loss: Result<BTreeMap<String, i64>, String>,
    /// Begin of the first loss of each cause, `CLOCK_MONOTONIC`, ns; empty if not known.
    pub(in crate::view) loss_first: BTreeMap<String, i64>,
    pub(in crate::view) complete: Result<bool, String>,
    pub(in crate::view) repaired: bool,
    /// Segments that `repair` could not read.
    pub(in crate::view) left_out: u64,
}

impl MetadataFacts {
    pub(in crate::view) fn from_metadata(pairs: &BTreeMap<String, String>) -> MetadataFacts {
        MetadataFacts {
            clocks: parse(pairs, metadata::CLOCKS),
            cpu_time: parse(pairs, metadata::CPU_TIME),
            loss: parse(pairs, metadata::LOSS),
            loss_first: parse(pairs, metadata::LOSS_FIRST).unwrap_or_default(),
            complete: parse(pairs, metadata::COMPLETE),
            repaired: pairs.get(metadata::REPAIRED).is_some_and(|value| value == "true"),
            left_out: parse(pairs, metadata::LEFT_OUT).unwrap_or_default(),
        }
    }

    /// Whether gaps are expected: there are losses, or the recorder was killed.
    pub(super) fn may_have_gaps(&self) -> bool {
        let sum = |loss: &BTreeMap<String, i64>| loss.values().fold(0, |a, b| b.saturating_add(a));
        self.repaired || self.loss.as_ref().ok().is_none_or(|loss| sum(loss) > 0)
    }
}

fn parse<T: DeserializeOwned>(pairs: &BTreeMap<String, String>, key: &str) -> Result<T, String> {
    let text = pairs.get(key).ok_or_else(|| format!("the metadata has no {key}"))?;
    serde_json::from_str(text).map_err(|error| format!("{key} is malformed: {error}"))
}

/// Loss totals exist, and agree with `complete` and, in a dataset, with the table `loss`.
pub(super) fn verify_losses(recording: &Recording, facts: &MetadataFacts) -> CheckOutcome {
    if recording.is_rollup() {
        return CheckOutcome::NotVerifiable("a roll-up does not record losses".to_owned());
    }
    let (totals, complete) = match (&facts.loss, &facts.complete) {
        (Ok(totals), Ok(complete)) => (totals, *complete),
        (Err(reason), _) | (_, Err(reason)) if facts.repaired => {
            return CheckOutcome::NotVerifiable(format!(
                "{reason}; the recorder was killed before its end was known"
            ));
        }
        (Err(reason), _) | (_, Err(reason)) => return CheckOutcome::Failed(reason.clone()),
    };
    if let Some((cause, count)) = totals.iter().find(|(_, count)| **count < 0) {
        return CheckOutcome::Failed(format!("loss of cause {cause} is {count}"));
    }
    let losses =
        Losses::from_totals(totals.iter().map(|(cause, count)| (cause, count.unsigned_abs())));
    if let Some(missing) = losses.incomplete_text().filter(|_| complete) {
        return CheckOutcome::Failed(format!("the metadata says complete, but it is {missing}"));
    }
    if !complete && losses.is_complete() && !facts.repaired {
        return CheckOutcome::Failed(
            "the metadata says not complete, but no loss is recorded".to_owned(),
        );
    }
    let verdict = match (complete, losses.incomplete_text()) {
        (true, _) => "complete".to_owned(),
        (false, Some(missing)) => missing,
        (false, None) => "incomplete: the recorder was killed".to_owned(),
    };
    let mut completeness =
        losses.precision_text().map_or(verdict.clone(), |note| format!("{verdict}; {note}"));
    let causes = losses.missing.iter().chain(&losses.precision).map(|(cause, _)| cause.as_str());
    let causes: Vec<&str> = causes.collect();
    if !causes.is_empty() {
        completeness = format!("{completeness} ({})", causes.join(", "));
    }
    if !recording.is_dataset() {
        return CheckOutcome::Ok(completeness);
    }
    let in_table = match losses::totals_by_cause(recording) {
        Ok(in_table) => in_table,
        Err(error) => return CheckOutcome::Failed(format!("{error:#}")),
    };
    // The totals are those of the last flush; the table may be one flush newer.
    if facts.repaired {
        return CheckOutcome::Ok(completeness);
    }
    let count_in_table = |cause: &str| in_table.get(cause).map_or(0, |total| total.count);
    let mut causes = totals.keys().chain(in_table.keys());
    let differs =
        |cause: &&String| totals.get(*cause).is_none_or(|count| count_in_table(cause) != *count);
    match causes.find(differs) {
        None => CheckOutcome::Ok(format!("{completeness}, as in the loss table")),
        Some(cause) => CheckOutcome::Failed(format!(
            "loss of cause {cause}: {} in the metadata, {} in the loss table",
            totals.get(cause).copied().unwrap_or(0),
            count_in_table(cause),
        )),
    }
}
