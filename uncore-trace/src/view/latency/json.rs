//! Latencies as JSON lines.

use serde::Serialize;

use super::super::key::GroupBy;
use super::{LinkLatency, TenantLatency, WindowMeans};
use crate::text::escape_json;

/// The object of a tenant on a link; `report --help` lists the keys.
#[derive(Debug, Serialize)]
struct LatencyJsonLine<'a> {
    link: &'a str,
    metric: &'a str,
    unit: &'a str,
    by: &'a str,
    key: Option<&'a str>,
    owner: Option<&'a str>,
    used: WindowsJson,
    quiet: Option<WindowsJson>,
    busy: Option<WindowsJson>,
    difference: Option<f64>,
    unknown_windows: u64,
    complete: bool,
}

/// Some windows.
#[derive(Debug, Serialize)]
struct WindowsJson {
    latency: Option<f64>,
    windows: u64,
    seconds: f64,
    own_per_s: Option<f64>,
    others_per_s: Option<f64>,
}

impl WindowsJson {
    fn new(means: &WindowMeans, has_others: bool) -> Self {
        let is_known = means.windows > 0;
        Self {
            latency: means.value,
            windows: means.windows,
            seconds: means.seconds,
            own_per_s: is_known.then_some(means.own_per_s),
            others_per_s: (has_others && is_known).then_some(means.others_per_s),
        }
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
    let mut lines = String::new();
    for latency in latencies {
        let line_of_all = |used| LatencyJsonLine {
            link: &latency.link,
            metric: &latency.metric,
            unit: &latency.unit,
            by: grouping.name(),
            key: None,
            owner: None,
            used,
            quiet: None,
            busy: None,
            difference: None,
            unknown_windows: latency.unknown_windows,
            complete,
        };
        let tenant_line = |tenant: &'_ TenantLatency| -> LatencyJsonLine<'_> {
            let half = |half_index: usize| {
                tenant.split.map(|halves| WindowsJson::new(&halves[half_index], true))
            };
            LatencyJsonLine {
                quiet: half(0),
                busy: half(1),
                difference: tenant.latency_difference(),
                ..line_of_all(WindowsJson::new(&tenant.used, true))
            }
        };
        let mut objects = vec![line_of_all(WindowsJson::new(&latency.overall, false))];
        for tenant_latency in &latency.tenants {
            let (key, owner) =
                (Some(tenant_latency.key.as_str()), Some(tenant_latency.owner.as_str()));
            objects.push(LatencyJsonLine { key, owner, ..tenant_line(tenant_latency) });
        }
        for object in objects {
            lines.push_str(&escape_json(&serde_json::to_string(&object)?));
            lines.push('\n');
        }
    }
    Ok(lines)
}
