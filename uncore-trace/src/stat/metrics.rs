//! Rows of metrics: groups instances to lines, and computes their values.
//!
//! Guarantee: a value is computed from the counts of the whole lap, never from values of shorter
//! ones.

use std::collections::{BTreeMap, BTreeSet};

use super::aggregate::Grouping;
use super::count::{Lap, Tally};
use super::row::{CgroupShare, Location, Rate, RowValue, StatRow};
use crate::catalog::metric::{self, PlannedMetric, evaluate_metric};
use crate::discover::Cpus;
use crate::plan::Plan;
use crate::schema::link::Direction;
use crate::view::links::limit;

/// Unit of the percentage beside a bandwidth.
pub const OF_PEAK: &str = "% of peak";

/// The same if sources of the peak differ by more than 20 %.
pub const OF_DOUBTFUL_PEAK: &str = "% of peak (sources differ)";

/// Instances of a metric with one common value.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricLine {
    /// The metric with the PMU: `pcie_read_bandwidth [nvidia_pcie_pmu]`.
    pub label: String,
    /// Unit of the value.
    pub unit: String,
    /// Socket, die, node or CPU.
    pub location: Location,
    /// Indices of the instances in the plan.
    pub members: Vec<usize>,
}

/// The lines of the plan's metrics, split in the same way as those of its events.
pub fn group_lines(plan: &Plan, cpus: &Cpus, grouping: &Grouping) -> Vec<MetricLine> {
    let mut order: Vec<(&str, &str, &str)> = Vec::new();
    let mut lines: BTreeMap<(usize, Location), Vec<usize>> = BTreeMap::new();
    for (index, planned) in plan.metrics.iter().enumerate() {
        let key = metric_key(planned, grouping);
        let position = order.iter().position(|known| *known == key).unwrap_or_else(|| {
            order.push(key);
            order.len() - 1
        });
        let location = grouping.counter_location(cpus, planned.cpu);
        lines.entry((position, location)).or_default().push(index);
    }
    let line = |((position, line_location), members): ((usize, Location), Vec<usize>)| {
        let &(name, pmu, filter) = order.get(position)?;
        let same_metric = plan
            .metrics
            .iter()
            .filter(|planned| metric_key(planned, grouping) == (name, pmu, filter));
        let mut instances = same_metric.map(|planned| planned.pmu.as_str());
        let first_pmu = instances.next()?;
        let pmu = if instances.all(|instance| instance == first_pmu) { first_pmu } else { pmu };
        let comma = if filter.is_empty() { "" } else { "," };
        Some(MetricLine {
            label: format!("{name} [{pmu}{comma}{filter}]"),
            unit: plan.metrics.get(*members.first()?)?.unit.clone(),
            location: line_location,
            members,
        })
    };
    lines.into_iter().filter_map(line).collect()
}

/// Instances with equal keys are one metric: name, PMU, filter.
fn metric_key<'a>(planned: &'a PlannedMetric, grouping: &Grouping) -> (&'a str, &'a str, &'a str) {
    (&planned.name, grouping.pmu_name(&planned.pmu, planned.per_cpu), &planned.filter)
}

impl MetricLine {
    /// The row of the line for a lap.
    pub fn to_row(&self, plan: &Plan, lap: &Lap, scale: bool) -> StatRow {
        let count = |id: u32| {
            let tally = lap.tallies.get(id as usize).copied().unwrap_or(Tally::NotSupported);
            Some(tally.scaled_count(scale)? * plan.counters.get(id as usize)?.scale)
        };
        self.row_from_counts(plan, &count, lap.counted_ns as f64, None)
    }

    /// The row of the line. `count` gives the count of a counter in its unit, or a cgroup's part of
    /// it; `duration_ns` is the time.
    pub fn row_from_counts(
        &self,
        plan: &Plan,
        count: &dyn Fn(u32) -> Option<f64>,
        duration_ns: f64,
        cgroup_share: Option<CgroupShare>,
    ) -> StatRow {
        let value = match evaluate_metric(&self.instances(plan), count, duration_ns) {
            metric::MetricValue::Number(value) => RowValue::Number(value),
            metric::MetricValue::Undefined => RowValue::Undefined,
            metric::MetricValue::Missing(inputs) => RowValue::Missing(inputs),
        };
        // A cgroup's part does not show how full a link is.
        let rate = cgroup_share.is_none().then(|| self.percent_of_peak(plan, &value)).flatten();
        StatRow {
            location: self.location,
            members: self.members.len(),
            label: self.label.clone(),
            cgroup_share,
            value,
            unit: self.unit.clone(),
            counted: None,
            rate,
            noise: None,
        }
    }

