//! Groups counters to lines, and sums them.
//!
//! As in perf, the instances of a PMU are one line (`uncore_imc_0` and `uncore_imc_1` are
//! `uncore_imc`), and so are counters of every CPU. Options split lines by socket, die, cluster,
//! cache, core, node or CPU. Guarantee: every counter of the plan is in exactly one line.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::count::{Lap, Tally};
use super::row::{CounterFields, Location, Rate, RowValue, StatRow};
use crate::catalog::Catalog;
use crate::discover::{Cpus, name};
use crate::plan::{Counter, Plan};

/// How lines are split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineSplit {
    /// Nothing.
    #[default]
    Machine,
    /// Package.
    Socket,
    /// Die.
    Die,
    /// Cluster of cores.
    Cluster,
    /// Last-level cache.
    Cache,
    /// Core, of which each hardware thread is a CPU.
    Core,
    /// NUMA node.
    Node,
    /// The CPU that reads the counter.
    Cpu,
}

/// How counters are grouped.
#[derive(Clone, Debug, Default)]
pub struct Grouping {
    /// How lines are split.
    pub split: LineSplit,
    /// Whether each PMU instance has lines of its own.
    pub apart: bool,
    /// Instances with lines of their own in any case: those that were given by their full name.
    pub named: BTreeSet<String>,
    /// Names that the user gave to events: as in perf, they are all that is printed of the event.
    pub labels: BTreeSet<String>,
}

/// Counters that are summed.
#[derive(Clone, Debug, PartialEq)]
pub struct SummedCounters {
    /// What is printed for the event: `page-faults`, `nvidia_scf_pmu/cycles/`.
    pub label: String,
    /// Unit in which the sum is printed.
    pub unit: String,
    /// Number of these units in one unit of the counters.
    pub factor: f64,
    /// Whether one count is a whole number of units.
    pub integral: bool,
    /// Where the counters are.
    pub location: Location,
    /// Ids of the counters.
    pub members: Vec<u32>,
}

/// `PERF_TYPE_HARDWARE` and `PERF_TYPE_HW_CACHE` of `include/uapi/linux/perf_event.h` (Linux 7.2):
/// events whose names mean the same on every core PMU.
const GENERIC: [u32; 2] = [0, 3];

/// Counters with equal fields count the same event: PMU, event, filter, unit.
type EventKey<'a> = (&'a str, &'a str, &'a str, &'a str);

impl Grouping {
    fn event_key<'a>(&self, counter: &'a Counter) -> EventKey<'a> {
        let Counter { pmu, event, filter, unit, per_cpu, .. } = counter;
        (self.pmu_name(pmu, *per_cpu), event, filter, unit)
    }

    /// The PMU of a line: the instance, or the name that it shares with others.
    pub fn pmu_name<'a>(&self, pmu: &'a str, per_cpu: bool) -> &'a str {
        if self.apart || per_cpu || self.split == LineSplit::Cpu || self.named.contains(pmu) {
            pmu
        } else {
            name::stem(pmu)
        }
    }

    /// The place of a counter that `cpu` reads.
    pub fn counter_location(&self, cpus: &Cpus, cpu: u32) -> Location {
        let location = cpus.cpu_location(cpu);
        match self.split {
            LineSplit::Machine => Location::Machine,
            LineSplit::Socket => Location::Socket(location.package),
            LineSplit::Die => Location::Die(location.package, location.die),
            LineSplit::Cluster => {
                Location::Cluster(location.package, location.die, location.cluster)
            }
            LineSplit::Cache => Location::Cache(location.package, location.die, location.cache),
            LineSplit::Core => Location::Core(location.package, location.die, location.core),
            LineSplit::Node => Location::Node(location.node),
            LineSplit::Cpu => Location::Cpu(cpu),
        }
    }

    /// The lines of a plan: events in the order of the plan, each with its places in order.
    pub fn group_lines(&self, plan: &Plan, cpus: &Cpus, catalog: &Catalog) -> Vec<SummedCounters> {
        let mut order: HashMap<EventKey<'_>, usize> = HashMap::new();
        let mut lines: BTreeMap<(usize, Location), Vec<&Counter>> = BTreeMap::new();
        let mut instances: HashMap<EventKey<'_>, BTreeSet<&str>> = HashMap::new();
        for counter in &plan.counters {
            let next_index = order.len();
            let index = *order.entry(self.event_key(counter)).or_insert(next_index);
            let location = self.counter_location(cpus, counter.cpu);
            lines.entry((index, location)).or_default().push(counter);
            instances.entry(self.event_key(counter)).or_default().insert(&counter.pmu);
        }
        let line = |((_, line_location), members): ((usize, Location), Vec<&Counter>)| {
            let leading = members.first()?;
            let event = self.event_key(leading);
            let alone = instances.get(&event).is_some_and(|pmus| pmus.len() == 1);
            let pmu = if alone { leading.pmu.as_str() } else { event.0 };
            let (unit, factor) = match catalog.stat_unit(&leading.family, &leading.unit) {
                Some(stat) => (&stat.unit, stat.factor),
                None => (&leading.unit, 1.0),
            };
            let whole = |counter: &&Counter| (counter.scale * factor).fract() == 0.0;
            Some(SummedCounters {
                label: if self.labels.contains(&leading.event) {
                    leading.event.clone()
                } else {
                    event_label(leading, pmu, plan)
                },
                unit: unit.clone(),
                factor,
                integral: members.iter().all(whole),
                location: line_location,
                members: members.iter().map(|counter| counter.id).collect(),
            })
        };
        lines.into_iter().filter_map(line).collect()
    }
}

