//! Who had most, in a sentence; and how full that link was, in another.
//!
//! The report, the page and the end of `record` choose the link, the event and the owners here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::Result;

use super::grouping::GroupBy;
use super::headroom::{FULL, LinkHeadroom};
use super::interval::Interval;
use super::links::{Links, limit};
use super::question::ReportQuestion;
use super::report_sums::{ReportEvent, ReportLine, ReportSums};
use super::tenants::sum_report_of_tenants;
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
pub(super) struct RankedEvent<'a> {
    /// The event, or the direction of a link, with its sums.
    pub event: &'a ReportEvent,
    /// Average rate, in the event's unit per second.
    pub rate: f64,
    /// How full the link was, as a fraction of its peak; of both directions together if only that
    /// peak is known; `None` for an event, and if no peak is known.
    pub full: Option<f64>,
}

/// The events and links of which something was counted: the fullest link first, then those
/// without a known peak, by rate.
pub(super) fn rank_events<'a>(events: &'a [ReportEvent], links: &Links) -> Vec<RankedEvent<'a>> {
    let mut ranked: Vec<RankedEvent<'_>> = Vec::new();
    for event in events.iter().filter(|event| event.total > 0.0) {
        let Some(rate) = event.mean_rate(event.total) else { continue };
        ranked.push(RankedEvent { event, rate, full: find_fullness(event, rate, events, links) });
    }
    let full = |ranked_event: &RankedEvent<'_>| ranked_event.full.unwrap_or(-1.0);
    ranked.sort_by(|a, b| full(b).total_cmp(&full(a)).then(b.rate.total_cmp(&a.rate)));
    ranked
}

fn find_fullness(
    event: &ReportEvent,
    rate: f64,
    events: &[ReportEvent],
    links: &Links,
) -> Option<f64> {
    let (link_index, direction) = event.link?;
    let link = links.links.get(link_index)?;
    if let Some(link_peak) = limit(link, direction) {
        return Some(link_peak.fraction_of_peak(rate));
    }
    let of_link = events
        .iter()
        .filter(|other_event| other_event.link.is_some_and(|(index, _)| index == link_index));
    let rate_of_both =
        of_link.filter_map(|other_event| other_event.mean_rate(other_event.total)).sum();
    limit(link, Direction::Both).map(|link_peak| link_peak.fraction_of_peak(rate_of_both))
}

/// The answer, and a second sentence that may be empty. It is about the fullest link, or about
/// events where nothing was counted on a link. `events` have links and other events.
pub fn answer(
    events: &[ReportEvent],
    links: &Links,
    headrooms: &[LinkHeadroom],
) -> (String, String) {
    let ranked_events = rank_events(events, links);
    if let Some(fullest) =
        ranked_events.iter().find(|ranked_event| ranked_event.event.link.is_some())
    {
        let further =
            [fullness_sentence(fullest.event, links, headrooms), holder_sentences(events, links)];
        let sentences: Vec<String> = further.into_iter().filter(|text| !text.is_empty()).collect();
        return (link_sentence(fullest.event, links), sentences.join(" "));
    }
    let answer =
        tenant_sentence(&ranked_events).unwrap_or_else(|| "Nothing was counted.".to_owned());
    (answer, String::new())
}

/// The answer for the time of a report, whose sums of events are `sums`. A report that does not
/// group by tenants is answered by cgroup.
///
/// # Errors
///
/// The recording cannot be read.
pub fn answer_of_report(
    recording: &Recording,
    question: &ReportQuestion<'_>,
    sums: &ReportSums,
    (links, headrooms): (&Links, &[LinkHeadroom]),
) -> Result<(String, String)> {
    let (tenant_grouping, is_chosen) = match question.grouping {
        GroupBy::Pmu | GroupBy::Port | GroupBy::Device | GroupBy::Owner => (GroupBy::Cgroup, false),
        chosen => (chosen, question.is_chosen),
    };
    let tenant_question =
        ReportQuestion { grouping: tenant_grouping, is_chosen, ..question.clone() };
    if headrooms.iter().any(|headroom| headroom.bytes > 0.0) {
        let sums = sum_report_of_tenants(
            recording,
            &ReportQuestion { links: Some(links), ..tenant_question },
        )?;
        return Ok(answer(&sums.events, links, headrooms));
    }
    if sums.grouping == tenant_grouping {
        return Ok(answer(&sums.events, links, headrooms));
    }
    Ok(answer(&sum_report_of_tenants(recording, &tenant_question)?.events, links, headrooms))
}

/// Whether a line is of somebody who can be asked: a task or a device.
fn is_tenant(line: &ReportLine) -> bool {
    ["", owner::TASK, owner::DEVICE].contains(&line.owner.as_str()) && line.sum.value > 0.0
}

fn link_sentence(event: &ReportEvent, links: &Links) -> String {
    let label = event.link.map(|(link_index, direction)| link_label(links, link_index, direction));
    let label = label.unwrap_or_default();
    let unit = printable(&event.unit);
    let total = units::human(event.total, &unit);
    let Some(largest_line) = event.lines.iter().find(|line| is_tenant(line)) else {
        return format!("{total} went over {label}, and no tenant is known.");
    };
    let value = units::human(largest_line.sum.value, &unit);
    format!(
        "{} had {} of what went over {label}: {value} of {total}{}.",
        line_name(largest_line),
        share_text(largest_line, event),
        in_cgroup(event).map(|cgroup| format!("; {cgroup}")).unwrap_or_default()
    )
}

