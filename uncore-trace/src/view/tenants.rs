//! Who the lines are when the user chose no grouping: cgroups, or processes by name where one
//! cgroup has nearly all.
//!
//! On a machine, in a container or in a login session where everything runs in one cgroup, the
//! cgroup says nothing about who it was.

use anyhow::Result;

use super::grouping::GroupBy;
use super::question::ReportQuestion;
use super::report_sums::{ReportEvent, ReportLine, ReportSums, sort_by_value, sum_report};
use crate::schema::owner;
use crate::tables::reader::Recording;

/// A cgroup with more than this part of what tasks had of an event is shown as its processes.
pub(super) const DOMINANT: f64 = 0.9;

/// The cgroup that has nearly all of what tasks had of an event, in place of which processes are
/// shown.
#[derive(Debug, Clone, PartialEq)]
pub struct DominantCgroup {
    /// Path of the cgroup, as recorded: not escaped.
    pub path: String,
    /// Fraction that the cgroup has of the event's total, 0 to 1.
    pub fraction: f64,
}

/// The sums of a question. If it has no chosen grouping, an event of which one cgroup has more than
/// [`DOMINANT`] is summed by the name of processes, and the others by cgroup. A roll-up has no
/// processes.
///
/// # Errors
///
/// The recording cannot be read, or nothing was recorded in the selected time.
pub fn sum_report_of_tenants(
    recording: &Recording,
    question: &ReportQuestion<'_>,
) -> Result<ReportSums> {
    let mut sums = sum_report(recording, question)?;
    if question.is_chosen || question.grouping != GroupBy::Cgroup || recording.is_rollup() {
        return Ok(sums);
    }
    if sums.events.iter().all(|event| dominant_cgroup(event).is_none()) {
        return Ok(sums);
    }
    let by_process =
        sum_report(recording, &ReportQuestion { grouping: GroupBy::Comm, ..question.clone() })?;
    for event in &mut sums.events {
        let Some(dominant) = dominant_cgroup(event) else { continue };
        let is_same = |candidate: &&ReportEvent| {
            (candidate.link, &candidate.name, &candidate.unit)
                == (event.link, &event.name, &event.unit)
        };
        if let Some(divided) = by_process.events.iter().find(is_same) {
            let is_of_task = |line: &&ReportLine| line.owner == owner::TASK;
            event.lines.retain(|line| !is_of_task(&line));
            event.lines.extend(divided.lines.iter().filter(is_of_task).cloned());
            sort_by_value(&mut event.lines);
            (event.grouping, event.dominant) = (GroupBy::Comm, Some(dominant));
        }
    }
    Ok(sums)
}

/// The one grouping for all of these events, for views in which a tenant has one line or colour
/// over all of them: the chosen one, else processes if no event tells cgroups apart.
pub fn common_grouping(question: &ReportQuestion<'_>, events: &[ReportEvent]) -> GroupBy {
    if question.is_chosen {
        return question.grouping;
    }
    let mut counted = events.iter().filter(|event| event.total > 0.0);
    let is_dominated = |event: &ReportEvent| event.dominant.is_some();
    let by_process = counted.next().is_some_and(is_dominated) && counted.all(is_dominated);
    if by_process { GroupBy::Comm } else { GroupBy::Cgroup }
}

/// The cgroup with more than [`DOMINANT`] of what tasks had of an event that is summed by cgroup.
fn dominant_cgroup(event: &ReportEvent) -> Option<DominantCgroup> {
    let is_task = |owner: &str| [owner::TASK, owner::OTHER_TASKS].contains(&owner);
    let tasks = event.lines.iter().filter(|line| is_task(&line.owner));
    let of_tasks: f64 = tasks.map(|line| line.sum.value).sum();
    let largest = event.lines.iter().find(|line| line.owner == owner::TASK)?;
    (largest.sum.value > DOMINANT * of_tasks).then(|| DominantCgroup {
        path: largest.key.clone(),
        fraction: largest.sum.value / event.total,
    })
}

#[cfg(test)]
mod tests {
    use super::super::answer::answer;
    use super::super::links::Links;
    use super::super::render::{TextStyle, draw_report};
    use super::super::sample::{Broken, INTACT, SampleRecording, sample_link, sample_plan};
    use super::*;
    use crate::schema::metadata;

    /// All tasks are in one cgroup.
    const ONE_CGROUP: Broken = Broken {
        fabric: |row, _| {
            if row.cgroup.is_some() {
                (row.cgroup_id, row.cgroup) = (Some(7), Some("/user.slice"));
            }
            true
        },
        metadata: |pairs| {
            pairs.insert(metadata::PLAN.to_owned(), sample_plan(vec![sample_link(Vec::new())]));
        },
        ..INTACT
    };

