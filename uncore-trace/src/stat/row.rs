//! A row as it is printed: plain data, the same for every output format.

use std::fmt;

/// What a row says.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// This.
    Number(f64),
    /// The counter never ran.
    NotCounted,
    /// The counter could not be opened.
    NotSupported,
    /// A metric whose formula divides by zero.
    Undefined,
    /// A metric without these inputs.
    Missing(Vec<String>),
}

impl Value {
    /// The number, if it is one.
    pub const fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// perf's words for what is no number; those of metrics in the same style.
    pub fn words(&self) -> Option<String> {
        match self {
            Self::Number(_) => None,
            Self::NotCounted => Some("<not counted>".to_owned()),
            Self::NotSupported => Some("<not supported>".to_owned()),
            Self::Undefined => Some("<undefined>".to_owned()),
            Self::Missing(inputs) => Some(format!("<missing {}>", inputs.join(" "))),
        }
    }
}

/// Where counts were added up; the order is that of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Everywhere.
    Machine,
    /// A package.
    Socket(Option<i16>),
    /// A die of a package.
    Die(Option<i16>, Option<i16>),
    /// A NUMA node.
    Node(Option<u32>),
    /// The CPU that reads the counter.
    Cpu(u32),
}

impl fmt::Display for Place {
    /// As perf writes it, but `?` where the kernel does not tell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = |id: Option<i64>| id.map_or_else(|| "?".to_owned(), |id| id.to_string());
        let text = match *self {
            Self::Machine => String::new(),
            Self::Socket(socket) => format!("S{}", id(socket.map(i64::from))),
            Self::Die(socket, die) => {
                format!("S{}-D{}", id(socket.map(i64::from)), id(die.map(i64::from)))
            }
            Self::Node(node) => format!("N{}", id(node.map(i64::from))),
            Self::Cpu(cpu) => format!("CPU{cpu}"),
        };
        f.pad(&text)
    }
}

/// One cgroup's part of a count, or the part of all that is in none of those asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The cgroup's path, or a word in parentheses: see [`super::attributed`].
    pub cgroup: String,
    /// Part of the whole, 0 to 1; `None` where the whole is nothing or not known.
    pub share: Option<f64>,
    /// How the part was made; empty where there is nothing to say.
    pub method: String,
    /// The lowest confidence of what was added up, 0 to 1.
    pub confidence: Option<f32>,
}

/// The part of a row that is only a counter's.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// Time running, summed over the counters of the row, ns.
    pub running_ns: u64,
    /// Time running / time enabled, 0 to 1; 1 where it was never enabled, as perf has it.
    pub running: f64,
    /// Whether the unit of one count is a whole number.
    pub integral: bool,
}

/// A rate or another number that goes with the value.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Where.
    pub place: Place,
    /// How many counters were added up.
    pub members: usize,
    /// The event or the metric.
    pub label: String,
    /// Whose.
    pub part: Option<Part>,
    /// How much.
    pub value: Value,
    /// Unit of the value.
    pub unit: String,
    /// `None` for a metric.
    pub counted: Option<Counted>,
    /// The value per second.
    pub rate: Option<Rate>,
    /// Standard error of the mean over runs, % of the mean.
    pub noise: Option<f64>,
}

/// Which stretch of a measurement rows are about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// All of it.
    Whole,
    /// What ended this many seconds after the start.
    Until(f64),
    /// All of it, after rows of its stretches.
    Summary,
}

/// Rows of every kind, for the tests of the formats.
#[cfg(test)]
pub mod sample {
    use super::*;

    fn row(label: &str, value: Value, unit: &str) -> Row {
        Row {
            place: Place::Machine,
            members: 2,
            label: label.to_owned(),
            part: None,
            value,
            unit: unit.to_owned(),
            counted: Some(Counted { running_ns: 2_000_000_000, running: 1.0, integral: true }),
            rate: None,
            noise: None,
        }
    }

    /// Counts and metrics, whole and not.
    pub fn all() -> Vec<Row> {
        let mut bytes =
            row("nvidia_pcie_pmu/rd_bytes_loc,root_port=0x3ff/", Value::Number(1.5e10), "bytes");
        bytes.rate = Some(Rate { value: 15.0, unit: "GB/s" });
        bytes.counted = Some(Counted { running_ns: 999_000_000, running: 0.4995, integral: true });
        bytes.noise = Some(1.25);
        let mut flits =
            row("uncore_upi/unc_upi_txl_flits.all_data/", Value::Number(7.111), "flits");
        flits.counted = Some(Counted { running_ns: 1, running: 1.0, integral: false });
        let mut faults = row("page-faults", Value::Number(1_234_567.0), "count");
        faults.rate = Some(Rate { value: 1_234_567.0, unit: "/s" });
        let mut idle = row("uncore_imc/\"reads\"/", Value::NotCounted, "bytes");
        idle.counted = Some(Counted { running_ns: 0, running: 0.0, integral: true });
        let mut clock = row("cpu-clock", Value::Number(2_000.123_456), "msec");
        clock.rate = Some(Rate { value: 2.000_123, unit: "CPUs utilized" });
        clock.counted = Some(Counted { running_ns: 2_000_123_456, running: 1.0, integral: false });
        let refused = row("cycles\u{1b}[2J", Value::NotSupported, "cycles");
        let metric = |label, value, unit| Row { counted: None, ..row(label, value, unit) };
        vec![
            bytes,
            flits,
            faults,
            idle,
            clock,
            refused,
            metric("pcie_read_latency [nvidia_pcie_pmu]", Value::Number(612.345), "ns"),
            metric("ipc", Value::Undefined, "1"),
            metric("l2_miss_ratio", Value::Missing(vec!["l2d_cache".to_owned()]), "%"),
        ]
    }

    /// Two sockets.
    pub fn by_socket() -> Vec<Row> {
        let at = |socket| Row {
            place: Place::Socket(socket),
            ..row("msr/tsc/", Value::Number(2_445_000_000.0), "cycles")
        };
        vec![at(Some(0)), at(None)]
    }

    /// Three sockets, of which one moves much, one little and one nothing.
    pub fn bytes_by_socket() -> Vec<Row> {
        let at = |socket, bytes| Row {
            place: Place::Socket(Some(socket)),
            rate: Some(Rate { value: bytes / 2e9, unit: "GB/s" }),
            ..row("uncore_imc/cas_count_read/", Value::Number(bytes), "bytes")
        };
        vec![at(0, 61.04e9), at(1, 777e6), at(2, 64e3), at(3, 0.0)]
    }

    /// Two cgroups and the rest.
    pub fn by_cgroup() -> Vec<Row> {
        let part = |cgroup: &str, share, method: &str, confidence| Row {
            part: Some(Part {
                cgroup: cgroup.to_owned(),
                share,
                method: method.to_owned(),
                confidence,
            }),
            ..row("page-faults", Value::Number(1_500.0), "count")
        };
        vec![
            part("/tenant-a", Some(0.6), "residency", Some(0.05)),
            part("/tenant,b", Some(0.4), "exact", Some(1.0)),
            part("(idle)", None, "", None),
            Row {
                counted: None,
                unit: "1".to_owned(),
                ..part("/tenant-a", None, "exact", Some(0.5))
            },
        ]
    }
}
