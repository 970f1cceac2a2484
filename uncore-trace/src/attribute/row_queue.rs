//! The rows of windows that all counters have divided.
//!
//! A window may have more rows than are made at once, so it may be left half made: its rows are
//! made before the next entry is applied, or they would have names that came later.

use std::collections::{BTreeMap, VecDeque};

use super::cgroup_credit::CgroupCredit;
use super::counter::TrackedCounter;
use super::owner_names::OwnerNames;
use super::rows::{RowContext, WindowRows};
use super::small_shares::LargeOwners;
use super::waiting::{EndedWindow, WaitingWindows, WindowState};
use super::workers;
use crate::clock::Snapshot;
use crate::schema::fabric;
use crate::schema::origin::RecordingOrigin;

/// Windows whose rows are to be made.
#[derive(Debug)]
pub(super) struct RowQueue {
    tick_ns: u64,
    wall: Snapshot,
    origin: RecordingOrigin,
    /// The smallest share of a process, as a fraction of a window's total.
    min_share: f64,
    /// Number of threads that make the shares of rows.
    threads: usize,
    /// Windows that every counter has divided, oldest first, with the shares of their rows.
    ready: VecDeque<EndedWindow>,
    making: Option<WindowRows>,
}

/// Where windows come from, and what their rows say.
#[derive(Debug)]
pub(super) struct RowSource<'a> {
    /// The windows that wait.
    pub waiting: &'a mut WaitingWindows,
    /// The counters.
    pub tracks: &'a [TrackedCounter],
    /// The names of owners.
    pub names: &'a OwnerNames,
    /// Credited with the shares of each window.
    pub credit: &'a mut CgroupCredit,
}

impl RowQueue {
    /// No windows, of a recording with ticks of `tick_ns`.
    pub(super) const fn new(
        tick_ns: u64,
        wall: Snapshot,
        origin: RecordingOrigin,
        min_share: f64,
        threads: usize,
    ) -> Self {
        Self { tick_ns, wall, origin, min_share, threads, ready: VecDeque::new(), making: None }
    }

    /// Whether some rows of a window are made, and others are not.
    pub(super) const fn is_within_window(&self) -> bool {
        self.making.is_some()
    }

    /// Appends rows of windows that all counters have divided, until `fabric` has `max_rows`.
    /// `true` if no such row is left.
    pub(super) fn append_rows(
        &mut self,
        source: RowSource<'_>,
        fabric: &mut fabric::Builder,
        max_rows: usize,
    ) -> bool {
        let RowSource { waiting, tracks, names, credit } = source;
        loop {
            let next =
                self.making.take().or_else(|| self.next_window(waiting, tracks, names, credit));
            let Some(mut making) = next else { return true };
            let rows =
                RowContext { tick_ns: self.tick_ns, wall: self.wall, origin: &self.origin, names };
            if !rows.append_rows(&mut making, tracks, fabric, max_rows) {
                self.making = Some(making);
                return false;
            }
        }
    }

    /// The next window that all counters have divided, before its first row.
    fn next_window(
        &mut self,
        waiting: &mut WaitingWindows,
        tracks: &[TrackedCounter],
        names: &OwnerNames,
        credit: &mut CgroupCredit,
    ) -> Option<WindowRows> {
        if self.ready.is_empty() {
            self.ready.extend(std::iter::from_fn(|| waiting.pop()));
            let windows = self.ready.make_contiguous();
            let sets: Vec<usize> = tracks.iter().map(|track| track.set).collect();
            let min_share = self.min_share;
            workers::run_jobs(self.threads, windows, |window| {
                // Before shares are united and rounded, which an adjustment would undo.
                for adjustment in &window.adjustments {
                    adjustment.adjust_window(&mut window.states, names);
                }
                finish_shares(window, &sets, min_share);
            });
        }
        let window = self.ready.pop_front()?;
        credit.add_window(&window);
        Some(WindowRows::new(window, tracks))
    }
}

/// Makes the shares of a window what its rows say: unites shares below `min_share` of the total, and
/// rounds. `sets` has the set of CPUs of each counter.
fn finish_shares(window: &mut EndedWindow, sets: &[usize], min_share: f64) {
    let mut large: BTreeMap<usize, LargeOwners> = BTreeMap::new();
    for (set, state) in sets.iter().zip(&window.states) {
        if let WindowState::Divided(divided) = state
            && min_share > 0.0
            && divided.is_estimate()
        {
            let total = divided.total.unwrap_or_default();
            large.entry(*set).or_default().add_counter(total, min_share, &divided.shares);
        }
    }
    for (set, state) in sets.iter().zip(&mut window.states) {
        if let WindowState::Divided(divided) = state {
            divided.finish_shares(large.get(set));
        }
    }
}
