//! All rows of a plan: events, metrics, and times.

use std::time::Duration;

use super::aggregate::{Grouping, SummedCounters};
use super::count::Lap;
use super::metrics::{self, MetricLine};
use super::row::{CgroupShare, CounterFields, Location, RowValue, StatRow};
use crate::catalog::Catalog;
use crate::discover::Cpus;
use crate::plan::Plan;
use crate::plan::builtin_events::{DURATION, SYSTEM, USER};
use crate::workload::CommandCpuTime;

/// Which times have a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeRows {
    /// The time counted, `duration_time`.
    pub duration: bool,
    /// The command's time in user space, `user_time`.
    pub user: bool,
    /// The command's time in the kernel, `system_time`.
    pub system: bool,
}

/// Which rows there are, and how they are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowSelection {
    /// Whether counts are scaled up to the time enabled.
    pub scale: bool,
    /// The rows of times.
    pub times: TimeRows,
    /// Whether there are rows for events.
    pub events: bool,
}

/// The rows of a plan, with the same lines in the same order for every lap.
#[derive(Debug)]
pub struct StatTable<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Lines of events.
    pub lines: Vec<SummedCounters>,
    /// Lines of metrics.
    pub metrics: Vec<MetricLine>,
    selection: RowSelection,
}

impl<'a> StatTable<'a> {
    /// Groups the counters and metrics of `plan` to lines.
    pub fn new(
        plan: &'a Plan,
        catalog: &Catalog,
        cpus: &Cpus,
        grouping: &Grouping,
        selection: RowSelection,
    ) -> Self {
        let lines =
            if selection.events { grouping.group_lines(plan, cpus, catalog) } else { Vec::new() };
        Self { plan, lines, metrics: metrics::group_lines(plan, cpus, grouping), selection }
    }

    /// The rows for a lap.
    pub fn lap_rows(&self, lap: &Lap) -> Vec<StatRow> {
        let scale = self.selection.scale;
        let events = self.lines.iter().map(|line| line.to_row(self.plan, lap, scale));
        let times = self.time_rows(lap.counted_ns, lap.used, None);
        let metrics = self.metrics.iter().map(|line| line.to_row(self.plan, lap, scale));
        events.chain(times).chain(metrics).collect()
    }

    /// The rows of the times that were selected. The time of the command is not counted before it
    /// has ended.
    pub fn time_rows(
        &self,
        counted_ns: u64,
        used: Option<CommandCpuTime>,
        cgroup_share: Option<&CgroupShare>,
    ) -> Vec<StatRow> {
        let first_location = self.lines.first().map(|line| line.location);
        let location = first_location.or_else(|| self.metrics.first().map(|line| line.location));
        let row = |label: &str, ns: Option<u64>| StatRow {
            location: location.unwrap_or(Location::Machine),
            members: 1,
            label: label.to_owned(),
            cgroup_share: cgroup_share.cloned(),
            value: ns.map_or(RowValue::NotCounted, |ns| RowValue::Number(ns as f64)),
            unit: "ns".to_owned(),
            counted: Some(CounterFields {
                running_ns: ns.unwrap_or_default(),
                running: 1.0,
                integral: true,
            }),
            rate: None,
            noise: None,
        };
        let TimeRows { duration, user, system } = self.selection.times;
        let ns =
            |time: fn(CommandCpuTime) -> Duration| used.map(|used| time(used).as_nanos() as u64);
        let rows = [
            duration.then(|| row(DURATION, Some(counted_ns))),
            user.then(|| row(USER, ns(|used| used.user))),
            system.then(|| row(SYSTEM, ns(|used| used.system))),
        ];
        rows.into_iter().flatten().collect()
    }
}
