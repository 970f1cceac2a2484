//! What a recording lacks, from its metadata and its table `loss`.
//!
//! Guarantee: a recording is shown as complete only if its metadata prove it.

use std::cmp::Reverse;

use anyhow::Result;
use serde::Serialize;

use super::check::facts::MetadataFacts;
use super::losses::{self, LossTotal};
use crate::schema::loss::{LossCause, Losses};
use crate::schema::{fabric, loss};
use crate::tables::reader::Recording;

/// Missing parts of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Incomplete {
    /// It is still being recorded: this is what was on the disk.
    pub recording: bool,
    /// The recorder was killed, and `uncore-trace repair` made the file.
    pub killed: bool,
    /// Segments that `repair` could not read and left out.
    pub left_out: u64,
    /// End of the last window, `CLOCK_MONOTONIC`, ns; null without windows.
    pub end_ns: Option<i64>,
    /// Losses, the largest count first, without notes, which reduced the precision only. Null if
    /// not known.
    pub losses: Option<Vec<Loss>>,
}

/// Losses with one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// As in the table `loss`.
    pub cause: String,
    /// Number of losses.
    pub count: i64,
    /// Begin of the time that the first may affect, `CLOCK_MONOTONIC`, ns; null if not known.
    pub first_ns: Option<i64>,
}

impl Incomplete {
    /// What `recording` lacks; `None` if it is complete.
    ///
    /// # Errors
    ///
    /// The table `fabric` cannot be read.
    pub fn from_recording(recording: &Recording) -> Result<Option<Incomplete>> {
        let table = recording.open_table(&fabric::TABLE)?;
        let facts = MetadataFacts::from_metadata(table.metadata_pairs());
        let losses = load_losses(recording, &facts);
        let lost = losses.as_ref().is_none_or(|losses| !losses.is_empty());
        if !lost && !facts.repaired && facts.left_out == 0 && facts.complete == Ok(true) {
            return Ok(None);
        }
        Ok(Some(Incomplete {
            recording: recording.recording_process().is_some(),
            killed: facts.repaired,
            left_out: facts.left_out,
            end_ns: table.column_bounds("mono_ns").map(|(_, last_ns)| last_ns),
            losses,
        }))
    }

    /// Why cgroups of the recording have no path, if some or all have none.
    ///
    /// # Errors
    ///
    /// The table `fabric` cannot be read.
    pub fn unnamed_cgroups(recording: &Recording) -> Result<Option<String>> {
        let facts =
            MetadataFacts::from_metadata(recording.open_table(&fabric::TABLE)?.metadata_pairs());
        let causes = [LossCause::CgroupsUnnamed, LossCause::CgroupsPartial].map(LossCause::name);
        let totals = facts.loss.iter().flatten();
        let counts = totals.filter(|(cause, _)| causes.contains(&cause.as_str()));
        Ok(Losses::from_totals(counts.map(|(cause, count)| (cause, count.unsigned_abs())))
            .precision_text())
    }

    /// One line, with times in seconds after `start_ns`, the begin of the recording. Not escaped:
    /// print it through [`crate::text::printable`].
    pub fn summary_line(&self, start_ns: i64) -> String {
        let seconds_after = |ns: i64| ns.saturating_sub(start_ns) as f64 / 1e9;
        let mut reasons = Vec::new();
        let nothing_after =
            self.end_ns.map(|end| format!(", nothing after {:.3} s", seconds_after(end)));
        let nothing_after = nothing_after.unwrap_or_default();
        if self.recording {
            reasons.push(format!("it is being recorded now{nothing_after} yet"));
        }
        if self.killed {
            reasons.push(format!("the recorder was killed{nothing_after}"));
        }
        if self.left_out > 0 {
            reasons.push(format!("{} damaged segments were left out", self.left_out));
        }
        match self.losses.as_deref() {
            None => reasons.push("the losses are unknown".to_owned()),
            Some([]) if reasons.is_empty() => reasons.push("the reason is unknown".to_owned()),
            Some([]) => {}
            Some(losses) => {
                let losses: Vec<String> =
                    losses.iter().map(|loss| loss.describe_loss(seconds_after)).collect();
                reasons.push(losses.join(", "));
            }
        }
        format!("incomplete: {}", reasons.join("; "))
    }

    /// The command that says more, for the recording at `path`: none where it is still being
    /// recorded, because `check` takes finished recordings only.
    pub fn check_command(&self, path: &str) -> Option<String> {
        (!self.recording).then(|| format!("uncore-trace check {path}"))
    }
}

impl Loss {
    fn describe_loss(&self, seconds_after: impl Fn(i64) -> f64) -> String {
        let lost = loss::loss_in_words(&self.cause, self.count.unsigned_abs());
        match self.first_ns.map(seconds_after) {
            Some(first_s) if first_s > 0.0 => format!("{lost} (first at {first_s:.3} s)"),
            Some(_) => format!("{lost} (from the start)"),
            None => lost,
        }
    }
}

