//! The monitors as a source beside the rings.

use anyhow::Result;

use super::super::side_sources::{Preparation, SideSetup, SideSource, StopPoint};
use super::super::state::RecorderState;
use super::{MonitorSetup, MonitorThread, remove_left_groups};

/// Prepares the monitors, if any measure what is counted.
///
/// # Errors
///
/// Groups are to be made, and cannot be, or nothing would be measured.
pub(in super::super) fn prepare_source<'a>(
    preparation: &Preparation<'_, 'a>,
) -> Result<Option<SideSetup<'a>>> {
    let Preparation { machine, plan, options, .. } = preparation;
    // A recorder that was killed may have left monitoring groups.
    remove_left_groups();
    let setup = MonitorSetup::prepare_monitors(machine, plan, options.monitor)?;
    // Its thread confines itself: it may change resctrl, and the recorder's may not.
    let with_thread = |setup: MonitorSetup| {
        SideSetup::new(|_begun| setup.start_thread().map(|thread| Box::new(thread) as _))
    };
    Ok(setup.map(with_thread))
}

impl SideSource for MonitorThread {
    fn poll(&mut self, state: &mut RecorderState<'_>) -> Result<()> {
        for reading in self.take_readings() {
            state.open_parts.feed_reading(&reading);
            for lost in &reading.lost {
                state.open_parts.ledger_at(lost.time_ns).add_monitor_loss(lost);
            }
        }
        Ok(())
    }

    /// Tells which tenants are the largest, now that the newest windows are closed.
    fn end_drain(&mut self, state: &mut RecorderState<'_>) -> Result<()> {
        self.rank_tenants(|| state.open_parts.live.timeline.largest_cgroups());
        Ok(())
    }

    fn stop_point(&self) -> StopPoint {
        StopPoint::AfterLastTick
    }

    fn stop(&mut self, _state: &mut RecorderState<'_>) -> Result<()> {
        self.stop_thread();
        Ok(())
    }
}
