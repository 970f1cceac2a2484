//! Whether the recorder and the roll-up make progress: what the watchdog of the service manager is
//! fed by. The thread that asks is the one that sums, so a thread that hangs feeds nothing.

use std::time::{Duration, Instant};

use crate::record::RecorderControl;

/// Flushes of rows after which they are missed. One may wait for a busy disk.
const FLUSHES: u32 = 3;

/// Time that the last of them may take.
const SLACK: Duration = Duration::from_secs(5);

/// The progress of the thread that drains the ring and of the one that writes tables.
#[derive(Debug)]
pub(super) struct Pulse {
    control: RecorderControl,
    /// Number of drains at the last beat.
    drains: u64,
    /// When rows last arrived.
    rows_at: Instant,
    /// Time without rows after which they are missed.
    longest_pause: Duration,
}

impl Pulse {
    /// Of a recorder with this control that sends rows after each time `flush`.
    pub(super) fn new(control: RecorderControl, flush: Duration) -> Self {
        let longest_pause = flush.saturating_mul(FLUSHES).saturating_add(SLACK);
        Self { drains: control.drain_count(), control, rows_at: Instant::now(), longest_pause }
    }

    /// Notes that rows have arrived.
    pub(super) fn note_rows(&mut self) {
        self.rows_at = Instant::now();
    }

    /// Whether the ring was drained since the last beat, and rows arrive; if so, this is a beat.
    pub(super) fn take_beat(&mut self) -> bool {
        let drains = self.control.drain_count();
        let has_progress = drains != self.drains && self.rows_at.elapsed() < self.longest_pause;
        if has_progress {
            self.drains = drains;
        }
        has_progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_needs_progress_of_the_drain_and_of_the_rows() {
        let control = RecorderControl::default();
        let mut pulse = Pulse::new(control.clone(), Duration::from_secs(2));
        assert!(!pulse.take_beat());
        control.count_drain();
        assert!(pulse.take_beat());
        assert!(!pulse.take_beat(), "it was not drained again");
        control.count_drain();
        pulse.longest_pause = Duration::ZERO;
        assert!(!pulse.take_beat(), "no rows arrive");
        pulse.longest_pause = Duration::from_mins(1);
        pulse.note_rows();
        assert!(pulse.take_beat());
    }
}
