//! Tenants that share CPUs in turns, one with ten times the traffic of the other: the shares of
//! `record` are near the true traffic, while by CPU time both would be equal.

use anyhow::Result;

use super::super::mixes;
use super::super::step::{Check, Step};
use super::Setting;

/// A mix with distinguishable tenants, with its own amounts.
const MIX: &str = "equal-cpu";
const SEED: u64 = 1;

/// Rates are learnt in the first part of a second.
const DURATION_MS: u32 = 4000;

/// A window for each tick.
const WINDOWS: [&str; 2] = ["--interval", "1ms"];

/// Limit for the median of the relative errors of a cgroup in a window; by CPU time it is above
/// 0.5.
const MEDIAN: f64 = 0.15;

pub(super) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    // A step that fails is run again by the name of its scenario, with which it begins.
    let name = format!("attribution-{MIX}");
    let mix = mixes::find_mix(MIX)?;
    let mixes::PlannedMix { mut step, counters } =
        mix.plan_recording(&name, setting.machine, SEED, DURATION_MS, &WINDOWS)?;
    step.checks = vec![Check::Conserved, Check::Attributed { counters, median: MEDIAN }];
    Ok(vec![step])
}
