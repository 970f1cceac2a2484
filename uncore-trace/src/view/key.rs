//! The columns that identify the line of a row.

use anyhow::Result;
use arrow::array::{
    Array as _, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};

use super::grouping::GroupBy;
use super::interval::{Interval, UncertainShare};
use super::links::Links;
use super::question::ReportQuestion;
use super::selected::SelectedBatch;
use super::sums::Window;
use crate::schema::cgroups::{ancestor_path, whole_job};
use crate::schema::columns::{self, BitsColumn, WordColumn, nullable_value};
use crate::schema::link::Direction;
use crate::schema::owner;

/// Key of the line of processes whose shares are too small for rows of their own.
pub(super) const SMALL: &str = "(small processes)";

/// Format terms that select root ports: of `nvidia_pcie` (Grace, Tegra410), `intel_iio` and
/// `hisi_pcie` (drivers/perf, Linux 7.2).
const PORT_TERMS: [&str; 5] = ["root_port", "src_rp_mask", "dst_rp_mask", "ch_mask", "port"];

/// The columns of a batch.
#[derive(Debug)]
pub struct FabricColumns<'a> {
    /// Number of rows.
    pub rows: usize,
    /// End of the window.
    pub mono_ns: &'a Int64Array,
    /// Length of the window.
    pub window_ns: &'a Int64Array,
    /// The share.
    pub value: &'a Float64Array,
    /// Time running / time enabled.
    pub running: &'a Float32Array,
    /// Method of the share.
    pub method: WordColumn<'a>,
    /// Confidence of the share.
    pub confidence: &'a Float32Array,
    /// Id of the counter.
    pub counter: &'a Int32Array,
    /// Columns for intervals; `None` if lines sum all owners.
    pub for_intervals: Option<IntervalColumns<'a>>,
    /// Known time of the window; only in roll-ups.
    known_ns: Option<&'a Int64Array>,
    links: Option<&'a Links>,
    event: WordColumn<'a>,
    filter: WordColumn<'a>,
    unit: WordColumn<'a>,
    owner: Option<WordColumn<'a>>,
    /// The column with the name of the line.
    name: Option<WordColumn<'a>>,
    pid: Option<&'a Int32Array>,
    processes: Option<&'a Int32Array>,
    cgroup_id: Option<BitsColumn<'a>>,
    selected: SelectedBatch<'a>,
    grouping: GroupBy,
    cgroup_depth: Option<usize>,
}

/// Columns that the interval of a row needs.
#[derive(Debug, Clone, Copy)]
pub struct IntervalColumns<'a> {
    /// The counter's socket.
    pub socket: &'a Int16Array,
    /// Total of the counter in the window.
    pub total: &'a Float64Array,
    /// The owner's name.
    pub comm: WordColumn<'a>,
    /// Cgroup, and confidence of its sum; `None` if lines divide cgroups.
    cgroup: Option<(WordColumn<'a>, &'a Float32Array)>,
    /// Ends of the row's interval; only in roll-ups.
    interval: Option<(&'a Float64Array, &'a Float64Array)>,
}

impl<'a> IntervalColumns<'a> {
    fn new(batch: &'a RecordBatch, grouping: GroupBy) -> Result<Self> {
        Ok(Self {
            socket: columns::typed_column(batch, "socket")?,
            total: columns::f64_column(batch, "total")?,
            comm: columns::word_column(batch, "comm")?,
            cgroup: column_if(grouping.has_whole_cgroups(), || {
                let confidences = columns::f32_column(batch, "cgroup_confidence")?;
                Ok((columns::word_column(batch, "cgroup")?, confidences))
            })?,
            interval: column_if(batch.column_by_name("low").is_some(), || {
                Ok((columns::f64_column(batch, "low")?, columns::f64_column(batch, "high")?))
            })?,
        })
    }
}

/// A column, or several, that not every batch has or needs.
pub(super) fn column_if<T>(
    is_wanted: bool,
    find_column: impl FnOnce() -> Result<T>,
) -> Result<Option<T>> {
    is_wanted.then(find_column).transpose()
}

/// Number of `other_tasks` in [`QuickKey`].
const OTHER_TASKS_NUMBER: i32 = -2;

/// Numbers that identify a row's line, cause of error and method without comparing strings, in
/// batches with the same dictionaries.
pub type QuickKey = ([i32; 3], i32, i32, i64, (i32, Option<i16>), i32);

