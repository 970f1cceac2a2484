//! A comparison as JSON lines.

use std::iter;

use serde::Serialize;

use super::super::json_lines::{json_lines, json_object};
use super::rate::{ChangeVerdict, SideRate};
use super::{ComparedTenant, Diff, DiffSubject, SpanFacts};

/// The rate in one of the two recordings.
fn side_object(side_rate: &SideRate, facts: &SpanFacts) -> impl Serialize + use<> {
    let rate = side_rate.known_rate();
    let is_absent = *side_rate == SideRate::Absent;
    let interval = rate.and_then(|rate| rate.interval);
    json_object! {
        total: rate.map(|rate| rate.total).or(is_absent.then_some(0.0)),
        seconds: rate.map(|rate| rate.seconds),
        rate_per_s: side_rate.per_s(),
        low_per_s: interval.map(|interval| interval.low),
        high_per_s: interval.map(|interval| interval.high),
        variation_per_s: rate.and_then(|rate| rate.variation),
        share: rate.and_then(|rate| rate.share),
        complete: facts.incomplete.is_none(),
    }
}

/// The object of a tenant, or of the total (`None`); `diff --help` lists the keys.
fn line_object(
    diff: &Diff,
    subject: &DiffSubject,
    tenant: Option<&ComparedTenant>,
) -> impl Serialize {
    let change = tenant.map_or(&subject.total, |tenant| &tenant.change);
    let interval = change.difference_interval();
    json_object! {
        what: &subject.name,
        link: subject.link.as_ref().map(|(name, _)| name.as_str()),
        direction: subject.link.as_ref().map(|(_, direction)| direction.direction_name()),
        unit: &subject.unit,
        by: tenant.map(|_| diff.grouping.name()),
        key: tenant.map(|tenant| tenant.key.as_str()),
        owner: tenant.filter(|_| diff.grouping.has_owner()).map(|tenant| tenant.owner.as_str()),
        before: side_object(&change.before_rate, &diff.before_facts),
        after: side_object(&change.after_rate, &diff.after_facts),
        difference_per_s: change.difference_per_s(),
        difference_low_per_s: interval.map(|reach| reach.low),
        difference_high_per_s: interval.map(|reach| reach.high),
        ratio: change.rate_ratio(),
        verdict: change.verdict().map(ChangeVerdict::table_word),
        beyond_error: change.is_beyond_error(),
        same_counters: change.is_comparable,
        notes: &subject.notes,
    }
}

/// One object per line: for each link or event its total, then its tenants.
///
/// # Errors
///
/// A number cannot be written.
pub fn write_json_lines(diff: &Diff) -> serde_json::Result<String> {
    json_lines(diff.subjects.iter().flat_map(|subject| {
        let tenants = iter::once(None).chain(subject.tenants.iter().map(Some));
        tenants.map(move |tenant| line_object(diff, subject, tenant))
    }))
}
