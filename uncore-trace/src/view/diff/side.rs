//! One of the two that are compared: reads its rates from its tables.

use std::collections::BTreeMap;

use anyhow::Result;

use super::super::grouping::GroupBy;
use super::super::heat::Heat;
use super::super::incomplete::Incomplete;
use super::super::interval::Interval;
use super::super::links::Links;
use super::super::question::ReportQuestion;
use super::super::report_sums::{ReportEvent, ReportLine, merge_lines_by_name, sum_report};
use super::super::span::TimePoint;
use super::DiffQuestion;
use super::rate::{MeanRate, SideRate};
use super::variation::rate_variation;
use crate::clock::TimeSpan;
use crate::schema::link::PeakRate;
use crate::schema::{fabric, metadata};
use crate::tables::reader::Recording;

/// A recording, and the span of it that is compared.
#[derive(Debug, Clone)]
pub struct RequestedSpan<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// Begin; `None`: that of the recording.
    pub begin_moment: Option<TimePoint>,
    /// End; `None`: that of the recording.
    pub end_moment: Option<TimePoint>,
}

/// Facts of one of the two spans beside its rates.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanFacts {
    /// Begin of the recording, `CLOCK_MONOTONIC`, ns.
    pub start_ns: i64,
    /// The span, `CLOCK_MONOTONIC`.
    pub span: TimeSpan<i64>,
    /// What the recording lacks; `None` if it is complete.
    pub incomplete: Option<Incomplete>,
}

impl SpanFacts {
    /// Length of the span, seconds.
    pub fn length_s(&self) -> f64 {
        self.span.len_ns() as f64 / 1e9
    }
}

/// What one of the two spans counted.
#[derive(Debug)]
pub(super) struct SideUsage {
    pub(super) facts: SpanFacts,
    /// Metadata that identify the host and describe how the recording was made.
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) links: Links,
    pub(super) events: Vec<ReportEvent>,
    /// Length of a step of the lines' values over time, seconds.
    step_s: f64,
}

impl SideUsage {
    /// Reads the span. `by_links`: lines are summed by direction of links, not by event; `by_name`:
    /// processes of one name are summed, and ids of containers and pods are removed.
    pub(super) fn read_span(
        request: &RequestedSpan<'_>,
        question: &DiffQuestion,
        by_links: bool,
        by_name: bool,
    ) -> Result<Self> {
        let DiffQuestion { grouping, cgroup_depth, .. } = *question;
        let table = request.recording.open_table(&fabric::TABLE)?;
        let links = Links::from_recording(request.recording)?;
        let question = ReportQuestion {
            links: by_links.then_some(&links),
            begin: request.begin_moment.clone(),
            end: request.end_moment.clone(),
            cgroup_depth,
            ..ReportQuestion::grouped_by(grouping)
        };
        let mut usage = sum_report(request.recording, &question)?;
        if by_name {
            merge_lines_by_name(&mut usage.events, |key| name_without_id(grouping, key).to_owned());
        }
        let facts = SpanFacts {
            start_ns: usage.start_ns,
            span: usage.span,
            incomplete: Incomplete::from_recording(request.recording)?,
        };
        let metadata = table.metadata_pairs().clone();
        let (events, step_s) = (usage.events, usage.step_ns / 1e9);
        Ok(Self { facts, metadata, links, events, step_s })
    }

