//! The content of a page: its plots, the lines of each, and the tenants of its areas.
//!
//! Guarantee: each row of the selected time is in one area of each plot to which it belongs, so the
//! areas of a plot sum to the count.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use serde::Serialize;

use super::super::grouping::GroupBy;
use super::super::links::Links;
use super::super::question::ReportQuestion;
use super::super::report_sums::{ReportEvent, ReportLine, keep_top_lines};
use super::super::tenants::sum_report_of_tenants;
use super::planned::PagePlan;
use crate::schema::owner;
use crate::tables::reader::Recording;
use crate::text::printable;

/// How an area is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AreaKind {
    /// A tenant: in colour.
    Tenant,
    /// The sum of all that are too small, or beyond the selected number.
    Others,
    /// No tenant: the kernel, or an unknown owner.
    Nobody,
}

/// The owner of areas in all plots.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PageTenant {
    pub kind: AreaKind,
    /// Escaped.
    pub name: String,
}

impl PageTenant {
    /// The tenant of a line; each owner other than tasks has its own.
    fn of_line(line: &ReportLine, grouping: GroupBy) -> Self {
        let named_owner = |area_kind| Self { kind: area_kind, name: format!("({})", line.owner) };
        match line.owner.as_str() {
            owner::DEVICE if grouping != GroupBy::Device => named_owner(AreaKind::Tenant),
            owner::OTHER_TASKS => named_owner(AreaKind::Others),
            owner::IRQ | owner::SOFTIRQ | owner::IDLE | owner::UNATTRIBUTED => {
                named_owner(AreaKind::Nobody)
            }
            _ => Self { kind: AreaKind::Tenant, name: printable(&line.key).into_owned() },
        }
    }
}

/// An event with its largest lines, and the tenant of each.
#[derive(Debug)]
struct EventWithTenants {
    event: ReportEvent,
    tenants: Vec<PageTenant>,
    /// Whether the last line is a sum of small ones.
    has_others_line: bool,
}

impl EventWithTenants {
    /// Keeps the `count` largest lines of tasks, and all lines of other owners.
    fn new(event: ReportEvent, grouping: GroupBy, count: usize) -> Self {
        let is_task = |line: &&ReportLine| line.owner == owner::TASK || line.owner.is_empty();
        let has_others_line = event.lines.iter().filter(is_task).count() > count;
        let mut events = [event];
        keep_top_lines(&mut events, count);
        let [event] = events;
        let mut tenants: Vec<PageTenant> =
            event.lines.iter().map(|line| PageTenant::of_line(line, grouping)).collect();
        if let Some(last_tenant) = tenants.last_mut().filter(|_| has_others_line) {
            *last_tenant = PageTenant { kind: AreaKind::Others, name: "(others)".to_owned() };
        }
        Self { event, tenants, has_others_line }
    }
}

/// One direction of a link, or an event.
#[derive(Debug)]
pub(super) struct PagePlot {
    /// Sums of the link or event, with the largest lines and one for all others.
    pub event: ReportEvent,
    /// The tenants of its areas, as indices in [`PageSurvey::tenants`], ascending.
    pub areas: Vec<usize>,
    /// The tenant of each line of the event.
    tenants: Vec<usize>,
    /// The area of each shown line, by owner and key.
    lines: HashMap<(String, String), usize>,
    /// The area of all others.
    others_area: Option<usize>,
}

impl PagePlot {
    fn new(shown_event: EventWithTenants, index: &HashMap<PageTenant, usize>) -> Self {
        let EventWithTenants { event, tenants, has_others_line: has_others } = shown_event;
        let tenant_indices: Vec<usize> =
            tenants.iter().map(|tenant| index.get(tenant).copied().unwrap_or_default()).collect();
        let numbered = || event.lines.iter().zip(&tenant_indices);
        // An event with a count of 0 has no areas.
        let drawn =
            numbered().filter(|(line, _)| line.sum.value != 0.0 || line.sum.confidence.claims > 0);
        let areas: BTreeSet<usize> = drawn.map(|(_, tenant_index)| *tenant_index).collect();
        let areas: Vec<usize> = areas.into_iter().collect();
        let area = |searched: &usize| areas.binary_search(searched).ok();
        let others_area = tenant_indices.last().filter(|_| has_others).and_then(area);
        let kept = event.lines.len() - usize::from(has_others);
        let lines = numbered().take(kept).filter_map(|(line, line_tenant)| {
            Some(((line.owner.clone(), line.key.clone()), area(line_tenant)?))
        });
        Self { lines: lines.collect(), others_area, areas, tenants: tenant_indices, event }
    }

