//! Who used how much of what: the sums behind `uncore-trace report`.
//!
//! Guarantees: every row of the recording is in exactly one line of its event; a row without a
//! value is counted as missing and adds nothing; owners that are not tasks keep lines of their own
//! whatever is asked for, except where the answer is by PMU.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use arrow::array::{Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch, UInt64Array};

use crate::tables::columns::{self, Words, get};
use crate::tables::fabric;
use crate::tables::reader::Recording;

/// What the lines are by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// One line a cgroup.
    Cgroup,
    /// One line a process.
    Pid,
    /// One line a PMU instance, all owners together.
    Pmu,
    /// One line an owner: task, irq, softirq, idle, device, unattributed.
    Owner,
}

impl By {
    /// Its name in the output.
    pub fn name(self) -> &'static str {
        match self {
            By::Cgroup => "cgroup",
            By::Pid => "pid",
            By::Pmu => "pmu",
            By::Owner => "owner",
        }
    }
}

/// An event over all its PMU instances.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Name, with the filter in brackets where there is one.
    pub name: String,
    /// Unit of the values.
    pub unit: String,
    /// Begin of its first window, `CLOCK_MONOTONIC` ns.
    pub begin_ns: i64,
    /// End of its last window, `CLOCK_MONOTONIC` ns.
    pub end_ns: i64,
    /// Sum of all values.
    pub total: f64,
    /// Its lines, largest value first.
    pub lines: Vec<Line>,
}

impl Event {
    /// Length of time it covers, seconds.
    pub fn seconds(&self) -> f64 {
        self.end_ns.saturating_sub(self.begin_ns) as f64 / 1e9
    }
}

/// One line: an owner, a tenant, a PMU.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// What it is of, as recorded (not fit to print).
    pub key: String,
    /// task, irq, ...; empty by PMU.
    pub owner: String,
    /// Sum of the values, in the event's unit.
    pub value: f64,
    /// Rows with a value.
    pub rows: u64,
    /// Rows without one.
    pub missing: u64,
    /// Lowest confidence; none where nothing is claimed.
    pub confidence_min: Option<f32>,
    /// Mean confidence of the rows that claim one.
    pub confidence_avg: Option<f64>,
    /// Rows that claim a confidence.
    pub claims: u64,
    /// Mean of time running / time enabled over the rows.
    pub running: f64,
    /// The methods its shares were made by.
    pub methods: BTreeSet<String>,
}

/// The columns this reads, and no other is decoded.
const COLUMNS: [&str; 15] = [
    "mono_ns",
    "window_ns",
    "pmu",
    "event",
    "filter",
    "unit",
    "owner",
    "pid",
    "comm",
    "cgroup_id",
    "cgroup",
    "value",
    "running",
    "method",
    "confidence",
];

/// Sums the recording's fabric table.
pub fn usage(recording: &Recording, by: By) -> Result<Vec<Event>> {
    let mut sums = Sums { by, events: Vec::new(), index: HashMap::new(), lines: HashMap::new() };
    for batch in recording.table(&fabric::TABLE)?.scan(&COLUMNS)? {
        sums.add(&Columns::new(&batch?)?);
    }
    Ok(sums.finish())
}

struct Columns<'a> {
    rows: usize,
    mono_ns: &'a Int64Array,
    window_ns: &'a Int64Array,
    pmu: Words<'a>,
    event: Words<'a>,
    filter: Words<'a>,
    unit: Words<'a>,
    owner: Words<'a>,
    pid: &'a Int32Array,
    comm: Words<'a>,
    cgroup_id: &'a UInt64Array,
    cgroup: Words<'a>,
    value: &'a Float64Array,
    running: &'a Float32Array,
    method: Words<'a>,
    confidence: &'a Float32Array,
}

