//! Sums for `uncore-trace report`: each owner's share of each event or link.
//!
//! Guarantees: every row of the selected time is in exactly one line of its event, so that the
//! lines sum to the same total in every grouping; a row without a value is counted as missing and
//! adds nothing; owners other than tasks always have lines of their own, except in groupings that
//! sum all owners.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;

use anyhow::Result;

use super::grouping::GroupBy;
use super::heat::{Heat, Scale, StepRange, single_step};
use super::interval::Interval;
use super::key::FabricColumns;
use super::line_cache::LineCache;
use super::parallel;
use super::question::ReportQuestion;
use super::span::SelectedTime;
use super::summed_time::SummedTime;
use super::sums::{CountedTime, HighestRate, MomentRate, ShareSum, Window};
use super::tenants::DominantCgroup;
use crate::clock::TimeSpan;
use crate::schema::columns::nullable_value;
use crate::schema::fabric::{self, part_of_somebody};
use crate::schema::link::Direction;
use crate::schema::owner;
use crate::tables::reader::{OpenTable, Recording};

mod from_sums;

/// Sums of the rows of `fabric`, by event and line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReportSums {
    /// Grouping of lines.
    pub grouping: GroupBy,
    /// Whether the user chose the grouping: see [`super::tenants`].
    pub is_chosen: bool,
    /// Begin of the recording, `CLOCK_MONOTONIC`, ns.
    pub start_ns: i64,
    /// The selected time, within the recording, `CLOCK_MONOTONIC`.
    pub span: TimeSpan<i64>,
    /// Length of a step of the lines' values over time, ns.
    pub step_ns: f64,
    /// The events or links.
    pub events: Vec<ReportEvent>,
}

/// An event over all its PMU instances, or one direction of a link.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReportEvent {
    /// Name, with the filter in brackets if there is one; for a link with the direction.
    pub name: String,
    /// Index of the link, and the direction; `None` for an event.
    pub link: Option<(usize, Direction)>,
    /// Unit of the values.
    pub unit: String,
    /// Grouping of its lines.
    pub grouping: GroupBy,
    /// The cgroup in place of which lines are of processes; `None` if they are not.
    pub dominant: Option<DominantCgroup>,
    /// Time for which it was counted, with the same steps as the lines' values over time.
    pub time: CountedTime,
    /// Number of counters, by event and filter.
    pub counters: BTreeMap<String, usize>,
    /// Sum of all values.
    pub total: f64,
    /// Highest rate of windows that end at the same time, in the unit per second.
    pub highest: Option<f64>,
    /// Sum of what is attributed to nobody; 0 if lines sum all owners.
    pub unattributed: f64,
    /// Lines of the event, the largest value first.
    pub lines: Vec<ReportLine>,
    /// Rate of the windows that end at the current moment.
    rate: MomentRate,
}

impl ReportEvent {
    /// Known time, seconds.
    pub fn known_s(&self) -> f64 {
        self.time.whole.known_ns() / 1e9
    }

    /// A sum as a rate per second of known time; `None` if nothing is known.
    pub fn mean_rate(&self, value: f64) -> Option<f64> {
        self.time.whole.per_second().map(|per_second| value * per_second)
    }

    /// Sums what the lines leave unattributed, and sorts the lines.
    fn finish_lines(&mut self) {
        let nobody = self.lines.iter().filter(|line| line.owner == owner::UNATTRIBUTED);
        self.unattributed = nobody.map(|line| line.sum.value).sum();
        sort_by_value(&mut self.lines);
    }
}

/// One line: an owner, a tenant, a PMU.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReportLine {
    /// Name of the line, as recorded: not escaped.
    pub key: String,
    /// task, irq, ...; empty if lines sum all owners.
    pub owner: String,
    /// The sum of its rows, in the event's unit.
    pub sum: ShareSum,
    /// Mean of time running / time enabled over the rows.
    pub running: f64,
    /// Methods of its shares.
    pub methods: BTreeSet<String>,
    /// Highest rate of windows that end at the same time, in the event's unit per second; `None`
    /// for lines that were summed, and if no such rate is known.
    pub peak: Option<f64>,
    /// From the first to the last window with a value above 0, `CLOCK_MONOTONIC`.
    pub active: Option<TimeSpan<i64>>,
    /// Values over time.
    pub heat: Heat,
    /// Whether the rows of the line are shares of a count, not the count of all owners.
    is_divided: bool,
    small_processes: SmallProcesses,
    highest: HighestRate,
    /// Whether the line has a row in a window that ends at the current moment.
    is_touched: bool,
}

