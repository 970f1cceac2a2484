//! Rows of `--for-each-cgroup`: one for each part of a count.

use std::collections::{BTreeSet, HashMap};

use super::aggregate::SummedCounters;
use super::cgroups::SelectedCgroup;
use super::row::{CgroupShare, CounterFields, RowValue, StatRow};
use super::table::StatTable;
use crate::plan::Counter;
use crate::view::cgroups::{ALL, ByCgroup, CgroupPart, CounterSums, OTHER, outside_part_names};

/// Sums the shares of cgroups, and makes rows of the sums.
#[derive(Debug)]
pub struct CgroupRows<'a> {
    table: &'a StatTable<'a>,
    /// For each counter of the plan, its id in the recording; `None` if it could not be opened.
    recorded: Vec<Option<u32>>,
    /// What is printed for a cgroup, by its path.
    labels: HashMap<&'a str, &'a str>,
    /// The sums.
    pub sums: ByCgroup<'a>,
}

impl<'a> CgroupRows<'a> {
    /// No shares yet; lines of `table`, and the cgroups `named`. The counters in `unopened` are not
    /// recorded.
    pub fn new(table: &'a StatTable<'a>, named: &'a [String], unopened: &BTreeSet<u32>) -> Self {
        let mut ids = 0..;
        let recorded_id =
            |counter: &Counter| if unopened.contains(&counter.id) { None } else { ids.next() };
        let recorded: Vec<_> = table.plan.counters.iter().map(recorded_id).collect();
        let sums = ByCgroup::new(named, recorded.len());
        Self { table, recorded, labels: HashMap::new(), sums }
    }

    /// Prints cgroups as they are called.
    #[must_use]
    pub fn with_labels(mut self, cgroups: &'a [SelectedCgroup]) -> Self {
        let label = |cgroup: &'a SelectedCgroup| (cgroup.path.as_str(), cgroup.label.as_str());
        self.labels.extend(cgroups.iter().map(label));
        self
    }

