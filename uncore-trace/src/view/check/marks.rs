//! Verifies marks: each has a name and times within the recording, and the metadata agree with the
//! table.

use anyhow::Result;

use super::super::marks::RecordedMarks;
use super::facts::MetadataFacts;
use super::{CheckOutcome, FaultTally, find_fault};
use crate::schema::marks::{ListedMarks, Mark, MarkKind, TEXT_BYTES};
use crate::schema::{fabric, marks};
use crate::tables::reader::Recording;

/// Verifies the marks; `None` if the recording has none.
pub(super) fn verify_marks(recording: &Recording, facts: &MetadataFacts) -> Option<CheckOutcome> {
    examine_marks(recording, facts).transpose().map(CheckOutcome::from_result)
}

fn examine_marks(recording: &Recording, facts: &MetadataFacts) -> Result<Option<CheckOutcome>> {
    let marks = RecordedMarks::read_marks(recording)?;
    if marks == RecordedMarks::default() {
        return Ok(None);
    }
    let clocks = facts.clocks.as_deref().unwrap_or_default();
    let begin = clocks.first().map_or(i64::MIN, |clock| clock.mono_ns);
    // A killed recorder has written only the first clock snapshot.
    let end = clocks.last().filter(|_| !facts.repaired).map_or(i64::MAX, |clock| clock.mono_ns);
    let mut tally = FaultTally::default();
    for mark in &marks.list {
        tally.examine_item(|| {
            let wrong = mark_fault(mark, begin, end)?;
            Some(format!("the {} at mono_ns {} {wrong}", mark.kind.kind_name(), mark.mono_ns))
        });
    }
    // After a kill the metadata may be one flush older than the table.
    if recording.has_table(&marks::TABLE) && !facts.repaired {
        let difference = find_difference(recording, &marks)?;
        tally.note_fault(|| difference);
    }
    Ok(Some(tally.into_outcome("marks")))
}

/// The fault of a mark of a recording from `begin` to `end`, if any.
fn mark_fault(mark: &Mark, begin_ns: i64, end_ns: i64) -> Option<&'static str> {
    let is_named = (1..=TEXT_BYTES).contains(&mark.text.len());
    let last_ns = mark.end_ns.unwrap_or(mark.mono_ns);
    find_fault([
        (!is_named, "has no name, or one that is too long"),
        (mark.kind == MarkKind::Instant && mark.end_ns.is_some(), "has an end"),
        (last_ns < mark.mono_ns, "ends before it begins"),
        (mark.mono_ns < begin_ns || last_ns > end_ns, "is not within the recording"),
    ])
}

/// The difference between the metadata and the table, if any.
fn find_difference(recording: &Recording, marks: &RecordedMarks) -> Result<Option<String>> {
    let listed =
        ListedMarks::from_metadata(recording.open_table(&fabric::TABLE)?.metadata_pairs())?;
    let (rows, listed_count) =
        (marks.list.len() as u64, listed.marks.len() as u64 + listed.left_out);
    if listed_count != rows {
        return Ok(Some(format!(
            "the metadata tell of {listed_count} marks, the table has {rows}"
        )));
    }
    let is_there = |mark: &Mark| {
        let first_candidate = marks.list.partition_point(|row| row.mono_ns < mark.mono_ns);
        marks.list[first_candidate..]
            .iter()
            .take_while(|row| row.mono_ns == mark.mono_ns)
            .any(|row| row == mark)
    };
    let missing = listed.marks.into_iter().find(|mark| !is_there(mark));
    Ok(missing.map(|mark| {
        format!("the mark at mono_ns {} is in the metadata and not in the table", mark.mono_ns)
    }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::super::sample::{BEGIN, Broken, INTACT, MARKS, SampleRecording};
    use super::super::verify_recording;
    use super::*;
    use crate::schema::marks::Mark as Row;
    use crate::schema::metadata;

    /// The outcome for the marks of a recording.
    fn marks_outcome(dataset: bool, broken: &Broken) -> Option<CheckOutcome> {
        let findings = verify_recording(&SampleRecording::new(dataset, broken).open()).unwrap();
        findings
            .into_iter()
            .find(|finding| finding.name == "marks are valid")
            .map(|finding| finding.outcome)
    }

    #[test]
    fn sound_marks_are_counted_and_none_are_not_named() {
        let sound = Broken { marks: MARKS, ..INTACT };
        for dataset in [false, true] {
            assert_eq!(
                marks_outcome(dataset, &sound),
                Some(CheckOutcome::Ok("4 marks".to_owned()))
            );
            assert_eq!(marks_outcome(dataset, &INTACT), None);
        }
    }

    /// The marks of the sample, with the span changed.
    fn changed(change: fn(&mut Row)) -> Vec<Row> {
        let mut marks = MARKS();
        change(&mut marks[2]);
        marks
    }

    #[test]
    fn each_fault_of_a_mark_is_named() {
        type Case = (fn() -> Vec<Row>, &'static str);
        let cases: [Case; 6] = [
            (|| changed(|mark| mark.text.clear()), "has no name"),
            (|| changed(|mark| mark.text = "x".repeat(1025)), "is too long"),
            (|| changed(|mark| mark.kind = MarkKind::Instant), "has an end"),
            (|| changed(|mark| mark.end_ns = Some(mark.mono_ns - 1)), "ends before it begins"),
            (|| changed(|mark| mark.mono_ns = BEGIN - 1), "not within"),
            (|| changed(|mark| mark.end_ns = Some(BEGIN + 3_000_000_001)), "not within"),
        ];
        for (marks, words) in cases {
            for dataset in [false, true] {
                let outcome = marks_outcome(dataset, &Broken { marks, ..INTACT });
                let failed =
                    matches!(&outcome, Some(CheckOutcome::Failed(text)) if text.contains(words));
                assert!(failed, "{words}: {outcome:?}");
            }
        }
    }

    #[test]
    fn the_metadata_have_the_marks_of_the_table() {
        let fewer = |pairs: &mut BTreeMap<String, String>| {
            let mut listed = ListedMarks::from_metadata(pairs).unwrap();
            listed.marks.pop();
            pairs.insert(metadata::MARKS.to_owned(), serde_json::to_string(&listed).unwrap());
        };
        let other = |pairs: &mut BTreeMap<String, String>| {
            let mut listed = ListedMarks::from_metadata(pairs).unwrap();
            listed.marks[2].end_ns = None;
            pairs.insert(metadata::MARKS.to_owned(), serde_json::to_string(&listed).unwrap());
        };
        for (metadata, words) in [
            (fewer as fn(&mut _), "tell of 3 marks, the table has 4"),
            (other, "in the metadata and not in the table"),
        ] {
            let outcome = marks_outcome(true, &Broken { marks: MARKS, metadata, ..INTACT });
            let failed =
                matches!(&outcome, Some(CheckOutcome::Failed(text)) if text.contains(words));
            assert!(failed, "{words}: {outcome:?}");
            let file = marks_outcome(false, &Broken { marks: MARKS, metadata, ..INTACT });
            assert!(matches!(file, Some(CheckOutcome::Ok(_))), "{file:?}");
        }
        let left_out = |pairs: &mut BTreeMap<String, String>| {
            let mut listed = ListedMarks::from_metadata(pairs).unwrap();
            listed.marks.pop();
            listed.left_out = 1;
            pairs.insert(metadata::MARKS.to_owned(), serde_json::to_string(&listed).unwrap());
        };
        let outcome = marks_outcome(true, &Broken { marks: MARKS, metadata: left_out, ..INTACT });
        assert_eq!(outcome, Some(CheckOutcome::Ok("4 marks".to_owned())));
    }
}
