//! A frame: rates over the time of one update.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::schema::link::Direction;
use crate::view::sums::{Confidence, CountedTime, Window};

/// Index of a thing, and a direction.
pub(super) type Way = (usize, Direction);

/// All directions of a thing.
pub(super) const fn ways_of(thing: usize) -> RangeInclusive<Way> {
    (thing, Direction::In)..=(thing, Direction::Both)
}

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
    ways: BTreeMap<Way, OpenWay>,
    run: HashMap<Task, i64>,
}

/// The sums of a thing in one direction.
#[derive(Debug, Default)]
struct OpenWay {
    time: CountedTime,
    /// By owner.
    sums: HashMap<u32, (f64, Confidence), RandomState>,
}

impl OpenFrame {
    /// Adds a window of a counter, which has several rows in each.
    pub(super) fn cover(&mut self, counter: i32, way: Way, window: Window, wall_us: i64) {
        if window.end_ns > self.end_ns {
            (self.end_ns, self.wall_us) = (window.end_ns, wall_us);
        }
        self.ways.entry(way).or_default().time.add_window(counter, window, &());
    }

    /// Adds an owner's share of a thing.
    pub(super) fn add(&mut self, way: Way, owner: u32, value: f64, confidence: Option<f32>) {
        let sums = &mut self.ways.entry(way).or_default().sums;
        let (sum, sure) = sums.entry(owner).or_default();
        *sum += value;
        sure.add_row(value, confidence);
    }

    /// Adds CPU time of a process.
    pub(super) fn run(&mut self, task: Task, ns: i64) {
        *self.run.entry(task).or_default() += ns;
    }

    /// Computes the rates.
    pub(super) fn close(self) -> Closed {
        let (mut ways, mut rates) = (BTreeMap::new(), BTreeMap::new());
        let mut sure = BTreeMap::new();
        for (way, OpenWay { time, sums }) in self.ways {
            let mut total = time.has_all().then_some(0.0);
            if let Some(per_second) = time.whole_time().per_second() {
                let mut sums: Vec<_> = sums.into_iter().collect();
                sums.sort_unstable_by_key(|(owner, _)| *owner);
                let of: Vec<(u32, f64)> =
                    sums.iter().map(|(owner, (value, _))| (*owner, value * per_second)).collect();
                total = total.map(|_| of.iter().map(|(_, per_s)| per_s).sum());
                rates.insert(way, of);
                sure.insert(way, sums.into_iter().map(|(_, (_, sure))| sure).collect());
            }
            ways.insert(way, total);
        }
        let length_ns = self.end_ns - self.begin_ns.unwrap_or(self.end_ns);
        let cpus = |ns: i64| if length_ns > 0 { ns as f64 / length_ns as f64 } else { 0.0 };
        Closed {
            begin_ns: self.end_ns - length_ns,
            end_ns: self.end_ns,
            wall_us: self.wall_us,
            ways,
            rates,
            sure,
            cpus: self.run.into_iter().map(|(task, ns)| (task, cpus(ns))).collect(),
        }
    }
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
    /// By owner, rates in the unit of the thing, per second.
    pub(super) rates: BTreeMap<Way, Vec<(u32, f64)>>,
    /// The confidences of these sums, in the same order; only of the last frame.
    pub(super) sure: BTreeMap<Way, Vec<Confidence>>,
    /// CPUs that each process used; only of the last frame.
    pub(super) cpus: HashMap<Task, f64>,
}

impl Closed {
    /// Another frame is the last: forgets what is shown of that one only.
    pub(super) fn end(&mut self) {
        self.sure = BTreeMap::new();
        self.cpus = HashMap::new();
    }
}
