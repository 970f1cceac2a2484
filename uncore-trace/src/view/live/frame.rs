//! A frame: the rates of one stretch of time.

use std::collections::{BTreeMap, HashMap};

use crate::schema::link::Direction;

/// A thing and a direction of it.
pub(super) type Way = (usize, Direction);

/// A process: its id and its cgroup.
pub(super) type Task = (i32, Option<u64>);

/// What an owner has of a counter.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    value: f64,
    /// Confidence x value of the rows that claim one, and their value.
    sure: f64,
    claimed: f64,
}

/// The time of a counter.
#[derive(Debug, Clone, Copy)]
struct Cover {
    way: Way,
    known_ns: i64,
    /// Time of windows without a value.
    unknown_ns: i64,
    /// The last window that was added.
    last: i64,
}

/// A frame that rows are added to.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// Begin of its first window, `CLOCK_MONOTONIC` ns.
    pub(super) begin_ns: Option<i64>,
    /// End of its last.
    pub(super) end_ns: i64,
    covers: BTreeMap<i32, Cover>,
    sums: HashMap<(i32, u32), Sum>,
    run: HashMap<Task, i64>,
}

impl Open {
    /// Adds a counter's window; a counter has several rows in each.
    pub(super) fn cover(
        &mut self,
        counter: i32,
        way: Way,
        end_ns: i64,
        length_ns: i64,
        value: Option<f64>,
    ) {
        self.end_ns = self.end_ns.max(end_ns);
        let new = Cover { way, known_ns: 0, unknown_ns: 0, last: i64::MIN };
        let cover = self.covers.entry(counter).or_insert(new);
        if std::mem::replace(&mut cover.last, end_ns) == end_ns {
            return;
        }
        match value {
            Some(_) => cover.known_ns += length_ns,
            None => cover.unknown_ns += length_ns,
        }
    }

    /// Adds an owner's part of a counter.
    pub(super) fn add(&mut self, counter: i32, owner: u32, value: f64, confidence: Option<f32>) {
        let sum = self.sums.entry((counter, owner)).or_default();
        sum.value += value;
        if let Some(confidence) = confidence {
            sum.sure += f64::from(confidence) * value;
            sum.claimed += value;
        }
    }

    /// Adds CPU time of a process.
    pub(super) fn run(&mut self, task: Task, ns: i64) {
        *self.run.entry(task).or_default() += ns;
    }

    /// The rates.
    pub(super) fn close(self) -> Closed {
        let mut rates: HashMap<(Way, u32), Rate> = HashMap::new();
        for ((counter, owner), sum) in self.sums {
            let Some(cover) = self.covers.get(&counter).filter(|cover| cover.known_ns > 0) else {
                continue;
            };
            let per_s = 1e9 / cover.known_ns as f64;
            let rate = rates.entry((cover.way, owner)).or_default();
            rate.per_s += sum.value * per_s;
            rate.sure += sum.sure * per_s;
            rate.claimed += sum.claimed * per_s;
        }
        let mut ways: BTreeMap<Way, Option<f64>> = BTreeMap::new();
        for cover in self.covers.values() {
            let way = ways.entry(cover.way).or_insert(Some(0.0));
            if cover.known_ns == 0 {
                *way = None;
            }
        }
        for ((way, _), rate) in &rates {
            if let Some(Some(sum)) = ways.get_mut(way) {
                *sum += rate.per_s;
            }
        }
        let length_ns = self.end_ns - self.begin_ns.unwrap_or(self.end_ns);
        let cpus = |ns: i64| if length_ns > 0 { ns as f64 / length_ns as f64 } else { 0.0 };
        Closed {
            end_ns: self.end_ns,
            ways,
            rates: rates.into_iter().map(|((way, owner), rate)| (way, owner, rate)).collect(),
            cpus: self.run.into_iter().map(|(task, ns)| (task, cpus(ns))).collect(),
        }
    }
}

/// What an owner has of a thing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rate {
    /// In the thing's unit a second.
    pub(super) per_s: f64,
    /// Confidence x rate of what claims a confidence, and the rate of that.
    pub(super) sure: f64,
    pub(super) claimed: f64,
}

/// A frame that is complete.
#[derive(Debug)]
pub(super) struct Closed {
    /// End of its last window, `CLOCK_MONOTONIC` ns.
    pub(super) end_ns: i64,
    /// What was counted, a second; none where a counter of it has no value in the frame.
    pub(super) ways: BTreeMap<Way, Option<f64>>,
    /// Of each owner.
    pub(super) rates: Vec<(Way, u32, Rate)>,
    /// CPUs that each process used.
    pub(super) cpus: HashMap<Task, f64>,
}
