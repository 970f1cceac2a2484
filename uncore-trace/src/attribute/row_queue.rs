//! The rows of windows that all counters have divided, and of the seconds that they are in.
//!
//! A window may have more rows than are made at once, so it may be left half made: its rows are
//! made before the next entry is applied, or they would have names that came later.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cgroup_credit::CgroupCredit;
use super::counter::TrackedCounter;
use super::facts::RecordingFacts;
use super::owner_names::OwnerNames;
use super::row_budget::{self, RowLimits};
use super::rows::{RowContext, WindowRows};
use super::second_sums::{EndedSecond, SecondSums};
use super::waiting::{EndedWindow, WaitingWindows};
use super::workers;
use crate::clock::Snapshot;
use crate::schema::Builders;
use crate::schema::origin::RecordingOrigin;

/// Windows whose rows are to be made.
#[derive(Debug)]
pub(super) struct RowQueue {
    tick_ns: u64,
    wall: Snapshot,
    origin: RecordingOrigin,
    limits: RowLimits,
    /// Number of threads that make the shares of rows.
    threads: usize,
    /// The second that is not over; `None` if `sums` is not made.
    sums: Option<SecondSums>,
    /// Whether no window follows.
    is_ended: bool,
    /// Windows in which only the owners with the largest shares have rows.
    limited_windows: u64,
    /// Windows that every counter has divided, oldest first, with the shares of their rows; each
    /// second after its windows.
    ready: VecDeque<ReadyRows>,
    making: Option<WindowRows>,
}

/// What rows are made of.
#[derive(Debug)]
enum ReadyRows {
    /// Rows of `fabric`.
    Window(EndedWindow),
    /// Rows of `sums`.
    Second(EndedSecond),
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
    /// No windows yet, of a recording with so many counters.
    pub(super) fn new(facts: &RecordingFacts<'_>, counters: usize) -> Self {
        let &RecordingFacts { plan, settings, clock, origin, threads, sums: makes_sums, .. } =
            facts;
        let sums = || SecondSums::new(plan.tick_ns, plan.window_ns, counters);
        Self {
            tick_ns: plan.tick_ns,
            wall: clock,
            origin: origin.clone(),
            limits: RowLimits { min_share: settings.min_share, row_limit: settings.row_limit },
            threads,
            sums: makes_sums.then(sums),
            is_ended: false,
            limited_windows: 0,
            ready: VecDeque::new(),
            making: None,
        }
    }

    /// Whether some rows of a window are made, and others are not.
    pub(super) const fn is_within_window(&self) -> bool {
        self.making.is_some()
    }

    /// Number of windows in which only the owners with the largest shares have rows.
    pub(super) const fn limited_windows(&self) -> u64 {
        self.limited_windows
    }

    /// Ends the second in which the recording ends, after the rows of its windows.
    pub(super) const fn end_recording(&mut self) {
        self.is_ended = true;
    }

    /// Appends rows of windows that all counters have divided, until a table has `max_rows`. `true`
    /// if no such row is left.
    pub(super) fn append_rows(
        &mut self,
        source: RowSource<'_>,
        tables: &mut Builders,
        max_rows: usize,
    ) -> bool {
        let RowSource { waiting, tracks, names, credit } = source;
        loop {
            let next =
                self.making.take().or_else(|| self.next_rows(waiting, tracks, names, credit));
            let Some(mut making) = next else { return true };
            let rows =
                RowContext { tick_ns: self.tick_ns, wall: self.wall, origin: &self.origin, names };
            if !rows.append_rows(&mut making, tracks, tables, max_rows) {
                self.making = Some(making);
                return false;
            }
        }
    }

    /// The next window that all counters have divided, or the next second, before its first row.
    fn next_rows(
        &mut self,
        waiting: &mut WaitingWindows,
        tracks: &[TrackedCounter],
        names: &OwnerNames,
        credit: &mut CgroupCredit,
    ) -> Option<WindowRows> {
        if self.ready.is_empty() {
            self.prepare_rows(std::iter::from_fn(|| waiting.pop()).collect(), tracks, names);
        }
        Some(match self.ready.pop_front()? {
            ReadyRows::Window(window) => {
                credit.add_window(&window);
                WindowRows::of_window(window, tracks)
            }
            ReadyRows::Second(second) => WindowRows::of_second(second, tracks),
        })
    }

    /// Makes the shares of rows of these windows, and of the seconds that end with them.
    fn prepare_rows(
        &mut self,
        mut windows: Vec<EndedWindow>,
        tracks: &[TrackedCounter],
        names: &OwnerNames,
    ) {
        let (threads, limits) = (self.threads, self.limits);
        // Before shares are united and rounded, which an adjustment would undo.
        workers::run_jobs(threads, &mut windows, |window| {
            for adjustment in &window.adjustments {
                adjustment.adjust_window(&mut window.states, names);
            }
        });
        self.order_rows(windows);
        let sets: Vec<usize> = tracks.iter().map(|track| track.set).collect();
        let limited_windows = AtomicU64::new(0);
        workers::run_jobs(threads, self.ready.make_contiguous(), |rows| match rows {
            ReadyRows::Window(window) => {
                let is_limited = row_budget::unite_rows(window, &sets, &limits);
                limited_windows.fetch_add(u64::from(is_limited), Ordering::Relaxed);
            }
            ReadyRows::Second(second) => {
                row_budget::unite_sums(&mut second.window, &sets, limits.min_share);
            }
        });
        self.limited_windows += limited_windows.into_inner();
    }

    /// Queues windows, oldest first, and each second after its windows.
    fn order_rows(&mut self, mut windows: Vec<EndedWindow>) {
        let Some(sums) = &mut self.sums else {
            self.ready.extend(windows.into_iter().map(ReadyRows::Window));
            return;
        };
        while let Some(first) = windows.first() {
            if sums.is_over_at(first) {
                self.ready.extend(sums.take_second().map(ReadyRows::Second));
            }
            let later = windows.split_off(sums.windows_in_second(&windows));
            sums.add_windows(&windows, self.threads);
            let is_complete = windows.last().is_some_and(|last| sums.is_complete(last));
            self.ready.extend(windows.into_iter().map(ReadyRows::Window));
            if is_complete {
                self.ready.extend(sums.take_second().map(ReadyRows::Second));
            }
            windows = later;
        }
        if self.is_ended {
            self.ready.extend(sums.take_second().map(ReadyRows::Second));
        }
    }
}
