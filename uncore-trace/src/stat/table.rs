//! All rows of a plan: events, metrics, and times.

use std::time::Duration;

use super::aggregate::{Grouping, SummedCounters};
use super::count::Lap;
use super::metrics::{self, MetricLine};
use super::row::{CgroupShare, Counted, Location, Row, Value};
use crate::catalog::Catalog;
use crate::discover::Cpus;
use crate::plan::Plan;
use crate::plan::bare::{DURATION, SYSTEM, USER};
use crate::workload::CpuTime;

/// Which times have a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The time counted, `duration_time`.
    pub duration: bool,
    /// The command's time in user space, `user_time`.
    pub user: bool,
    /// The command's time in the kernel, `system_time`.
    pub system: bool,
}

/// Which rows there are, and how they are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct What {
    /// Whether counts are scaled up to the time enabled.
    pub scale: bool,
    /// The rows of times.
    pub times: Times,
    /// Whether there are rows for events.
    pub events: bool,
}

/// The rows of a plan, with the same lines in the same order for every lap.
#[derive(Debug)]
pub struct Table<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Lines of events.
    pub lines: Vec<SummedCounters>,
    /// Lines of metrics.
    pub metrics: Vec<MetricLine>,
    what: What,
}

impl<'a> Table<'a> {
    /// Groups the counters and metrics of `plan` to lines.
    pub fn new(
        plan: &'a Plan,
        catalog: &Catalog,
        cpus: &Cpus,
        grouping: &Grouping,
        what: What,
    ) -> Self {
        let lines = if what.events { grouping.lines(plan, cpus, catalog) } else { Vec::new() };
        Self { plan, lines, metrics: metrics::lines(plan, cpus, grouping), what }
    }

    /// The rows for a lap.
    pub fn rows(&self, lap: &Lap) -> Vec<Row> {
        let scale = self.what.scale;
        let events = self.lines.iter().map(|line| line.row(self.plan, lap, scale));
        let times = self.times(lap.counted_ns, lap.used, None);
        let metrics = self.metrics.iter().map(|line| line.row(self.plan, lap, scale));
        events.chain(times).chain(metrics).collect()
    }

    /// The rows of the times that were selected. The time of the command is not counted before it
    /// has ended.
    pub fn times(
        &self,
        counted_ns: u64,
        used: Option<CpuTime>,
        part: Option<&CgroupShare>,
    ) -> Vec<Row> {
        let first = self.lines.first().map(|line| line.place);
        let first = first.or_else(|| self.metrics.first().map(|line| line.place));
        let row = |label: &str, ns: Option<u64>| Row {
            place: first.unwrap_or(Location::Machine),
            members: 1,
            label: label.to_owned(),
            part: part.cloned(),
            value: ns.map_or(Value::NotCounted, |ns| Value::Number(ns as f64)),
            unit: "ns".to_owned(),
            counted: Some(Counted {
                running_ns: ns.unwrap_or_default(),
                running: 1.0,
                integral: true,
            }),
            rate: None,
            noise: None,
        };
        let Times { duration, user, system } = self.what.times;
        let ns = |time: fn(CpuTime) -> Duration| used.map(|used| time(used).as_nanos() as u64);
        let rows = [
            duration.then(|| row(DURATION, Some(counted_ns))),
            user.then(|| row(USER, ns(|used| used.user))),
            system.then(|| row(SYSTEM, ns(|used| used.system))),
        ];
        rows.into_iter().flatten().collect()
    }
}
