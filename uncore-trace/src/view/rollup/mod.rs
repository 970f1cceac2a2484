//! Sums `fabric` in longer windows: the rows of the table [`crate::schema::rollup`].
//!
//! Counters of one PMU that count the same event on several CPUs are summed. Guarantees: every
//! share of `fabric` is in the rows, once, so the shares of a counter's window sum to its total, as
//! in `fabric`; a window of a counter is written once; a window of `fabric` without a value adds
//! nothing, and is not in `known_ns`, which is at most `window_ns`; memory is bounded by
//! [`MOST_LINES`] of all windows and [`MAX_OPEN_WINDOWS`] windows.
//!
//! # Windows that are late
//!
//! A window of `fabric` extends over missing readings, so it may be longer than those of the
//! roll-up or reach over their ends. It is spread over them ([`grid`]). So a window waits for each
//! counter that has not come to its end, for 5 s. What comes later for a window that is written is
//! in the next one of its counter.
//!
//! # Confidence
//!
//! The probability that a sum of many shares is within 10 % of the truth depends on the correlation
//! of their errors, so it is not a mean of their confidences. So a row has two figures.
//! `confidence` is the mean of the confidences of its shares, weighted by value: the part of
//! `value` that is expected in shares that are right. `low` and `high` are the 90 % interval of the
//! sum ([`super::interval`]: the row of a cgroup has one error on each socket, which all windows
//! and counters have in common). If rows are summed again, the sums of `low` and of `high` are an
//! interval that is never too narrow for errors that add up, as those of one owner do over time.

mod closing;
mod grid;
mod window;

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use anyhow::Result;
use arrow::array::{Int16Array, RecordBatch, TimestampMicrosecondArray};

use self::grid::{RollupGrid, RowPortion};
use self::window::OpenWindow;
use super::interval::UncertainShare;
use super::key::{cause_name, known_times};
use super::links::{Links, limit};
use super::sums::Window;
use crate::clock::{RollupTime, Snapshot, TimeSpan};
use crate::schema::canary::CanarySummary;
use crate::schema::columns::{self, nullable_value};
use crate::schema::link::Direction;
use crate::schema::origin::RecordingOrigin;
use crate::schema::owner::TASK;

/// Most lines of all open windows, and of one of them; further ones are summed in `other_tasks`.
pub const MOST_LINES: (usize, usize) = (400_000, 50_000);

/// Most open windows: if there are more, the oldest is closed, and a long row is not spread
/// further.
pub const MAX_OPEN_WINDOWS: usize = 600;

/// A counter, as its rows describe it. Counters with equal fields are summed: those of an event
/// that is counted on each CPU.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RollupCounter {
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RollupOwner {
    owner_kind: String,
    number: Option<i32>,
    comm: Option<String>,
    cgroup: Option<String>,
    container: Option<String>,
    pod: Option<String>,
    job: Option<String>,
}

impl RollupOwner {
    /// An owner with only a kind.
    fn with_kind(owner_kind: &str) -> Self {
        Self { owner_kind: owner_kind.to_owned(), ..Self::default() }
    }
}

/// Rows of one window.
#[derive(Debug)]
pub struct RollupRows {
    /// End of the window.
    pub end: RollupTime,
    /// The rows.
    pub batch: RecordBatch,
}

/// Source of the wall time of a window.
#[derive(Debug, Clone, Copy)]
pub enum WallTimeSource {
    /// The rows of `fabric` that were summed.
    Recorded,
    /// Both clocks now: during a continuous recording the wall clock may be set.
    Clock(Snapshot),
}

/// Form of a roll-up.
#[derive(Debug, Clone, Copy)]
pub struct RollupForm {
    /// Length of a window, ns.
    pub window_ns: i64,
    /// Number of cgroups with rows of their own, for each counter and window: the largest.
    pub owners: usize,
    /// A window without new rows is closed after this time, ns.
    pub slack_ns: i64,
}

