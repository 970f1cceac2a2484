//! The last minute of a recording that runs or is played: sums the rows of its tables in frames as
//! they arrive.
//!
//! Guarantees: rates are over the time for which a counter has values; a counter without a value in
//! a frame makes its sums unknown, never 0; the owners' parts sum to the total; memory is bounded
//! by [`FRAMES`], [`OWNERS`] and the number of counters.

mod frame;
mod owners;
pub mod screen;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{RecordBatch, TimestampMicrosecondArray};
use foldhash::fast::RandomState;

use self::frame::{ClosedFrame, LiveTask, OpenFrame, WatchedDirection};
pub use self::owners::OWNERS;
use self::owners::OwnerTable;
use super::grouping::GroupBy;
use super::key::FabricColumns;
use super::links::Links;
use super::question::ReportQuestion;
use crate::schema::columns::{self, nullable_value};
use crate::schema::link::Direction;
use crate::tables::reader::Recording;

/// Number of frames kept: a minute of seconds.
pub const FRAMES: usize = 60;

/// Ticks of CPU time that may wait for the shares of the same time: a minute of milliseconds.
const TICKS: usize = 60_000;

/// Groupings of owners, in the order in which the key `g` selects them.
pub const GROUPINGS: [GroupBy; 7] = [
    GroupBy::Cgroup,
    GroupBy::Container,
    GroupBy::Pod,
    GroupBy::Job,
    GroupBy::Pid,
    GroupBy::Comm,
    GroupBy::Device,
];

/// The columns of `fabric` that are read.
pub fn fabric_columns(recording: &Recording) -> Vec<&'static str> {
    let mut columns = vec!["ts", "pid", "cgroup_id", "comm"];
    for column in GROUPINGS.iter().flat_map(|grouping| grouping.wanted_columns(recording)) {
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns
}

/// The columns of `runtime` that are read.
pub const RUNTIME_COLUMNS: [&str; 6] =
    ["mono_ns", "owner", "pid", "process", "owner_cgroup_id", "run_ns"];

/// A link, or an event if there are no links.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchedCount {
    /// Name of the link, or the event with its filter.
    pub name: String,
    /// Unit of its counts.
    pub unit: String,
    /// Group of the rate in the lines of owners: the subsystem of a link, or the event itself.
    pub group: String,
    /// Index of the link in the plan.
    pub link: Option<usize>,
}

/// The frames of the last minute.
#[derive(Debug, Default)]
pub struct LiveFrames {
    links: Links,
    frame_ns: i64,
    watched: Vec<WatchedCount>,
    /// The link or event and the direction that each counter counts; `None` if links are shown and
    /// the counter is on none.
    direction_of_counter: HashMap<i32, Option<WatchedDirection>>,
    owners: OwnerTable,
    open_frame: OpenFrame,
    /// CPU time of processes, by the end of the tick. It arrives before the shares of the same
    /// time, which wait for later readings.
    run_by_tick: BTreeMap<i64, HashMap<LiveTask, i64>>,
    /// Whether CPU time is known: one file has none.
    has_run: bool,
    frames: VecDeque<ClosedFrame>,
}

impl LiveFrames {
    /// No frames yet, for a recording with these links; frames are `frame_ns` long.
    pub fn new(links: Links, frame_ns: i64) -> Self {
        let watched_link = |(link_index, link): (usize, &crate::schema::link::Link)| WatchedCount {
            name: link.name.clone(),
            unit: "bytes".to_owned(),
            group: link.subsystem.clone(),
            link: Some(link_index),
        };
        let watched = links.links.iter().enumerate().map(watched_link).collect();
        Self { links, frame_ns: frame_ns.max(1), watched, ..Self::default() }
    }

    /// Changes the length of frames, and drops the existing ones.
    pub fn set_frame(&mut self, frame_ns: i64) {
        self.frame_ns = frame_ns.max(1);
        self.open_frame = OpenFrame::default();
        self.run_by_tick.clear();
        self.frames.clear();
    }