/// Number of processes that rows sum up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct SmallProcesses {
    /// Counter and end of the window of the last row.
    window: (i32, i64),
    /// In this window so far.
    in_window: i32,
    /// In any window.
    most_in_window: i32,
}

impl SmallProcesses {
    /// Adds a row.
    fn add_row(&mut self, window: (i32, i64), number: i32) {
        if std::mem::replace(&mut self.window, window) != window {
            self.in_window = 0;
        }
        self.in_window = self.in_window.saturating_add(number);
        self.most_in_window = self.most_in_window.max(self.in_window);
    }
}

/// Sums the recording's fabric table.
///
/// # Errors
///
/// The recording cannot be read, or nothing was recorded in the selected time.
pub fn sum_report(recording: &Recording, question: &ReportQuestion<'_>) -> Result<ReportSums> {
    sum_in_threads(recording, question, parallel::thread_count())
}

/// Sums the recording's fabric table in this number of threads.
fn sum_in_threads(
    recording: &Recording,
    question: &ReportQuestion<'_>,
    threads: usize,
) -> Result<ReportSums> {
    let table = recording.open_table(&fabric::TABLE)?;
    let (grouping, is_chosen) = (question.grouping, question.is_chosen);
    let Some(span) = question.selected_time(recording, &table)? else {
        return Ok(ReportSums { grouping, is_chosen, ..ReportSums::default() });
    };
    let scale = Scale::new(span.begin_ns, span.end_ns);
    let columns = question.columns_to_read(recording);
    let sum_rows = |table: &OpenTable, columns: &[&str], ends: RangeInclusive<i64>| {
        let rows = table.scan_within(columns, "mono_ns", ends.clone())?;
        let events_by_thread = parallel::sum_in_threads(rows, threads, |batches, number| {
            let mut sums = EventSummer { number, threads, grouping, scale, ..Default::default() };
            let mut known = LineCache::default();
            for batch in batches {
                let columns = FabricColumns::new(&batch, question)?;
                if known.begin_batch(&columns) {
                    sums.counters.clear();
                }
                sums.add_batch(&columns, &ends, &mut known);
            }
            Ok(sums.finish_events())
        })?;
        anyhow::Ok(events_by_thread.into_iter().flatten().collect::<Vec<ReportEvent>>())
    };
    let mut events = sum_rows(&table, &columns, span.wanted.clone())?;
    events.sort_by(|a, b| (a.link, &a.name, &a.unit).cmp(&(b.link, &b.name, &b.unit)));
    if let Some(summed) = SummedTime::find_seconds(recording, &span.wanted)? {
        let with_known_time = [&columns[..], &["known_ns"]].concat();
        let seconds = sum_rows(&summed.table, &with_known_time, summed.ends.clone())?;
        let others = summed.other_ends(&span.wanted).into_iter();
        let parts = others.map(|ends| sum_rows(&table, &columns, ends)).chain([Ok(seconds)]);
        from_sums::replace_lines(&mut events, parts.collect::<Result<_>>()?);
    }
    let SelectedTime { start_ns, begin_ns, end_ns, .. } = span;
    let span = TimeSpan { begin_ns, end_ns };
    Ok(ReportSums { grouping, is_chosen, start_ns, span, step_ns: scale.step_ns, events })
}

/// Counters that are remembered; others take longer.
const COUNTERS: usize = 1 << 16;

/// What is known of a counter, as long as batches have the same dictionaries.
#[derive(Debug, Clone, Copy, Default)]
struct CounterCache {
    /// See [`FabricColumns::quick_event`]; `None` before its first row.
    event: Option<[i32; 3]>,
    is_own: bool,
    /// Index of the event, and begin and end of the window that were last added to its time.
    last_window: (usize, i64, i64),
}