    /// What is printed for a part.
    fn cgroup_label<'n>(&self, name: &'n str) -> &'n str
    where
        'a: 'n,
    {
        self.labels.get(name).copied().unwrap_or(name)
    }

    /// The sums of a counter of the plan.
    fn counter_sums(&self, id: u32) -> Option<&CounterSums> {
        self.sums.counter_sums((*self.recorded.get(id as usize)?)?)
    }

    /// Returns the rows, and starts again at 0. `length_ns` is the length of the time.
    pub fn take_rows(&mut self, length_ns: f64) -> Vec<StatRow> {
        let lines = self.table.lines.iter();
        let mut rows: Vec<_> = lines.flat_map(|line| self.line_rows(line)).collect();
        // The time has no parts.
        let everybody = named_share(ALL, CgroupPart::default());
        rows.extend(self.table.time_rows(length_ns.round() as u64, None, Some(&everybody)));
        rows.extend(self.metric_rows(length_ns));
        self.sums.clear_rows();
        rows
    }

    /// The rows of one line, one for each part.
    fn line_rows(&self, line: &SummedCounters) -> Vec<StatRow> {
        let opened_sums: Vec<&CounterSums> =
            line.members.iter().filter_map(|&id| self.counter_sums(id)).collect();
        let sum =
            |time: fn(&CounterSums) -> f64| opened_sums.iter().map(|sums| time(sums)).sum::<f64>();
        let (enabled, running) = (sum(CounterSums::enabled_ns), sum(|sums| sums.running_ns));
        let total = sum(CounterSums::total_value);
        let counted = opened_sums.iter().any(|sums| sums.counted);
        let row = |name: &str| {
            let mut cell = CgroupPart::default();
            for sums in &opened_sums {
                cell.add_part(&sums.part_sum(name));
            }
            StatRow {
                location: line.location,
                members: line.members.len(),
                label: line.label.clone(),
                value: match counted {
                    true => RowValue::Number(cell.value * line.factor),
                    false if opened_sums.is_empty() => RowValue::NotSupported,
                    false => RowValue::NotCounted,
                },
                cgroup_share: Some(CgroupShare {
                    share: (counted && total != 0.0).then(|| cell.value / total),
                    ..named_share(self.cgroup_label(name), cell)
                }),
                unit: line.unit.clone(),
                counted: Some(CounterFields {
                    running_ns: running.round() as u64,
                    running: if enabled > 0.0 { running / enabled } else { 1.0 },
                    integral: line.integral,
                }),
                rate: None,
                noise: None,
            }
        };
        // `(other)` has a line even with a value of 0; the other kinds of owners only with a value.
        let has_row = |name: &&str| {
            *name == OTHER || opened_sums.iter().any(|sums| sums.part_sum(name).value != 0.0)
        };
        let named = self.sums.named.iter().map(String::as_str);
        named
            .chain(outside_part_names().into_iter().filter(has_row))
            .chain(self.whole_label())
            .map(row)
            .collect()
    }

    /// The line of the whole, if the parts do not sum to it.
    fn whole_label(&self) -> Option<&'static str> {
        self.sums.has_overlap().then_some(ALL)
    }

    /// The rows of metrics, one for each cgroup, from its parts of the inputs. A clock is not
    /// divided: a latency is request-cycles / requests x length of a cycle, and with a part of the
    /// cycles the cycle would be too long, or the frequency too low.
    fn metric_rows(&self, length_ns: f64) -> Vec<StatRow> {
        let plan = self.table.plan;
        let clock = |id: u32| plan.counters.get(id as usize).is_some_and(is_clock);
        let mut rows = Vec::new();
        for line in &self.table.metrics {
            for name in
                self.sums.named.iter().map(String::as_str).chain([OTHER]).chain(self.whole_label())
            {
                let count = |id: u32| {
                    let sums = self.counter_sums(id).filter(|sums| sums.counted)?;
                    Some(if clock(id) { sums.total_value() } else { sums.part_sum(name).value })
                };
                let mut cell = CgroupPart::default();
                let instances = line.instances(plan);
                let inputs = instances.iter().flat_map(|instance| &instance.inputs);
                for id in inputs.filter_map(|input| input.counter).filter(|id| !clock(*id)) {
                    let sums = self.counter_sums(id);
                    cell.add_part(&sums.map(|sums| sums.part_sum(name)).unwrap_or_default());
                }
                rows.push(line.row_from_counts(
                    plan,
                    &count,
                    length_ns,
                    Some(named_share(self.cgroup_label(name), cell)),
                ));
            }
        }
        rows
    }
}

/// Whether a counter is the clock of its PMU. The cycles of a CPU belong to the tasks that ran
/// there.
fn is_clock(counter: &Counter) -> bool {
    counter.unit == "cycles" && !counter.per_cpu
}

