//! Who used how much of what: the sums behind `uncore-trace report`.
//!
//! Guarantees: every row of the time asked for is in exactly one line of its event, so that the
//! lines sum to the same total whatever they are by; a row without a value is counted as missing
//! and adds nothing; owners that are not tasks keep lines of their own whatever is asked for, except
//! where lines are of all owners.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;

use anyhow::Result;

use super::heat::{Heat, Scale};
use super::interval::{Claim, Interval, Width};
pub use super::key::By;
use super::key::Columns;
use super::known::Known;
use super::links::Links;
use super::span::{Moment, Span};
use crate::schema::columns::get;
use crate::schema::fabric;
use crate::schema::link::Direction;
use crate::tables::reader::Recording;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// What lines are by.
    pub by: By,
    /// Each direction of these links; none: each event.
    pub links: Option<&'a Links>,
    /// From when; none: from the begin.
    pub from: Option<Moment>,
    /// To when; none: to the end.
    pub to: Option<Moment>,
    /// Cgroups deeper than this are summed with their ancestor of this depth; 0 is the root.
    pub cgroup_depth: Option<usize>,
}

impl Question<'_> {
    /// All events of a recording, by `by`.
    pub fn by(by: By) -> Self {
        Self { by, links: None, from: None, to: None, cgroup_depth: None }
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Usage {
    /// What lines are by.
    pub by: By,
    /// Begin of the recording, `CLOCK_MONOTONIC` ns.
    pub start_ns: i64,
    /// Begin and end of what was asked for, within the recording, `CLOCK_MONOTONIC` ns.
    pub span_ns: (i64, i64),
    /// Length of a step of the lines' heat, ns.
    pub step_ns: f64,
    /// What was counted.
    pub events: Vec<Event>,
}

/// An event over all its PMU instances, or one direction of a link.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Name, with the filter in brackets where there is one; of a link, with the direction.
    pub name: String,
    /// The link by its place in what was asked, and the direction; none of an event.
    pub link: Option<(usize, Direction)>,
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
    /// Highest rate of a window, in the event's unit per second; none for lines summed up.
    pub peak: Option<f64>,
    /// Begin of the first and end of the last window in which it had any, `CLOCK_MONOTONIC` ns.
    pub active: Option<(i64, i64)>,
    /// The value over time.
    pub heat: Heat,
    /// How far the value may be off; none where it is of all owners.
    width: Option<Width>,
    /// The window that is being added: its end and the rate so far.
    window: (i64, f64),
}

/// The window of a row.
struct Window {
    end_ns: i64,
    length_ns: i64,
    place: (f64, f64),
}

impl Window {
    fn begin_ns(&self) -> i64 {
        self.end_ns.saturating_sub(self.length_ns)
    }
}

/// Sums the recording's fabric table.
///
/// # Errors
///
/// The recording cannot be read, or nothing was recorded in the time asked for.
pub fn usage(recording: &Recording, question: &Question<'_>) -> Result<Usage> {
    let table = recording.table(&fabric::TABLE)?;
    let by = question.by;
    let (from, to) = (question.from.as_ref(), question.to.as_ref());
    let Some(span) = Span::of(recording, &table, from, to)? else {
        return Ok(Usage { by, start_ns: 0, span_ns: (0, 0), step_ns: 0.0, events: Vec::new() });
    };
    let scale = Scale::new(span.begin_ns, span.end_ns);
    let mut sums = Sums {
        by,
        scale,
        wanted: span.wanted.clone(),
        events: Vec::new(),
        index: HashMap::new(),
        lines: HashMap::new(),
    };
    let mut known = Known::new();
    for batch in table.scan_within(&by.columns(), "mono_ns", span.wanted)? {
        let batch = batch?;
        let columns = Columns::new(&batch, by, question.cgroup_depth, question.links)?;
        known.begin(&columns);
        sums.add(&columns, &mut known);
    }
    let (start_ns, span_ns) = (span.start_ns, (span.begin_ns, span.end_ns));
    Ok(Usage { by, start_ns, span_ns, step_ns: scale.step_ns(), events: sums.finish() })
}

struct Sums {
    by: By,
    scale: Scale,
    wanted: RangeInclusive<i64>,
    events: Vec<Event>,
    index: HashMap<(String, String), usize>,
    lines: HashMap<(usize, String, String), usize>,
}

impl Sums {
    fn add(&mut self, columns: &Columns<'_>, known: &mut Known<(usize, usize, usize)>) {
        let mut window = Window { end_ns: 0, length_ns: 0, place: (0.0, 0.0) };
        for row in 0..columns.rows {
            let (end_ns, length_ns) = (columns.mono_ns.value(row), columns.window_ns.value(row));
            if !self.wanted.contains(&end_ns) || !columns.is_wanted(row) {
                continue;
            }
            if (window.end_ns, window.length_ns) != (end_ns, length_ns) {
                let place = self.scale.place(end_ns, length_ns);
                window = Window { end_ns, length_ns, place };
            }
            let quick = columns.quick(row);
            let (event, line, cause) = known.get(quick, || self.find(columns, row));
            let event = &mut self.events[event];
            event.end_ns = event.end_ns.max(end_ns);
            event.begin_ns = event.begin_ns.min(window.begin_ns());
            let value = get(columns.value, row);
            event.total += value.unwrap_or(0.0);
            event.lines[line].add(columns, row, &window, value, cause);
        }
    }

