//! The summary in a sentence or two: who moved most, and how full that link was.

use super::super::headroom::{FULL, Way};
use super::super::links::Links;
use super::super::usage::Event;
use super::survey::{Kind, Survey, Tenant};
use crate::schema::link::Direction;
use crate::text::printable;
use crate::units::{self, percent};

/// Number of events that are named for a tenant.
const EVENTS: usize = 3;

/// The summary, and a second sentence that may be empty. If the recording has links, it is about
/// the fullest.
pub(super) fn answer(survey: &Survey, links: &Links, ways: &[Way]) -> (String, String) {
    of_links(survey, links, ways)
        .or_else(|| of_events(survey).map(|text| (text, String::new())))
        .unwrap_or_else(|| ("Nothing was counted.".to_owned(), String::new()))
}

/// Sums of each tenant over the selected plots, the largest first.
fn owners(survey: &Survey, of: impl Fn(&Event) -> bool) -> Vec<(&Tenant, f64)> {
    let mut values = vec![0.0; survey.tenants.len()];
    for plot in survey.plots.iter().filter(|plot| of(&plot.event)) {
        plot.lines().for_each(|(line, tenant)| values[tenant] += line.sum.value);
    }
    let mut owners: Vec<_> = survey.tenants.iter().zip(values).collect();
    owners.sort_by(|a, b| b.1.total_cmp(&a.1));
    owners
}

/// The first tenant that is a task, and its value.
fn first<'a>(owners: &[(&'a Tenant, f64)]) -> Option<(&'a Tenant, f64)> {
    let mut somebody = owners.iter().filter(|(tenant, _)| tenant.kind == Kind::Tenant);
    somebody.next().filter(|(_, value)| *value > 0.0).copied()
}

fn of_links(survey: &Survey, links: &Links, ways: &[Way]) -> Option<(String, String)> {
    let part = |way: &&Way| {
        let limit = way.limit(links)?;
        way.average().map(|average| limit.part(average))
    };
    let fullest = ways.iter().filter(|way| way.bytes > 0.0).max_by(|a, b| {
        let (full_a, full_b) = (part(a).unwrap_or(-1.0), part(b).unwrap_or(-1.0));
        full_a.total_cmp(&full_b).then(a.bytes.total_cmp(&b.bytes))
    })?;
    let of_way = |event: &Event| {
        let same = |direction| direction == fullest.direction;
        let of = |(link, direction)| {
            link == fullest.link && (same(direction) || fullest.direction == Direction::Both)
        };
        event.link.is_some_and(of)
    };
    let owners = owners(survey, of_way);
    let total: f64 = owners.iter().map(|(_, value)| value).sum();
    let name = label(links, fullest);
    let text = match first(&owners) {
        Some((tenant, value)) => format!(
            "{} had {} of what went over {name}: {} of {}.",
            tenant.name,
            percent(value / total),
            units::human(value, "bytes"),
            units::human(total, "bytes"),
        ),
        None => {
            format!("{} went over {name}, and no tenant is known.", units::human(total, "bytes"))
        }
    };
    Some((text, how_full(fullest, links).unwrap_or_default()))
}

/// How full a link was; `None` if its peak is not known.
fn how_full(way: &Way, links: &Links) -> Option<String> {
    let limit = way.limit(links)?;
    let [average, highest] = [way.average()?, way.highest?].map(|rate| percent(limit.part(rate)));
    let long = way
        .full_ns
        .filter(|ns| *ns > 0)
        .map(|ns| format!(", for {} above {}", units::human(ns as f64, "ns"), percent(FULL)));
    let long = long.unwrap_or_default();
    let name = label(links, way);
    Some(format!("{name} was {average} full on average and {highest} at most{long}."))
}

/// `memory 0 (in)`.
fn label(links: &Links, way: &Way) -> String {
    let name = links.links.get(way.link).map_or("?", |link| link.name.as_str());
    match way.direction {
        Direction::Both => printable(name).into_owned(),
        direction => format!("{} ({})", printable(name), direction.name()),
    }
}

/// The tenant with the largest mean fraction of the events, and its largest parts.
fn of_events(survey: &Survey) -> Option<String> {
    let some: Vec<_> = survey.plots.iter().filter(|plot| plot.event.total > 0.0).collect();
    let mut parts = vec![0.0; survey.tenants.len()];
    let mut each: Vec<(usize, f64, &str)> = Vec::new();
    for plot in &some {
        let mut own = vec![0.0; survey.tenants.len()];
        plot.lines().for_each(|(line, tenant)| own[tenant] += line.sum.value / plot.event.total);
        for (tenant, part) in own.into_iter().enumerate().filter(|(_, part)| *part > 0.0) {
            parts[tenant] += part;
            each.push((tenant, part, &plot.event.name));
        }
    }
    let somebody = survey.tenants.iter().enumerate().filter(|(_, its)| its.kind == Kind::Tenant);
    let (most, tenant) = somebody.max_by(|(a, _), (b, _)| parts[*a].total_cmp(&parts[*b]))?;
    if parts[most] <= 0.0 {
        return None;
    }
    each.retain(|(tenant, ..)| *tenant == most);
    each.sort_by(|a, b| b.1.total_cmp(&a.1));
    let named: Vec<String> = each
        .iter()
        .take(EVENTS)
        .map(|(_, part, event)| format!("{} of {}", percent(*part), printable(event)))
        .collect();
    let list = match named.as_slice() {
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
        [] => return None,
    };
    Some(format!("{} had {list}.", tenant.name))
}