/// The sums of some of the events. Nothing of an event depends on another one, so threads that sum
/// different events have the results of one that sums all.
#[derive(Default)]
struct EventSummer {
    /// Number of this thread.
    number: usize,
    /// Number of threads.
    threads: usize,
    /// Numbers of all events, in the order of their first rows.
    event_numbers: HashMap<(String, String), usize>,
    /// By counter.
    counters: Vec<CounterCache>,
    grouping: GroupBy,
    scale: Scale,
    events: Vec<ReportEvent>,
    index: HashMap<(String, String), usize>,
    lines: HashMap<(usize, String, String), usize>,
    /// Lines with rows in the current moment.
    touched: Vec<(usize, usize)>,
    /// End of the windows of the current moment; `None` before the first row.
    end_ns: Option<i64>,
}

impl EventSummer {
    fn add_batch(
        &mut self,
        columns: &FabricColumns<'_>,
        wanted: &RangeInclusive<i64>,
        known: &mut LineCache<(usize, usize, usize)>,
    ) {
        let mut window_place = (TimeSpan::default(), StepRange::default(), None);
        for row in 0..columns.rows {
            let window = columns.row_window(row);
            if !wanted.contains(&window.end_ns) || !columns.is_wanted(row) {
                continue;
            }
            if self.end_ns.replace(window.end_ns) != Some(window.end_ns) {
                self.end_moment();
            }
            let span = window.span();
            if window_place.0 != span {
                let heat_place = self.scale.step_positions(window.end_ns, window.length_ns());
                window_place = (span, heat_place, single_step(heat_place));
            }
            let counter = columns.counter.value(row);
            if !self.is_own(columns, row, counter) {
                continue;
            }
            let quick = columns.quick_key(row);
            let (event, line, cause) = known.get(quick, || self.find_or_add_line(columns, row));
            let is_new = self.is_new(counter, (event, window.begin_ns, window.end_ns));
            let event_sums = &mut self.events[event];
            if is_new {
                let counters = event_sums.time.counter_count();
                event_sums.time.add_window(counter, window, &self.scale);
                if event_sums.time.counter_count() > counters {
                    *event_sums.counters.entry(columns.event_label(row)).or_default() += 1;
                }
            }
            let value = nullable_value(columns.value, row);
            event_sums.total += value.unwrap_or(0.0);
            event_sums.rate.add_window(value.map(|value| value * window.per_second()));
            let line_sums = &mut event_sums.lines[line];
            if !std::mem::replace(&mut line_sums.is_touched, true) {
                self.touched.push((event, line));
            }
            match window_place.2 {
                Some(step) => line_sums.heat.add_to(step, value),
                None => line_sums.heat.add_window(window_place.1, value),
            }
            line_sums.add_row(columns, row, window, cause);
        }
    }

    /// Whether the row's event is summed here.
    #[inline]
    fn is_own(&mut self, columns: &FabricColumns<'_>, row: usize, counter: i32) -> bool {
        if self.threads == 1 {
            return true;
        }
        let event = Some(columns.quick_event(row));
        let index = usize::try_from(counter).ok().filter(|candidate| *candidate < COUNTERS);
        if let Some(cached) = index.and_then(|known_index| self.counters.get(known_index))
            && cached.event == event
        {
            return cached.is_own;
        }
        let next_number = self.event_numbers.len();
        let name = (columns.traffic_label(row), columns.row_unit(row).to_owned());
        let event_number = *self.event_numbers.entry(name).or_insert(next_number);
        let is_own = event_number % self.threads == self.number;
        if let Some(new_index) = index {
            if self.counters.len() <= new_index {
                self.counters.resize(new_index + 1, CounterCache::default());
            }
            // No window begins at the end of time.
            self.counters[new_index] =
                CounterCache { event, is_own, last_window: (0, i64::MAX, i64::MIN) };
        }
        is_own
    }

    /// Whether the window of a counter was not the last one to be added to the time of its event.
    #[inline]
    fn is_new(&mut self, counter: i32, window: (usize, i64, i64)) -> bool {
        let index = usize::try_from(counter).ok();
        let cached = index.and_then(|known_index| self.counters.get_mut(known_index));
        cached.is_none_or(|cached_counter| {
            std::mem::replace(&mut cached_counter.last_window, window) != window
        })
    }

