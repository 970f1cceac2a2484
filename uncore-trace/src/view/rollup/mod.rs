//! Sums `fabric` in longer windows: the rows of the table [`crate::schema::rollup`].
//!
//! Counters of one PMU that count the same event on several CPUs are summed. Guarantees: every
//! share of `fabric` is in the rows, once, so the shares of a counter's window sum to its total, as in
//! `fabric`; a window of a counter is written once; a window of `fabric` without a value adds nothing,
//! and is not in `known_ns`, which is at most `window_ns`; memory is bounded by [`MOST_LINES`] of all
//! windows and [`OPEN`] windows.
//!
//! # Windows that are late
//!
//! A window of `fabric` extends over missing readings, so it may be longer than those of the roll-up
//! or reach over their ends. It is spread over them ([`grid`]). So a window waits for each counter
//! that has not come to its end, for 5 s. What comes later for a window that is written is in the next
//! one of its counter.
//!
//! # Confidence
//!
//! The probability that a sum of many shares is within 10 % of the truth depends on the correlation
//! of their errors, so it is not a mean of their confidences. So a row has two figures.
//! `confidence` is the mean of the confidences of its shares, weighted by value: the part of
//! `value` that is expected in shares that are right. `low` and `high` are the 90 % interval of the
//! sum ([`super::interval`]: the row of a cgroup has one error on each socket, which all windows and
//! counters have in common). If rows are summed again, the sums of `low` and of `high` are an
//! interval that is never too narrow for errors that add up, as those of one owner do over time.

mod closing;
mod grid;
mod window;

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use arrow::array::{Int16Array, RecordBatch, TimestampMicrosecondArray};

use self::grid::{Grid, Part};
use self::window::OpenWindow;
use super::interval::Claim;
use super::key::cause;
use super::links::{Links, limit};
use crate::clock::Snapshot;
use crate::schema::canary::Canary;
use crate::schema::columns::{self, get};
use crate::schema::link::Direction;
use crate::schema::origin::Origin;
use crate::schema::owner::TASK;

/// Most lines of all open windows, and of one of them; further ones are summed in `other_tasks`.
pub const MOST_LINES: (usize, usize) = (400_000, 50_000);

/// Most open windows: if there are more, the oldest is closed, and a long row is not spread further.
pub const OPEN: usize = 600;

/// A counter, as its rows describe it. Counters with equal fields are summed: those of an event
/// that is counted on each CPU.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Counter {
    socket: Option<i16>,
    subsystem: String,
    pmu: String,
    event: String,
    filter: String,
    unit: String,
    link: Option<String>,
    direction: Option<&'static str>,
    peak: Option<(f64, Direction)>,
}

/// The owner of a line: kind, number, name if it is no task, cgroup, container, pod, job.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Owner {
    kind: String,
    number: Option<i32>,
    comm: Option<String>,
    cgroup: Option<String>,
    container: Option<String>,
    pod: Option<String>,
    job: Option<String>,
}

impl Owner {
    /// An owner with only a kind.
    fn bare(kind: &str) -> Self {
        let kind = kind.to_owned();
        let (number, comm, cgroup) = (None, None, None);
        Self { kind, number, comm, cgroup, container: None, pod: None, job: None }
    }
}

/// Rows of one window.
#[derive(Debug)]
pub struct Rows {
    /// End of the window: wall clock, microseconds since 1970, UTC; and `CLOCK_MONOTONIC`, ns.
    pub end: (i64, i64),
    /// The rows.
    pub batch: RecordBatch,
}

/// Source of the wall time of a window.
#[derive(Debug, Clone, Copy)]
pub enum Label {
    /// The rows of `fabric` that were summed.
    Recorded,
    /// Both clocks now: during a continuous recording the wall clock may be set.
    Clock(Snapshot),
}

/// Form of a roll-up.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// Length of a window, ns.
    pub window_ns: i64,
    /// Number of cgroups with rows of their own, for each counter and window: the largest.
    pub owners: usize,
    /// A window without new rows is closed after this time, ns.
    pub slack_ns: i64,
}

/// A counter that has rows.
#[derive(Debug, Clone, Copy)]
struct Met {
    /// Its place in `things`.
    thing: usize,
    /// The newest end of its windows of `fabric`, ns.
    reached_ns: i64,
    /// Whether a window has waited for it in vain since.
    is_gone: bool,
}