    /// Length of a frame, ns.
    pub const fn frame_ns(&self) -> i64 {
        self.frame_ns
    }

    /// Number of complete frames, at most [`FRAMES`].
    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }

    /// Begin and end of the last complete frame, `CLOCK_MONOTONIC`, ns.
    pub fn last_frame_ns(&self) -> Option<(i64, i64)> {
        self.frames.back().map(|frame| (frame.begin_ns, frame.end_ns))
    }

    /// The longest of the complete frames, ns; longer than [`Self::frame_ns`] if a window is. The
    /// length of a frame if there is none.
    pub fn longest_ns(&self) -> i64 {
        let lengths = self.frames.iter().map(|frame| frame.end_ns - frame.begin_ns);
        lengths.max().unwrap_or(self.frame_ns)
    }

    /// The time until which windows belong to the open frame, `CLOCK_MONOTONIC`, ns; `None` before
    /// its first window.
    pub fn open_until_ns(&self) -> Option<i64> {
        self.open_frame.begin_ns.map(|begin_ns| begin_ns.saturating_add(self.frame_ns))
    }

    /// Closes the open frame at the end of a recording. Returns whether a frame became complete:
    /// less than half of one is dropped, if there is another.
    pub fn finish_frame(&mut self) -> bool {
        let Some(begin_ns) = self.open_frame.begin_ns.filter(|_| self.open_frame.end_ns != 0)
        else {
            return false;
        };
        let is_short = (self.open_frame.end_ns - begin_ns).saturating_mul(2) < self.frame_ns;
        if is_short && !self.frames.is_empty() {
            return false;
        }
        self.close_frame(begin_ns, None);
        true
    }

    /// Adds rows of `fabric`. Returns whether a frame became complete.
    ///
    /// # Errors
    ///
    /// The batch lacks columns of the table.
    pub fn add_fabric(&mut self, batch: &RecordBatch) -> Result<bool> {
        let questions = GROUPINGS.map(ReportQuestion::grouped_by);
        let columns_by_grouping =
            questions.iter().map(|question| FabricColumns::new(batch, question));
        let columns_by_grouping = columns_by_grouping.collect::<Result<Vec<_>>>()?;
        let Some(first_columns) = columns_by_grouping.first() else { return Ok(false) };
        let pids = columns::i32_column(batch, "pid")?;
        let cgroups = columns::bits_column(batch, "cgroup_id")?;
        let names = columns::word_column(batch, "comm")?;
        let walls: &TimestampMicrosecondArray = columns::typed_column(batch, "ts")?;
        let mut known_owners: HashMap<_, u32, RandomState> = HashMap::default();
        let mut is_closed = false;
        for row in 0..first_columns.rows {
            let (end_ns, length_ns) =
                (first_columns.mono_ns.value(row), first_columns.window_ns.value(row));
            is_closed |= self.begin_window(end_ns, length_ns);
            let counter = first_columns.counter.value(row);
            let Some(direction) = self.find_direction(counter, first_columns, row) else {
                continue;
            };
            let window = first_columns.row_window(row);
            self.open_frame.add_window(counter, direction, window, walls.value(row));
            let Some(value) = nullable_value(first_columns.value, row) else { continue };
            let owner_keys: [_; GROUPINGS.len()] =
                std::array::from_fn(|grouping| columns_by_grouping[grouping].tenant_key(row));
            let owner = *known_owners.entry(owner_keys).or_insert_with(|| {
                let keys =
                    columns_by_grouping.iter().map(|columns| columns.line_key(row)).collect();
                let task = nullable_value(pids, row).map(|pid| LiveTask {
                    pid,
                    cgroup_id: cgroups.get(row),
                    name: names.get(row).unwrap_or_default().into(),
                });
                self.owners.find_or_add_id(first_columns.row_owner(row), keys, task)
            });
            let confidence = nullable_value(first_columns.confidence, row);
            self.open_frame.add_share(direction, owner, value, confidence);
        }
        Ok(is_closed)
    }

    /// Adds rows of `runtime`: CPU time of processes.
    ///
    /// # Errors
    ///
    /// The batch lacks columns of the table.
    pub fn add_runtime(&mut self, batch: &RecordBatch) -> Result<()> {
        let owners = columns::word_column(batch, "owner")?;
        let ends = columns::i64_column(batch, "mono_ns")?;
        let (pids, run) =
            (columns::i32_column(batch, "pid")?, columns::i64_column(batch, "run_ns")?);
        let cgroups = columns::bits_column(batch, "owner_cgroup_id")?;
        let processes = columns::word_column(batch, "process")?;
        let names = processes.dictionary_values().iter();
        let names: Vec<Arc<str>> = names.map(|name| name.unwrap_or_default().into()).collect();
        for row in 0..batch.num_rows() {
            let name =
                usize::try_from(processes.dictionary_key(row)).ok().and_then(|key| names.get(key));
            if let (Some("task"), Some(name)) = (owners.get(row), name) {
                let (pid, cgroup_id) = (pids.value(row), cgroups.get(row));
                let task = LiveTask { pid, cgroup_id, name: Arc::clone(name) };
                let tick = self.run_by_tick.entry(ends.value(row)).or_default();
                *tick.entry(task).or_default() += run.value(row);
                self.has_run = true;
            }
        }
        while self.run_by_tick.len() > TICKS {
            self.run_by_tick.pop_first();
        }
        Ok(())
    }

    /// Closes the frame if the window belongs to the next one.
    fn begin_window(&mut self, end_ns: i64, length_ns: i64) -> bool {
        let begin_ns = *self.open_frame.begin_ns.get_or_insert(end_ns - length_ns);
        // All rows of a window go to one frame, even if the window is longer than it.
        let is_open = self.open_frame.end_ns == 0 || end_ns <= self.open_frame.end_ns;
        if is_open || end_ns - begin_ns <= self.frame_ns {
            return false;
        }
        self.close_frame(begin_ns, Some(end_ns - length_ns));
        true
    }

    /// Closes the frame, which began at `begin_ns`; the next begins at `next_ns`.
    fn close_frame(&mut self, begin_ns: i64, next_ns: Option<i64>) {
        let mut closing = std::mem::take(&mut self.open_frame);
        self.open_frame.begin_ns = next_ns;
        let later = self.run_by_tick.split_off(&(closing.end_ns + 1));
        for (end_ns, tick) in std::mem::replace(&mut self.run_by_tick, later) {
            if end_ns > begin_ns {
                for (task, ns) in tick {
                    *closing.run_ns.entry(task).or_default() += ns;
                }
            }
        }
        if let Some(previous_frame) = self.frames.back_mut() {
            // They are shown of the last frame only.
            previous_frame.confidences.clear();
            previous_frame.cpus = HashMap::new();
        }
        self.frames.push_back(closing.close_frame());
        if self.frames.len() > FRAMES {
            self.frames.pop_front();
        }
        self.owners.forget_unseen(&self.frames);
    }

    fn find_direction(
        &mut self,
        counter: i32,
        columns: &FabricColumns<'_>,
        row: usize,
    ) -> Option<WatchedDirection> {
        if let Some(known_direction) = self.direction_of_counter.get(&counter) {
            return *known_direction;
        }
        let new_direction = if self.links.links.is_empty() {
            let (name, unit) = (columns.traffic_label(row), columns.row_unit(row));
            let is_same =
                |candidate: &WatchedCount| candidate.name == name && candidate.unit == unit;
            let watched_index = self.watched.iter().position(is_same).unwrap_or_else(|| {
                let group = name.clone();
                self.watched.push(WatchedCount { name, unit: unit.to_owned(), group, link: None });
                self.watched.len() - 1
            });
            Some((watched_index, Direction::Both))
        } else {
            self.links.link_of(counter)
        };
        self.direction_of_counter.insert(counter, new_direction);
        new_direction
    }
}

#[cfg(test)]
mod tests;
