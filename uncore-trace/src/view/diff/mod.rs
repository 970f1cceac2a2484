//! Compares two recordings, or two spans of one.
//!
//! Rates are compared, because the two may differ in length. Links and events are matched by name,
//! tenants by the key of the lines. Processes, containers and pods of two recordings are matched by
//! their names, because their ids differ. [`rate`] decides whether a difference is larger than its
//! error, [`variation`] computes how much a rate varies, and [`comparability`] lists what differs
//! between the recordings.
//!
//! Guarantees: the differences of the tenants sum to that of the total; a tenant in only one of the
//! two has no ratio; there is no difference and no verdict if a value is not known, or if the two
//! do not count in the same way.

mod comparability;
pub mod gate;
pub mod json;
pub mod page;
pub mod rate;
mod restarted;
mod side;
mod summary;
pub mod text;
mod variation;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use anyhow::{Context as _, Result};

use super::grouping::GroupBy;
use super::links::Links;
use crate::schema::link::Direction;
use rate::{RateChange, SideRate};
use side::SideUsage;
pub use side::{RequestedSpan, SpanFacts};
pub use summary::summary;

/// Options of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct DiffQuestion {
    /// Grouping of tenants.
    pub grouping: GroupBy,
    /// Cgroups deeper than this are summed in their ancestor of this depth; 0 is the root.
    pub cgroup_depth: Option<usize>,
    /// Whether to compare by event even if both recordings have links.
    pub events: bool,
}

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Diff {
    /// Grouping of tenants.
    pub grouping: GroupBy,
    /// The first recording or span.
    pub before_facts: SpanFacts,
    /// The second recording or span.
    pub after_facts: SpanFacts,
    /// Differences between the recordings as a whole. Texts are as recorded: not escaped.
    pub notes: Vec<String>,
    /// Links or events, with the largest difference first; bytes before other units.
    pub subjects: Vec<DiffSubject>,
}

/// What is compared: one direction of a link, or an event.
#[derive(Debug, Clone, PartialEq)]
pub struct DiffSubject {
    /// `memory 0 in`, or an event with its filter in brackets.
    pub name: String,
    /// The link and direction; `None` for an event.
    pub link: Option<(String, Direction)>,
    /// Peak of the link in this direction in the second recording, bytes per second; `None` if not
    /// known.
    pub peak: Option<f64>,
    /// Unit of the totals.
    pub unit: String,
    /// Reasons why the rates are hard to compare.
    pub notes: Vec<String>,
    /// Sum over all owners.
    pub total: RateChange,
    /// The tenants, the largest difference first.
    pub tenants: Vec<ComparedTenant>,
}

/// A tenant, or an owner that is no task.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedTenant {
    /// Name of the tenant, as recorded: not escaped.
    pub key: String,
    /// task, irq, ...; empty if lines sum all owners.
    pub owner: String,
    /// The tenant's rate before and after.
    pub change: RateChange,
}

/// Compares two spans.
///
/// # Errors
///
/// A recording cannot be read, or nothing was recorded in the selected time.
pub fn compare_spans(
    before_span: &RequestedSpan<'_>,
    after_span: &RequestedSpan<'_>,
    question: &DiffQuestion,
) -> Result<Diff> {
    let grouping = question.grouping;
    let is_one_recording =
        before_span.recording.recording_path() == after_span.recording.recording_path();
    let has_links = |span: &RequestedSpan<'_>| {
        Links::from_recording(span.recording).map(|links| !links.links.is_empty())
    };
    let by_links = !question.events && has_links(before_span)? && has_links(after_span)?;
    let read_side = |span, word| {
        SideUsage::read_span(span, question, by_links, !is_one_recording)
            .with_context(|| format!("cannot read the recording {word}"))
    };
    let (mut before_side, mut after_side) =
        (read_side(before_span, "before")?, read_side(after_span, "after")?);
    if is_one_recording {
        restarted::pair_restarted(grouping, &mut before_side.events, &mut after_side.events);
    }
    let mut notes = comparability::compare_metadata(&before_side, &after_side);
    if before_side.is_of_one_boot(&after_side) {
        notes.extend(comparability::note_overlap(&before_side, &after_side));
    }
    let names: BTreeSet<(String, String)> = [&before_side, &after_side]
        .iter()
        .flat_map(|side| side.events.iter().map(|event| (event.name.clone(), event.unit.clone())))
        .collect();
    let mut subjects: Vec<DiffSubject> =
        names.iter().map(|name| compare_subject(name, &before_side, &after_side)).collect();
    subjects.sort_by(|a, b| {
        let unit = |subject: &DiffSubject| (subject.unit != "bytes", subject.unit.clone());
        let by_unit = unit(a).cmp(&unit(b));
        by_unit.then_with(|| largest_first(&a.total, &b.total)).then_with(|| a.name.cmp(&b.name))
    });
    Ok(Diff {
        grouping,
        before_facts: before_side.facts,
        after_facts: after_side.facts,
        notes,
        subjects,
    })
}

/// Compares two changes for sorting: unknown ones come last.
fn largest_first(a: &RateChange, b: &RateChange) -> std::cmp::Ordering {
    let size = |change: &RateChange| change.difference_per_s().map(f64::abs);
    match (size(a), size(b)) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => Reverse(a.is_some()).cmp(&Reverse(b.is_some())),
    }
}

fn compare_subject(
    name: &(String, String),
    before_side: &SideUsage,
    after_side: &SideUsage,
) -> DiffSubject {
    let (before, after) = (before_side.find_event(name), after_side.find_event(name));
    let (is_same, notes) = comparability::compare_counters(before, after);
    let change = |rate_before: SideRate, rate_after: SideRate| RateChange {
        before_rate: rate_before,
        after_rate: rate_after,
        is_comparable: is_same,
    };
    let (before_lines, after_lines) = (before.lines_by_owner(), after.lines_by_owner());
    let line_keys: BTreeSet<(&str, &str)> =
        before_lines.keys().chain(after_lines.keys()).copied().collect();
    let mut tenants: Vec<ComparedTenant> = line_keys
        .into_iter()
        .map(|line_key| ComparedTenant {
            owner: line_key.0.to_owned(),
            key: line_key.1.to_owned(),
            change: change(
                before.line_rate(before_lines.get(&line_key).copied()),
                after.line_rate(after_lines.get(&line_key).copied()),
            ),
        })
        .collect();
    tenants.sort_by(|a, b| largest_first(&a.change, &b.change).then_with(|| a.key.cmp(&b.key)));
    let linked = if before.event.is_some() { before } else { after };
    let event_link = linked.event.and_then(|event| event.link);
    let link = event_link.and_then(|(link_index, direction)| {
        Some((linked.side.links.links.get(link_index)?.name.clone(), direction))
    });
    let peak = after.link_peak().map(|peak| peak.bytes_per_s);
    let total = change(before.total_rate(), after.total_rate());
    let (name, unit) = name.clone();
    DiffSubject { name, link, peak, unit, notes, total, tenants }
}

#[cfg(test)]
mod tests;