impl<'a> Columns<'a> {
    fn new(batch: &'a RecordBatch) -> Result<Columns<'a>> {
        Ok(Columns {
            rows: batch.num_rows(),
            mono_ns: columns::i64s(batch, "mono_ns")?,
            window_ns: columns::i64s(batch, "window_ns")?,
            pmu: columns::words(batch, "pmu")?,
            event: columns::words(batch, "event")?,
            filter: columns::words(batch, "filter")?,
            unit: columns::words(batch, "unit")?,
            owner: columns::words(batch, "owner")?,
            pid: columns::i32s(batch, "pid")?,
            comm: columns::words(batch, "comm")?,
            cgroup_id: columns::u64s(batch, "cgroup_id")?,
            cgroup: columns::words(batch, "cgroup")?,
            value: columns::f64s(batch, "value")?,
            running: columns::f32s(batch, "running")?,
            method: columns::words(batch, "method")?,
            confidence: columns::f32s(batch, "confidence")?,
        })
    }

    /// What the row's line is keyed by and called.
    fn key(&self, row: usize, by: By) -> String {
        let owner = self.owner.get(row).unwrap_or_default();
        match by {
            By::Pmu => self.pmu.get(row).unwrap_or_default().to_owned(),
            By::Cgroup if owner == "task" => match self.cgroup.get(row) {
                Some(path) => path.to_owned(),
                None => get(self.cgroup_id, row)
                    .map_or_else(|| "(no cgroup)".to_owned(), |id| format!("(cgroup id {id})")),
            },
            By::Pid if owner == "task" => {
                let comm = self.comm.get(row).unwrap_or("?");
                get(self.pid, row)
                    .map_or_else(|| "(no pid)".to_owned(), |pid| format!("{comm} ({pid})"))
            }
            By::Pid => self.comm.get(row).unwrap_or(owner).to_owned(),
            By::Owner | By::Cgroup => owner.to_owned(),
        }
    }

    /// Numbers that tell the row's line within one batch without touching a string.
    fn quick(&self, row: usize, by: By) -> Quick {
        let who = match by {
            By::Cgroup => match self.cgroup.key(row) {
                -1 => get(self.cgroup_id, row).map_or(-1, |id| (id as i64).wrapping_add(1 << 32)),
                key => i64::from(key),
            },
            By::Pid => get(self.pid, row).map_or(-1, i64::from),
            By::Pmu => i64::from(self.pmu.key(row)),
            By::Owner => 0,
        };
        let comm = if by == By::Pid { self.comm.key(row) } else { 0 };
        let event = [self.event.key(row), self.filter.key(row), self.unit.key(row)];
        (event, self.owner.key(row), comm, who)
    }
}

type Quick = ([i32; 3], i32, i32, i64);

struct Sums {
    by: By,
    events: Vec<Event>,
    index: HashMap<(String, String), usize>,
    lines: HashMap<(usize, String, String), usize>,
}

impl Sums {
    fn add(&mut self, columns: &Columns<'_>) {
        let mut known: HashMap<Quick, (usize, usize)> = HashMap::new();
        for row in 0..columns.rows {
            let quick = columns.quick(row, self.by);
            let (event, line) = *known.entry(quick).or_insert_with(|| self.find(columns, row));
            let event = &mut self.events[event];
            let end = columns.mono_ns.value(row);
            event.end_ns = event.end_ns.max(end);
            event.begin_ns = event.begin_ns.min(end.saturating_sub(columns.window_ns.value(row)));
            let value = get(columns.value, row);
            event.total += value.unwrap_or(0.0);
            event.lines[line].add(columns, row, value);
        }
    }

