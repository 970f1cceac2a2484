//! A row of output: plain data, the same for every format.

use std::fmt;

use crate::discover::cpus::CpuCache;

/// The value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum RowValue {
    /// A number.
    Number(f64),
    /// The counter never ran.
    NotCounted,
    /// The counter could not be opened.
    NotSupported,
    /// A metric whose formula divides by zero.
    Undefined,
    /// A metric that lacks these inputs.
    Missing(Vec<String>),
}

impl RowValue {
    /// The number, if it is one.
    pub const fn as_number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// perf's words for a value that is no number; those for metrics have the same style.
    pub fn as_words(&self) -> Option<String> {
        match self {
            Self::Number(_) => None,
            Self::NotCounted => Some("<not counted>".to_owned()),
            Self::NotSupported => Some("<not supported>".to_owned()),
            Self::Undefined => Some("<undefined>".to_owned()),
            Self::Missing(inputs) => Some(format!("<missing {}>", inputs.join(" "))),
        }
    }
}

/// Where the summed counters are; ordered as the rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// Everywhere.
    Machine,
    /// A package.
    Socket(Option<i16>),
    /// A die of a package.
    Die(Option<i16>, Option<i16>),
    /// A cluster of cores of a die.
    Cluster(Option<i16>, Option<i16>, Option<i32>),
    /// A last-level cache of a die.
    Cache(Option<i16>, Option<i16>, Option<CpuCache>),
    /// A core of a die.
    Core(Option<i16>, Option<i16>, Option<i32>),
    /// A NUMA node.
    Node(Option<u32>),
    /// The CPU that reads the counter.
    Cpu(u32),
}

impl Location {
    /// Its name and the width of its column.
    const fn name_and_width(&self) -> (&'static str, usize) {
        match self {
            Self::Machine => ("", 0),
            Self::Socket(_) => ("socket", 6),
            Self::Die(..) => ("die", 7),
            Self::Cluster(..) => ("cluster", 15),
            Self::Cache(..) => ("cache", 17),
            Self::Core(..) => ("core", 13),
            Self::Node(_) => ("node", 6),
            Self::Cpu(_) => ("cpu", 6),
        }
    }

    /// What it is, in perf's word; empty for everywhere.
    pub const fn kind_name(&self) -> &'static str {
        self.name_and_width().0
    }

    /// The width of its column of text.
    pub const fn column_width(&self) -> usize {
        self.name_and_width().1
    }
}

impl fmt::Display for Location {
    /// As in perf, but `?` if the kernel does not say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = |id: Option<i64>| id.map_or_else(|| "?".to_owned(), |id| id.to_string());
        let text = match *self {
            Self::Machine => String::new(),
            Self::Socket(socket) => format!("S{}", id(socket.map(i64::from))),
            Self::Die(socket, die) => {
                format!("S{}-D{}", id(socket.map(i64::from)), id(die.map(i64::from)))
            }
            Self::Cluster(socket, die, cluster) => {
                format!("{}-CLS{}", Self::Die(socket, die), id(cluster.map(i64::from)))
            }
            Self::Cache(socket, die, cache) => {
                let level = id(cache.map(|cache| i64::from(cache.level)));
                let first_cpu = id(cache.map(|cache| i64::from(cache.first_cpu)));
                format!("{}-L{level}-ID{first_cpu}", Self::Die(socket, die))
            }
            Self::Core(socket, die, core) => {
                format!("{}-C{}", Self::Die(socket, die), id(core.map(i64::from)))
            }
            Self::Node(node) => format!("N{}", id(node.map(i64::from))),
            Self::Cpu(cpu) => format!("CPU{cpu}"),
        };
        f.pad(&text)
    }
}

/// A part of a count: that of one cgroup, or of everything outside the selected ones.
#[derive(Clone, Debug, PartialEq)]
pub struct CgroupShare {
    /// Path of the cgroup, or a word in parentheses: see [`super::attributed`].
    pub cgroup: String,
    /// Fraction of the whole, 0 to 1; `None` if the whole is 0 or not known.
    pub share: Option<f64>,
    /// Method of the part; empty if there is none.
    pub method: String,
    /// Mean confidence of the summed shares, weighted by value, 0 to 1.
    pub confidence: Option<f64>,
}

/// Fields that only rows of counters have.
#[derive(Clone, Debug, PartialEq)]
pub struct CounterFields {
    /// Time running, summed over the counters of the row, ns.
    pub running_ns: u64,
    /// Time running / time enabled, 0 to 1; 1 if it was never enabled, as in perf.
    pub running: f64,
    /// Whether one count is a whole number of units.
    pub integral: bool,
}

/// A rate or another number beside the value.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
}

