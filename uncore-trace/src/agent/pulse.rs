//! Whether the recorder and the roll-up make progress: what the watchdog of the service manager is
//! fed by. The thread that asks is the one that sums, so a thread that hangs feeds nothing.

use std::time::{Duration, Instant};

use crate::record::Control;

/// Flushes of rows after which they are missed. One may wait for a busy disk.
const FLUSHES: u32 = 3;

/// Time that the last of them may take.
const SLACK: Duration = Duration::from_secs(5);

/// The progress of the thread that drains the ring and of the one that writes tables.
#[derive(Debug)]
pub(super) struct Pulse {
    control: Control,
    /// Number of drains at the last beat.
    drains: u64,
    /// When rows last arrived.
    rows: Instant,
    /// Time without rows after which they are missed.
    most: Duration,
}

impl Pulse {
    /// Of a recorder with this control that sends rows after each time `flush`.
    pub(super) fn new(control: Control, flush: Duration) -> Self {
        let most = flush.saturating_mul(FLUSHES).saturating_add(SLACK);
        Self { drains: control.drains(), control, rows: Instant::now(), most }
    }

    /// Rows have arrived.
    pub(super) fn rows(&mut self) {
        self.rows = Instant::now();
    }

    /// Whether the ring was drained since the last beat, and rows arrive. If so, this is a beat.
    pub(super) fn beats(&mut self) -> bool {
        let drains = self.control.drains();
        let does = drains != self.drains && self.rows.elapsed() < self.most;
        if does {
            self.drains = drains;
        }
        does
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_the_drain_and_the_rows_must_go_on() {
        let control = Control::default();
        let mut pulse = Pulse::new(control.clone(), Duration::from_secs(2));
        assert!(!pulse.beats());
        control.has_drained();
        assert!(pulse.beats());
        assert!(!pulse.beats(), "it was not drained again");
        control.has_drained();
        pulse.most = Duration::ZERO;
        assert!(!pulse.beats(), "no rows arrive");
        pulse.most = Duration::from_mins(1);
        pulse.rows();
        assert!(pulse.beats());
    }
}
