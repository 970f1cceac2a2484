//! The content of a page: its plots, the lines of each, and the tenants of its areas.
//!
//! Guarantee: each row of the selected time is in one area of each plot to which it belongs, so the
//! areas of a plot sum to the count.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;

use super::super::key::By;
use super::super::links::Links;
use super::super::tenants::usage_of_tenants;
use super::super::usage::{Event, Line, Question, top};
use super::planned::Planned;
use crate::schema::owner;
use crate::tables::reader::Recording;
use crate::text::printable;

/// How an area is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A tenant: in colour.
    Tenant,
    /// The sum of all that are too small, or beyond the selected number.
    Others,
    /// No tenant: the kernel, or an unknown owner.
    Nobody,
}

impl Kind {
    /// Its name in the data of the page.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Others => "others",
            Self::Nobody => "nobody",
        }
    }
}

/// The owner of areas in all plots.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Tenant {
    pub kind: Kind,
    /// Escaped.
    pub name: String,
}

impl Tenant {
    /// The tenant of a line; each owner other than tasks has its own.
    fn of(line: &Line, by: By) -> Self {
        let own = |kind| Self { kind, name: format!("({})", line.owner) };
        match line.owner.as_str() {
            owner::DEVICE if by != By::Device => own(Kind::Tenant),
            owner::OTHER_TASKS => own(Kind::Others),
            owner::IRQ | owner::SOFTIRQ | owner::IDLE | owner::UNATTRIBUTED => own(Kind::Nobody),
            _ => Self { kind: Kind::Tenant, name: printable(&line.key).into_owned() },
        }
    }

    /// The sum of small lines.
    fn others() -> Self {
        Self { kind: Kind::Others, name: "(others)".to_owned() }
    }
}

/// An event with its largest lines, and the tenant of each.
#[derive(Debug)]
struct Shown {
    event: Event,
    tenants: Vec<Tenant>,
    /// Whether the last line is a sum of small ones.
    summed: bool,
}

impl Shown {
    /// Keeps the `count` largest lines of tasks, and all lines of other owners.
    fn new(event: Event, by: By, count: usize) -> Self {
        let is_task = |line: &&Line| line.owner == owner::TASK || line.owner.is_empty();
        let summed = event.lines.iter().filter(is_task).count() > count;
        let mut events = [event];
        top(&mut events, count);
        let [event] = events;
        let mut tenants: Vec<Tenant> =
            event.lines.iter().map(|line| Tenant::of(line, by)).collect();
        if let Some(last) = tenants.last_mut().filter(|_| summed) {
            *last = Tenant::others();
        }
        Self { event, tenants, summed }
    }
}

/// One direction of a link, or an event.
#[derive(Debug)]
pub(super) struct Plot {
    /// Its sums, with the largest lines and one for all others.
    pub event: Event,
    /// The tenants of its areas, as indices in [`Survey::tenants`], ascending.
    pub areas: Vec<usize>,
    /// The tenant of each line of the event.
    tenants: Vec<usize>,
    /// The area of each shown line, by owner and key.
    lines: HashMap<(String, String), usize>,
    /// The area of all others.
    others: Option<usize>,
}

impl Plot {
    fn new(shown: Shown, index: &HashMap<Tenant, usize>) -> Self {
        let Shown { event, tenants, summed } = shown;
        let places: Vec<usize> =
            tenants.iter().map(|its| index.get(its).copied().unwrap_or_default()).collect();
        let numbered = || event.lines.iter().zip(&places);
        // An event with a count of 0 has no areas.
        let drawn =
            numbered().filter(|(line, _)| line.sum.value != 0.0 || line.sum.confidence.claims > 0);
        let areas: BTreeSet<usize> = drawn.map(|(_, place)| *place).collect();
        let areas: Vec<usize> = areas.into_iter().collect();
        let area = |place: &usize| areas.binary_search(place).ok();
        let others = places.last().filter(|_| summed).and_then(area);
        let kept = event.lines.len() - usize::from(summed);
        let lines = numbered().take(kept).filter_map(|(line, place)| {
            Some(((line.owner.clone(), line.key.clone()), area(place)?))
        });
        let lines = lines.collect();
        Self { lines, others, areas, tenants: places, event }
    }

