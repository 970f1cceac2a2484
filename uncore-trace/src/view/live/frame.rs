//! A frame: rates over the time of one update.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::schema::link::Direction;
use crate::view::sums::{Confidence, Time, Window};

/// Index of a thing, and a direction.
pub(super) type Way = (usize, Direction);

/// A process. After exec it counts as another one, as in `fabric`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Task {
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
    times: BTreeMap<Way, Time>,
    sums: HashMap<(Way, u32), (f64, Confidence)>,
    run: HashMap<Task, i64>,
}

impl OpenFrame {
    /// Adds a window of a counter, which has several rows in each.
    pub(super) fn cover(&mut self, counter: i32, way: Way, window: Window, wall_us: i64) {
        if window.end_ns > self.end_ns {
            (self.end_ns, self.wall_us) = (window.end_ns, wall_us);
        }
        self.times.entry(way).or_default().add(counter, window, &());
    }

    /// Adds an owner's share of a thing.
    pub(super) fn add(&mut self, way: Way, owner: u32, value: f64, confidence: Option<f32>) {
        let (sum, sure) = self.sums.entry((way, owner)).or_default();
        *sum += value;
        sure.add(value, confidence);
    }

    /// Adds CPU time of a process.
    pub(super) fn run(&mut self, task: Task, ns: i64) {
        *self.run.entry(task).or_default() += ns;
    }

    /// Computes the rates.
    pub(super) fn close(self) -> Closed {
        let per_second = |way: &Way| self.times.get(way)?.whole().per_second();
        let mut ways: BTreeMap<Way, Option<f64>> =
            self.times.iter().map(|(way, time)| (*way, time.has_all().then_some(0.0))).collect();
        let mut rates = Vec::with_capacity(self.sums.len());
        for ((way, owner), (value, sure)) in &self.sums {
            let Some(per_second) = per_second(way) else { continue };
            let per_s = value * per_second;
            if let Some(Some(sum)) = ways.get_mut(way) {
                *sum += per_s;
            }
            rates.push((*way, *owner, Rate { per_s, sure: *sure }));
        }
        let length_ns = self.end_ns - self.begin_ns.unwrap_or(self.end_ns);
        let cpus = |ns: i64| if length_ns > 0 { ns as f64 / length_ns as f64 } else { 0.0 };
        Closed {
            begin_ns: self.end_ns - length_ns,
            end_ns: self.end_ns,
            wall_us: self.wall_us,
            ways,
            rates,
            cpus: self.run.into_iter().map(|(task, ns)| (task, cpus(ns))).collect(),
        }
    }
}

/// Rate of an owner on a thing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rate {
    /// In the unit of the thing, per second.
    pub(super) per_s: f64,
    /// Confidence of the sum.
    pub(super) sure: Confidence,
}

/// A complete frame.
#[derive(Debug)]
pub(super) struct Closed {
    /// Begin of its first window, `CLOCK_MONOTONIC`, ns.
    pub(super) begin_ns: i64,
    /// End of its last window, `CLOCK_MONOTONIC`, ns.
    pub(super) end_ns: i64,
    /// Wall time of that end, us since 1970.
    pub(super) wall_us: i64,
    /// Total rates per second; `None` if one of the counters has no value in the frame.
    pub(super) ways: BTreeMap<Way, Option<f64>>,
    /// Rates of each owner.
    pub(super) rates: Vec<(Way, u32, Rate)>,
    /// CPUs that each process used.
    pub(super) cpus: HashMap<Task, f64>,
}