/// The event as `-e` takes it. Software events need no PMU, nor do generic events if only one PMU
/// has them.
fn event_label(counter: &Counter, pmu: &str, plan: &Plan) -> String {
    let Counter { event, filter, .. } = counter;
    let elsewhere = || {
        plan.counters
            .iter()
            .any(|candidate| candidate.event == *event && candidate.pmu != counter.pmu)
    };
    let bare = (counter.family == "software" && !event.contains('='))
        || (GENERIC.contains(&counter.attr_type) && counter.per_cpu && !elsewhere());
    match (bare, filter.is_empty()) {
        (true, true) => event.clone(),
        (_, true) => format!("{pmu}/{event}/"),
        (_, false) => format!("{pmu}/{event},{filter}/"),
    }
}

impl SummedCounters {
    /// The row of the line for a lap. A counter that could not be opened or never ran adds nothing
    /// if another one did run; `running` is then below 1, or a warning was printed.
    pub fn to_row(&self, plan: &Plan, lap: &Lap, scale: bool) -> StatRow {
        let mut sum = None;
        let (mut running, mut enabled, mut supported) = (0, 0, false);
        for &id in &self.members {
            let tally = lap.tallies.get(id as usize).copied().unwrap_or(Tally::NotSupported);
            let unit = plan.counters.get(id as usize).map_or(1.0, |counter| counter.scale);
            if let Tally::Counted(count) = tally {
                supported = true;
                running += count.running;
                enabled += count.enabled;
            }
            if let Some(count) = tally.scaled_count(scale) {
                sum = Some(sum.unwrap_or(0.0) + count * unit * self.factor);
            }
        }
        let value = match sum {
            Some(sum) => RowValue::Number(sum),
            None if supported => RowValue::NotCounted,
            None => RowValue::NotSupported,
        };
        let running_fraction =
            if running == enabled { 1.0 } else { running as f64 / enabled as f64 };
        StatRow {
            location: self.location,
            members: self.members.len(),
            label: self.label.clone(),
            cgroup_share: None,
            rate: value.as_number().and_then(|value| count_rate(value, &self.unit, lap.counted_ns)),
            value,
            unit: self.unit.clone(),
            counted: Some(CounterFields {
                running_ns: running,
                running: running_fraction,
                integral: self.integral,
            }),
            noise: None,
        }
    }
}