    /// What was counted of an event, by its name and unit.
    pub(super) fn find_event(&self, event_key: &(String, String)) -> SideEvent<'_> {
        let is_wanted =
            |event: &&ReportEvent| (&event.name, &event.unit) == (&event_key.0, &event_key.1);
        SideEvent { side: self, event: self.events.iter().find(is_wanted) }
    }

    fn total_rate(&self, event: &ReportEvent) -> SideRate {
        let mut heat = Heat::default();
        event.lines.iter().for_each(|line| heat.add_line(&line.heat));
        let exact_interval = Interval { low: event.total, high: event.total };
        self.compute_rate(event, event.total, Some(exact_interval), &heat)
    }

    fn compute_rate(
        &self,
        event: &ReportEvent,
        total: f64,
        total_interval: Option<Interval>,
        heat: &Heat,
    ) -> SideRate {
        let Some(per_s) = event.mean_rate(total) else { return SideRate::Unknown };
        let seconds = event.known_s();
        SideRate::Known(MeanRate {
            total,
            seconds,
            per_s,
            interval: total_interval
                .map(|bounds| Interval { low: bounds.low / seconds, high: bounds.high / seconds }),
            variation: rate_variation(heat, &event.time, self.step_s),
            share: (event.total != 0.0).then(|| total / event.total),
        })
    }

    /// The value of a key of the metadata.
    pub(super) fn metadata_value(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str)
    }

    /// Whether both have the same boot id, so that their times can be compared.
    pub(super) fn is_of_one_boot(&self, other_side: &Self) -> bool {
        let boot = self.metadata_value(metadata::BOOT_ID);
        boot.is_some() && boot == other_side.metadata_value(metadata::BOOT_ID)
    }
}

/// What one of the two spans counted of a link or an event.
#[derive(Debug, Clone, Copy)]
pub(super) struct SideEvent<'a> {
    pub(super) side: &'a SideUsage,
    /// The sums; `None` if it was not counted.
    pub(super) event: Option<&'a ReportEvent>,
}

impl<'a> SideEvent<'a> {
    /// The rate of all owners; unknown if nothing was counted.
    pub(super) fn total_rate(&self) -> SideRate {
        self.event.map_or(SideRate::Unknown, |event| self.side.total_rate(event))
    }

    /// The rate of one line.
    pub(super) fn line_rate(&self, line: Option<&ReportLine>) -> SideRate {
        match (self.event, line) {
            (Some(event), Some(line)) if line.sum.rows > 0 => {
                let interval = line.value_interval(event);
                self.side.compute_rate(event, line.sum.value, interval, &line.heat)
            }
            (Some(event), None) if event.known_s() > 0.0 => SideRate::Absent,
            // Not counted, or all windows of the line lack a value.
            _ => SideRate::Unknown,
        }
    }

    /// The lines, by owner and name.
    pub(super) fn lines_by_owner(&self) -> BTreeMap<(&'a str, &'a str), &'a ReportLine> {
        let lines = self.event.into_iter().flat_map(|event| &event.lines);
        lines.map(|line| ((line.owner.as_str(), line.key.as_str()), line)).collect()
    }

    /// The peak of the link; `None` for an event, and if it is not known.
    pub(super) fn link_peak(&self) -> Option<&'a PeakRate> {
        Some(self.side.links.peak_limit(self.event?.link?)?.peak)
    }
}

/// The name of a line in any recording: a process without its pid, a container or pod without its
/// id.
pub(super) fn name_without_id(grouping: GroupBy, key: &str) -> &str {
    let name_and_id = match grouping {
        GroupBy::Pid => key.strip_suffix(')').and_then(|key| key.rsplit_once(" (")),
        GroupBy::Container | GroupBy::Pod => key.rsplit_once('@'),
        _ => None,
    };
    name_and_id
        .map(|(base_name, _)| base_name)
        .filter(|base_name| !base_name.is_empty())
        .unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_ids() {
        for (grouping, key, expected) in [
            (GroupBy::Pid, "train (100)", "train"),
            (GroupBy::Pid, "a (b) (7)", "a (b)"),
            (GroupBy::Pid, "irq:nvme0q1", "irq:nvme0q1"),
            (GroupBy::Container, "web@3f4e5d6c7b8a", "web"),
            (GroupBy::Container, "3f4e5d6c7b8a", "3f4e5d6c7b8a"),
            (GroupBy::Container, "(no container)", "(no container)"),
            (GroupBy::Pod, "shop/web-0@12-34", "shop/web-0"),
            (GroupBy::Cgroup, "/a@b (1)", "/a@b (1)"),
        ] {
            assert_eq!(name_without_id(grouping, key), expected);
        }
    }
}