/// Losses that are no notes; `None` if not known. The table of a dataset is preferred: after a kill
/// it may be one flush newer than the metadata.
fn load_losses(recording: &Recording, facts: &MetadataFacts) -> Option<Vec<Loss>> {
    let mut losses: Vec<Loss> =
        match (losses::totals_by_cause(recording), &facts.loss) {
            (Ok(totals), _) => {
                let losses = totals.into_iter().map(|(cause, LossTotal { count, first_ns })| {
                    Loss { cause, count, first_ns: Some(first_ns) }
                });
                losses.collect()
            }
            (Err(_), Ok(totals)) => {
                let losses = totals.iter().map(|(cause, count)| {
                    let first_ns = facts.loss_first.get(cause).copied();
                    Loss { cause: cause.clone(), count: *count, first_ns }
                });
                losses.collect()
            }
            (Err(_), Err(_)) => return None,
        };
    losses.retain(|loss| loss.count > 0 && !loss::is_precision(&loss.cause));
    losses.sort_by_key(|loss| Reverse(loss.count));
    Some(losses)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::sample::{BEGIN, Broken, INTACT, SampleRecording, WINDOWS};
    use super::*;
    use crate::schema::metadata;

    fn incomplete(dataset: bool, broken: &Broken) -> Option<Incomplete> {
        Incomplete::from_recording(&SampleRecording::new(dataset, broken).open()).unwrap()
    }

    fn line(dataset: bool, broken: &Broken) -> String {
        incomplete(dataset, broken).unwrap().summary_line(BEGIN)
    }

    /// An offline CPU and a late tick, which are notes, and two lost samples.
    fn lossy(pairs: &mut BTreeMap<String, String>) {
        let loss =
            r#"{"late_tick":12,"lost_sample":5286,"not_opened":2,"ring_full":3,"run_gap":0}"#;
        let first = r#"{"late_tick":5100000000,"lost_sample":5412000000,"not_opened":4900000000}"#;
        for (key, value) in
            [(metadata::COMPLETE, "false"), (metadata::LOSS, loss), (metadata::LOSS_FIRST, first)]
        {
            pairs.insert(key.to_owned(), value.to_owned());
        }
    }

    fn killed(pairs: &mut BTreeMap<String, String>) {
        pairs.insert(metadata::COMPLETE.to_owned(), "false".to_owned());
        pairs.insert(metadata::REPAIRED.to_owned(), "true".to_owned());
    }

    #[test]
    fn a_complete_recording_lacks_nothing() {
        for dataset in [false, true] {
            assert_eq!(incomplete(dataset, &INTACT), None);
        }
        let precision = Broken {
            metadata: |pairs| {
                pairs.insert(metadata::LOSS.to_owned(), r#"{"late_tick":12}"#.to_owned());
            },
            ..INTACT
        };
        assert_eq!(incomplete(false, &precision), None);
    }

    #[test]
    fn a_file_has_its_losses_in_its_metadata() {
        let lossy = Broken { metadata: lossy, ..INTACT };
        // A counter that could not be opened is missing from the begin.
        assert_eq!(
            line(false, &lossy),
            "incomplete: 5286 readings were dropped (first at 0.412 s), 3 records were dropped, 2 \
             counters could not be opened (from the start)"
        );
    }

    #[test]
    fn a_dataset_has_its_losses_in_its_table() {
        let row = loss::Row {
            host: "test",
            boot_id: "3f4e5d6c",
            cluster: None,
            mono_ns: BEGIN + 1_500_000_000,
            span_ns: 500_000_000,
            cause: "run_gap",
            cpu: Some(1),
            counter: None,
            count: 7,
            detail: None,
        };
        let gap = Broken { loss: Some(row), ..INTACT };
        assert_eq!(
            line(true, &gap),
            "incomplete: 7 gaps in the records of a CPU (first at 1.000 s)"
        );
    }

    #[test]
    fn a_killed_recorder_is_named_with_the_time_it_came_to() {
        let unknown = Broken {
            metadata: |pairs| {
                killed(pairs);
                pairs.remove(metadata::LOSS);
            },
            ..INTACT
        };
        let at_the_end = "incomplete: the recorder was killed, nothing after 3.000 s";
        assert_eq!(line(false, &unknown), format!("{at_the_end}; the losses are unknown"));
        let nothing = Broken { metadata: killed, ..INTACT };
        assert_eq!(line(false, &nothing), at_the_end);
        let lossy = Broken {
            metadata: |pairs| {
                lossy(pairs);
                killed(pairs);
                pairs.insert(metadata::LEFT_OUT.to_owned(), "2".to_owned());
            },
            ..INTACT
        };
        assert_eq!(
            line(false, &lossy),
            format!(
                "{at_the_end}; 2 damaged segments were left out; 5286 readings were dropped \
                 (first at 0.412 s), 3 records were dropped, 2 counters could not be opened (from the start)"
            )
        );
        let incomplete = incomplete(false, &lossy).unwrap();
        assert_eq!(incomplete.end_ns, Some(BEGIN + WINDOWS * 10_000_000));
    }

    #[test]
    fn a_recording_without_the_mark_of_completeness_is_incomplete() {
        let unsure: [fn(&mut BTreeMap<String, String>); 2] = [
            |pairs| drop(pairs.insert(metadata::COMPLETE.to_owned(), "false".to_owned())),
            |pairs| drop(pairs.remove(metadata::COMPLETE)),
        ];
        for metadata in unsure {
            let broken = Broken { metadata, ..INTACT };
            assert_eq!(line(false, &broken), "incomplete: the reason is unknown");
        }
    }
}
