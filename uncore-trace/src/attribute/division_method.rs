//! What a method of attribution does: it learns from ticks, and divides one window of one counter
//! among owners.

use super::history::Histories;
use super::learner::DividedCount;
use super::measured_part::MeasuredPart;
use super::method::Method;
use super::misfit::Misfit;
use super::near_rates::NearRates;
use super::predictor::Predictor;
use super::share::Share;
use super::sibling_cost::ContrastSums;
use crate::entries::{Owner, Relief};

/// What a method divides: the scaled count of a window, and the use of its CPUs and devices.
#[derive(Clone, Copy, Debug)]
pub struct DivisionInput<'a> {
    /// The count in its unit, scaled for multiplexing; above 0.
    pub total: f64,
    /// Factor from a raw count to the unit, including the correction for multiplexing.
    pub factor: f64,
    /// The part of the window in which the counter ran, 0 to 1.
    pub running: f32,
    /// Whether the counter sees one CPU only.
    pub sees_one_cpu: bool,
    /// Length, ns.
    pub len_ns: u64,
    /// The tick at which it ends.
    pub end_tick: u64,
    /// Nanoseconds by owner on the CPUs that it sees, sorted.
    pub time: &'a [(Owner, u64)],
    /// Raw counts by owner, sorted, if it is read at every context switch; context switches, if it
    /// counts these.
    pub counts: &'a [(Owner, u64)],
    /// Bytes by owner on the devices below the counter's root ports, in its direction, sorted;
    /// `None` if I/O is not recorded.
    pub io: Option<&'a [(Owner, f64)]>,
    /// The use in each of its ticks; `None` if no counter of these CPUs learns from ticks.
    pub histories: Option<&'a Histories>,
}

impl DivisionInput<'_> {
    /// The raw count, scaled for multiplexing.
    pub(super) fn raw_count(&self) -> u64 {
        (self.total / self.factor).round() as u64
    }

    /// The tick at which it begins.
    pub(super) fn begin_tick(&self, tick_ns: u64) -> u64 {
        self.end_tick.saturating_sub(self.len_ns / tick_ns)
    }
}

/// A method, with what it has learnt about one counter.
pub trait DivisionMethod: std::fmt::Debug + Send {
    /// Adds the count of a tick; `None` if there is no reading at its end, so that the next count
    /// covers both. Ticks come in order.
    fn observe_tick(&mut self, _tick: u64, _count: Option<f64>, _histories: &Histories) {}

    /// Notes that the counter was restarted: its next count covers time in which it did not count.
    fn note_restart(&mut self) {}

    /// Learns the ticks since the last review.
    fn learn_ticks(&mut self, _histories: &Histories) {}

    /// Its rates for a predictor, by slot, in any unit.
    fn rate_profile(&self, _predictor: Predictor) -> Option<Vec<f64>> {
        None
    }

    /// The residuals and contrasts of the ticks that it has learnt since the last call: what they
    /// say of busy sibling threads ([`super::sibling_cost`]).
    fn take_contrasts(&mut self) -> Option<ContrastSums> {
        None
    }

    /// What the ticks say against the model by which it divides.
    fn misfits(&self) -> Vec<Misfit> {
        Vec::new()
    }

    /// Solves the rates from the ticks so far. `_peer_rates` are those that counters of other
    /// sockets have learnt of time on CPUs near to them.
    fn solve_rates(&mut self, _histories: &Histories, _peer_rates: &[&NearRates]) {}

    /// The learnt rates of time on near CPUs.
    fn near_rates(&self, _histories: &Histories) -> NearRates {
        NearRates::default()
    }

    /// Sets what is left out from now on.
    fn set_relief(&mut self, _relief: Relief) {}

    /// Divides ticks up to `_last_tick` by the current rates, for a window that began earlier and
    /// is not over. The use of these ticks may be forgotten then.
    fn divide_ticks(&mut self, _histories: &Histories, _begin_tick: u64, _last_tick: u64) {}

    /// The counts of ticks that it divided since the last call, if it is a port.
    fn take_divided_counts(&mut self) -> Vec<DividedCount> {
        Vec::new()
    }

    /// The oldest tick whose history is still needed.
    fn oldest_needed_tick(&self) -> u64 {
        u64::MAX
    }

    /// Notes what was measured of the next window, to learn from it.
    fn note_measured(&mut self, _parts: Vec<MeasuredPart>) {}

    /// Skips a window that ends at this tick and has nothing to divide.
    fn skip_window(&mut self, _histories: Option<&Histories>, _end_tick: u64) {}

    /// Divides the next window. The shares sum to its total, and none is negative.
    fn divide_window(&mut self, window: &DivisionInput<'_>) -> (Method, Vec<Share>);
}