    /// Called when all rows of the windows that end at one time have come.
    fn end_moment(&mut self) {
        for (event, line) in self.touched.drain(..) {
            let event = &mut self.events[event];
            let is_known = matches!(event.rate, MomentRate::Known(_));
            let line = &mut event.lines[line];
            line.is_touched = false;
            line.highest.end_moment(is_known);
        }
        for event in &mut self.events {
            if let MomentRate::Known(rate) = std::mem::take(&mut event.rate) {
                event.highest = Some(event.highest.map_or(rate, |highest| highest.max(rate)));
            }
        }
    }

    /// Indices of the event and line of a row, and of the cause of its error; creates those that
    /// are new.
    fn find_or_add_line(
        &mut self,
        columns: &FabricColumns<'_>,
        row: usize,
    ) -> (usize, usize, usize) {
        let grouping = self.grouping;
        let name = columns.traffic_label(row);
        let unit = columns.row_unit(row).to_owned();
        let event = *self.index.entry((name.clone(), unit.clone())).or_insert_with(|| {
            let link = columns.row_link(row);
            self.events.push(ReportEvent { name, link, unit, grouping, ..ReportEvent::default() });
            self.events.len() - 1
        });
        let owner = columns.row_owner(row).to_owned();
        let key = columns.line_key(row);
        let lines = &mut self.events[event].lines;
        let line = *self.lines.entry((event, owner.clone(), key.clone())).or_insert_with(|| {
            let is_divided = columns.for_intervals.is_some();
            lines.push(ReportLine { key, owner, is_divided, ..ReportLine::default() });
            lines.len() - 1
        });
        // The method is a part of the key, so each method comes here.
        lines[line].methods.insert(columns.method.get(row).unwrap_or_default().to_owned());
        let cause = columns
            .error_cause(row)
            .map(|(socket, name)| lines[line].sum.cause_number(socket, name));
        (event, line, cause.unwrap_or_default())
    }

    fn finish_events(mut self) -> Vec<ReportEvent> {
        self.end_moment();
        for event in &mut self.events {
            event.lines.iter_mut().for_each(|line| line.peak = line.highest.rate);
            if self.grouping.has_owner() {
                // A window without a value has one row without an owner, which makes the step
                // unknown for all lines.
                let unknown_steps = event.lines.iter().map(|line| line.heat.unknown_steps);
                let unknown = unknown_steps.fold(0, |bits, step| bits | step);
                event.lines.iter_mut().for_each(|line| line.heat.unknown_steps = unknown);
            }
            event.finish_lines();
        }
        self.events
    }
}

impl ReportLine {
    fn add_row(&mut self, columns: &FabricColumns<'_>, row: usize, window: Window, cause: usize) {
        match nullable_value(columns.value, row) {
            Some(value) => {
                match columns.uncertain_share(row, value) {
                    Some(claim) => self.sum.add_claim(cause, claim),
                    None => self.sum.add_whole(value, nullable_value(columns.confidence, row)),
                }
                if value != 0.0 {
                    self.highest.add_rate(value * window.per_second());
                    let span = window.span();
                    self.active = Some(self.active.map_or(span, |active| active.hull(span)));
                }
            }
            None => self.sum.missing += 1,
        }
        if let Some(number) = columns.small_processes(row) {
            self.small_processes.add_row((columns.counter.value(row), window.end_ns), number);
        }
        // A running mean needs no second sum.
        let row_count = (self.sum.rows + self.sum.missing) as f64;
        self.running += (f64::from(columns.running.value(row)) - self.running) / row_count;
    }

    /// The largest number of processes whose small shares it sums up in a window; 0 if it does not.
    pub const fn most_small_processes(&self) -> i32 {
        self.small_processes.most_in_window
    }

    /// Value of the line; `None` where no row has one.
    pub fn known_value(&self) -> Option<f64> {
        (self.sum.rows > 0).then_some(self.sum.value)
    }

