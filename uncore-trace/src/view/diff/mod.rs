//! Compares two recordings, or two spans of one.
//!
//! Rates are compared, because the two may differ in length. Links and events are matched by name,
//! tenants by the key of the lines. Processes, containers and pods of two recordings are matched by
//! their names, because their ids differ. [`rate`] decides whether a difference is larger than its
//! error, [`variation`] computes how much a rate varies, and [`notes`] lists what differs between
//! the recordings.
//!
//! Guarantees: the differences of the tenants sum to that of the total; a tenant in only one of the
//! two has no ratio; there is no difference and no verdict if a value is not known, or if the two
//! do not count in the same way.

pub mod gate;
pub mod json;
mod notes;
pub mod page;
pub mod rate;
mod restarted;
mod side;
mod summary;
pub mod text;
mod variation;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};

use super::links::{Links, limit};
use super::usage::{By, Event, Line};
use crate::schema::link::Direction;
use rate::{Change, SideRate};
use side::Side;
pub use side::{About, Asked};
pub use summary::summary;

/// Options of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    /// Grouping of tenants.
    pub by: By,
    /// Cgroups deeper than this are summed in their ancestor of this depth; 0 is the root.
    pub cgroup_depth: Option<usize>,
    /// Whether to compare by event even if both recordings have links.
    pub events: bool,
}

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Diff {
    /// Grouping of tenants.
    pub by: By,
    /// Whether `ways` are directions of links; if not, they are events.
    pub by_links: bool,
    /// The first recording or span.
    pub before: About,
    /// The second recording or span.
    pub after: About,
    /// Differences between the recordings as a whole. Texts are as recorded: not escaped.
    pub notes: Vec<String>,
    /// Links or events, with the largest difference first; bytes before other units.
    pub ways: Vec<Way>,
}

/// One direction of a link, or an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Way {
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
    pub total: Change,
    /// The tenants, the largest difference first.
    pub tenants: Vec<Tenant>,
}

/// A tenant, or an owner that is no task.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenant {
    /// Its name, as recorded: not escaped.
    pub key: String,
    /// task, irq, ...; empty if lines sum all owners.
    pub owner: String,
    /// Its rate before and after.
    pub change: Change,
}

/// Compares two spans.
///
/// # Errors
///
/// A recording cannot be read, or nothing was recorded in the selected time.
pub fn diff(before: &Asked<'_>, after: &Asked<'_>, question: &Question) -> Result<Diff> {
    let Question { by, cgroup_depth, events } = *question;
    let is_one = before.recording.path() == after.recording.path();
    let has_links =
        |asked: &Asked<'_>| Links::of(asked.recording).map(|links| !links.links.is_empty());
    let by_links = !events && has_links(before)? && has_links(after)?;
    let read = |asked, word| {
        Side::read(asked, by, cgroup_depth, (by_links, !is_one))
            .with_context(|| format!("cannot read what was {word}"))
    };
    let (mut one, mut other) = (read(before, "before")?, read(after, "after")?);
    if is_one {
        restarted::pair(by, &mut one.events, &mut other.events);
    }
    let mut notes = notes::recordings(&one, &other);
    notes.extend(one.is_of_one_boot(&other).then(|| notes::overlap(&one, &other)).flatten());
    let names: BTreeSet<(String, String)> = [&one, &other]
        .iter()
        .flat_map(|side| side.events.iter().map(|event| (event.name.clone(), event.unit.clone())))
        .collect();
    let mut ways: Vec<Way> = names.iter().map(|name| way(name, &one, &other)).collect();
    ways.sort_by(|a, b| {
        let unit = |way: &Way| (way.unit != "bytes", way.unit.clone());
        let by_unit = unit(a).cmp(&unit(b));
        by_unit.then_with(|| largest_first(&a.total, &b.total)).then_with(|| a.name.cmp(&b.name))
    });
    Ok(Diff { by, by_links, before: one.about, after: other.about, notes, ways })
}

/// Compares two changes for sorting: unknown ones come last.
fn largest_first(a: &Change, b: &Change) -> std::cmp::Ordering {
    let size = |change: &Change| change.difference().map(f64::abs);
    match (size(a), size(b)) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => Reverse(a.is_some()).cmp(&Reverse(b.is_some())),
    }
}

fn way(name: &(String, String), before: &Side, after: &Side) -> Way {
    let (one, other) = (before.event(name), after.event(name));
    let (is_same, notes) = notes::counted((before, one), (after, other));
    let change = |before: SideRate, after: SideRate| Change { before, after, is_same };
    let (first, second) = (lines(one), lines(other));
    let all: BTreeSet<(&str, &str)> = first.keys().chain(second.keys()).copied().collect();
    let mut tenants: Vec<Tenant> = all
        .into_iter()
        .map(|of| Tenant {
            owner: of.0.to_owned(),
            key: of.1.to_owned(),
            change: change(
                before.line(one, first.get(&of).copied()),
                after.line(other, second.get(&of).copied()),
            ),
        })
        .collect();
    tenants.sort_by(|a, b| largest_first(&a.change, &b.change).then_with(|| a.key.cmp(&b.key)));
    let its = one.or(other).and_then(|event| event.link);
    let side = if one.is_some() { before } else { after };
    let link = its.and_then(|(place, direction)| {
        Some((side.links.links.get(place)?.name.clone(), direction))
    });
    let peak = other.and_then(|event| event.link).and_then(|(place, direction)| {
        let limit = limit(after.links.links.get(place)?, direction)?;
        Some(limit.peak.bytes_per_s)
    });
    let total = change(before.total(one), after.total(other));
    let (name, unit) = name.clone();
    Way { name, link, peak, unit, notes, total, tenants }
}

/// The lines of an event, by owner and name.
fn lines(event: Option<&Event>) -> BTreeMap<(&str, &str), &Line> {
    let lines = event.into_iter().flat_map(|event| &event.lines);
    lines.map(|line| ((line.owner.as_str(), line.key.as_str()), line)).collect()
}

#[cfg(test)]
mod tests;