    /// Everything is counted for one process, and exact.
    const ONE_PROCESS: Broken = Broken {
        fabric: |row, _| {
            (row.value, row.method, row.confidence) = (row.total, "exact", Some(1.0));
            row.pid == Some(100)
        },
        ..INTACT
    };

    fn sums(broken: &Broken, is_chosen: bool) -> ReportSums {
        let question = ReportQuestion { is_chosen, ..ReportQuestion::grouped_by(GroupBy::Cgroup) };
        sum_report_of_tenants(&SampleRecording::new(false, broken).open(), &question).unwrap()
    }

    fn keys(event: &ReportEvent) -> Vec<&str> {
        event.lines.iter().map(|line| line.key.as_str()).collect()
    }

    #[test]
    fn a_cgroup_with_nearly_all_is_shown_as_its_processes() {
        let divided = sums(&ONE_CGROUP, false);
        for event in &divided.events {
            assert_eq!(keys(event), ["train", "serve", "idle", "irq"]);
            let dominant = event.dominant.as_ref().unwrap();
            assert_eq!((dominant.path.as_str(), dominant.fraction), ("/user.slice", 0.75));
        }
        let text = draw_report(&divided, TextStyle::default());
        assert!(text.contains("64.0 MB/s, 75 % in cgroup /user.slice\n"), "{text}");
        assert!(text.contains(" owner  comm "), "{text}");
    }

    #[test]
    fn a_chosen_grouping_and_cgroups_that_differ_stay() {
        let chosen = sums(&ONE_CGROUP, true);
        assert_eq!(keys(&chosen.events[0]), ["/user.slice", "idle", "irq"]);
        let differ = sums(&INTACT, false);
        assert_eq!(keys(&differ.events[0])[1..], ["/other", "idle", "irq"]);
        assert!(differ.events.iter().all(|event| event.dominant.is_none()));
    }

    #[test]
    fn the_answer_names_the_process_and_its_cgroup() {
        let sample = SampleRecording::new(false, &ONE_CGROUP);
        let recording = sample.open();
        let links = Links::from_recording(&recording).unwrap();
        let question = ReportQuestion {
            is_chosen: false,
            links: Some(&links),
            ..ReportQuestion::grouped_by(GroupBy::Cgroup)
        };
        let sums = sum_report_of_tenants(&recording, &question).unwrap();
        let (sentence, _) = answer(&sums.events, &links, &[]);
        assert!(sentence.starts_with("train had 50 % "), "{sentence}");
        assert!(sentence.ends_with(" of 192 MB; 75 % in cgroup /user.slice."), "{sentence}");
        let by_event = self::sums(&ONE_CGROUP, false);
        let (sentence, _) = answer(&by_event.events, &Links::new(Vec::new()), &[]);
        assert!(sentence.starts_with("train had 50 % "), "{sentence}");
    }

    #[test]
    fn an_event_of_one_certain_owner_is_one_line() {
        let folded = draw_report(&sums(&ONE_PROCESS, false), TextStyle::default());
        // Before the events stands what holds in every line.
        let lines: Vec<&str> = folded.trim().split("\n\n").skip(1).collect();
        assert_eq!(lines.len(), 2, "{folded}");
        assert!(lines.iter().all(|line| line.lines().count() == 1), "{folded}");
        assert!(lines.iter().all(|line| line.contains("/s, all of train, ")), "{folded}");
        let chosen = draw_report(&sums(&ONE_PROCESS, true), TextStyle::default());
        assert!(!chosen.contains("all of") && chosen.contains(" task "), "{chosen}");
    }

    #[test]
    fn views_with_one_grouping_use_processes_if_no_event_tells_cgroups_apart() {
        let unchosen =
            ReportQuestion { is_chosen: false, ..ReportQuestion::grouped_by(GroupBy::Cgroup) };
        let one = sums(&ONE_CGROUP, false).events;
        assert_eq!(common_grouping(&unchosen, &one), GroupBy::Comm);
        assert_eq!(common_grouping(&ReportQuestion::grouped_by(GroupBy::Pod), &one), GroupBy::Pod);
        let mixed: Vec<ReportEvent> =
            one.into_iter().take(1).chain(sums(&INTACT, false).events).collect();
        assert_eq!(common_grouping(&unchosen, &mixed), GroupBy::Cgroup);
    }
}