impl<'a> FabricColumns<'a> {
    /// The columns for the lines of a question; its time is ignored.
    pub fn new(
        batch: &'a RecordBatch,
        question: &'a ReportQuestion<'_>,
    ) -> Result<FabricColumns<'a>> {
        let ReportQuestion {
            grouping: grouped_by, links, cgroup_depth: depth, ref selected, ..
        } = *question;
        let has_owner = grouped_by.has_owner();
        let divides_cgroups = !grouped_by.has_whole_cgroups();
        Ok(FabricColumns {
            rows: batch.num_rows(),
            mono_ns: columns::i64_column(batch, "mono_ns")?,
            window_ns: columns::i64_column(batch, "window_ns")?,
            value: columns::f64_column(batch, "value")?,
            running: columns::f32_column(batch, "running")?,
            method: columns::word_column(batch, "method")?,
            confidence: columns::f32_column(batch, "confidence")?,
            counter: columns::i32_column(batch, "counter")?,
            known_ns: known_times(batch)?,
            links,
            for_intervals: column_if(has_owner, || IntervalColumns::new(batch, grouped_by))?,
            event: columns::word_column(batch, "event")?,
            filter: columns::word_column(batch, "filter")?,
            unit: columns::word_column(batch, "unit")?,
            owner: column_if(has_owner, || columns::word_column(batch, "owner"))?,
            name: grouped_by
                .line_name()
                .map(|name| columns::word_column(batch, name))
                .transpose()?,
            pid: column_if(grouped_by == GroupBy::Pid, || columns::i32_column(batch, "pid"))?,
            processes: column_if(divides_cgroups, || columns::i32_column(batch, "processes"))?,
            cgroup_id: column_if(grouped_by == GroupBy::Cgroup, || {
                columns::bits_column(batch, "cgroup_id")
            })?,
            selected: selected.select_rows(batch)?,
            grouping: grouped_by,
            cgroup_depth: depth,
        })
    }

    /// The window of a row.
    #[inline]
    pub fn row_window(&self, row: usize) -> Window {
        let (end_ns, length_ns) = (self.mono_ns.value(row), self.window_ns.value(row));
        match self.known_ns {
            Some(known_ns) => Window::new(end_ns, length_ns, known_ns.value(row)),
            None => Window::of_value(end_ns, length_ns, self.value.is_valid(row)),
        }
    }

    /// Value and uncertainty of a row with a value; `None` if lines sum all owners.
    #[inline]
    pub(super) fn uncertain_share(&self, row: usize, value: f64) -> Option<UncertainShare> {
        let divided = self.for_intervals?;
        let window = (self.counter.value(row), self.mono_ns.value(row), self.window_ns.value(row));
        let total = nullable_value(divided.total, row).unwrap_or(value);
        let ends = divided
            .interval
            .and_then(|(low, high)| Some((nullable_value(low, row)?, nullable_value(high, row)?)));
        let interval = ends.map(|(low, high)| Interval { low, high });
        let confidence = nullable_value(self.confidence, row);
        let width_confidence = divided
            .cgroup
            .and_then(|(_, confidences)| nullable_value(confidences, row))
            .or(confidence);
        Some(UncertainShare {
            width_confidence,
            interval,
            ..UncertainShare::new(window, value, total, confidence)
        })
    }

    /// The cause of a row's error: the counter's socket, and a cgroup or program; `None` if lines
    /// sum all owners.
    pub(super) fn error_cause(&self, row: usize) -> Option<(Option<i16>, &'a str)> {
        let divided = self.for_intervals?;
        let comm = divided.comm.get(row);
        let name = match divided.cgroup {
            Some((cgroup, _)) => cause_name(self.recorded_owner(row), cgroup.get(row), comm),
            None => comm.unwrap_or_default(),
        };
        Some((nullable_value(divided.socket, row), name))
    }

    /// The owner of a row; empty if lines sum all owners.
    pub fn row_owner(&self, row: usize) -> &'a str {
        if self.is_other(row) { owner::OTHER_TASKS } else { self.recorded_owner(row) }
    }

    #[inline]
    fn recorded_owner(&self, row: usize) -> &'a str {
        self.owner.and_then(|owner| owner.get(row)).unwrap_or_default()
    }

    /// Whether the row is of a task whose cgroup is not selected.
    #[inline]
    fn is_other(&self, row: usize) -> bool {
        self.selected.is_other(row, || self.recorded_owner(row))
    }

    /// The unit of a row.
    pub fn row_unit(&self, row: usize) -> &'a str {
        self.unit.get(row).unwrap_or_default()
    }

    /// Index of a row's link, and the direction; `None` if lines are by event, or the counter is on
    /// no link.
    #[inline]
    pub fn row_link(&self, row: usize) -> Option<(usize, Direction)> {
        self.links?.link_of(self.counter.value(row))
    }

    /// Whether the row belongs to a line: of a selected event or link, and by link, only rows whose
    /// counter is on one.
    #[inline]
    pub fn is_wanted(&self, row: usize) -> bool {
        (self.links.is_none() || self.row_link(row).is_some())
            && self.selected.has_event(row, self.counter.value(row))
    }

    /// Event of the row, or its link and direction.
    pub fn traffic_label(&self, row: usize) -> String {
        self.row_link(row).zip(self.links).map_or_else(
            || self.event_label(row),
            |((link_index, direction), links)| links.direction_label(link_index, direction),
        )
    }

    /// Event of a row with its filter in brackets. By port, ports in the filter become `*`: a count
    /// over all ports stays separate, or it would be counted twice.
    pub fn event_label(&self, row: usize) -> String {
        let event = self.event.get(row).unwrap_or_default();
        match self.filter.get(row).unwrap_or_default() {
            filter if self.grouping == GroupBy::Port => name_event(event, &any_port(filter)),
            filter => name_event(event, filter),
        }
    }

    /// Key and name of the row's line.
    pub fn line_key(&self, row: usize) -> String {
        let owner = self.row_owner(row);
        if owner == owner::OTHER_TASKS {
            return owner.to_owned();
        }
        let name = self.name.and_then(|name| name.get(row));
        match self.grouping {
            GroupBy::Pmu => name.unwrap_or_default().to_owned(),
            GroupBy::Port => {
                port_key(name.unwrap_or_default(), self.filter.get(row).unwrap_or_default())
            }
            GroupBy::Cgroup if owner == "task" => match (name, self.cgroup_depth) {
                (Some(path), Some(depth)) => ancestor_path(path, depth).to_owned(),
                (Some(path), None) => path.to_owned(),
                (None, _) => unnamed_cgroup(self.cgroup_id.and_then(|ids| ids.get(row))),
            },
            GroupBy::Job if owner == "task" => {
                name.map_or_else(|| "(no job)".to_owned(), |name| whole_job(name).to_owned())
            }
            GroupBy::Container | GroupBy::Pod if owner == "task" => {
                name.map_or_else(|| format!("(no {})", self.grouping.name()), str::to_owned)
            }
            GroupBy::Pid if owner == "task" => {
                let comm = name.unwrap_or("?");
                match self.pid.and_then(|pids| nullable_value(pids, row)) {
                    Some(pid) => format!("{comm} ({pid})"),
                    None if self.small_processes(row).is_some() => SMALL.to_owned(),
                    None => "(unknown processes)".to_owned(),
                }
            }
            GroupBy::Comm if owner == "task" => {
                let is_small = self.small_processes(row).is_some();
                name.unwrap_or(if is_small { SMALL } else { "?" }).to_owned()
            }
            GroupBy::Pid | GroupBy::Comm => name.unwrap_or(owner).to_owned(),
            GroupBy::Device if owner == "device" => name.unwrap_or(owner).to_owned(),
            GroupBy::Owner
            | GroupBy::Cgroup
            | GroupBy::Container
            | GroupBy::Pod
            | GroupBy::Job
            | GroupBy::Device => owner.to_owned(),
        }
    }

    /// Number of processes whose small shares the row sums up, if it does and lines are by process
    /// or by their names.
    #[inline]
    pub(super) fn small_processes(&self, row: usize) -> Option<i32> {
        self.processes.and_then(|processes| nullable_value(processes, row))
    }

    /// The dictionaries to which the keys in [`Self::quick_key`] refer.
    pub(super) fn key_dictionaries(&self) -> Vec<&'a StringArray> {
        let always_read = [self.event, self.filter, self.unit, self.method];
        let comm = self.for_intervals.map(|divided| divided.comm);
        let cgroup =
            self.for_intervals.and_then(|divided| divided.cgroup).map(|(cgroup, _)| cgroup);
        let if_read = [self.owner, self.name, comm, cgroup].into_iter().flatten();
        always_read.into_iter().chain(if_read).map(|words| words.dictionary_values()).collect()
    }

    /// Identifies the row's line whatever was counted, in batches with the same dictionaries.
    pub(super) fn tenant_key(&self, row: usize) -> [i64; 3] {
        let (owner, name, number) = self.owner_key(row);
        [owner.into(), name.into(), number]
    }

    /// Identifies the row's owner or group of owners: the numbers of its kind, of its name, and of
    /// its process or of a cgroup without a name.
    #[inline]
    fn owner_key(&self, row: usize) -> (i32, i32, i64) {
        let name = self.name.map_or(0, |name| name.dictionary_key(row));
        let number = match (self.pid, self.cgroup_id) {
            (Some(pids), _) => nullable_value(pids, row).map_or_else(
                || if self.small_processes(row).is_some() { -2 } else { -1 },
                i64::from,
            ),
            (_, Some(ids)) if name == -1 => ids.get(row).map_or(-1, |id| id as i64),
            _ if self.small_processes(row).is_some() => -2,
            _ => -1,
        };
        let recorded_number = self.owner.map_or(0, |owner| owner.dictionary_key(row));
        let owner = if self.is_other(row) { OTHER_TASKS_NUMBER } else { recorded_number };
        (owner, name, number)
    }

    /// Identifies the row's event, or its link and direction: see [`QuickKey`].
    #[inline]
    pub(super) fn quick_event(&self, row: usize) -> [i32; 3] {
        match self.row_link(row) {
            Some((link_index, direction)) => [link_index as i32, direction as i32, -1],
            None => [
                self.event.dictionary_key(row),
                self.filter.dictionary_key(row),
                self.unit.dictionary_key(row),
            ],
        }
    }

    /// Identifies the row's line: see [`QuickKey`].
    #[inline]
    pub fn quick_key(&self, row: usize) -> QuickKey {
        let event = self.quick_event(row);
        let (owner, name, number) = self.owner_key(row);
        let cause = self.for_intervals.map_or((0, None), |divided| {
            let cgroup = divided.cgroup.map_or(-1, |(cgroup, _)| cgroup.dictionary_key(row));
            // Below -1, so that no cgroup has the number of a program.
            let name = if cgroup < 0 { divided.comm.dictionary_key(row) } else { -2 - cgroup };
            (name, nullable_value(divided.socket, row))
        });
        (event, owner, name, number, cause, self.method.dictionary_key(row))
    }
}