    /// The event and line of a row and the cause of its error, made where they are new.
    fn find(&mut self, columns: &Columns<'_>, row: usize) -> (usize, usize, usize) {
        let name = columns.what(row);
        let unit = columns.unit(row).to_owned();
        let event = *self.index.entry((name.clone(), unit.clone())).or_insert_with(|| {
            self.events.push(Event {
                name,
                link: columns.link(row),
                unit,
                begin_ns: i64::MAX,
                end_ns: i64::MIN,
                total: 0.0,
                lines: Vec::new(),
            });
            self.events.len() - 1
        });
        let owner = columns.owner(row).to_owned();
        let key = columns.key(row);
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
                peak: Some(0.0),
                active: None,
                heat: Heat::default(),
                width: columns.divided.map(|_| Width::default()),
                window: (i64::MIN, 0.0),
            });
            lines.len() - 1
        });
        // The numbers that a line is known by have the method, so that each of them comes here.
        lines[line].methods.insert(columns.method.get(row).unwrap_or_default().to_owned());
        let cause = lines[line].width.as_mut().zip(columns.divided).map(|(width, of)| {
            width.cause(get(of.socket, row), of.comm.get(row).unwrap_or_default())
        });
        (event, line, cause.unwrap_or_default())
    }

    fn finish(mut self) -> Vec<Event> {
        for event in &mut self.events {
            event.lines.iter_mut().for_each(Line::end_window);
            if self.by.has_owner() {
                // A window that is not known has one row that nobody owns, but concerns everybody.
                let unknown = event.lines.iter().fold(0, |all, line| all | line.heat.unknown);
                event.lines.iter_mut().for_each(|line| line.heat.unknown = unknown);
            }
            sort(&mut event.lines);
        }
        self.events.sort_by(|a, b| (a.link, &a.name, &a.unit).cmp(&(b.link, &b.name, &b.unit)));
        self.events
    }
}

impl Line {
    fn add(
        &mut self,
        columns: &Columns<'_>,
        row: usize,
        window: &Window,
        value: Option<f64>,
        cause: usize,
    ) {
        self.heat.add(window.place, value);
        match value {
            Some(value) => {
                self.value += value;
                self.rows += 1;
                self.over_time(window, value);
                if let Some((width, of)) = self.width.as_mut().zip(columns.divided) {
                    width.add(
                        cause,
                        Claim {
                            of: (columns.counter.value(row), window.end_ns, window.length_ns),
                            value,
                            total: get(of.total, row).unwrap_or(value),
                            confidence: get(columns.confidence, row),
                        },
                    );
                }
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
    }
}

impl Line {
    /// From where to where the truth lies, by what its event counted in all; none where no row has
    /// a value or a confidence. What all owners have is what was counted.
    pub fn interval(&self, event: &Event) -> Option<Interval> {
        match &self.width {
            _ if self.rows == 0 => None,
            None => Some(Interval { low: self.value, high: self.value }),
            Some(width) => (self.claims > 0).then(|| width.interval(self.value, event.total)),
        }
    }

    /// Rows are in the order of their windows' ends, so one window at a time is enough for the
    /// peak; windows of different length that end together add up as rates.
    fn over_time(&mut self, window: &Window, value: f64) {
        if window.end_ns != self.window.0 {
            self.end_window();
            self.window.0 = window.end_ns;
        }
        if value != 0.0 {
            self.window.1 += value * 1e9 / window.length_ns.max(1) as f64;
            let (begin, end) = self.active.unwrap_or((i64::MAX, i64::MIN));
            self.active = Some((begin.min(window.begin_ns()), end.max(window.end_ns)));
        }
    }

    fn end_window(&mut self) {
        self.peak = self.peak.map(|peak| peak.max(self.window.1));
        self.window.1 = 0.0;
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
        if let Some(mut others) = rest.into_iter().reduce(|sum, line| join(sum, line, Width::join))
        {
            others.key = format!("({count} {})", if count == 1 { "other" } else { "others" });
            event.lines.push(others);
        }
    }
}

/// Makes one line of those of an owner that have one name, which `name` makes of their keys.
pub(super) fn unite(events: &mut [Event], name: impl Fn(&str) -> String) {
    for event in events {
        let mut united: BTreeMap<(String, String), Line> = BTreeMap::new();
        for mut line in event.lines.drain(..) {
            line.key = name(&line.key);
            let of = (line.owner.clone(), line.key.clone());
            let sum = match united.remove(&of) {
                Some(sum) => join(sum, line, Width::unite),
                None => line,
            };
            united.insert(of, sum);
        }
        event.lines = united.into_values().collect();
        sort(&mut event.lines);
    }
}

/// Largest value first.
fn sort(lines: &mut [Line]) {
    lines.sort_by(|a, b| b.value.total_cmp(&a.value).then(a.key.cmp(&b.key)));
}

/// The sum of two lines, of which `join` makes one width.
fn join(mut sum: Line, line: Line, join: fn(&mut Width, &Width)) -> Line {
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
    sum.heat.join(&line.heat);
    if let Some((sum, line)) = sum.width.as_mut().zip(line.width.as_ref()) {
        join(sum, line);
    }
    // When each had its peak is not kept.
    sum.peak = None;
    sum.active = match (sum.active, line.active) {
        (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
        (x, y) => x.or(y),
    };
    sum
}

#[cfg(test)]
mod tests;