/// A count per second, with bytes in GB/s. For clocks of CPUs it is the number of CPUs used, as in
/// perf. Other sums of times, and requests in flight, have no rate.
pub fn count_rate(value: f64, unit: &str, counted_ns: u64) -> Option<Rate> {
    if counted_ns == 0 {
        return None;
    }
    let per_ns = value / counted_ns as f64;
    match unit {
        "bytes" => Some(Rate { value: per_ns, unit: "GB/s" }),
        "msec" => Some(Rate { value: per_ns * 1e6, unit: "CPUs utilized" }),
        "ns" | "request_cycles" => None,
        _ => Some(Rate { value: per_ns * 1e9, unit: "/s" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Count;
    use crate::discover::{CpuList, captured_machine, cpus};
    use crate::plan::{CounterRole, PlanRequest, plan};

    fn counter(id: u32, pmu: &str, event: &str, cpu: u32) -> Counter {
        let per_cpu = pmu == "software" || pmu.starts_with("cpu");
        Counter {
            id,
            pmu: pmu.to_owned(),
            family: name::stem(pmu).to_owned(),
            subsystem: "mem".to_owned(),
            event: event.to_owned(),
            filter: String::new(),
            unit: if per_cpu { "count" } else { "bytes" }.to_owned(),
            scale: if per_cpu { 1.0 } else { 64.0 },
            attr_type: if pmu.starts_with("cpu") { 0 } else { 9 },
            config: [0; 5],
            cpu,
            socket: None,
            sees: CpuList::default(),
            far: CpuList::default(),
            per_cpu,
            exclude_guest: false,
            at_switch: false,
            exact_by: None,
            cause: None,
            causes: BTreeSet::new(),
            io: None,
            behind: Vec::new(),
            functions: Vec::new(),
            part_of: None,
            exclusive: false,
            leader: None,
            role: CounterRole::Counted,
            witness_bytes: None,
        }
    }

    /// Two sockets of two CPUs, two memory controllers on each, and events of every CPU.
    fn sample() -> (Plan, Cpus) {
        let mut counters = Vec::new();
        for pmu in ["uncore_imc_0", "uncore_imc_1"] {
            for cpu in [0, 2] {
                counters.push(counter(counters.len() as u32, pmu, "reads", cpu));
            }
        }
        for (pmu, event) in [("software", "page-faults"), ("cpu", "cycles")] {
            for cpu in 0..4 {
                counters.push(counter(counters.len() as u32, pmu, event, cpu));
            }
        }
        let place = |cpu: u32| cpus::CpuLocation {
            package: Some((cpu / 2) as i16),
            die: Some(0),
            node: (cpu < 3).then_some(cpu / 2),
            core: Some((cpu % 2) as i32),
            cluster: Some(7),
            cache: (cpu < 2).then_some(cpus::CpuCache { level: 3, first_cpu: 0 }),
        };
        let places = (0..4).map(|cpu| (cpu, place(cpu))).collect();
        let online: CpuList = (0..4).collect();
        let cpus = Cpus::new(online.clone(), online, places);
        (Plan { tick_ns: 1, window_ns: 1, counters, ..Plan::default() }, cpus)
    }

    fn line_texts(line_split: LineSplit, apart: bool, named: &[&str]) -> Vec<String> {
        let named = named.iter().map(|&name| name.to_owned()).collect();
        let (plan, cpus) = sample();
        let lines = Grouping { split: line_split, apart, named, ..Grouping::default() }
            .group_lines(&plan, &cpus, &Catalog::load_embedded().unwrap());
        let mut members: Vec<u32> = lines.iter().flat_map(|line| line.members.clone()).collect();
        members.sort_unstable();
        assert_eq!(members, (0..12).collect::<Vec<_>>(), "every counter in one line");
        let line = |line: &SummedCounters| {
            format!("{} {} {}", line.location, line.label, line.members.len())
        };
        lines.iter().map(|summed| line(summed).trim().to_owned()).collect()
    }

    #[test]
    fn instances_and_cpus_are_added_up_unless_told_not_to() {
        assert_eq!(
            line_texts(LineSplit::Machine, false, &[]),
            ["uncore_imc/reads/ 4", "page-faults 4", "cycles 4"]
        );
        assert_eq!(
            line_texts(LineSplit::Machine, true, &[]),
            ["uncore_imc_0/reads/ 2", "uncore_imc_1/reads/ 2", "page-faults 4", "cycles 4"]
        );
        assert_eq!(
            line_texts(LineSplit::Machine, false, &["uncore_imc_1"]),
            ["uncore_imc_0/reads/ 2", "uncore_imc_1/reads/ 2", "page-faults 4", "cycles 4"]
        );
        assert_eq!(
            line_texts(LineSplit::Socket, false, &[])[..2],
            ["S0 uncore_imc/reads/ 2", "S1 uncore_imc/reads/ 2"]
        );
        assert_eq!(line_texts(LineSplit::Die, false, &[])[0], "S0-D0 uncore_imc/reads/ 2");
        assert_eq!(line_texts(LineSplit::Core, false, &[])[1], "S1-D0-C0 uncore_imc/reads/ 2");
        assert_eq!(line_texts(LineSplit::Cluster, false, &[])[1], "S1-D0-CLS7 uncore_imc/reads/ 2");
        assert_eq!(
            line_texts(LineSplit::Cache, false, &[])[..2],
            ["S0-D0-L3-ID0 uncore_imc/reads/ 2", "S1-D0-L?-ID? uncore_imc/reads/ 2"]
        );
        assert_eq!(
            line_texts(LineSplit::Node, false, &[])[2..5],
            ["N? page-faults 1", "N0 page-faults 2", "N1 page-faults 1"]
        );
        let each = line_texts(LineSplit::Cpu, false, &[]);
        assert_eq!(
            each[..3],
            [
                "CPU0 uncore_imc_0/reads/ 1",
                "CPU2 uncore_imc_0/reads/ 1",
                "CPU0 uncore_imc_1/reads/ 1"
            ]
        );
        assert_eq!(each.len(), 12);
    }

    #[test]
    fn a_sum_has_only_what_was_counted_and_says_so() {
        let (plan, cpus) = sample();
        let lines =
            Grouping::default().group_lines(&plan, &cpus, &Catalog::load_embedded().unwrap());
        let counted = |value, enabled, running| Tally::Counted(Count { value, enabled, running });
        let mut tallies = vec![Tally::NotSupported; 12];
        tallies[0] = counted(10, 1000, 1000);
        tallies[1] = counted(10, 1000, 500);
        tallies[2] = counted(10, 1000, 0);
        for tally in &mut tallies[4..8] {
            *tally = counted(0, 0, 0);
        }
        let lap = Lap { tallies, counted_ns: 64, used: None };
        let rows: Vec<_> = lines.iter().map(|line| line.to_row(&plan, &lap, true)).collect();
        assert_eq!(rows[0].value, RowValue::Number(30.0 * 64.0));
        assert_eq!(rows[0].rate, Some(Rate { value: 30.0, unit: "GB/s" }));
        let counted = rows[0].counted.clone().unwrap();
        assert_eq!((counted.running_ns, counted.running), (1500, 0.5));
        assert_eq!(rows[1].value, RowValue::NotCounted);
        assert_eq!(rows[2].value, RowValue::NotSupported);
        assert_eq!(lines[0].to_row(&plan, &lap, false).value, RowValue::Number(20.0 * 64.0));
    }

    /// The lines of `-p GROUP` on captured machines.
    #[test]
    fn lines_of_real_machines() {
        let catalog = Catalog::load_embedded().unwrap();
        let mut machine_lines = Vec::new();
        for (name, group, split) in [
            ("grace-2s", "pcie", LineSplit::Machine),
            ("grace-2s", "pcie", LineSplit::Socket),
            ("t410-2s", "pcie", LineSplit::Machine),
            ("yitian", "pcie", LineSplit::Machine),
            ("icelake-2s", "mem", LineSplit::Machine),
        ] {
            let machine = captured_machine(name);
            let request = PlanRequest {
                groups: vec![group.to_owned()],
                tick_ns: 1_000_000,
                window_ns: 10_000_000,
                ..PlanRequest::default()
            };
            let plan = plan(&machine, &catalog, &request).unwrap();
            machine_lines.push(format!("{name} -p {group} {split:?}"));
            for line in (Grouping { split, ..Grouping::default() }).group_lines(
                &plan,
                &machine.cpus,
                &catalog,
            ) {
                let SummedCounters { label, unit, location: place, members, .. } = line;
                machine_lines
                    .push(format!("    {place:<3} {:>3} {unit:<9} {label}", members.len()));
            }
        }
        insta::assert_snapshot!(machine_lines.join("\n"));
    }
}
