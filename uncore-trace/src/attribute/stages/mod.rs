//! The stages around the division: a file each.

mod holders;
mod monitored_links;
mod pools;

use super::stage::{DivisionStage, StageSetup};

/// The stages of a recording, in the order in which they change a window and its shares:
///
/// 1. Pools: how sure shares of the method `io` are depends on the counter's part of its devices'
///    traffic. Holders get their confidence from that of the device's share, so it must be set.
/// 2. Holders: they have what the method gave to devices. Their tasks are in cgroups, too.
/// 3. Monitored links: what was measured for a cgroup overrules all estimates of it, so it comes
///    last. It leaves those who are not measured the proportions that the other stages gave them.
pub(super) fn create_stages(setup: &mut StageSetup<'_>) -> Vec<Box<dyn DivisionStage>> {
    vec![
        Box::new(pools::CounterPools::new(setup)),
        Box::new(holders::DeviceHolders::new(setup)),
        Box::new(monitored_links::LinkMonitors::new(setup)),
    ]
}
