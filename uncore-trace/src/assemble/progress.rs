//! How far a time line is: which bin is closed next, and what it still waits for.

use super::span::TimelineSpan;
use super::stream::ClosingBin;
use super::usage::Wait;
use crate::clock::TimeSpan;
use crate::plan::Plan;

/// Time of a CPU without a record or a look counts as a gap after this wait, ns. It is longer than
/// [`GRACE_NS`](super::GRACE_NS), because a hypervisor may stop the CPU in the middle of a switch.
/// If a record was dropped, the next one reveals the gap without a wait.
const GAP_NS: u64 = 1_000_000_000;

/// The bins that are closed, and the records that have arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimelineProgress {
    /// Length of a tick, ns.
    pub tick_ns: u64,
    /// Length of a window, ns.
    pub window_ns: u64,
    /// Length of a bin, ns.
    pub bin_ns: u64,
    /// First and last tick.
    pub span: TimelineSpan,
    /// End of the last closed bin.
    pub closed_ns: u64,
    /// Latest time of a record so far.
    pub newest_ns: u64,
    /// Some CPU's time was unknown up to this time although the ring had been emptied.
    pub waited_ns: u64,
}

impl TimelineProgress {
    /// Before the first bin, which begins at `start_ns`.
    pub(super) const fn new(plan: &Plan, bin_ns: u64, start_ns: u64) -> Self {
        Self {
            tick_ns: plan.tick_ns,
            window_ns: plan.window_ns,
            bin_ns,
            span: TimelineSpan { start_ns, stop_ns: None },
            closed_ns: start_ns,
            newest_ns: start_ns,
            waited_ns: 0,
        }
    }

    /// Whether everything up to the last tick is closed.
    pub(super) fn is_done(&self) -> bool {
        self.span.stop_ns.is_some_and(|stop| self.closed_ns >= stop)
    }

    /// The first bin that is open.
    pub(super) fn next_bin(&self) -> ClosingBin {
        let begin_ns = self.closed_ns;
        let full_end_ns = (begin_ns / self.bin_ns + 1) * self.bin_ns;
        let end_ns = self.span.stop_ns.map_or(full_end_ns, |stop| full_end_ns.min(stop));
        let is_last = self.span.stop_ns == Some(end_ns);
        ClosingBin {
            span: TimeSpan { begin_ns, end_ns },
            tick: end_ns / self.tick_ns,
            is_window_end: end_ns.is_multiple_of(self.window_ns) || is_last,
            is_last,
            transfers: None,
        }
    }

    /// What a bin that ends at `end_ns` waits for if a CPU's time is unknown. All records until
    /// `closable_ns` were fed; `emptied` says that the ring was emptied since.
    ///
    /// Time becomes a gap in two steps. If an emptied ring leaves the bin incomplete, a switch may
    /// have happened between the drain and the peek, and `waited_ns` notes the horizon. The next
    /// emptied ring holds that record. If it does not, only a CPU in the middle of a switch can
    /// still complete the bin, and that is waited for until [`GAP_NS`].
    pub(super) const fn wait_of_bin(&self, end_ns: u64, closable_ns: u64, emptied: bool) -> Wait {
        match emptied && self.waited_ns >= end_ns {
            false => Wait::ForRecords,
            true if closable_ns <= end_ns + GAP_NS => Wait::ForSwitches,
            true => Wait::Over,
        }
    }
}