/// Known time of each row; `None` in `fabric`, where all of a window is known or nothing.
pub(super) fn known_times(batch: &RecordBatch) -> Result<Option<&Int64Array>> {
    let has_known_times = batch.column_by_name("known_ns").is_some();
    column_if(has_known_times, || columns::i64_column(batch, "known_ns"))
}

/// The name of the cause of error in a line of whole cgroups: the cgroup, or the owner if it has
/// none. Tasks of cgroups whose path is not known have one together.
pub(super) fn cause_name<'a>(
    owner: &str,
    cgroup: Option<&'a str>,
    comm: Option<&'a str>,
) -> &'a str {
    cgroup.or(comm.filter(|_| owner != owner::TASK)).unwrap_or_default()
}

/// An event, with its filter in brackets if it has one.
pub(super) fn name_event(event: &str, filter: &str) -> String {
    if filter.is_empty() { event.to_owned() } else { format!("{event}[{filter}]") }
}

/// What a cgroup whose path is not known is called, by its id if it has one.
pub(super) fn unnamed_cgroup(id: Option<u64>) -> String {
    id.map_or_else(|| "(no cgroup)".to_owned(), |id| format!("(cgroup id {id})"))
}

/// Whether `TERM=VALUE` selects ports.
fn is_port(term: &str) -> bool {
    PORT_TERMS.contains(&term.split_once('=').map_or(term, |(name, _)| name))
}

/// The filter with `*` for ports.
fn any_port(filter: &str) -> String {
    let terms = filter.split(',').map(|term| match term.split_once('=') {
        Some((name, _)) if is_port(term) => format!("{name}=*"),
        _ => term.to_owned(),
    });
    terms.collect::<Vec<_>>().join(",")
}

/// `PMU/TERM=VALUE`, or the PMU alone if it has one port or counts all together.
fn port_key(pmu: &str, filter: &str) -> String {
    let ports: Vec<&str> = filter.split(',').filter(|term| is_port(term)).collect();
    if ports.is_empty() { pmu.to_owned() } else { format!("{pmu}/{}", ports.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_told_by_the_filter() {
        for (filter, key, event) in [
            ("root_port=0x1", "pcie_0/root_port=0x1", "root_port=*"),
            ("dst_loc=1,src_rp_mask=0x3", "pcie_0/src_rp_mask=0x3", "dst_loc=1,src_rp_mask=*"),
            ("dst_loc=1", "pcie_0", "dst_loc=1"),
            ("", "pcie_0", ""),
        ] {
            assert_eq!(
                (port_key("pcie_0", filter), any_port(filter)),
                (key.to_owned(), event.to_owned())
            );
        }
    }
}
