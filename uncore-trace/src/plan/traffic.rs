//! The default plan: all traffic.

use anyhow::Result;

use super::{Plan, Request, plan};
use crate::catalog::Catalog;
use crate::discover::Machine;

/// Groups of traffic.
const TRAFFIC: [&str; 4] = ["mem", "pcie", "c2c", "mesh"];

/// A plan of all traffic by root port, in the requested ticks and windows. If no PMU here counts
/// traffic, a plan of the group host, with the reason.
///
/// # Errors
///
/// Not even the group host can be planned.
pub fn traffic(
    machine: &Machine,
    catalog: &Catalog,
    asked: &Request,
) -> Result<(Plan, Option<String>)> {
    let groups: Vec<String> = TRAFFIC.map(str::to_owned).into();
    let traffic = Request { groups, allow_missing: true, ..asked.clone() };
    // Root ports that cannot be distinguished are counted together.
    let by_port = plan(machine, catalog, &Request { per_port: true, ..traffic.clone() });
    if let Ok(plan) = by_port.or_else(|_| plan(machine, catalog, &traffic)) {
        return Ok((plan, None));
    }
    let host = Request { groups: vec!["host".to_owned()], ..asked.clone() };
    let notice =
        "no PMU here counts traffic; software counters are shown (see uncore-trace doctor)";
    Ok((plan(machine, catalog, &host)?, Some(notice.to_owned())))
}
