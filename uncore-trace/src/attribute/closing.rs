//! The end of a window.

use super::counter::TrackedCounter;
use super::learning::Learning;
use super::owner_names::OwnerNames;
use super::span::{Close, WindowEnd};
use super::stage::DivisionStage;
use super::usage::OwnerTimes;
use super::waiting::{EndedWindow, WindowState};
use crate::entries::MissingCount;

/// What closing a window needs and changes.
#[derive(Debug)]
pub(super) struct WindowClosing<'a> {
    /// The counters.
    pub tracks: &'a mut [TrackedCounter],
    /// The stages around the division.
    pub stages: &'a mut [Box<dyn DivisionStage>],
    /// What the counters learn from.
    pub learning: &'a mut Learning,
    /// The names of owners.
    pub names: &'a OwnerNames,
    /// Counts that are missing are added here.
    pub missing: &'a mut Vec<MissingCount>,
}

impl WindowClosing<'_> {
    /// Closes a window with the time that owners used, for each set of CPUs. Counters whose methods
    /// do not wait divide it now.
    pub(super) fn close_window(&mut self, window: &Close<'_>, times: &OwnerTimes) -> EndedWindow {
        // All counters end their windows first: a stage compares the counts of several of them.
        let mut window_ends = Vec::with_capacity(self.tracks.len());
        for track in self.tracks.iter_mut() {
            let end = match times.get(track.set) {
                Some(time) => track.close_window(window, time, self.missing),
                None => WindowEnd::No,
            };
            window_ends.push(end);
        }
        // Stages come before any division, because a method divides by the bytes that they leave a
        // counter, and the shares get the adjustments that the stages have added to the window.
        let mut adjustments = Vec::new();
        for stage in self.stages.iter_mut() {
            adjustments.extend(stage.close_window(window.tick, self.tracks, &mut window_ends));
        }
        let mut states: Vec<WindowState> =
            self.tracks.iter().map(|_| WindowState::Nothing).collect();
        let (port_ends, other_ends): (Vec<_>, Vec<_>) = window_ends
            .into_iter()
            .enumerate()
            .partition(|(index, _)| self.tracks[*index].counter.is_port());
        // Counters of devices do not learn, and those of memory give what devices moved to those
        // who have their shares.
        let (device_ends, other_ends): (Vec<_>, Vec<_>) =
            other_ends.into_iter().partition(|(index, _)| !self.tracks[*index].learns);
        for (index, end) in device_ends {
            states[index] = self.end_state(index, end, window);
        }
        // Ports come first: the other counters are divided by what the ports have divided. With a
        // lag, both wait, and `Learning::learn_and_divide` has the same order.
        for (index, end) in port_ends {
            states[index] = self.end_state(index, end, window);
        }
        if !self.learning.has_lag() {
            self.learning.divide_ports(window.tick, self.tracks);
        }
        for (index, end) in other_ends {
            states[index] = self.end_state(index, end, window);
        }
        EndedWindow { tick: window.tick, length_ns: window.length_ns, states, adjustments }
    }

    /// The state of a counter whose window has ended so: divided, unless it waits.
    fn end_state(&mut self, index: usize, end: WindowEnd, window: &Close<'_>) -> WindowState {
        let track = &mut self.tracks[index];
        let (counts, is_port) = (track.counter.role.is_divided(), track.counter.is_port());
        match end {
            WindowEnd::Unread if counts => WindowState::Divided(track.unread_window(window)),
            WindowEnd::No | WindowEnd::Unread => WindowState::Nothing,
            WindowEnd::Read(_) if !counts && !is_port => WindowState::Nothing,
            WindowEnd::Read(span) if track.learns && self.learning.has_lag() => {
                WindowState::Waits(Box::new(span))
            }
            WindowEnd::Read(span) => {
                let histories = self.learning.histories_of(track.set);
                let Close { tick, tick_ns, .. } = *window;
                let divided = track.divide_window(tick, tick_ns, &span, histories, self.names);
                self.learning.note_port_confidence(index, track);
                self.learning.note_device_shares(index, &divided);
                if counts { WindowState::Divided(divided) } else { WindowState::Nothing }
            }
        }
    }
}