/// A counter that had rows, and how far it has come.
#[derive(Debug, Clone, Copy)]
struct SeenCounter {
    /// Index in `rollup_counters`.
    counter_index: usize,
    /// The newest end of its windows of `fabric`, ns.
    reached_ns: i64,
    /// Whether a window has waited for it in vain since.
    is_gone: bool,
}

/// Sums rows of `fabric`.
#[derive(Debug)]
pub struct RollupSummer {
    form: RollupForm,
    links: Links,
    origin: RecordingOrigin,
    /// The cgroup of the canary, if there is one.
    canary: Option<String>,
    /// The different counters.
    rollup_counters: Vec<RollupCounter>,
    /// By index in `rollup_counters`, the end of the last window that was written, ns.
    written_until_ns: Vec<i64>,
    /// By id.
    counters: HashMap<i32, SeenCounter>,
    grid: RollupGrid,
    /// By end, ns.
    open_windows: BTreeMap<i64, OpenWindow>,
    /// Number of lines of the open windows.
    open_lines: usize,
    newest_ns: i64,
    /// The window of `fabric` that was last counted, for each source and counter.
    last_counted_ns: HashMap<(u32, i32), i64>,
    /// Shares that were summed in `other_tasks` because there were too many lines.
    pub joined_shares: u64,
}

/// Dictionary keys that identify the line of a row within a batch: window, counter, owner, number,
/// comm, cgroup, container, pod, job, method.
type LineKeys = (i64, i32, i32, i32, i32, i32, i32, i32, i32, i32);

impl RollupSummer {
    /// No rows yet.
    pub fn new(form: RollupForm) -> Self {
        Self {
            grid: RollupGrid::new(form.window_ns),
            form,
            links: Links::default(),
            origin: RecordingOrigin::default(),
            canary: None,
            rollup_counters: Vec::new(),
            written_until_ns: Vec::new(),
            counters: HashMap::new(),
            open_windows: BTreeMap::new(),
            open_lines: 0,
            newest_ns: i64::MIN,
            last_counted_ns: HashMap::new(),
            joined_shares: 0,
        }
    }

    /// Changes the form. Windows have the new length from the end of the newest one on, and those
    /// that are open are closed with the new number of owners.
    pub fn set_form(&mut self, form: RollupForm) {
        let newest_ns = Some(self.newest_ns).filter(|newest| *newest != i64::MIN);
        self.grid.set_window_length(form.window_ns, newest_ns);
        self.form = form;
    }

    /// Reads the metadata of a recording, before its rows.
    ///
    /// # Errors
    ///
    /// The plan in them cannot be read.
    pub fn read_metadata(&mut self, pairs: &BTreeMap<String, String>) -> Result<()> {
        self.links = Links::from_metadata(pairs)?;
        self.origin = RecordingOrigin::from_metadata(pairs);
        self.canary = CanarySummary::from_metadata(pairs)?.map(|canary| canary.cgroup);
        self.counters.clear();
        self.rollup_counters.clear();
        self.written_until_ns.clear();
        Ok(())
    }

    /// Adds rows of `fabric` from one `source`: a recording, or one part of it. The rows of a
    /// source come in the order of their windows.
    ///
    /// # Errors
    ///
    /// The batch lacks columns of the table.
    pub fn add_fabric(&mut self, source: u32, batch: &RecordBatch) -> Result<()> {
        self.add_rows(source, batch, &(i64::MIN..=i64::MAX))
    }

