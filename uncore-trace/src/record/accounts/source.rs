//! The accounts as a source beside the rings.

use anyhow::Result;

use super::super::side_sources::{Preparation, SideSetup, SideSource, StopPoint};
use super::super::state::RecorderState;
use super::{AccountSetup, AccountThread};
use crate::clock::mono_ns;
use crate::schema::loss::Cause;

/// Prepares the accounts, if it is recorded who holds which device.
pub(in super::super) fn prepare_source<'a>(
    preparation: &Preparation<'_, 'a>,
) -> Option<SideSetup<'a>> {
    let setup = || {
        SideSetup::new(|begun| {
            // The kernel may not say it.
            if !begun.session.sees_holders() {
                return None;
            }
            Some(Box::new(AccountSetup::prepare_reading(begun.machine).start_thread()?))
        })
    };
    preparation.wants_holders.then(setup)
}

impl SideSource for AccountThread {
    fn poll(&mut self, state: &mut RecorderState<'_>) -> Result<()> {
        for (reading, unread) in self.take_readings() {
            state.open_parts.feed_reading(&reading);
            for why in unread {
                state.note_loss(Cause::AccountUnread, reading.time_ns, &why);
            }
        }
        if !state.is_ending
            && let Some(why) = self.send_held(|| state.open_parts.live.timeline.held_devices())
        {
            state.note_loss(Cause::AccountUnread, mono_ns() as u64, why);
        }
        Ok(())
    }

    fn stop_point(&self) -> StopPoint {
        StopPoint::AfterLastTick
    }

    /// A thread that waits for a driver is not waited for: what it sends later is still taken.
    fn stop(&mut self, _state: &mut RecorderState<'_>) -> Result<()> {
        self.stop_thread();
        Ok(())
    }
}
