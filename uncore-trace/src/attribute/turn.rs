//! What a counter does when it is its turn.

use super::counter::Track;
use super::history::Histories;
use super::names::Names;
use super::waiting::Slot;

/// The turn of a counter.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    /// The counter.
    pub track: &'a mut Track,
    /// The use of the CPUs that it sees.
    pub histories: &'a Histories,
    /// Whether it learns.
    pub learns: bool,
    /// The last tick that it divides.
    pub to: u64,
    /// Its windows, with their ends.
    pub slots: Vec<(u64, &'a mut Slot)>,
}

impl Turn<'_> {
    /// Learns, divides the windows that are over, and of the next one the ticks up to `to`.
    pub(super) fn take(&mut self, tick_ns: u64, names: &Names) {
        let Self { track, histories, to, .. } = self;
        if self.learns {
            track.solve(histories);
        }
        for (tick, slot) in &mut self.slots {
            let Slot::Waits(span) = slot else { continue };
            let divided = track.divide(*tick, tick_ns, span, Some(histories), names);
            **slot =
                if track.counter.role.counts() { Slot::Divided(divided) } else { Slot::Nothing };
        }
        track.advance(histories, *to);
    }
}