/// One line of output.
#[derive(Clone, Debug, PartialEq)]
pub struct StatRow {
    /// Where the counters are.
    pub location: Location,
    /// Number of summed counters.
    pub members: usize,
    /// The event or metric.
    pub label: String,
    /// The cgroup's part.
    pub cgroup_share: Option<CgroupShare>,
    /// How much.
    pub value: RowValue,
    /// Unit of the value.
    pub unit: String,
    /// `None` for a metric.
    pub counted: Option<CounterFields>,
    /// The value per second.
    pub rate: Option<Rate>,
    /// Standard error of the mean over runs, % of the mean.
    pub noise: Option<f64>,
}

impl StatRow {
    /// Whether it is of an event that counted nothing.
    pub fn is_zero(&self) -> bool {
        let is_zero =
            matches!(self.value, RowValue::NotCounted) || self.value.as_number() == Some(0.0);
        is_zero && self.counted.is_some()
    }
}

/// The time that rows cover.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RowPeriod {
    /// All of it.
    Whole,
    /// An interval that ended this many seconds after the start.
    Until(f64),
    /// All of it, after the rows of intervals.
    Summary,
}

/// Rows of every kind, for the tests of the formats.
#[cfg(test)]
pub mod sample {
    use super::*;

    fn row(label: &str, value: RowValue, unit: &str) -> StatRow {
        StatRow {
            location: Location::Machine,
            members: 2,
            label: label.to_owned(),
            cgroup_share: None,
            value,
            unit: unit.to_owned(),
            counted: Some(CounterFields {
                running_ns: 2_000_000_000,
                running: 1.0,
                integral: true,
            }),
            rate: None,
            noise: None,
        }
    }

    /// Counts and metrics, with and without numbers.
    pub fn all() -> Vec<StatRow> {
        let mut bytes =
            row("nvidia_pcie_pmu/rd_bytes_loc,root_port=0x3ff/", RowValue::Number(1.5e10), "bytes");
        bytes.rate = Some(Rate { value: 15.0, unit: "GB/s" });
        bytes.counted =
            Some(CounterFields { running_ns: 999_000_000, running: 0.4995, integral: true });
        bytes.noise = Some(1.25);
        let mut flits =
            row("uncore_upi/unc_upi_txl_flits.all_data/", RowValue::Number(7.111), "flits");
        flits.counted = Some(CounterFields { running_ns: 1, running: 1.0, integral: false });
        let mut faults = row("page-faults", RowValue::Number(1_234_567.0), "count");
        faults.rate = Some(Rate { value: 1_234_567.0, unit: "/s" });
        let mut idle = row("uncore_imc/\"reads\"/", RowValue::NotCounted, "bytes");
        idle.counted = Some(CounterFields { running_ns: 0, running: 0.0, integral: true });
        let mut clock = row("cpu-clock", RowValue::Number(2_000.123_456), "msec");
        clock.rate = Some(Rate { value: 2.000_123, unit: "CPUs utilized" });
        clock.counted =
            Some(CounterFields { running_ns: 2_000_123_456, running: 1.0, integral: false });
        let refused = row("cycles\u{1b}[2J", RowValue::NotSupported, "cycles");
        let metric = |label, value, unit| StatRow { counted: None, ..row(label, value, unit) };
        vec![
            bytes,
            flits,
            faults,
            idle,
            clock,
            refused,
            metric("pcie_read_latency [nvidia_pcie_pmu]", RowValue::Number(612.345), "ns"),
            metric("ipc", RowValue::Undefined, "1"),
            metric("l2_miss_ratio", RowValue::Missing(vec!["l2d_cache".to_owned()]), "%"),
        ]
    }

    /// Two sockets.
    pub fn by_socket() -> Vec<StatRow> {
        let at = |socket| StatRow {
            location: Location::Socket(socket),
            ..row("msr/tsc/", RowValue::Number(2_445_000_000.0), "cycles")
        };
        vec![at(Some(0)), at(None)]
    }

    /// Three sockets: one moves much, one little and one nothing.
    pub fn bytes_by_socket() -> Vec<StatRow> {
        let at = |socket, bytes| StatRow {
            location: Location::Socket(Some(socket)),
            rate: Some(Rate { value: bytes / 2e9, unit: "GB/s" }),
            ..row("uncore_imc/cas_count_read/", RowValue::Number(bytes), "bytes")
        };
        vec![at(0, 61.04e9), at(1, 777e6), at(2, 64e3), at(3, 0.0)]
    }

    /// Two cgroups and the others.
    pub fn by_cgroup() -> Vec<StatRow> {
        let part = |cgroup: &str, share, method: &str, confidence| StatRow {
            cgroup_share: Some(CgroupShare {
                cgroup: cgroup.to_owned(),
                share,
                method: method.to_owned(),
                confidence,
            }),
            ..row("page-faults", RowValue::Number(1_500.0), "count")
        };
        vec![
            part("/tenant-a", Some(0.6), "residency", Some(0.05)),
            part("/tenant,b", Some(0.4), "exact", Some(1.0)),
            part("(idle)", None, "", None),
            StatRow {
                counted: None,
                unit: "1".to_owned(),
                ..part("/tenant-a", None, "exact", Some(0.5))
            },
        ]
    }
}