/// Sums rows of `fabric`.
#[derive(Debug)]
pub struct Summer {
    form: Form,
    links: Links,
    origin: Origin,
    /// The cgroup of the canary, if there is one.
    canary: Option<String>,
    /// The different counters.
    things: Vec<Counter>,
    /// By place in `things`, the end of the last window that was written, ns.
    written: Vec<i64>,
    /// By id.
    counters: HashMap<i32, Met>,
    grid: Grid,
    /// By end, ns.
    open: BTreeMap<i64, OpenWindow>,
    /// Number of lines of the open windows.
    lines: usize,
    newest_ns: i64,
    /// The window of `fabric` that was last counted, for each source and counter.
    counted: HashMap<(u32, i32), i64>,
    /// Shares that were summed in `other_tasks` because there were too many lines.
    joined: u64,
}

/// Dictionary keys that identify the line of a row within a batch: window, counter, owner, number,
/// comm, cgroup, container, pod, job, method.
type Quick = (i64, i32, i32, i32, i32, i32, i32, i32, i32, i32);

impl Summer {
    /// No rows yet.
    pub fn new(form: Form) -> Self {
        Self {
            grid: Grid::new(form.window_ns),
            form,
            links: Links::default(),
            origin: Origin::default(),
            canary: None,
            things: Vec::new(),
            written: Vec::new(),
            counters: HashMap::new(),
            open: BTreeMap::new(),
            lines: 0,
            newest_ns: i64::MIN,
            counted: HashMap::new(),
            joined: 0,
        }
    }

    /// Changes the form. Windows have the new length from the end of the newest one on, and those
    /// that are open are closed with the new number of owners.
    pub fn set_form(&mut self, form: Form) {
        let newest_ns = Some(self.newest_ns).filter(|newest| *newest != i64::MIN);
        self.grid.change(form.window_ns, newest_ns);
        self.form = form;
    }

    /// Reads the metadata of a recording, before its rows.
    ///
    /// # Errors
    ///
    /// The plan in them cannot be read.
    pub fn metadata(&mut self, pairs: &BTreeMap<String, String>) -> Result<()> {
        self.links = Links::of_metadata(pairs)?;
        self.origin = Origin::of(pairs);
        self.canary = Canary::of(pairs)?.map(|canary| canary.cgroup);
        self.counters.clear();
        self.things.clear();
        self.written.clear();
        Ok(())
    }

    /// Adds rows of `fabric` from one `source`: a recording, or one part of it. The rows of a
    /// source come in the order of their windows.
    ///
    /// # Errors
    ///
    /// The batch lacks columns of the table.
    pub fn fabric(&mut self, source: u32, batch: &RecordBatch) -> Result<()> {
        let ends = columns::i64s(batch, "mono_ns")?;
        let lengths = columns::i64s(batch, "window_ns")?;
        let times: &TimestampMicrosecondArray = columns::column(batch, "ts")?;
        let counters = columns::i32s(batch, "counter")?;
        let kinds = columns::words(batch, "owner")?;
        let numbers = columns::i32s(batch, "number")?;
        let comms = columns::words(batch, "comm")?;
        let cgroups = columns::words(batch, "cgroup")?;
        let containers = columns::words(batch, "container")?;
        let pods = columns::words(batch, "pod")?;
        let jobs = columns::words(batch, "job")?;
        let methods = columns::words(batch, "method")?;
        let values = columns::f64s(batch, "value")?;
        let totals = columns::f64s(batch, "total")?;
        let running = columns::f32s(batch, "running")?;
        let confidences = columns::f32s(batch, "confidence")?;
        let lasting = columns::f32s(batch, "cgroup_confidence")?;
        let mut known: HashMap<Quick, (usize, usize)> = HashMap::new();
        let (mut parts, mut spread) = (Vec::new(), None);
        for row in 0..batch.num_rows() {
            let (end_ns, length_ns) = (ends.value(row), lengths.value(row));
            let counter = counters.value(row);
            let thing = self.meet(counter, end_ns, batch, row)?;
            if spread.replace((end_ns, length_ns, thing)) != Some((end_ns, length_ns, thing)) {
                self.spread(thing, (end_ns.saturating_sub(length_ns), end_ns), &mut parts);
            }
            let (value, total) = (get(values, row), get(totals, row));
            let is_new = self.counted.insert((source, counter), end_ns) != Some(end_ns);
            for part in &parts {
                let Part { window: (begin_ns, close_ns), time, fraction } = *part;
                let window = self.open.entry(close_ns);
                let window = window.or_insert_with(|| OpenWindow::new(begin_ns));
                window.label(end_ns, times.value(row));
                let total = total.map(|total| total * fraction);
                if is_new {
                    window.count(thing, counter, time, total, running.value(row));
                }
                let quick = (
                    close_ns,
                    counter,
                    kinds.key(row),
                    get(numbers, row).unwrap_or(-1),
                    comms.key(row),
                    cgroups.key(row),
                    containers.key(row),
                    pods.key(row),
                    jobs.key(row),
                    methods.key(row),
                );
                let (line, number) = *known.entry(quick).or_insert_with(|| {
                    let is_task = kinds.get(row) == Some(TASK);
                    let text = |word: Option<&str>| word.map(str::to_owned);
                    let owner = Owner {
                        kind: kinds.get(row).unwrap_or_default().to_owned(),
                        number: get(numbers, row),
                        comm: text(comms.get(row)).filter(|_| !is_task),
                        cgroup: text(cgroups.get(row)),
                        container: text(containers.get(row)),
                        pod: text(pods.get(row)),
                        job: text(jobs.get(row)),
                    };
                    let method = methods.get(row).unwrap_or_default();
                    let (line, is_joined) = window.line(thing, owner, method, &mut self.lines);
                    self.joined += u64::from(is_joined);
                    let socket = self.things.get(thing).and_then(|its| its.socket);
                    let kind = kinds.get(row).unwrap_or_default();
                    let cause = cause(kind, cgroups.get(row), comms.get(row));
                    (line, window.cause(line, socket, cause))
                });
                let (Some(value), Some(total)) = (value, total) else { continue };
                let confidence = get(confidences, row);
                let of = (counter, end_ns, length_ns);
                let claim = Claim {
                    lasting: get(lasting, row).or(confidence),
                    ..Claim::new(of, value * fraction, total, confidence)
                };
                window.add(line, number, claim);
            }
        }
        Ok(())
    }