    /// Adds the rows of `fabric` or `sums` whose windows end in `wanted`.
    ///
    /// # Errors
    ///
    /// Those of [`RollupSummer::add_fabric`].
    pub fn add_rows(
        &mut self,
        source: u32,
        batch: &RecordBatch,
        wanted: &RangeInclusive<i64>,
    ) -> Result<()> {
        let ends = columns::i64_column(batch, "mono_ns")?;
        let lengths = columns::i64_column(batch, "window_ns")?;
        let times: &TimestampMicrosecondArray = columns::typed_column(batch, "ts")?;
        let counters = columns::i32_column(batch, "counter")?;
        let kinds = columns::word_column(batch, "owner")?;
        let numbers = columns::i32_column(batch, "number")?;
        let comms = columns::word_column(batch, "comm")?;
        let cgroups = columns::word_column(batch, "cgroup")?;
        let containers = columns::word_column(batch, "container")?;
        let pods = columns::word_column(batch, "pod")?;
        let jobs = columns::word_column(batch, "job")?;
        let methods = columns::word_column(batch, "method")?;
        let values = columns::f64_column(batch, "value")?;
        let totals = columns::f64_column(batch, "total")?;
        let running = columns::f32_column(batch, "running")?;
        let confidences = columns::f32_column(batch, "confidence")?;
        let cgroup_confidences = columns::f32_column(batch, "cgroup_confidence")?;
        let known_times = known_times(batch)?;
        let mut known: HashMap<LineKeys, (usize, usize)> = HashMap::new();
        let (mut portions, mut spread) = (Vec::new(), None);
        for row in 0..batch.num_rows() {
            let (end_ns, length_ns) = (ends.value(row), lengths.value(row));
            if !wanted.contains(&end_ns) {
                continue;
            }
            let counter = counters.value(row);
            let counter_index = self.find_or_add_counter(counter, end_ns, batch, row)?;
            if spread.replace((end_ns, length_ns, counter_index))
                != Some((end_ns, length_ns, counter_index))
            {
                let time = TimeSpan::new(end_ns.saturating_sub(length_ns), end_ns);
                self.spread_row(counter_index, time, &mut portions);
            }
            let (value, total) = (nullable_value(values, row), nullable_value(totals, row));
            let is_new = self.last_counted_ns.insert((source, counter), end_ns) != Some(end_ns);
            for portion in &portions {
                let RowPortion { window: TimeSpan { begin_ns, end_ns: close_ns }, time, fraction } =
                    *portion;
                let window = self.open_windows.entry(close_ns);
                let window = window.or_insert_with(|| OpenWindow::new(begin_ns));
                window.note_end(RollupTime { ts_us: times.value(row), mono_ns: end_ns });
                let total = total.map(|total| total * fraction);
                if is_new {
                    let known = known_times.map_or_else(
                        || Window::of_value(time.end_ns, time.len_ns(), total.is_some()),
                        |known| portion_window(time, known.value(row) as f64 * fraction),
                    );
                    window.add_total(counter_index, counter, known, total, running.value(row));
                }
                let line_keys = (
                    close_ns,
                    counter,
                    kinds.dictionary_key(row),
                    nullable_value(numbers, row).unwrap_or(-1),
                    comms.dictionary_key(row),
                    cgroups.dictionary_key(row),
                    containers.dictionary_key(row),
                    pods.dictionary_key(row),
                    jobs.dictionary_key(row),
                    methods.dictionary_key(row),
                );
                let (line, cause_number) = *known.entry(line_keys).or_insert_with(|| {
                    let owner_kind = kinds.get(row).unwrap_or_default();
                    let is_task = owner_kind == TASK;
                    let text = |word: Option<&str>| word.map(str::to_owned);
                    let owner = RollupOwner {
                        owner_kind: owner_kind.to_owned(),
                        number: nullable_value(numbers, row),
                        comm: text(comms.get(row)).filter(|_| !is_task),
                        cgroup: text(cgroups.get(row)),
                        container: text(containers.get(row)),
                        pod: text(pods.get(row)),
                        job: text(jobs.get(row)),
                    };
                    let method = methods.get(row).unwrap_or_default();
                    let (line, is_joined) =
                        window.find_or_add_line(counter_index, owner, method, &mut self.open_lines);
                    self.joined_shares += u64::from(is_joined);
                    let socket =
                        self.rollup_counters.get(counter_index).and_then(|counter| counter.socket);
                    let cause = cause_name(owner_kind, cgroups.get(row), comms.get(row));
                    let line_sum = window.lines.get_mut(line);
                    (line, line_sum.map_or(0, |line| line.sum.cause_number(socket, cause)))
                });
                let (Some(value), Some(total)) = (value, total) else { continue };
                let confidence = nullable_value(confidences, row);
                let claim_key = (counter, end_ns, length_ns);
                let claim = UncertainShare {
                    width_confidence: nullable_value(cgroup_confidences, row).or(confidence),
                    ..UncertainShare::new(claim_key, value * fraction, total, confidence)
                };
                if let Some(line) = window.lines.get_mut(line) {
                    line.sum.add_claim(cause_number, claim);
                }
            }
        }
        Ok(())
    }

