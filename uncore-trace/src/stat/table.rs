//! All rows of a plan: events, metrics, and the time.

use super::aggregate::{Grouping, SummedCounters};
use super::count::Lap;
use super::metrics::{self, MetricLine};
use super::row::{CgroupShare, Counted, Location, Row, Value};
use crate::catalog::Catalog;
use crate::discover::Cpus;
use crate::plan::Plan;

/// Which rows there are, and how they are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct What {
    /// Whether counts are scaled up to the time enabled.
    pub scale: bool,
    /// Whether there is a row for the time counted, `duration_time` in perf.
    pub duration: bool,
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
        let time = self.duration(lap.counted_ns, None);
        let metrics = self.metrics.iter().map(|line| line.row(self.plan, lap, scale));
        events.chain(time).chain(metrics).collect()
    }

    /// The row `duration_time`, if it was selected.
    pub fn duration(&self, counted_ns: u64, part: Option<CgroupShare>) -> Option<Row> {
        if !self.what.duration {
            return None;
        }
        let first = self.lines.first().map(|line| line.place);
        let first = first.or_else(|| self.metrics.first().map(|line| line.place));
        Some(Row {
            place: first.unwrap_or(Location::Machine),
            members: 1,
            label: "duration_time".to_owned(),
            part,
            value: Value::Number(counted_ns as f64),
            unit: "ns".to_owned(),
            counted: Some(Counted { running_ns: counted_ns, running: 1.0, integral: true }),
            rate: None,
            noise: None,
        })
    }
}