    /// A bandwidth in percent of the peak of all its links together. `None` if a peak is not known,
    /// or if the line does not cover all traffic in one direction or in both over each link.
    fn percent_of_peak(&self, plan: &Plan, value: &RowValue) -> Option<Rate> {
        let gb_per_s = value.as_number().filter(|_| self.unit == "GB/s")?;
        let instances = self.instances(plan);
        let inputs = instances.iter().flat_map(|instance| &instance.inputs);
        let mut remaining = inputs.map(|input| input.counter).collect::<Option<BTreeSet<u32>>>()?;
        let (mut peak, mut conflict) = (0.0, false);
        for link in &plan.links {
            let counted =
                link.counters.iter().filter(|counter| remaining.contains(&counter.counter));
            let directions: BTreeSet<Direction> =
                counted.map(|counter| counter.direction).collect();
            if directions.is_empty() {
                continue;
            }
            for counter in
                link.counters.iter().filter(|candidate| directions.contains(&candidate.direction))
            {
                remaining.remove(&counter.counter).then_some(())?;
            }
            let together = limit(link, Direction::Both).filter(|_| directions.len() > 1);
            let limits = match together {
                Some(limit) => vec![limit],
                None => directions
                    .iter()
                    .map(|direction| limit(link, *direction))
                    .collect::<Option<Vec<_>>>()?,
            };
            peak += limits.iter().map(|limit| limit.peak.bytes_per_s / 1e9).sum::<f64>();
            conflict |= limits.iter().any(|limit| limit.conflicting_peak.is_some());
        }
        let unit = if conflict { OF_DOUBTFUL_PEAK } else { OF_PEAK };
        (remaining.is_empty() && peak > 0.0).then(|| Rate { value: 100.0 * gb_per_s / peak, unit })
    }

    /// The instances of the line in the plan.
    pub fn instances<'a>(&self, plan: &'a Plan) -> Vec<&'a PlannedMetric> {
        self.members.iter().filter_map(|&index| plan.metrics.get(index)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::count::Count;
    use crate::discover::captured_machine;
    use crate::plan::{PlanRequest, plan};
    use crate::stat::aggregate::LineSplit;

    /// The captured machine with two Grace sockets.
    fn grace(metric: &str) -> (Plan, Cpus) {
        let machine = captured_machine("grace-2s");
        let request = PlanRequest {
            metrics: vec![metric.to_owned()],
            tick_ns: 1_000_000,
            window_ns: 10_000_000,
            ..PlanRequest::default()
        };
        (plan(&machine, &Catalog::load_embedded().unwrap(), &request).unwrap(), machine.cpus)
    }

    fn rows(
        plan: &Plan,
        cpus: &Cpus,
        by: LineSplit,
        value: impl Fn(u32, &str) -> u64,
    ) -> Vec<StatRow> {
        let counted = |counter: &crate::plan::Counter| {
            let value = value(counter.cpu, &counter.event);
            Tally::Counted(Count { value, enabled: 1000, running: 1000 })
        };
        let lap = Lap {
            tallies: plan.counters.iter().map(counted).collect(),
            counted_ns: 1000,
            used: None,
        };
        let grouping = Grouping { split: by, ..Grouping::default() };
        group_lines(plan, cpus, &grouping)
            .iter()
            .map(|line| line.to_row(plan, &lap, true))
            .collect()
    }

    #[test]
    fn a_bandwidth_is_shown_as_a_fraction_of_its_links() {
        // The data sheet says 512 GB/s for each memory; 102400 bytes in each direction in 1000 ns
        // are 204.8 GB/s.
        for (metric, by, expected) in [
            ("mem_bandwidth", LineSplit::Machine, Some(40.0)),
            ("mem_bandwidth", LineSplit::Socket, Some(40.0)),
            ("mem_read_bandwidth", LineSplit::Machine, None),
            ("mem_read_latency", LineSplit::Machine, None),
        ] {
            let (plan, cpus) = grace(metric);
            for row in rows(
                &plan,
                &cpus,
                by,
                |_, event| if event.ends_with("_data") { 3200 } else { 102_400 },
            ) {
                let part = row.rate.as_ref().map(|rate| rate.value);
                let near = part.zip(expected).is_none_or(|(a, b)| (a - b).abs() < 1e-9);
                assert!(part.is_some() == expected.is_some() && near, "{metric}: {row:#?}");
            }
        }
    }

    #[test]
    fn a_bandwidth_is_the_sum_of_its_instances_and_each_ones_own() {
        let (plan, cpus) = grace("pcie_read_bandwidth");
        let value = |cpu: u32, _: &str| if cpu == 0 { 1000 } else { 4000 };
        let all = rows(&plan, &cpus, LineSplit::Machine, value);
        assert_eq!(all.len(), 1, "{all:#?}");
        assert_eq!(all[0].label.split_once(',').unwrap().0, "pcie_read_bandwidth [nvidia_pcie_pmu");
        // Local and remote bytes of each socket.
        assert_eq!((&all[0].value, all[0].unit.as_str()), (&RowValue::Number(10.0), "GB/s"));
        let each = rows(&plan, &cpus, LineSplit::Socket, value);
        let each: Vec<_> = each.iter().map(|row| (row.location, row.value.clone())).collect();
        let socket = |socket, value| (Location::Socket(Some(socket)), RowValue::Number(value));
        assert_eq!(each, [socket(0, 2.0), socket(1, 8.0)]);
    }

    #[test]
    fn a_latency_without_requests_is_undefined_and_one_without_a_count_says_which() {
        let (plan, cpus) = grace("pcie_read_latency*");
        let all = rows(&plan, &cpus, LineSplit::Machine, |_, _| 0);
        assert!(
            !all.is_empty() && all.iter().all(|row| row.value == RowValue::Undefined),
            "{all:#?}"
        );
        let lines = group_lines(&plan, &cpus, &Grouping::default());
        let tallies = vec![Tally::NotSupported; plan.counters.len()];
        let row = lines[0].to_row(&plan, &Lap { tallies, counted_ns: 1000, used: None }, true);
        assert!(matches!(&row.value, RowValue::Missing(inputs) if !inputs.is_empty()), "{row:#?}");
    }
}