    /// The area for the rows of a line; `None` if none of them has a value.
    pub(super) fn area_of_line(&self, owner: &str, key: String) -> Option<usize> {
        self.lines.get(&(owner.to_owned(), key)).copied().or(self.others_area)
    }

    /// The lines of the plot, and the tenant of each as an index in [`PageSurvey::tenants`].
    pub(super) fn event_lines(&self) -> impl Iterator<Item = (&ReportLine, usize)> {
        self.event.lines.iter().zip(self.tenants.iter().copied())
    }
}

/// The content of a page.
#[derive(Debug)]
pub(super) struct PageSurvey {
    /// Begin of the recording, `CLOCK_MONOTONIC`, ns.
    pub start_ns: i64,
    /// Directions of links in the order of the plan, then events by name.
    pub plots: Vec<PagePlot>,
    /// The owners of areas: the tenant with the largest part of a plot first, [`AreaKind::Others`]
    /// and [`AreaKind::Nobody`] last.
    pub tenants: Vec<PageTenant>,
}

impl PageSurvey {
    /// Of the lines of tasks, the `count` largest of each plot are kept.
    pub(super) fn new(
        start_ns: i64,
        events: Vec<ReportEvent>,
        grouping: GroupBy,
        count: usize,
    ) -> Self {
        let shown = events.into_iter().map(|event| EventWithTenants::new(event, grouping, count));
        let shown: Vec<EventWithTenants> = shown.collect();
        let tenants = rank_tenants(&shown);
        let index = tenants.iter().cloned().zip(0..).collect();
        let plots = shown.into_iter().map(|shown| PagePlot::new(shown, &index)).collect();
        Self { start_ns, plots, tenants }
    }
}

/// Begin of the recording, and what is plotted: directions of links in the order of the plan, then
/// events that are on no link, by name.
///
/// # Errors
///
/// The recording cannot be read, or nothing was recorded in the selected time.
pub(super) fn plotted_events(
    recording: &Recording,
    plan: Option<&PagePlan>,
    links: &Links,
    question: &ReportQuestion<'_>,
) -> Result<(i64, Vec<ReportEvent>)> {
    let (mut start_ns, mut events) = (0, Vec::new());
    if !links.links.is_empty() {
        let sums = sum_report_of_tenants(
            recording,
            &ReportQuestion { links: Some(links), ..question.clone() },
        )?;
        (start_ns, events) = (sums.start_ns, sums.events);
    }
    let apart: Option<BTreeSet<&str>> = plan
        .map(|plan| plan.counters_off_links(links).map(|counter| counter.event.as_str()).collect());
    if apart.as_ref().is_none_or(|apart| !apart.is_empty()) {
        let sums =
            sum_report_of_tenants(recording, &ReportQuestion { links: None, ..question.clone() })?;
        start_ns = sums.start_ns;
        // The filter of an event is in brackets after its name.
        let wanted = |event: &ReportEvent| {
            let name = event.name.split('[').next().unwrap_or_default();
            apart.as_ref().is_none_or(|apart_names| apart_names.contains(name))
        };
        events.extend(sums.events.into_iter().filter(wanted));
    }
    Ok((start_ns, events))
}

/// All owners of lines, by the largest part of an event; if there are links, only links are
/// considered.
fn rank_tenants(events_shown: &[EventWithTenants]) -> Vec<PageTenant> {
    let any_link = events_shown.iter().any(|shown| shown.event.link.is_some());
    let mut largest_fractions: HashMap<&PageTenant, f64> = HashMap::new();
    for EventWithTenants { event, tenants, .. } in events_shown {
        let counts = event.total > 0.0 && (event.link.is_some() || !any_link);
        let mut tenant_values: HashMap<&PageTenant, f64> = HashMap::new();
        for (line, tenant) in event.lines.iter().zip(tenants) {
            *tenant_values.entry(tenant).or_default() += line.sum.value;
        }
        for (tenant, value) in tenant_values {
            let fraction = if counts { value / event.total } else { 0.0 };
            let largest = largest_fractions.entry(tenant).or_default();
            *largest = largest.max(fraction);
        }
    }
    let mut ranked: Vec<(&PageTenant, f64)> = largest_fractions.into_iter().collect();
    ranked.sort_by(|(a, part_a), (b, part_b)| {
        a.kind.cmp(&b.kind).then(part_b.total_cmp(part_a)).then(a.name.cmp(&b.name))
    });
    ranked.into_iter().map(|(tenant, _)| tenant.clone()).collect()
}
