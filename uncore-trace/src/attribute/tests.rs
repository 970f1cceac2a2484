use std::collections::BTreeMap;

use super::{AttributionSettings, Attributor, CoreSiblings, RecordingFacts, order_counters};
use crate::clock::Snapshot;
use crate::plan::Plan;
use crate::schema::origin::RecordingOrigin;

mod simulation;
pub(super) mod split_mix;

/// Divides counts from `start_tick` on, in one thread and without sums. Ticks and wall time begin at
/// the same moment.
pub(crate) fn new_attributor(
    plan: &Plan,
    settings: AttributionSettings,
    start_tick: u64,
) -> Attributor {
    Attributor::new(&RecordingFacts {
        plan,
        counters: &order_counters(plan, |_| false),
        settings,
        start_tick,
        clock: Snapshot { mono_ns: 0, wall_ns: 0 },
        origin: &RecordingOrigin::from_metadata(&BTreeMap::new()),
        siblings: &CoreSiblings::default(),
        threads: 1,
        sums: false,
    })
}
