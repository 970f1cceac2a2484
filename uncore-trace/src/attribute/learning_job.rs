//! What a counter does at a learning tick: it solves its rates, and divides windows.

use super::counter::TrackedCounter;
use super::history::Histories;
use super::near_rates::NearRates;
use super::owner_names::OwnerNames;
use super::waiting::WindowState;

/// The work of a counter at a learning tick.
#[derive(Debug)]
pub(super) struct LearningJob<'a> {
    /// The counter.
    pub track: &'a mut TrackedCounter,
    /// The use of the CPUs that it sees.
    pub histories: &'a Histories,
    /// Whether it solves its rates.
    pub solves_rates: bool,
    /// The index of the counter.
    pub counter_index: usize,
    /// What its peers have learnt; empty if it has none.
    pub peer_rates: Vec<&'a NearRates>,
    /// What it has learnt, once it has solved its rates and if it has peers.
    pub learnt_rates: Option<NearRates>,
    /// The last tick that it divides.
    pub last_tick: u64,
    /// Its windows, with their ends.
    pub windows: Vec<(u64, &'a mut WindowState)>,
}

impl LearningJob<'_> {
    /// Learns, divides the windows that are over, and of the next one the ticks up to `last_tick`.
    pub(super) fn run_job(&mut self, tick_ns: u64, names: &OwnerNames) {
        let Self { track, histories, last_tick: divisible_tick, .. } = self;
        if self.solves_rates {
            track.solve_rates(histories, &self.peer_rates);
        }
        for (tick, state) in &mut self.windows {
            let WindowState::Undivided(undivided) = state else { continue };
            let divided = track.divide_window(*tick, tick_ns, undivided, Some(histories), names);
            **state = if track.counter.role.is_divided() {
                WindowState::Divided(divided)
            } else {
                WindowState::Nothing
            };
        }
        track.divide_ticks(histories, *divisible_tick);
        if self.solves_rates && !self.peer_rates.is_empty() {
            self.learnt_rates = Some(track.near_rates(histories));
        }
    }
}
