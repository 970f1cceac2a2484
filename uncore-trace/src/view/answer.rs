//! Who had most, in a sentence; and how full that link was, in another.
//!
//! The report, the page and the end of `record` choose the link, the event and the owners here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::Result;

use super::headroom::{FULL, LinkHeadroom};
use super::interval::Interval;
use super::key::GroupBy;
use super::links::{Links, limit};
use super::tenants::usage_of_tenants;
use super::usage::{UsageEvent, ReportLine, UsageQuestion, Usage};
use crate::schema::fabric::HELD;
use crate::schema::link::Direction;
use crate::schema::owner;
use crate::tables::reader::Recording;
use crate::text::printable;
use crate::units::{self, percent};

/// Number of events that are named for a tenant.
const EVENTS: usize = 3;

/// Number of tenants that are named with the devices that they held.
const HOLDERS: usize = 3;

/// One direction of a link, or an event, of which something was counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted<'a> {
    /// Its sums.
    pub event: &'a UsageEvent,
    /// Average rate, in the event's unit per second.
    pub rate: f64,
    /// How full the link was, as a fraction of its peak; of both directions together if only that
    /// peak is known; `None` for an event, and if no peak is known.
    pub full: Option<f64>,
}

/// The events and links of which something was counted: the fullest link first, then those
/// without a known peak, by rate.
pub(super) fn ranked<'a>(events: &'a [UsageEvent], links: &Links) -> Vec<Counted<'a>> {
    let mut ranked: Vec<Counted<'_>> = Vec::new();
    for event in events.iter().filter(|event| event.total > 0.0) {
        let Some(rate) = event.mean_rate(event.total) else { continue };
        ranked.push(Counted { event, rate, full: fullness(event, rate, events, links) });
    }
    let full = |counted: &Counted<'_>| counted.full.unwrap_or(-1.0);
    ranked.sort_by(|a, b| full(b).total_cmp(&full(a)).then(b.rate.total_cmp(&a.rate)));
    ranked
}

fn fullness(event: &UsageEvent, rate: f64, all: &[UsageEvent], links: &Links) -> Option<f64> {
    let (place, direction) = event.link?;
    let link = links.links.get(place)?;
    if let Some(limit) = limit(link, direction) {
        return Some(limit.fraction_of_peak(rate));
    }
    let of_link = all.iter().filter(|its| its.link.is_some_and(|(its, _)| its == place));
    let both = of_link.filter_map(|its| its.mean_rate(its.total)).sum();
    limit(link, Direction::Both).map(|limit| limit.fraction_of_peak(both))
}

/// The answer, and a second sentence that may be empty. It is about the fullest link, or about
/// events where nothing was counted on a link. `events` have links and other events.
pub fn answer(events: &[UsageEvent], links: &Links, ways: &[LinkHeadroom]) -> (String, String) {
    let counted = ranked(events, links);
    if let Some(fullest) = counted.iter().find(|counted| counted.event.link.is_some()) {
        let more = [how_full(fullest.event, links, ways), of_holders(events, links)];
        let more: Vec<String> = more.into_iter().filter(|text| !text.is_empty()).collect();
        return (of_link(fullest.event, links), more.join(" "));
    }
    let answer = of_events(&counted).unwrap_or_else(|| "Nothing was counted.".to_owned());
    (answer, String::new())
}

/// The answer for the time of a report, whose sums of events are `sums`. A report that does not
/// group by tenants is answered by cgroup.
///
/// # Errors
///
/// The recording cannot be read.
pub fn of_report(
    recording: &Recording,
    question: &UsageQuestion<'_>,
    sums: &Usage,
    (links, ways): (&Links, &[LinkHeadroom]),
) -> Result<(String, String)> {
    let (by, is_chosen) = match question.grouping {
        GroupBy::Pmu | GroupBy::Port | GroupBy::Device | GroupBy::Owner => (GroupBy::Cgroup, false),
        by => (by, question.is_chosen),
    };
    let asked = UsageQuestion { grouping: by, is_chosen, ..question.clone() };
    if ways.iter().any(|way| way.bytes > 0.0) {
        let sums = usage_of_tenants(recording, &UsageQuestion { links: Some(links), ..asked })?;
        return Ok(answer(&sums.events, links, ways));
    }
    if sums.grouping == by {
        return Ok(answer(&sums.events, links, ways));
    }
    Ok(answer(&usage_of_tenants(recording, &asked)?.events, links, ways))
}

/// Whether a line is of somebody who can be asked: a task or a device.
fn is_tenant(line: &ReportLine) -> bool {
    ["", owner::TASK, owner::DEVICE].contains(&line.owner.as_str()) && line.sum.value > 0.0
}

fn of_link(event: &UsageEvent, links: &Links) -> String {
    let over = event.link.map(|(place, direction)| label(links, place, direction));
    let over = over.unwrap_or_default();
    let unit = printable(&event.unit);
    let total = units::human(event.total, &unit);
    let Some(first) = event.lines.iter().find(|line| is_tenant(line)) else {
        return format!("{total} went over {over}, and no tenant is known.");
    };
    let value = units::human(first.sum.value, &unit);
    format!(
        "{} had {} of what went over {over}: {value} of {total}{}.",
        name(first),
        share(first, event),
        in_cgroup(event).map(|cgroup| format!("; {cgroup}")).unwrap_or_default()
    )
}

