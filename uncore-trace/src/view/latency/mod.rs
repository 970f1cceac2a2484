//! How long reads took on the links that a tenant used, while it used them: with the others on the link
//! quiet, and with them busy.
//!
//! The difference is a correlation and no proof of a cause. A counter of latency counts the reads of all
//! tenants together. What changes while the others are busy, such as more reads of the tenant itself,
//! changes the latency too. Therefore the rates of both are shown beside it.
//!
//! # The rules
//!
//! - A tenant uses a link in a window if its rate there is at least [`USED`] of its own average.
//! - Others are all that is not its own on the link, in both directions. The windows in which it uses the
//!   link are divided by their rate into a quiet and a busy part, as near to halves as possible; windows
//!   of one class of rates ([`classes`]) stay together.
//! - The latency of a part is computed from the sums of the counts of its windows: a ratio of sums, never a
//!   mean of ratios.
//! - A part of fewer than [`LEAST`] windows says nothing. Nor do the two if the others' rates in them differ
//!   by less than [`CONTRAST`] of the link's average: then they are neither quiet nor busy.
//! - A window in which a counter of the link or of the latency has no value is in no part.
//!
//! Guarantees: one scan; memory grows with the number of tenants and of classes, and not with the
//! recording's length; what is not known is never 0.

mod classes;
pub mod json;
mod scan;
pub mod text;

use anyhow::Result;

use super::headroom::Question;
use super::links::Links;
use crate::schema::metric::Planned;
use crate::tables::reader::Recording;
use classes::{Classes, Sums, class};

/// A tenant uses a link in a window if its rate is at least this part of its average.
pub const USED: f64 = 0.1;
/// Fewer windows say nothing.
pub const LEAST: u64 = 20;
/// The others' rates when busy and when quiet differ by at least this part of the link's average rate.
pub const CONTRAST: f64 = 0.1;

/// A latency of one link.
#[derive(Debug, Clone, PartialEq)]
pub struct Latency {
    /// The link.
    pub link: String,
    /// The metric.
    pub metric: String,
    /// What it says.
    pub about: String,
    /// Its unit: ns.
    pub unit: String,
    /// Over all windows with a value.
    pub all: Part,
    /// Windows without a value.
    pub unknown_windows: u64,
    /// The tenants, the largest difference first; those without one are last, the largest user first.
    pub tenants: Vec<Tenant>,
}

/// A tenant on a link.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenant {
    /// What it is called, as recorded (not fit to print).
    pub key: String,
    /// `task`, `other_tasks`, `device`.
    pub owner: String,
    /// While it used the link.
    pub used: Part,
    /// With the others quiet, and with the others busy; none where that is not known.
    pub split: Option<[Part; 2]>,
}

impl Tenant {
    /// How much longer reads took with the others busy; none where that is not known.
    pub fn difference(&self) -> Option<f64> {
        let [quiet, busy] = self.split.as_ref()?;
        Some(busy.value? - quiet.value?)
    }
}

/// Some windows together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// How many.
    pub windows: u64,
    /// Their length, seconds.
    pub seconds: f64,
    /// The latency; none where there are too few windows, or nothing was read.
    pub value: Option<f64>,
    /// Rate of the tenant, bytes a second; of all windows of a link: that of everybody.
    pub own_per_s: f64,
    /// Rate of the others, bytes a second.
    pub others_per_s: f64,
}

/// The value of a metric on some PMUs, of counts of counters and a time in ns; `None` where there is none.
/// Formulas are read by the catalog, and a view reads tables only: who asks says how.
pub type Evaluate = fn(&[&Planned], &dyn Fn(u32) -> Option<f64>, f64) -> Option<f64>;

/// The latencies of the links of a recording; none where it has none.
///
/// # Errors
///
/// The recording cannot be read, or nothing was recorded in the time asked for.
pub fn latencies(
    recording: &Recording,
    links: &Links,
    question: &Question,
    evaluate: Evaluate,
) -> Result<Vec<Latency>> {
    if !question.by.has_owner() || links.links.iter().all(|link| link.latencies.is_empty()) {
        return Ok(Vec::new());
    }
    let scanned = scan::scan(recording, links, question, evaluate)?;
    let names = &scanned.names;
    Ok(scanned.subjects.iter().map(|subject| latency(links, subject, names)).collect())
}

/// A latency of a link while windows come.
#[derive(Debug)]
struct Subject<'a> {
    /// The link by its place.
    link: usize,
    /// The metric on each of its PMUs.
    metrics: Vec<&'a Planned>,
    evaluate: Evaluate,
    /// The counters that it is computed from.
    inputs: Vec<u32>,
    /// All windows with a value.
    all: Sums,
    unknown_windows: u64,
    /// By tenant: its windows by rates.
    tenants: Vec<Option<Classes>>,
}

fn latency(links: &Links, subject: &Subject<'_>, names: &[(String, String)]) -> Latency {
    let link_per_s = subject.all.own_per_s();
    let tenant = |(classes, (owner, key)): (&Option<Classes>, &(String, String))| {
        let classes = classes.as_ref()?;
        // Its average is over all windows of the link that are known.
        let average = classes.bytes() * 1e9 / subject.all.ns.max(1.0);
        let used = classes.from(class(USED * average));
        let split = used.split().map(|parts| parts.map(|sums| subject.part(&sums)));
        let contrast = |[quiet, busy]: &[Part; 2]| {
            let is_enough = quiet.value.is_some() && busy.value.is_some();
            is_enough && busy.others_per_s - quiet.others_per_s >= CONTRAST * link_per_s
        };
        let (owner, key) = (owner.clone(), key.clone());
        let used = subject.part(&used.sum());
        Some(Tenant { key, owner, used, split: split.filter(contrast) })
    };
    let mut tenants: Vec<Tenant> = subject.tenants.iter().zip(names).filter_map(tenant).collect();
    let bytes = |tenant: &Tenant| tenant.used.own_per_s * tenant.used.seconds;
    tenants.sort_by(|a, b| {
        let by_difference = match (a.difference(), b.difference()) {
            (Some(a), Some(b)) => b.total_cmp(&a),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        by_difference.then(bytes(b).total_cmp(&bytes(a))).then_with(|| a.key.cmp(&b.key))
    });
    let (link, metric) = (links.links.get(subject.link), subject.metrics.first());
    Latency {
        link: link.map(|link| link.name.clone()).unwrap_or_default(),
        metric: metric.map(|metric| metric.name.clone()).unwrap_or_default(),
        about: metric.map(|metric| metric.about.clone()).unwrap_or_default(),
        unit: metric.map(|metric| metric.unit.clone()).unwrap_or_default(),
        all: subject.part(&subject.all),
        unknown_windows: subject.unknown_windows,
        tenants,
    }
}

impl Subject<'_> {
    fn part(&self, sums: &Sums) -> Part {
        let count = |counter| {
            let place = self.inputs.iter().position(|input| *input == counter)?;
            sums.inputs.get(place).copied()
        };
        let value = (self.evaluate)(&self.metrics, &count, sums.ns);
        Part {
            windows: sums.windows,
            seconds: sums.ns / 1e9,
            value: value.filter(|_| sums.windows >= LEAST),
            own_per_s: sums.own_per_s(),
            others_per_s: sums.others_per_s(),
        }
    }
}

#[cfg(test)]
mod tests;
