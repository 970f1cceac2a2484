//! A stage around the division: what is known beside the counters changes windows before their
//! counters' methods divide them, and the shares afterwards.
//!
//! The attributor knows this interface only. It calls the stages in the order of
//! [`super::stages`]; within a tick, the calls come in the order of the functions of
//! [`DivisionStage`].

use std::fmt::Debug;

use super::counter::TrackedCounter;
use super::waiting::{WindowAdjustment, WindowState};
use crate::entries::LogEntry;
use crate::plan::Plan;

/// What a stage is made from.
#[derive(Debug)]
pub(super) struct StageSetup<'a> {
    /// The plan of the recording.
    pub plan: &'a Plan,
    /// Its counters, before their first reading.
    pub tracks: &'a mut [TrackedCounter],
    /// The tick at which the recording begins.
    pub start_tick: u64,
}

/// A stage around the division.
pub(super) trait DivisionStage: Debug {
    /// Takes an entry of the current tick, of any kind, before the attributor does. A stage that
    /// needs ticks uses [`Self::end_tick`], which comes once all entries of the tick were applied.
    fn take_entry(&mut self, _entry: LogEntry<'_>) {}

    /// Whether it must see the end of each tick.
    fn needs_ticks(&self) -> bool {
        false
    }

    /// Ends a tick, all of whose entries were taken. Counts up to it may be known later.
    fn end_tick(&mut self, _tick: u64, _tracks: &[TrackedCounter]) {}

    /// Uses the counts of the ticks since the last call: the counters have applied their readings
    /// up to the last of these ticks, and no window has been closed since.
    fn use_tick_counts(&mut self, _tracks: &mut [TrackedCounter]) {}

    /// Changes the windows that end at `tick`, one for each counter, before they are divided, and
    /// adds to them how their shares are to be adjusted. Returns what is to be changed when all
    /// counters have divided their windows.
    fn close_window(
        &mut self,
        tick: u64,
        tracks: &[TrackedCounter],
        states: &mut [WindowState],
    ) -> Option<Box<dyn WindowAdjustment>>;
}
