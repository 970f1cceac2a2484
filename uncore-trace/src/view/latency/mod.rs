//! The latency of reads on the links that a tenant used, in windows with the other tenants quiet
//! and with them busy.
//!
//! The difference is a correlation, not a proof of a cause. A latency counter counts the reads of
//! all tenants together. Whatever else changes while the others are busy, such as more reads of the
//! tenant itself, changes the latency too. Therefore the rates of both are shown beside it.
//!
//! # The rules
//!
//! - A tenant uses a link in a window if its rate there is at least [`MIN_USE`] of its own average.
//! - Others are all other owners on the link, in both directions. The windows in which the tenant
//!   uses the link are divided by the others' rate into a quiet and a busy part, as near to halves
//!   as possible; windows of one class of rates ([`classes`]) stay together.
//! - The latency of a part is computed from the sums of the counts of its windows: a ratio of sums,
//!   never a mean of ratios.
//! - A part of fewer than [`MIN_WINDOWS`] windows has no latency. Neither have both if the others'
//!   rates in them differ by less than [`CONTRAST`] of the link's average rate, because the others
//!   are then neither quiet nor busy.
//! - A window in which a counter of the link or of the latency has no value is in no part.
//!
//! Guarantees: one scan; memory grows with the number of tenants and classes, not with the length
//! of the recording; an unknown value is never 0.

mod classes;
pub mod json;
mod scan;
pub mod text;

use anyhow::Result;

use super::links::Links;
use super::question::ReportQuestion;
use crate::schema::metric::PlannedMetric;
use crate::tables::reader::Recording;
use classes::{RateClasses, WindowSums, rate_class};

/// A tenant uses a link in a window if its rate is at least this fraction of its average.
pub const MIN_USE: f64 = 0.1;
/// Least number of windows of a part.
pub const MIN_WINDOWS: u64 = 20;
/// Least difference between the others' rates in the two parts, as a fraction of the link's average
/// rate.
pub const CONTRAST: f64 = 0.1;

/// A latency of one link.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkLatency {
    /// The link.
    pub link: String,
    /// The metric.
    pub metric: String,
    /// Description of the metric.
    pub about: String,
    /// Unit of the metric: ns.
    pub unit: String,
    /// Over all windows with values.
    pub overall: WindowMeans,
    /// Windows without a value.
    pub unknown_windows: u64,
    /// The tenants, the largest difference first; then those without a difference, the largest user
    /// first.
    pub tenants: Vec<TenantLatency>,
}

/// A tenant on a link.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantLatency {
    /// Name of the tenant, as recorded: not escaped.
    pub key: String,
    /// `task`, `other_tasks`, `device`.
    pub owner: String,
    /// In the windows in which it used the link.
    pub used: WindowMeans,
    /// With the others quiet, and with the others busy; `None` if not known.
    pub split: Option<[WindowMeans; 2]>,
}

impl TenantLatency {
    /// Latency with the others busy minus latency with the others quiet; `None` if not known.
    pub fn latency_difference(&self) -> Option<f64> {
        let [quiet, busy] = self.split.as_ref()?;
        Some(busy.value? - quiet.value?)
    }
}

/// Values over some windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowMeans {
    /// Number of windows.
    pub windows: u64,
    /// Total length, seconds.
    pub seconds: f64,
    /// The latency; `None` if there are too few windows, or no reads.
    pub value: Option<f64>,
    /// Rate of the tenant, bytes per second; over all windows of a link: of all owners.
    pub own_per_s: f64,
    /// Rate of the others, bytes per second.
    pub others_per_s: f64,
}

/// Evaluates a metric on some PMUs from the counts of counters and a time in ns; `None` without a
/// value. The caller passes it in, because formulas belong to the catalog and views read only
/// tables.
pub type Evaluate = fn(&[&PlannedMetric], &dyn Fn(u32) -> Option<f64>, f64) -> Option<f64>;