fn named_share(name: &str, cell: CgroupPart) -> CgroupShare {
    CgroupShare {
        cgroup: name.to_owned(),
        share: None,
        method: cell.methods.into_iter().collect::<Vec<_>>().join("+"),
        confidence: cell.confidence.mean_confidence(),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::RecordBatch;

    use super::*;
    use crate::catalog::Catalog;
    use crate::catalog::metric::{Across, Input, PlannedMetric};
    use crate::discover::Cpus;
    use crate::plan::Plan;
    use crate::schema::fabric::{Builder, Row as Fabric};
    use crate::stat::aggregate::Grouping;
    use crate::stat::table::{RowSelection, TimeRows};

    const MS: i64 = 1_000_000;

    fn plan() -> Plan {
        let counter = serde_json::json!({
            "id": 0, "pmu": "software", "family": "software", "subsystem": "host",
            "event": "page-faults", "filter": "", "unit": "count", "scale": 1.0, "attr_type": 1,
            "config": [2, 0, 0, 0, 0], "cpu": 0, "socket": null, "sees": "0", "per_cpu": true,
            "at_switch": true, "leader": null
        });
        let counter = serde_json::from_value(counter).unwrap();
        Plan { tick_ns: 1, window_ns: 1, counters: vec![counter], ..Plan::default() }
    }

    fn table(plan: &Plan) -> StatTable<'_> {
        table_with(plan, RowSelection { scale: true, times: TimeRows::default(), events: true })
    }

    fn table_with(plan: &Plan, selection: RowSelection) -> StatTable<'_> {
        let catalog = Catalog::load_embedded().unwrap();
        StatTable::new(plan, &catalog, &Cpus::default(), &Grouping::default(), selection)
    }

    static OPENED: BTreeSet<u32> = BTreeSet::new();

    /// End of the window, owner, cgroup, value, confidence.
    type Given<'a> = (i64, &'a str, Option<&'a str>, Option<f64>, f32);

    fn batch(rows: &[Given<'_>]) -> RecordBatch {
        let mut builder = Builder::default();
        for &(end, owner, cgroup, value, confidence) in rows {
            builder.append(&Fabric {
                ts: end,
                mono_ns: end,
                window_ns: 10 * MS,
                host: "test",
                boot_id: "3f4e5d6c",
                subsystem: "host",
                pmu: "software",
                event: "page-faults",
                unit: "count",
                owner,
                cgroup,
                value,
                total: value,
                running: if value.is_some() { 1.0 } else { 0.0 },
                method: "residency",
                confidence: Some(confidence),
                ..Fabric::default()
            });
        }
        builder.finish()
    }

    fn row_texts(rows: &[StatRow]) -> Vec<String> {
        let show = |row: &StatRow| {
            let part = row.cgroup_share.as_ref().unwrap();
            let value =
                row.value.as_number().map_or_else(|| "-".to_owned(), |number| number.to_string());
            let confidence = part.confidence.map(|sure| (sure * 100.0).round() / 100.0);
            format!("{} {value} {confidence:?} {}", part.cgroup, part.method)
        };
        rows.iter().map(show).collect()
    }

    #[test]
    fn a_cgroup_has_the_counts_below_it_and_all_have_a_row() {
        let plan = plan();
        let table = table(&plan);
        let named = ["/a".to_owned(), "/a/b".to_owned(), "/c".to_owned()];
        let mut parts = CgroupRows::new(&table, &named, &OPENED);
        let batch = batch(&[
            (10 * MS, "task", Some("/a"), Some(1.0), 0.5),
            (10 * MS, "task", Some("/a/x"), Some(2.0), 0.25),
            (10 * MS, "task", Some("/a/b/deep"), Some(4.0), 0.5),
            (10 * MS, "task", Some("/ab"), Some(8.0), 0.5),
            (10 * MS, "task", Some(OTHER), Some(16.0), 0.5),
            (10 * MS, "task", None, Some(32.0), 0.5),
            (10 * MS, "idle", None, Some(64.0), 0.5),
            (10 * MS, "irq", None, Some(128.0), 0.5),
            (10 * MS, "softirq", None, Some(256.0), 0.5),
            (10 * MS, "unattributed", None, Some(0.0), 0.0),
        ]);
        parts.sums.add_rows(&batch, 0..batch.num_rows()).unwrap();
        let rows = parts.take_rows(1e7);
        assert_eq!(
            row_texts(&rows),
            [
                "/a 7 Some(0.43) residency",
                "/a/b 4 Some(0.5) residency",
                "/c 0 None ",
                "(other) 56 Some(0.5) residency",
                "(idle) 64 Some(0.5) residency",
                "(irq) 384 Some(0.5) residency",
                "(all) 511 Some(0.5) residency"
            ]
        );
        let share = |row: &StatRow| row.cgroup_share.as_ref().unwrap().share;
        assert_eq!(share(&rows[0]), Some(7.0 / 511.0));
        assert_eq!(share(&rows[6]), Some(1.0));
        let counted = rows[0].counted.clone().unwrap();
        assert_eq!((counted.running_ns, counted.running), (10_000_000, 1.0));
        assert_eq!(
            row_texts(&parts.take_rows(1e7)),
            ["/a - None ", "/a/b - None ", "/c - None ", "(other) - None ", "(all) - None "]
        );
        // If no named cgroup is below another, the parts sum to the whole.
        let mut apart = CgroupRows::new(&table, &named[1..], &OPENED);
        apart.sums.add_rows(&batch, 0..batch.num_rows()).unwrap();
        let rows = apart.take_rows(1e7);
        assert_eq!(row_texts(&rows[..2]), ["/a/b 4 Some(0.5) residency", "/c 0 None "]);
        assert!((rows.iter().filter_map(share).sum::<f64>() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_window_without_a_count_is_no_zero() {
        let plan = plan();
        let table = table(&plan);
        let named = ["/a".to_owned()];
        let mut parts = CgroupRows::new(&table, &named, &OPENED);
        let rows = batch(&[
            (10 * MS, "unattributed", None, None, 0.0),
            (20 * MS, "task", Some("/a"), Some(5.0), 1.0),
        ]);
        parts.sums.add_rows(&rows, 0..rows.num_rows()).unwrap();
        let rows = parts.take_rows(1e7);
        // A count of half of the time is scaled up.
        assert_eq!(row_texts(&rows), ["/a 10 Some(1.0) residency", "(other) 0 None "]);
        assert!((rows[0].counted.as_ref().unwrap().running - 0.5).abs() < 1e-12);
    }

    #[test]
    fn elapsed_time_has_one_row_for_all_cgroups() {
        let plan = plan();
        let times = TimeRows { duration: true, ..TimeRows::default() };
        let table = table_with(&plan, RowSelection { scale: true, times, events: true });
        let rows = CgroupRows::new(&table, &["/a".to_owned()], &OPENED).take_rows(1e7);
        assert_eq!(rows[2].label, "duration_time");
        assert_eq!(row_texts(&rows[2..]), ["(all) 10000000 None "]);
    }

    #[test]
    fn a_metric_is_of_the_cgroups_own_part_and_a_counter_that_is_not_there_is_named() {
        let mut plan = plan();
        plan.metrics = vec![PlannedMetric {
            name: "fault_rate".to_owned(),
            about: String::new(),
            unit: "1/ns".to_owned(),
            formula: "page_faults / duration_ns".to_owned(),
            across: Across::Sum,
            family: "software".to_owned(),
            pmu: "software".to_owned(),
            filter: String::new(),
            cpu: 0,
            socket: None,
            per_cpu: true,
            inputs: vec![Input { name: "page_faults".to_owned(), counter: Some(0) }],
            constants: std::collections::BTreeMap::new(),
        }];
        let table_of = table(&plan);
        let named = ["/a".to_owned()];
        let mut parts = CgroupRows::new(&table_of, &named, &OPENED);
        let batch = batch(&[
            (10 * MS, "task", Some("/a"), Some(5.0), 0.5),
            (10 * MS, "task", Some("/b"), Some(15.0), 0.25),
        ]);
        parts.sums.add_rows(&batch, 0..batch.num_rows()).unwrap();
        let rows = parts.take_rows(5.0);
        let metrics: Vec<_> = rows.iter().filter(|row| row.counted.is_none()).cloned().collect();
        let shown_metrics = row_texts(&metrics);
        assert_eq!(shown_metrics, ["/a 1 Some(0.5) residency", "(other) 3 Some(0.25) residency"]);
        let mut clock = plan.clone();
        clock.counters[0].unit = "cycles".to_owned();
        clock.counters[0].per_cpu = false;
        let clock = table(&clock);
        let mut parts = CgroupRows::new(&clock, &named, &OPENED);
        parts.sums.add_rows(&batch, 0..batch.num_rows()).unwrap();
        let rows = parts.take_rows(5.0);
        let metrics: Vec<_> = rows.iter().filter(|row| row.counted.is_none()).cloned().collect();
        assert_eq!(row_texts(&metrics), ["/a 4 None ", "(other) 4 None "], "a clock has no parts");
        let unopened = BTreeSet::from([0]);
        let rows = CgroupRows::new(&table_of, &named, &unopened).take_rows(5.0);
        assert_eq!(rows[0].value, RowValue::NotSupported);
        assert_eq!(rows[2].value, RowValue::Missing(vec!["page_faults".to_owned()]));
    }
}
