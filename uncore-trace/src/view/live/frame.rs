//! A frame: rates over the time of one update.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::schema::link::Direction;
use crate::view::sums::{Confidence, CountedTime, Window};

/// Index of a link or event, and a direction.
pub(super) type WatchedDirection = (usize, Direction);

/// All directions of a link or event.
pub(super) const fn directions_of(watched_index: usize) -> RangeInclusive<WatchedDirection> {
    (watched_index, Direction::In)..=(watched_index, Direction::Both)
}

/// A process. After exec it counts as another one, as in `fabric`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LiveTask {
    pub(super) pid: i32,
    pub(super) cgroup_id: Option<u64>,
    pub(super) name: Arc<str>,
}

/// A frame to which rows are added.
#[derive(Debug, Default)]
pub(super) struct OpenFrame {
    /// Begin of its first window, `CLOCK_MONOTONIC`, ns.
    pub(super) begin_ns: Option<i64>,
    /// End of its last window, `CLOCK_MONOTONIC`, ns.
    pub(super) end_ns: i64,
    /// Wall time of that end, us since 1970.
    pub(super) wall_us: i64,
    open_directions: BTreeMap<WatchedDirection, OpenDirection>,
    /// CPU time of processes, ns.
    pub(super) run_ns: HashMap<LiveTask, i64>,
}

/// The sums of a link or event in one direction.
#[derive(Debug, Default)]
struct OpenDirection {
    time: CountedTime,
    /// By owner.
    sums: HashMap<u32, (f64, Confidence), RandomState>,
}

impl OpenFrame {
    /// Adds a window of a counter, which has several rows in each.
    pub(super) fn add_window(
        &mut self,
        counter: i32,
        direction: WatchedDirection,
        window: Window,
        wall_us: i64,
    ) {
        if window.end_ns > self.end_ns {
            (self.end_ns, self.wall_us) = (window.end_ns, wall_us);
        }
        self.open_directions.entry(direction).or_default().time.add_window(counter, window, &());
    }

    /// Adds an owner's share of a thing.
    pub(super) fn add_share(
        &mut self,
        direction: WatchedDirection,
        owner: u32,
        value: f64,
        confidence: Option<f32>,
    ) {
        let sums = &mut self.open_directions.entry(direction).or_default().sums;
        let (sum, confidence_sum) = sums.entry(owner).or_default();
        *sum += value;
        confidence_sum.add_row(value, confidence);
    }

    /// Computes the rates.
    pub(super) fn close_frame(self) -> ClosedFrame {
        let (mut direction_rates, mut rates) = (BTreeMap::new(), BTreeMap::new());
        let mut confidences = BTreeMap::new();
        for (direction, OpenDirection { time, sums }) in self.open_directions {
            let mut total = time.has_all().then_some(0.0);
            if let Some(per_second) = time.whole.per_second() {
                let mut sums: Vec<_> = sums.into_iter().collect();
                sums.sort_unstable_by_key(|(owner, _)| *owner);
                let owner_rates: Vec<(u32, f64)> =
                    sums.iter().map(|(owner, (value, _))| (*owner, value * per_second)).collect();
                total = total.map(|_| owner_rates.iter().map(|(_, per_s)| per_s).sum());
                rates.insert(direction, owner_rates);
                confidences.insert(
                    direction,
                    sums.into_iter().map(|(_, (_, confidence_sum))| confidence_sum).collect(),
                );
            }
            direction_rates.insert(direction, total);
        }
        let length_ns = self.end_ns - self.begin_ns.unwrap_or(self.end_ns);
        let cpus = |ns: i64| if length_ns > 0 { ns as f64 / length_ns as f64 } else { 0.0 };
        ClosedFrame {
            begin_ns: self.end_ns - length_ns,
            end_ns: self.end_ns,
            wall_us: self.wall_us,
            direction_rates,
            rates,
            confidences,
            cpus: self.run_ns.into_iter().map(|(task, ns)| (task, cpus(ns))).collect(),
        }
    }
}

/// A complete frame.
#[derive(Debug)]
pub(super) struct ClosedFrame {
    /// Begin of its first window, `CLOCK_MONOTONIC`, ns.
    pub(super) begin_ns: i64,
    /// End of its last window, `CLOCK_MONOTONIC`, ns.
    pub(super) end_ns: i64,
    /// Wall time of that end, us since 1970.
    pub(super) wall_us: i64,
    /// Total rates per second; `None` if one of the counters has no value in the frame.
    pub(super) direction_rates: BTreeMap<WatchedDirection, Option<f64>>,
    /// By owner, rates in the unit of the link or event, per second.
    pub(super) rates: BTreeMap<WatchedDirection, Vec<(u32, f64)>>,
    /// The confidences of these sums, in the same order; only of the last frame.
    pub(super) confidences: BTreeMap<WatchedDirection, Vec<Confidence>>,
    /// CPUs that each process used; only of the last frame.
    pub(super) cpus: HashMap<LiveTask, f64>,
}
