//! Leaves out more of the division of counts when the recorder is late, and says so in the parts.

use std::time::Duration;

use super::load::{RecorderLoad, ReliefChange};
use super::ring_feed::RingFeed;
use super::state::RecorderState;

/// What is left out, and whether the recorder keeps up.
#[derive(Debug)]
pub(super) struct ReliefControl {
    load: RecorderLoad,
    drain_period: Duration,
}

impl ReliefControl {
    pub(super) const fn new(load: RecorderLoad, drain_period: Duration) -> Self {
        Self { load, drain_period }
    }

    /// Leaves out more if the recorder is late, and less if it has kept up. When it fed the rings
    /// at `now_ns`, what was sent in the last `behind_ns` had not been fed.
    pub(super) fn update_relief(
        &mut self,
        state: &mut RecorderState<'_>,
        feed: &RingFeed,
        now_ns: u64,
        behind_ns: u64,
    ) {
        if state.is_ending {
            return;
        }
        let options = state.common.options;
        // A drain in time may find a large part of a ring too, if CPUs send much.
        let is_filling = feed.is_half_full(options.buffer)
            && behind_ns > 2 * self.drain_period.as_nanos() as u64;
        if let Some(relief_change) = self.load.update_relief(now_ns, behind_ns, is_filling) {
            // Windows that wait are affected too.
            let waiting_ns = behind_ns + options.lag.as_nanos() as u64;
            let is_more = relief_change.new_relief > relief_change.old_relief;
            let span_ns = if is_more { waiting_ns } else { relief_change.span_ns };
            note_relief(state, now_ns, &relief_change, span_ns);
            if is_more {
                log::warn!(
                    "the recorder is late: from here {}",
                    relief_change.new_relief.in_words()
                );
            }
        }
        state.common.relief = self.load.relief;
        for open_part in state.open_parts.oldest_first() {
            open_part.timeline.set_relief(state.common.relief);
        }
    }

    /// Ends the recording at `now_ns`.
    pub(super) fn end_relief(&mut self, state: &mut RecorderState<'_>, now_ns: u64) {
        if let Some(relief_change) = self.load.end_relief(now_ns) {
            note_relief(state, now_ns, &relief_change, relief_change.span_ns);
        }
    }
}

/// Enters a change of what is left out in the parts that it affects.
fn note_relief(
    state: &mut RecorderState<'_>,
    now_ns: u64,
    relief_change: &ReliefChange,
    span_ns: u64,
) {
    for open_part in state.open_parts.oldest_first() {
        open_part.timeline.ledger.add_relief_change(
            now_ns,
            span_ns,
            relief_change.old_relief,
            relief_change.new_relief,
        );
    }
}
