//! Latencies as JSON lines.

use serde::Serialize;

use super::super::key::By;
use super::{Latency, Means, Tenant};
use crate::text::escape_json;

/// The object of a tenant on a link; `report --help` lists the keys.
#[derive(Debug, Serialize)]
struct Object<'a> {
    link: &'a str,
    metric: &'a str,
    unit: &'a str,
    by: &'a str,
    key: Option<&'a str>,
    owner: Option<&'a str>,
    used: Piece,
    quiet: Option<Piece>,
    busy: Option<Piece>,
    difference: Option<f64>,
    unknown_windows: u64,
    complete: bool,
}

/// Some windows.
#[derive(Debug, Serialize)]
struct Piece {
    latency: Option<f64>,
    windows: u64,
    seconds: f64,
    own_per_s: Option<f64>,
    others_per_s: Option<f64>,
}

impl Piece {
    fn new(part: &Means, has_others: bool) -> Self {
        let known = part.windows > 0;
        Self {
            latency: part.value,
            windows: part.windows,
            seconds: part.seconds,
            own_per_s: known.then_some(part.own_per_s),
            others_per_s: (has_others && known).then_some(part.others_per_s),
        }
    }
}

/// One object per line: for each link that of all windows, with `key` null, then its tenants.
///
/// # Errors
///
/// A number cannot be written.
pub fn json(latencies: &[Latency], by: By, complete: bool) -> serde_json::Result<String> {
    let mut out = String::new();
    for latency in latencies {
        let all = |used| Object {
            link: &latency.link,
            metric: &latency.metric,
            unit: &latency.unit,
            by: by.name(),
            key: None,
            owner: None,
            used,
            quiet: None,
            busy: None,
            difference: None,
            unknown_windows: latency.unknown_windows,
            complete,
        };
        let tenant = |tenant: &'_ Tenant| -> Object<'_> {
            let part = |place: usize| tenant.split.map(|parts| Piece::new(&parts[place], true));
            Object {
                quiet: part(0),
                busy: part(1),
                difference: tenant.difference(),
                ..all(Piece::new(&tenant.used, true))
            }
        };
        let mut objects = vec![all(Piece::new(&latency.all, false))];
        for its in &latency.tenants {
            let (key, owner) = (Some(its.key.as_str()), Some(its.owner.as_str()));
            objects.push(Object { key, owner, ..tenant(its) });
        }
        for object in objects {
            out.push_str(&escape_json(&serde_json::to_string(&object)?));
            out.push('\n');
        }
    }
    Ok(out)
}