/// What went over the links of devices for those who held them, those with the most bytes first; empty
/// if nothing did.
fn of_holders(events: &[UsageEvent], links: &Links) -> String {
    let mut bytes: BTreeMap<(usize, String), f64> = BTreeMap::new();
    for event in events {
        let Some((place, _)) = event.link.filter(|(place, _)| !links.has_function_links(*place)) else {
            continue;
        };
        // Not those that have bytes of requests, too.
        let held = event.lines.iter().filter(|line| line.methods.iter().all(|its| its == HELD));
        for line in held.filter(|line| line.owner.is_empty() || line.owner == owner::TASK) {
            *bytes.entry((place, name(line).into_owned())).or_default() += line.sum.value;
        }
    }
    let mut bytes: Vec<_> = bytes.into_iter().collect();
    bytes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let said = bytes.iter().take(HOLDERS).filter_map(|((place, who), bytes)| {
        let link = links.links.get(*place)?;
        let devices = printable(link.devices.as_deref()?);
        let (kind, moved) = (printable(&link.kind), units::human(*bytes, "bytes"));
        Some(format!("{devices} (held by {who}): {moved} over {kind}."))
    });
    said.collect::<Vec<_>>().join(" ")
}

/// How full a link was; empty if its peak is not known.
fn how_full(event: &UsageEvent, links: &Links, ways: &[LinkHeadroom]) -> String {
    let Some((place, direction)) = event.link else { return String::new() };
    let of = |direction| ways.iter().find(|way| (way.link_index, way.direction) == (place, direction));
    let with_peak = |direction| of(direction).filter(|way| way.link_peak(links).is_some());
    let said = with_peak(direction).or_else(|| with_peak(Direction::Both)).and_then(|way| {
        let limit = way.link_peak(links)?;
        let [average, highest] =
            [way.average_per_s()?, way.highest_per_s?].map(|rate| percent(limit.fraction_of_peak(rate)));
        let long = way.full_ns.filter(|ns| *ns > 0);
        let long = long
            .map(|ns| format!(", for {} above {}", units::human(ns as f64, "ns"), percent(FULL)));
        let name = label(links, way.link_index, way.direction);
        let long = long.unwrap_or_default();
        Some(format!("{name} was {average} full on average and {highest} at most{long}."))
    });
    said.unwrap_or_default()
}

/// `memory 0 (in)`.
fn label(links: &Links, place: usize, direction: Direction) -> String {
    let name = links.direction_label(place, Direction::Both);
    match direction {
        Direction::Both => printable(&name).into_owned(),
        direction => format!("{} ({})", printable(&name), direction.direction_name()),
    }
}

/// A fraction of an event, and the line that had it.
type Part<'a> = (f64, &'a ReportLine, &'a UsageEvent);

/// The tenant with the largest mean fraction of the events, and its largest parts.
fn of_events(counted: &[Counted<'_>]) -> Option<String> {
    let mut parts: BTreeMap<(&str, &str, &str), Vec<Part<'_>>> = BTreeMap::new();
    for Counted { event, .. } in counted {
        for line in event.lines.iter().filter(|line| is_tenant(line)) {
            let its = parts.entry((event.grouping.name(), &line.owner, &line.key)).or_default();
            its.push((line.sum.value / event.total, line, event));
        }
    }
    let sum = |its: &[Part<'_>]| its.iter().map(|(part, ..)| part).sum::<f64>();
    let mut most = parts.into_values().max_by(|a, b| sum(a).total_cmp(&sum(b)))?;
    most.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.2.name.cmp(&b.2.name)));
    let named = most.iter().take(EVENTS);
    let named: Vec<String> = named
        .map(|(_, line, event)| format!("{} of {}", share(line, event), printable(&event.name)))
        .collect();
    let list = match named.as_slice() {
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
        [] => return None,
    };
    Some(format!("{} had {list}.", name(most.first()?.1)))
}

/// `97 % in cgroup /a`, of an event that is divided among processes because one cgroup has nearly all;
/// `None` for other events, and for the root, whose name says nothing.
pub(super) fn in_cgroup(event: &UsageEvent) -> Option<String> {
    let dominant = event.dominant.as_ref().filter(|dominant| dominant.path != "/")?;
    Some(format!("{} in cgroup {}", percent(dominant.fraction), printable(&dominant.path)))
}

/// The name of a line, in brackets if it is no tenant's.
pub(super) fn name(line: &ReportLine) -> Cow<'_, str> {
    let name = printable(&line.key);
    if line.key == line.owner { format!("({name})").into() } else { name }
}

/// `96 % (85 to 100 %)`; without the interval if that is the value.
pub(super) fn share(line: &ReportLine, event: &UsageEvent) -> String {
    let share = percent(line.sum.value / event.total);
    let ends = |Interval { low, high }| [low, high].map(|end| percent(end / event.total));
    match line.value_interval(event).map(ends) {
        Some([low, high]) if low != share || high != share => {
            let low = low.trim_end_matches(" %");
            format!("{share} ({low} to {high})")
        }
        _ => share,
    }
}