    /// The 90 % interval; `None` if no row has a value or a confidence. If the line sums all owners
    /// it is the value itself.
    ///
    /// Any tenant may have caused what is unattributed beyond what nobody is expected to move, so a
    /// tenant's upper end includes it.
    pub fn value_interval(&self, event: &ReportEvent) -> Option<Interval> {
        if self.is_divided {
            let interval = self.sum.interval_if_sure(event.total)?;
            let is_tenant = [owner::TASK, owner::OTHER_TASKS].contains(&self.owner.as_str());
            if !is_tenant || event.total <= 0.0 {
                return Some(interval);
            }
            let of_somebody = part_of_somebody(event.unattributed / event.total) * event.total;
            return Some(Interval {
                high: (interval.high + of_somebody).min(event.total).max(interval.high),
                ..interval
            });
        }
        self.known_value().map(|value| Interval { low: value, high: value })
    }

    /// Whether there is anything to show: not only the row without an owner of windows with a count
    /// of 0.
    pub fn says_something(&self) -> bool {
        self.sum.value != 0.0 || self.sum.missing > 0 || self.sum.confidence.claims > 0
    }
}

/// Keeps the `max_tasks` largest lines of tasks of each event and sums the others in one line, so
/// that the lines still sum to the total. Lines of other owners always stay.
pub fn keep_top_lines(events: &mut [ReportEvent], max_tasks: usize) {
    for event in events {
        let mut tasks = 0;
        let (kept, small_lines): (Vec<ReportLine>, Vec<ReportLine>) =
            event.lines.drain(..).partition(|line| {
                let task = line.owner == "task" || line.owner.is_empty();
                tasks += usize::from(task);
                !task || tasks <= max_tasks
            });
        event.lines = kept;
        let count = small_lines.len();
        if let Some(mut others_line) = small_lines
            .into_iter()
            .reduce(|sum, line| merge_lines(sum, line, ShareSum::add_other_owner))
        {
            others_line.key = format!("({count} {})", if count == 1 { "other" } else { "others" });
            event.lines.push(others_line);
        }
    }
}

/// Merges the lines of an owner with equal names; `name` makes the name from the key.
pub(super) fn merge_lines_by_name(events: &mut [ReportEvent], name: impl Fn(&str) -> String) {
    for event in events {
        let mut united: LinesByOwner = BTreeMap::new();
        for mut line in event.lines.drain(..) {
            line.key = name(&line.key);
            let merge = |sum, line| merge_lines(sum, line, ShareSum::add_same_owner);
            add_to_owner(&mut united, line, merge);
        }
        event.lines = united.into_values().collect();
        sort_by_value(&mut event.lines);
    }
}

/// Lines by owner and key.
type LinesByOwner = BTreeMap<(String, String), ReportLine>;

/// Adds a line; `merge` merges it with that of its owner and key, if there is one.
fn add_to_owner(
    lines: &mut LinesByOwner,
    line: ReportLine,
    merge: impl FnOnce(ReportLine, ReportLine) -> ReportLine,
) {
    let owner_and_key = (line.owner.clone(), line.key.clone());
    let sum = match lines.remove(&owner_and_key) {
        Some(sum) => merge(sum, line),
        None => line,
    };
    lines.insert(owner_and_key, sum);
}

/// Largest value first.
pub(super) fn sort_by_value(lines: &mut [ReportLine]) {
    lines.sort_by(|a, b| b.sum.value.total_cmp(&a.sum.value).then(a.key.cmp(&b.key)));
}

/// Merges two lines; `add_shares` adds their shares.
fn merge_lines(
    mut merged: ReportLine,
    line: ReportLine,
    add_shares: fn(&mut ShareSum, &ShareSum),
) -> ReportLine {
    let rows = |line: &ReportLine| (line.sum.rows + line.sum.missing) as f64;
    let (a, b) = (rows(&merged), rows(&line));
    merged.running = (merged.running * a + line.running * b) / (a + b);
    add_shares(&mut merged.sum, &line.sum);
    merged.methods.extend(line.methods);
    merged.small_processes.most_in_window =
        merged.small_processes.most_in_window.max(line.small_processes.most_in_window);
    merged.heat.add_line(&line.heat);
    // The times of the peaks are not kept, so the peak of the sum is not known.
    merged.peak = None;
    merged.active = match (merged.active, line.active) {
        (Some(active), Some(other)) => Some(active.hull(other)),
        (active, other) => active.or(other),
    };
    merged
}

#[cfg(test)]
mod tests;
