//! Tenants that share CPUs in turns, the one with ten times the traffic of the other: what `record`
//! says of each is near what it moved, while time on CPUs says that they are alike.

use anyhow::Result;

use super::super::mixes;
use super::super::step::{Check, Step};
use super::Setting;

/// A mix that tells its tenants apart, with amounts of its own.
const MIX: &str = "equal-cpu";
const SEED: u64 = 1;

/// Rates are learnt in the first part of a second.
const DURATION_MS: u32 = 4000;

/// Every tick a window.
const WINDOWS: [&str; 2] = ["--interval", "1ms"];

/// Median of the relative errors of a cgroup in a window; by time it is above 0.5.
const MEDIAN: f64 = 0.15;

pub(super) fn steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let mixes::Planned { mut step, counters } =
        mixes::find(MIX)?.plan(setting.machine, SEED, DURATION_MS, &WINDOWS)?;
    step.checks = vec![Check::Conserved, Check::Attributed { counters, median: MEDIAN }];
    Ok(vec![step])
}