    /// The windows that take a row of a counter.
    fn spread(&mut self, thing: usize, row: (i64, i64), parts: &mut Vec<Part>) {
        self.newest_ns = self.newest_ns.max(row.1);
        let written_ns = self.written.get(thing).copied().unwrap_or(i64::MIN);
        let open = &self.open;
        let room = |end_ns, parts| open.contains_key(&end_ns) || open.len() + parts < OPEN;
        self.grid.spread(row, written_ns, room, parts);
    }

    /// Forgets a source that has ended.
    pub fn end(&mut self, source: u32) {
        self.counted.retain(|(of, _), _| *of != source);
    }

    /// Number of shares without a line of their own, because a window had [`MOST_LINES`].
    pub const fn joined(&self) -> u64 {
        self.joined
    }

    /// Adds the counter of a row, if it is new, and notes how far it has come. Returns its index in
    /// `things`.
    fn meet(&mut self, id: i32, end_ns: i64, batch: &RecordBatch, row: usize) -> Result<usize> {
        if let Some(met) = self.counters.get_mut(&id) {
            met.is_gone &= end_ns <= met.reached_ns;
            met.reached_ns = met.reached_ns.max(end_ns);
            return Ok(met.thing);
        }
        let described = self.described(id, batch, row)?;
        let place = self.things.iter().position(|thing| *thing == described);
        let thing = place.unwrap_or_else(|| {
            self.things.push(described);
            self.written.push(i64::MIN);
            self.things.len() - 1
        });
        self.counters.insert(id, Met { thing, reached_ns: end_ns, is_gone: false });
        Ok(thing)
    }

    fn described(&self, id: i32, batch: &RecordBatch, row: usize) -> Result<Counter> {
        let word = |name| -> Result<String> {
            Ok(columns::words(batch, name)?.get(row).unwrap_or_default().to_owned())
        };
        let sockets: &Int16Array = columns::column(batch, "socket")?;
        let place =
            self.links.on(id).and_then(|(place, way)| Some((self.links.links.get(place)?, way)));
        Ok(Counter {
            socket: get(sockets, row),
            subsystem: word("subsystem")?,
            pmu: word("pmu")?,
            event: word("event")?,
            filter: word("filter")?,
            unit: word("unit")?,
            link: place.map(|(link, _)| link.name.clone()),
            direction: place.map(|(_, direction)| direction.name()),
            // A memory may have a known peak only for both directions together.
            peak: place.and_then(|(link, way)| {
                let peak = limit(link, way).or_else(|| limit(link, Direction::Both))?.peak;
                Some((peak.bytes_per_s, peak.direction))
            }),
        })
    }
}

#[cfg(test)]
mod tests;