/// The latencies of the links of a recording; empty if it has none.
///
/// # Errors
///
/// The recording cannot be read, or nothing was recorded in the selected time.
pub fn latencies(
    recording: &Recording,
    links: &Links,
    question: &ReportQuestion<'_>,
    evaluate: Evaluate,
) -> Result<Vec<LinkLatency>> {
    if !question.grouping.has_owner() || links.links.iter().all(|link| link.latencies.is_empty()) {
        return Ok(Vec::new());
    }
    let scanned = scan::scan_windows(recording, links, question, evaluate)?;
    let names = &scanned.names;
    Ok(scanned.subjects.iter().map(|subject| finish_latency(links, subject, names)).collect())
}

/// A latency of a link, while windows are added.
#[derive(Debug)]
struct OpenLatency<'a> {
    /// Index of the link.
    link_index: usize,
    /// The metric on each PMU of the link.
    metrics: Vec<&'a PlannedMetric>,
    evaluate: Evaluate,
    /// Counters from which it is computed.
    inputs: Vec<u32>,
    /// Sums over all windows with values.
    overall: WindowSums,
    unknown_windows: u64,
    /// For each tenant, its windows by rates.
    tenants: Vec<Option<RateClasses>>,
}

fn finish_latency(
    links: &Links,
    subject: &OpenLatency<'_>,
    names: &[(String, String)],
) -> LinkLatency {
    let link_per_s = subject.overall.own_per_s();
    let tenant_latency = |(classes, (owner, key)): (&Option<RateClasses>, &(String, String))| {
        let classes = classes.as_ref()?;
        // The average of the tenant is over all known windows of the link.
        let average = classes.tenant_bytes() * 1e9 / subject.overall.ns.max(1.0);
        let used_classes = classes.at_or_above(rate_class(MIN_USE * average));
        let split = used_classes
            .split_in_halves()
            .map(|halves| halves.map(|sums| subject.window_means(&sums)));
        let contrast = |[quiet, busy]: &[WindowMeans; 2]| {
            let is_enough = quiet.value.is_some() && busy.value.is_some();
            is_enough && busy.others_per_s - quiet.others_per_s >= CONTRAST * link_per_s
        };
        let (owner, key) = (owner.clone(), key.clone());
        let used = subject.window_means(&used_classes.sum_all());
        Some(TenantLatency { key, owner, used, split: split.filter(contrast) })
    };
    let mut tenants: Vec<TenantLatency> =
        subject.tenants.iter().zip(names).filter_map(tenant_latency).collect();
    let bytes = |tenant: &TenantLatency| tenant.used.own_per_s * tenant.used.seconds;
    tenants.sort_by(|a, b| {
        let by_difference = match (a.latency_difference(), b.latency_difference()) {
            (Some(a), Some(b)) => b.total_cmp(&a),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        by_difference.then(bytes(b).total_cmp(&bytes(a))).then_with(|| a.key.cmp(&b.key))
    });
    let (link, metric) = (links.links.get(subject.link_index), subject.metrics.first());
    LinkLatency {
        link: link.map(|link| link.name.clone()).unwrap_or_default(),
        metric: metric.map(|metric| metric.name.clone()).unwrap_or_default(),
        about: metric.map(|metric| metric.about.clone()).unwrap_or_default(),
        unit: metric.map(|metric| metric.unit.clone()).unwrap_or_default(),
        overall: subject.window_means(&subject.overall),
        unknown_windows: subject.unknown_windows,
        tenants,
    }
}

impl OpenLatency<'_> {
    fn window_means(&self, sums: &WindowSums) -> WindowMeans {
        let count = |counter| {
            sums.inputs.get(self.inputs.iter().position(|input| *input == counter)?).copied()
        };
        let value = (self.evaluate)(&self.metrics, &count, sums.ns);
        WindowMeans {
            windows: sums.windows,
            seconds: sums.ns / 1e9,
            value: value.filter(|_| sums.windows >= MIN_WINDOWS),
            own_per_s: sums.own_per_s(),
            others_per_s: sums.others_per_s(),
        }
    }
}

#[cfg(test)]
mod tests;