    /// The event and line of a row, made where they are new.
    fn find(&mut self, columns: &Columns<'_>, row: usize) -> (usize, usize) {
        let name = match columns.filter.get(row) {
            None | Some("") => columns.event.get(row).unwrap_or_default().to_owned(),
            Some(filter) => format!("{}[{filter}]", columns.event.get(row).unwrap_or_default()),
        };
        let unit = columns.unit.get(row).unwrap_or_default().to_owned();
        let event = *self.index.entry((name.clone(), unit.clone())).or_insert_with(|| {
            self.events.push(Event {
                name,
                unit,
                begin_ns: i64::MAX,
                end_ns: i64::MIN,
                total: 0.0,
                lines: Vec::new(),
            });
            self.events.len() - 1
        });
        let owner = match self.by {
            By::Pmu => String::new(),
            _ => columns.owner.get(row).unwrap_or_default().to_owned(),
        };
        let key = columns.key(row, self.by);
        let lines = &mut self.events[event].lines;
        let line = *self.lines.entry((event, owner.clone(), key.clone())).or_insert_with(|| {
            lines.push(Line {
                key,
                owner,
                value: 0.0,
                rows: 0,
                missing: 0,
                confidence_min: None,
                confidence_avg: None,
                claims: 0,
                running: 0.0,
                methods: BTreeSet::new(),
            });
            lines.len() - 1
        });
        (event, line)
    }

    fn finish(mut self) -> Vec<Event> {
        for event in &mut self.events {
            event.lines.sort_by(|a, b| b.value.total_cmp(&a.value).then(a.key.cmp(&b.key)));
        }
        self.events.sort_by(|a, b| (&a.name, &a.unit).cmp(&(&b.name, &b.unit)));
        self.events
    }
}

impl Line {
    fn add(&mut self, columns: &Columns<'_>, row: usize, value: Option<f64>) {
        match value {
            Some(value) => {
                self.value += value;
                self.rows += 1;
            }
            None => self.missing += 1,
        }
        // Running means: no second set of sums is kept beside what is shown.
        let all = (self.rows + self.missing) as f64;
        self.running += (f64::from(columns.running.value(row)) - self.running) / all;
        if let Some(confidence) = get(columns.confidence, row) {
            self.confidence_min =
                Some(self.confidence_min.map_or(confidence, |least| least.min(confidence)));
            self.claims += 1;
            let average = self.confidence_avg.unwrap_or(0.0);
            let step = (f64::from(confidence) - average) / self.claims as f64;
            self.confidence_avg = Some(average + step);
        }
        let method = columns.method.get(row).unwrap_or_default();
        if !self.methods.contains(method) {
            self.methods.insert(method.to_owned());
        }
    }
}

/// Keeps the `top` largest task lines of each event and sums the rest into one line, so that the
/// event's total is still the sum of what is shown. Lines of other owners always stay.
pub fn top(events: &mut [Event], top: usize) {
    for event in events {
        let mut tasks = 0;
        let (kept, rest): (Vec<Line>, Vec<Line>) = event.lines.drain(..).partition(|line| {
            let task = line.owner == "task" || line.owner.is_empty();
            tasks += usize::from(task);
            !task || tasks <= top
        });
        event.lines = kept;
        let count = rest.len();
        if let Some(mut others) = rest.into_iter().reduce(join) {
            others.key = format!("({count} others)");
            event.lines.push(others);
        }
    }
}

fn join(mut sum: Line, line: Line) -> Line {
    let (a, b) = ((sum.rows + sum.missing) as f64, (line.rows + line.missing) as f64);
    sum.running = (sum.running * a + line.running * b) / (a + b);
    sum.confidence_avg = match (sum.confidence_avg, line.confidence_avg) {
        (Some(x), Some(y)) => {
            let (a, b) = (sum.claims as f64, line.claims as f64);
            Some((x * a + y * b) / (a + b))
        }
        (x, y) => x.or(y),
    };
    sum.claims += line.claims;
    sum.confidence_min = match (sum.confidence_min, line.confidence_min) {
        (Some(x), Some(y)) => Some(x.min(y)),
        (x, y) => x.or(y),
    };
    sum.value += line.value;
    sum.rows += line.rows;
    sum.missing += line.missing;
    sum.methods.extend(line.methods);
    sum
}
