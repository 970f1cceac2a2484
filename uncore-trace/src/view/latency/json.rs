//! Latencies as JSON lines.

use serde::Serialize;

use super::super::grouping::GroupBy;
use super::super::json_lines::{json_lines, json_object};
use super::{LinkLatency, TenantLatency, WindowMeans};

/// The object of some windows.
fn windows_object(means: &WindowMeans, has_others: bool) -> impl Serialize + use<> {
    let is_known = means.windows > 0;
    json_object! {
        latency: means.value,
        windows: means.windows,
        seconds: means.seconds,
        own_per_s: is_known.then_some(means.own_per_s),
        others_per_s: (has_others && is_known).then_some(means.others_per_s),
    }
}

/// The object of a tenant on a link, or of all windows (`None`); `report --help` lists the keys.
fn line_object(
    latency: &LinkLatency,
    grouping: GroupBy,
    complete: bool,
    tenant: Option<&TenantLatency>,
) -> impl Serialize {
    let used = tenant.map_or(&latency.overall, |tenant| &tenant.used);
    let split = tenant.and_then(|tenant| tenant.split);
    json_object! {
        link: &latency.link,
        metric: &latency.metric,
        unit: &latency.unit,
        by: grouping.name(),
        key: tenant.map(|tenant| &tenant.key),
        owner: tenant.map(|tenant| &tenant.owner),
        used: windows_object(used, tenant.is_some()),
        quiet: split.map(|[quiet, _]| windows_object(&quiet, true)),
        busy: split.map(|[_, busy]| windows_object(&busy, true)),
        difference: tenant.and_then(TenantLatency::latency_difference),
        unknown_windows: latency.unknown_windows,
        complete: complete,
    }
}

/// One object per line: for each link that of all windows, with `key` null, then its tenants.
///
/// # Errors
///
/// A number cannot be written.
pub fn write_json_lines(
    latencies: &[LinkLatency],
    grouping: GroupBy,
    complete: bool,
) -> serde_json::Result<String> {
    json_lines(latencies.iter().flat_map(|latency| {
        let tenants = std::iter::once(None).chain(latency.tenants.iter().map(Some));
        tenants.map(move |tenant| line_object(latency, grouping, complete, tenant))
    }))
}
