//! Options that need something of the machine and the plan, for `record --dry-run`. A recording
//! makes the same checks when it starts what they ask for.

use std::path::Path;

use anyhow::Result;

use super::canary;
use super::monitors::MonitorSetup;
use crate::discover::Machine;
use crate::plan::Plan;

/// Checks that the canary and this many monitoring groups, if they were asked for, can do something
/// in a recording of `plan`.
///
/// # Errors
///
/// It cannot; the error says why and the way out.
pub fn check_options(
    machine: &Machine,
    plan: &Plan,
    canary: bool,
    monitor: Option<usize>,
) -> Result<()> {
    if canary {
        canary::check_canary(machine, plan, Path::new("."))?;
    }
    if monitor.is_some() {
        MonitorSetup::prepare_monitors(machine, plan, monitor)?;
    }
    Ok(())
}
