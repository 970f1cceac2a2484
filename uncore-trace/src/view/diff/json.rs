//! A comparison as JSON lines.

use serde::Serialize;

use super::rate::{ChangeVerdict, RateChange, SideRate};
use super::{Diff, DiffSubject, SpanFacts};
use crate::text::escape_json;

/// The object of a total or a tenant; `diff --help` lists the keys.
#[derive(Debug, Serialize)]
struct DiffJsonLine<'a> {
    what: &'a str,
    link: Option<&'a str>,
    direction: Option<&'static str>,
    unit: &'a str,
    by: Option<&'a str>,
    key: Option<&'a str>,
    owner: Option<&'a str>,
    before: SideRateJson,
    after: SideRateJson,
    difference_per_s: Option<f64>,
    difference_low_per_s: Option<f64>,
    difference_high_per_s: Option<f64>,
    ratio: Option<f64>,
    verdict: Option<&'static str>,
    beyond_error: Option<bool>,
    same_counters: bool,
    notes: &'a [String],
}

/// The rate in one of the two recordings.
#[derive(Debug, Serialize)]
struct SideRateJson {
    total: Option<f64>,
    seconds: Option<f64>,
    rate_per_s: Option<f64>,
    low_per_s: Option<f64>,
    high_per_s: Option<f64>,
    variation_per_s: Option<f64>,
    share: Option<f64>,
    complete: bool,
}

impl SideRateJson {
    fn new(side_rate: &SideRate, facts: &SpanFacts) -> Self {
        let rate = side_rate.known_rate();
        let is_absent = *side_rate == SideRate::Absent;
        let interval = rate.and_then(|rate| rate.interval);
        Self {
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
}

impl<'a> DiffJsonLine<'a> {
    /// The object of a tenant (key and owner), or of the total (`None`).
    fn new(
        diff: &'a Diff,
        subject: &'a DiffSubject,
        key_and_owner: Option<(&'a str, &'a str)>,
        change: &RateChange,
    ) -> Self {
        let interval = change.difference_interval();
        Self {
            what: &subject.name,
            link: subject.link.as_ref().map(|(name, _)| name.as_str()),
            direction: subject.link.as_ref().map(|(_, direction)| direction.direction_name()),
            unit: &subject.unit,
            by: key_and_owner.map(|_| diff.grouping.name()),
            key: key_and_owner.map(|tenant| tenant.0),
            owner: key_and_owner.map(|tenant| tenant.1).filter(|_| diff.grouping.has_owner()),
            before: SideRateJson::new(&change.before_rate, &diff.before_facts),
            after: SideRateJson::new(&change.after_rate, &diff.after_facts),
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
}

/// One object per line: for each link or event its total, then its tenants.
///
/// # Errors
///
/// A number cannot be written.
pub fn write_json_lines(diff: &Diff) -> serde_json::Result<String> {
    let mut lines = String::new();
    for subject in &diff.subjects {
        let tenants = subject.tenants.iter().map(|tenant| {
            let key_and_owner = Some((tenant.key.as_str(), tenant.owner.as_str()));
            DiffJsonLine::new(diff, subject, key_and_owner, &tenant.change)
        });
        for object in
            std::iter::once(DiffJsonLine::new(diff, subject, None, &subject.total)).chain(tenants)
        {
            lines.push_str(&escape_json(&serde_json::to_string(&object)?));
            lines.push('\n');
        }
    }
    Ok(lines)
}