    /// The area for the rows of a line; `None` if none of them has a value.
    pub(super) fn area(&self, owner: &str, key: String) -> Option<usize> {
        self.lines.get(&(owner.to_owned(), key)).copied().or(self.others)
    }

    /// Its lines, and the tenant of each as an index in [`Survey::tenants`].
    pub(super) fn lines(&self) -> impl Iterator<Item = (&Line, usize)> {
        self.event.lines.iter().zip(self.tenants.iter().copied())
    }
}

/// The content of a page.
#[derive(Debug)]
pub(super) struct Survey {
    /// Begin of the recording, `CLOCK_MONOTONIC`, ns.
    pub start_ns: i64,
    /// Directions of links in the order of the plan, then events by name.
    pub plots: Vec<Plot>,
    /// The owners of areas: the tenant with the largest part of a plot first, [`Kind::Others`] and
    /// [`Kind::Nobody`] last.
    pub tenants: Vec<Tenant>,
}

impl Survey {
    /// Of the lines of tasks, the `count` largest of each plot are kept.
    pub(super) fn new(start_ns: i64, events: Vec<Event>, by: By, count: usize) -> Self {
        let shown = events.into_iter().map(|event| Shown::new(event, by, count));
        let shown: Vec<Shown> = shown.collect();
        let tenants = ranked(&shown);
        let index = tenants.iter().cloned().zip(0..).collect();
        let plots = shown.into_iter().map(|shown| Plot::new(shown, &index)).collect();
        Self { start_ns, plots, tenants }
    }
}

/// Begin of the recording, and what is plotted: directions of links in the order of the plan, then
/// events that are on no link, by name.
///
/// # Errors
///
/// The recording cannot be read, or nothing was recorded in the selected time.
pub(super) fn events(
    recording: &Recording,
    plan: Option<&Planned>,
    links: &Links,
    question: &Question<'_>,
) -> Result<(i64, Vec<Event>)> {
    let (mut start_ns, mut events) = (0, Vec::new());
    if !links.links.is_empty() {
        let sums =
            usage_of_tenants(recording, &Question { links: Some(links), ..question.clone() })?;
        (start_ns, events) = (sums.start_ns, sums.events);
    }
    let names = |plan: &Planned| plan.apart(links).map(|its| its.event.clone()).collect();
    let apart: Option<BTreeSet<String>> = plan.map(names);
    if apart.as_ref().is_none_or(|apart| !apart.is_empty()) {
        let sums = usage_of_tenants(recording, &Question { links: None, ..question.clone() })?;
        start_ns = sums.start_ns;
        // The filter of an event is in brackets after its name.
        let name = |event: &Event| event.name.split('[').next().unwrap_or_default().to_owned();
        let wanted = |event: &Event| apart.as_ref().is_none_or(|it| it.contains(&name(event)));
        events.extend(sums.events.into_iter().filter(wanted));
    }
    Ok((start_ns, events))
}

/// All owners of lines, by the largest part of an event; if there are links, only links are
/// considered.
fn ranked(all: &[Shown]) -> Vec<Tenant> {
    let any_link = all.iter().any(|its| its.event.link.is_some());
    let mut parts: HashMap<&Tenant, f64> = HashMap::new();
    for Shown { event, tenants, .. } in all {
        let counts = event.total > 0.0 && (event.link.is_some() || !any_link);
        let mut own: HashMap<&Tenant, f64> = HashMap::new();
        for (line, tenant) in event.lines.iter().zip(tenants) {
            *own.entry(tenant).or_default() += line.sum.value;
        }
        for (tenant, value) in own {
            let part = if counts { value / event.total } else { 0.0 };
            let most = parts.entry(tenant).or_default();
            *most = most.max(part);
        }
    }
    let mut ranked: Vec<(&Tenant, f64)> = parts.into_iter().collect();
    ranked.sort_by(|(a, part_a), (b, part_b)| {
        a.kind.cmp(&b.kind).then(part_b.total_cmp(part_a)).then(a.name.cmp(&b.name))
    });
    ranked.into_iter().map(|(tenant, _)| tenant.clone()).collect()
}
