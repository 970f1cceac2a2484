//! Options that need something of the machine and the plan, for `record --dry-run`. A recording
//! makes the same checks when it starts what they ask for.

use std::path::Path;

use anyhow::Result;

use super::canary;
use super::monitors::MonitorSetup;
use crate::discover::Machine;
use crate::plan::Plan;

/// What was asked for.
#[derive(Debug, Clone, Copy)]
pub struct OptionsToCheck {
    /// A canary.
    pub canary: bool,
    /// This many monitoring groups.
    pub monitor: Option<usize>,
}

/// Checks that what was asked for can do something in a recording of `plan`.
///
/// # Errors
///
/// It cannot; the error says why and the way out.
pub fn check_options(machine: &Machine, plan: &Plan, options: OptionsToCheck) -> Result<()> {
    if options.canary {
        canary::check_canary(machine, plan, Path::new("."))?;
    }
    if options.monitor.is_some() {
        MonitorSetup::prepare_monitors(machine, plan, options.monitor)?;
    }
    Ok(())
}
