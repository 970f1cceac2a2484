//! The end of a window.
//!
//! What a window is on the way from the log to its rows:
//!
//! | type | what it has |
//! |---|---|
//! | [`ClosingWindow`] | what the log says of a window that ends, for all counters |
//! | [`SeriesCount`](super::series::SeriesCount) | one counter: the count that its readings give the window, or why they give none |
//! | [`UndividedWindow`](super::windows::UndividedWindow) | one counter: that count, with the use of its CPUs and devices; stages change it |
//! | [`DivisionInput`](super::division_method::DivisionInput) | the same, scaled, as a method gets it |
//! | [`DividedWindow`](super::windows::DividedWindow) | one counter: the shares |
//! | [`EndedWindow`] | all counters, each with its [`WindowState`]: undivided while it waits for later ticks, then divided |
//!
//! `attribute/rows.rs` makes rows of `fabric` of the shares, `tables::thread` writes them, and
//! `view::key` reads them for the answers.

use super::counter::TrackedCounter;
use super::learning::Learning;
use super::owner_names::OwnerNames;
use super::stage::DivisionStage;
use super::usage::OwnerTimes;
use super::waiting::{EndedWindow, WindowState};
use super::windows::ClosingWindow;
use crate::entries::MissingCount;

/// What closing a window needs and changes.
#[derive(Debug)]
pub(super) struct WindowCloser<'a> {
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

impl WindowCloser<'_> {
    /// Closes a window with the time that owners used, for each set of CPUs. Counters whose methods
    /// do not wait divide it now.
    pub(super) fn close_window(
        &mut self,
        window: &ClosingWindow<'_>,
        times: &OwnerTimes,
    ) -> EndedWindow {
        // All counters end their windows first: a stage compares the counts of several of them.
        let mut states = Vec::with_capacity(self.tracks.len());
        for track in self.tracks.iter_mut() {
            let state = match times.get(track.set) {
                Some(time) => track.close_window(window, time, self.missing),
                None => WindowState::Nothing,
            };
            states.push(state);
        }
        // Stages come before any division, because a method divides by the bytes that they leave a
        // counter, and the shares get the adjustments that the stages have added to the window.
        let mut adjustments = Vec::new();
        for stage in self.stages.iter_mut() {
            adjustments.extend(stage.close_window(window.tick, self.tracks, &mut states));
        }
        let (ports, others): (Vec<usize>, Vec<usize>) =
            (0..states.len()).partition(|index| self.tracks[*index].counter.is_port());
        // Counters of devices do not learn, and those of memory give what devices moved to those
        // who have their shares.
        let (learners, devices): (Vec<usize>, Vec<usize>) =
            others.into_iter().partition(|index| self.tracks[*index].learns);
        // Ports come before the other learners, which are divided by what the ports have divided.
        // With a lag, both wait, and `Learning::learn_and_divide` has the same order.
        for index in devices.into_iter().chain(ports) {
            self.divide_unless_waiting(index, &mut states[index], window);
        }
        if !self.learning.has_lag() {
            self.learning.divide_ports(window.tick, self.tracks);
        }
        for index in learners {
            self.divide_unless_waiting(index, &mut states[index], window);
        }
        EndedWindow { tick: window.tick, length_ns: window.length_ns, states, adjustments }
    }

    /// Divides the window of a counter, unless it waits for later ticks.
    fn divide_unless_waiting(
        &mut self,
        index: usize,
        state: &mut WindowState,
        window: &ClosingWindow<'_>,
    ) {
        let WindowState::Undivided(undivided) = state else { return };
        let track = &mut self.tracks[index];
        let (has_rows, is_port) = (track.counter.role.is_divided(), track.counter.is_port());
        let waits = track.learns && self.learning.has_lag();
        if !has_rows && !is_port {
            *state = WindowState::Nothing;
        } else if !waits {
            let histories = self.learning.histories_of(track.set);
            let ClosingWindow { tick, tick_ns, .. } = *window;
            let divided = track.divide_window(tick, tick_ns, undivided, histories, self.names);
            self.learning.note_port_confidence(index, track);
            self.learning.note_device_shares(index, &divided);
            *state = if has_rows { WindowState::Divided(divided) } else { WindowState::Nothing };
        }
    }
}