/// What went over the links of devices for those who held them, those with the most bytes first;
/// empty if nothing did.
fn holder_sentences(events: &[ReportEvent], links: &Links) -> String {
    let mut bytes: BTreeMap<(usize, String), f64> = BTreeMap::new();
    for event in events {
        let Some((link_index, _)) =
            event.link.filter(|(link_index, _)| !links.has_function_links(*link_index))
        else {
            continue;
        };
        // Not those that have bytes of requests, too.
        let held =
            event.lines.iter().filter(|line| line.methods.iter().all(|method| method == HELD));
        for line in held.filter(|line| line.owner.is_empty() || line.owner == owner::TASK) {
            *bytes.entry((link_index, line_name(line).into_owned())).or_default() += line.sum.value;
        }
    }
    let mut bytes: Vec<_> = bytes.into_iter().collect();
    bytes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let sentences = bytes.iter().take(HOLDERS).filter_map(|((link_index, holder), bytes)| {
        let link = links.links.get(*link_index)?;
        let devices = printable(link.devices.as_deref()?);
        let (link_kind, moved) = (printable(&link.kind), units::human(*bytes, "bytes"));
        Some(format!("{devices} (held by {holder}): {moved} over {link_kind}."))
    });
    sentences.collect::<Vec<_>>().join(" ")
}

/// How full a link was; empty if its peak is not known.
fn fullness_sentence(event: &ReportEvent, links: &Links, headrooms: &[LinkHeadroom]) -> String {
    let Some((link_index, direction)) = event.link else { return String::new() };
    let find_headroom = |direction| {
        headrooms
            .iter()
            .find(|headroom| (headroom.link_index, headroom.direction) == (link_index, direction))
    };
    let with_peak =
        |direction| find_headroom(direction).filter(|headroom| headroom.link_peak(links).is_some());
    let sentence =
        with_peak(direction).or_else(|| with_peak(Direction::Both)).and_then(|headroom| {
            let link_peak = headroom.link_peak(links)?;
            let [average, highest] = [headroom.average_per_s()?, headroom.highest_per_s?]
                .map(|rate| percent(link_peak.fraction_of_peak(rate)));
            let full_ns = headroom.full_ns.filter(|ns| *ns > 0);
            let full_time = full_ns.map(|ns| {
                format!(", for {} above {}", units::human(ns as f64, "ns"), percent(FULL))
            });
            let name = link_label(links, headroom.link_index, headroom.direction);
            let full_time = full_time.unwrap_or_default();
            Some(format!("{name} was {average} full on average and {highest} at most{full_time}."))
        });
    sentence.unwrap_or_default()
}

/// `memory 0 (in)`.
fn link_label(links: &Links, link_index: usize, direction: Direction) -> String {
    let name = links.direction_label(link_index, Direction::Both);
    match direction {
        Direction::Both => printable(&name).into_owned(),
        direction => format!("{} ({})", printable(&name), direction.direction_name()),
    }
}

/// A fraction of an event, and the line that had it.
type EventShare<'a> = (f64, &'a ReportLine, &'a ReportEvent);

/// The tenant with the largest mean fraction of the events, and its largest parts.
fn tenant_sentence(ranked_events: &[RankedEvent<'_>]) -> Option<String> {
    let mut shares_by_tenant: BTreeMap<(&str, &str, &str), Vec<EventShare<'_>>> = BTreeMap::new();
    for RankedEvent { event, .. } in ranked_events {
        for line in event.lines.iter().filter(|line| is_tenant(line)) {
            let tenant_shares = shares_by_tenant
                .entry((event.grouping.name(), &line.owner, &line.key))
                .or_default();
            tenant_shares.push((line.sum.value / event.total, line, event));
        }
    }
    let sum = |shares: &[EventShare<'_>]| shares.iter().map(|(fraction, ..)| fraction).sum::<f64>();
    let mut largest_shares =
        shares_by_tenant.into_values().max_by(|a, b| sum(a).total_cmp(&sum(b)))?;
    largest_shares.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.2.name.cmp(&b.2.name)));
    let named = largest_shares.iter().take(EVENTS);
    let named: Vec<String> = named
        .map(|(_, line, event)| {
            format!("{} of {}", share_text(line, event), printable(&event.name))
        })
        .collect();
    let list = match named.as_slice() {
        [single] => single.clone(),
        [leading @ .., final_text] => format!("{} and {final_text}", leading.join(", ")),
        [] => return None,
    };
    Some(format!("{} had {list}.", line_name(largest_shares.first()?.1)))
}

/// `97 % in cgroup /a`, of an event that is divided among processes because one cgroup has nearly
/// all; `None` for other events, and for the root, whose name says nothing.
pub(super) fn in_cgroup(event: &ReportEvent) -> Option<String> {
    let dominant = event.dominant.as_ref().filter(|dominant| dominant.path != "/")?;
    Some(format!("{} in cgroup {}", percent(dominant.fraction), printable(&dominant.path)))
}

/// The name of a line, in brackets if it is no tenant's.
pub(super) fn line_name(line: &ReportLine) -> Cow<'_, str> {
    owner_label(&line.key, &line.owner)
}

/// The name of an owner, in brackets if it is no tenant and has its kind as its name.
pub(super) fn owner_label<'a>(key: &'a str, owner: &str) -> Cow<'a, str> {
    let name = printable(key);
    if key == owner { format!("({name})").into() } else { name }
}

/// `96 % (85 to 100 %)`; without the interval if that is the value.
pub(super) fn share_text(line: &ReportLine, event: &ReportEvent) -> String {
    let share = percent(line.sum.value / event.total);
    let percentages = |Interval { low, high }| [low, high].map(|end| percent(end / event.total));
    match line.value_interval(event).map(percentages) {
        Some([low, high]) if low != share || high != share => {
            let low = low.trim_end_matches(" %");
            format!("{share} ({low} to {high})")
        }
        _ => share,
    }
}
