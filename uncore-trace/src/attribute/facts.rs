//! What an attributor is told of a recording before its first entry.

use super::attribution_settings::AttributionSettings;
use super::core_siblings::CoreSiblings;
use crate::clock::Snapshot;
use crate::plan::Plan;
use crate::schema::origin::RecordingOrigin;

/// The parameters of a recording.
#[derive(Clone, Copy, Debug)]
pub struct RecordingFacts<'a> {
    /// The planned counters.
    pub plan: &'a Plan,
    /// The counters that were opened, also those without rows, in the order of [`order_counters`].
    pub counters: &'a [u32],
    /// The methods of attribution.
    pub settings: AttributionSettings,
    /// The tick at which the recording begins.
    pub start_tick: u64,
    /// Converts times of `CLOCK_MONOTONIC` to wall-clock time.
    pub clock: Snapshot,
    /// Where the recording was made.
    pub origin: &'a RecordingOrigin,
    /// The CPUs that share cores when the recording begins.
    pub siblings: &'a CoreSiblings,
    /// Threads that learn and divide: [`super::live_threads`] or [`super::available_threads`].
    pub threads: usize,
    /// Whether rows of `sums` are made.
    pub sums: bool,
}

/// The counters of a plan that could be opened, in the order of their rows: by CPU, and per CPU
/// those that are read at every context switch first.
pub fn order_counters(plan: &Plan, failed: impl Fn(u32) -> bool) -> Vec<u32> {
    let mut opened: Vec<_> = plan.counters.iter().filter(|counter| !failed(counter.id)).collect();
    opened.sort_by_key(|counter| (counter.cpu, !counter.at_switch));
    opened.into_iter().map(|counter| counter.id).collect()
}