    /// Spreads a row of a counter over the windows that take it.
    fn spread_row(
        &mut self,
        counter_index: usize,
        row: TimeSpan<i64>,
        portions: &mut Vec<RowPortion>,
    ) {
        self.newest_ns = self.newest_ns.max(row.end_ns);
        let written_ns = self.written_until_ns.get(counter_index).copied().unwrap_or(i64::MIN);
        let open_windows = &self.open_windows;
        let has_room = |end_ns, portion_count| {
            open_windows.contains_key(&end_ns)
                || open_windows.len() + portion_count < MAX_OPEN_WINDOWS
        };
        self.grid.spread_row(row, written_ns, has_room, portions);
    }

    /// Forgets a source that has ended.
    pub fn end_source(&mut self, source: u32) {
        self.last_counted_ns.retain(|(counted_source, _), _| *counted_source != source);
    }

    /// Adds the counter of a row, if it is new, and notes how far it has come. Returns its index in
    /// `rollup_counters`.
    fn find_or_add_counter(
        &mut self,
        id: i32,
        end_ns: i64,
        batch: &RecordBatch,
        row: usize,
    ) -> Result<usize> {
        if let Some(seen) = self.counters.get_mut(&id) {
            seen.is_gone &= end_ns <= seen.reached_ns;
            seen.reached_ns = seen.reached_ns.max(end_ns);
            return Ok(seen.counter_index);
        }
        let described = self.describe_counter(id, batch, row)?;
        let known_index =
            self.rollup_counters.iter().position(|rollup_counter| *rollup_counter == described);
        let counter_index = known_index.unwrap_or_else(|| {
            self.rollup_counters.push(described);
            self.written_until_ns.push(i64::MIN);
            self.rollup_counters.len() - 1
        });
        self.counters.insert(id, SeenCounter { counter_index, reached_ns: end_ns, is_gone: false });
        Ok(counter_index)
    }

    fn describe_counter(&self, id: i32, batch: &RecordBatch, row: usize) -> Result<RollupCounter> {
        let word = |name| -> Result<String> {
            Ok(columns::word_column(batch, name)?.get(row).unwrap_or_default().to_owned())
        };
        let sockets: &Int16Array = columns::typed_column(batch, "socket")?;
        let link_and_direction = self.links.link_of(id);
        let link = link_and_direction.and_then(|(link_index, _)| self.links.links.get(link_index));
        Ok(RollupCounter {
            socket: nullable_value(sockets, row),
            subsystem: word("subsystem")?,
            pmu: word("pmu")?,
            event: word("event")?,
            filter: word("filter")?,
            unit: word("unit")?,
            link: link.map(|link| link.name.clone()),
            direction: link_and_direction.map(|(_, direction)| direction.direction_name()),
            // A memory may have a known peak only for both directions together.
            peak: link_and_direction.zip(link).and_then(|((_, direction), link)| {
                let peak = limit(link, direction).or_else(|| limit(link, Direction::Both))?.peak;
                Some((peak.bytes_per_s, peak.direction))
            }),
        })
    }
}

/// A portion of a row, of which this time is known, ns.
fn portion_window(time: TimeSpan<i64>, known_ns: f64) -> Window {
    Window::new(time.end_ns, time.len_ns(), known_ns.round() as i64)
}

#[cfg(test)]
mod tests;
