//! A comparison as JSON lines.

use serde::Serialize;

use super::rate::{Change, SideRate, Verdict};
use super::{About, Diff, Way};
use crate::text::escape_json;

/// The object of a total or a tenant; `diff --help` lists the keys.
#[derive(Debug, Serialize)]
struct Object<'a> {
    what: &'a str,
    link: Option<&'a str>,
    direction: Option<&'static str>,
    unit: &'a str,
    by: Option<&'a str>,
    key: Option<&'a str>,
    owner: Option<&'a str>,
    before: Side,
    after: Side,
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
struct Side {
    total: Option<f64>,
    seconds: Option<f64>,
    rate_per_s: Option<f64>,
    low_per_s: Option<f64>,
    high_per_s: Option<f64>,
    variation_per_s: Option<f64>,
    share: Option<f64>,
    complete: bool,
}

impl Side {
    fn new(found: &SideRate, about: &About) -> Self {
        let rate = found.rate();
        let is_absent = *found == SideRate::Absent;
        let interval = rate.and_then(|rate| rate.interval);
        Self {
            total: rate.map(|rate| rate.total).or(is_absent.then_some(0.0)),
            seconds: rate.map(|rate| rate.seconds),
            rate_per_s: found.per_s(),
            low_per_s: interval.map(|interval| interval.low),
            high_per_s: interval.map(|interval| interval.high),
            variation_per_s: rate.and_then(|rate| rate.variation),
            share: rate.and_then(|rate| rate.share),
            complete: about.incomplete.is_none(),
        }
    }
}

impl<'a> Object<'a> {
    /// The object of a tenant (key and owner), or of the total (`None`).
    fn new(diff: &'a Diff, way: &'a Way, of: Option<(&'a str, &'a str)>, change: &Change) -> Self {
        let reach = change.reach();
        Self {
            what: &way.name,
            link: way.link.as_ref().map(|(name, _)| name.as_str()),
            direction: way.link.as_ref().map(|(_, direction)| direction.name()),
            unit: &way.unit,
            by: of.map(|_| diff.by.name()),
            key: of.map(|of| of.0),
            owner: of.map(|of| of.1).filter(|_| diff.by.has_owner()),
            before: Side::new(&change.before, &diff.before),
            after: Side::new(&change.after, &diff.after),
            difference_per_s: change.difference(),
            difference_low_per_s: reach.map(|reach| reach.low),
            difference_high_per_s: reach.map(|reach| reach.high),
            ratio: change.ratio(),
            verdict: change.verdict().map(Verdict::word),
            beyond_error: change.is_beyond_error(),
            same_counters: change.is_same,
            notes: &way.notes,
        }
    }
}

/// One object per line: for each link or event its total, then its tenants.
///
/// # Errors
///
/// A number cannot be written.
pub fn json(diff: &Diff) -> serde_json::Result<String> {
    let mut out = String::new();
    for way in &diff.ways {
        let tenants = way.tenants.iter().map(|tenant| {
            let of = Some((tenant.key.as_str(), tenant.owner.as_str()));
            Object::new(diff, way, of, &tenant.change)
        });
        for object in std::iter::once(Object::new(diff, way, None, &way.total)).chain(tenants) {
            out.push_str(&escape_json(&serde_json::to_string(&object)?));
            out.push('\n');
        }
    }
    Ok(out)
}
