//! What the lines of a report are by, and the columns that tell the line of a row.

use anyhow::Result;
use arrow::array::{
    Array as _, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};

use super::interval::{Claim, Interval};
use super::links::Links;
use super::sums::Window;
use crate::schema::cgroups::ancestor;
use crate::schema::columns::{self, Bits, Words, get};
use crate::schema::link::Direction;
use crate::tables::reader::Recording;

/// What the lines are by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// One line for each cgroup.
    Cgroup,
    /// One line for each container.
    Container,
    /// One line for each pod.
    Pod,
    /// One line for each process.
    Pid,
    /// One line for each PMU instance, all owners together.
    Pmu,
    /// One line for each root port, as the counter's filter names it, all owners together.
    Port,
    /// One line for each device that moved data by itself.
    Device,
    /// One line for each kind of owner: task, `other_tasks`, irq, softirq, idle, device, unattributed.
    Owner,
}

impl By {
    /// Every way to ask.
    pub const ALL: [By; 8] =
        [By::Cgroup, By::Container, By::Pod, By::Pid, By::Pmu, By::Port, By::Device, By::Owner];

    /// Its name in the output.
    pub fn name(self) -> &'static str {
        match self {
            By::Cgroup => "cgroup",
            By::Container => "container",
            By::Pod => "pod",
            By::Pid => "pid",
            By::Pmu => "pmu",
            By::Port => "port",
            By::Device => "device",
            By::Owner => "owner",
        }
    }

    /// Whether a line has one owner.
    pub fn has_owner(self) -> bool {
        !matches!(self, By::Pmu | By::Port)
    }

    /// The columns of `fabric` that are read; no other is decoded.
    pub fn columns(self, recording: &Recording) -> Vec<&'static str> {
        let own: &[&str] = match self {
            By::Cgroup => &["cgroup_id", "cgroup"],
            By::Container => &["container"],
            By::Pod => &["pod"],
            By::Pid => &["pid"],
            By::Pmu | By::Port => &["pmu"],
            By::Device | By::Owner => &[],
        };
        let divided: &[&str] = if self.has_owner() { &DIVIDED } else { &[] };
        let rolled_up: &[&str] = match (recording.is_rollup(), self.has_owner()) {
            (true, true) => &["known_ns", "low", "high"],
            (true, false) => &["known_ns"],
            (false, _) => &[],
        };
        [&COMMON[..], divided, own, rolled_up].concat()
    }
}

const COMMON: [&str; 10] = [
    "mono_ns",
    "window_ns",
    "counter",
    "event",
    "filter",
    "unit",
    "value",
    "running",
    "method",
    "confidence",
];
/// Where lines have one owner: whose a row is, and what tells how far it may be off.
const DIVIDED: [&str; 4] = ["owner", "comm", "socket", "total"];

/// Terms of a filter that choose root ports: of `nvidia_pcie` (Grace, Tegra410), of `intel_iio`,
/// and of `hisi_pcie` (drivers/perf, Linux 7.2).
const PORT_TERMS: [&str; 5] = ["root_port", "src_rp_mask", "dst_rp_mask", "ch_mask", "port"];

/// A batch's columns.
#[derive(Debug)]
pub struct Columns<'a> {
    /// Rows.
    pub rows: usize,
    /// End of the window.
    pub mono_ns: &'a Int64Array,
    /// Its length.
    pub window_ns: &'a Int64Array,
    /// Part of the count.
    pub value: &'a Float64Array,
    /// Part of the time the counter ran.
    pub running: &'a Float32Array,
    /// How the share was made.
    pub method: Words<'a>,
    /// How sure it is.
    pub confidence: &'a Float32Array,
    /// The counter.
    pub counter: &'a Int32Array,
    /// What else tells how far it may be off; none where lines are of all owners.
    pub divided: Option<Divided<'a>>,
    /// How much of the window is known; only roll-ups have it.
    known_ns: Option<&'a Int64Array>,
    links: Option<&'a Links>,
    event: Words<'a>,
    filter: Words<'a>,
    unit: Words<'a>,
    owner: Option<Words<'a>>,
    /// The column that has the line's name.
    name: Option<Words<'a>>,
    pid: Option<&'a Int32Array>,
    cgroup_id: Option<Bits<'a>>,
    by: By,
    depth: Option<usize>,
}

/// What a row's count was divided from.
#[derive(Debug, Clone, Copy)]
pub struct Divided<'a> {
    /// The counter's socket.
    pub socket: &'a Int16Array,
    /// Its whole count in the window.
    pub total: &'a Float64Array,
    /// The owner's name.
    pub comm: Words<'a>,
    /// The ends of the row's interval; only roll-ups have them.
    interval: Option<(&'a Float64Array, &'a Float64Array)>,
}

impl<'a> Divided<'a> {
    fn new(batch: &'a RecordBatch) -> Result<Self> {
        let has = |name| batch.column_by_name(name).is_some();
        Ok(Self {
            socket: columns::column(batch, "socket")?,
            total: columns::f64s(batch, "total")?,
            comm: columns::words(batch, "comm")?,
            interval: has("low")
                .then(|| {
                    Ok::<_, anyhow::Error>((
                        columns::f64s(batch, "low")?,
                        columns::f64s(batch, "high")?,
                    ))
                })
                .transpose()?,
        })
    }
}

/// Numbers that tell the row's line, the cause of its error and its method, without touching a string,
/// in batches of the same dictionaries.
pub type Quick = ([i32; 3], i32, i32, i64, (i32, Option<i16>), i32);

impl<'a> Columns<'a> {
    /// The columns for lines that are by `by`, of cgroups at most `depth` deep, of each event or of
    /// each direction of these links.
    pub fn new(
        batch: &'a RecordBatch,
        by: By,
        depth: Option<usize>,
        links: Option<&'a Links>,
    ) -> Result<Columns<'a>> {
        let name = match by {
            By::Cgroup => Some("cgroup"),
            By::Container => Some("container"),
            By::Pod => Some("pod"),
            By::Pid | By::Device => Some("comm"),
            By::Pmu | By::Port => Some("pmu"),
            By::Owner => None,
        };
        Ok(Columns {
            rows: batch.num_rows(),
            mono_ns: columns::i64s(batch, "mono_ns")?,
            window_ns: columns::i64s(batch, "window_ns")?,
            value: columns::f64s(batch, "value")?,
            running: columns::f32s(batch, "running")?,
            method: columns::words(batch, "method")?,
            confidence: columns::f32s(batch, "confidence")?,
            counter: columns::i32s(batch, "counter")?,
            known_ns: (batch.column_by_name("known_ns").is_some())
                .then(|| columns::i64s(batch, "known_ns"))
                .transpose()?,
            links,
            divided: by.has_owner().then(|| Divided::new(batch)).transpose()?,
            event: columns::words(batch, "event")?,
            filter: columns::words(batch, "filter")?,
            unit: columns::words(batch, "unit")?,
            owner: by.has_owner().then(|| columns::words(batch, "owner")).transpose()?,
            name: name.map(|name| columns::words(batch, name)).transpose()?,
            pid: (by == By::Pid).then(|| columns::i32s(batch, "pid")).transpose()?,
            cgroup_id: (by == By::Cgroup).then(|| columns::bits(batch, "cgroup_id")).transpose()?,
            by,
            depth,
        })
    }

    /// The window of a row.
    pub fn window(&self, row: usize) -> Window {
        let length_ns = self.window_ns.value(row);
        let known_ns = match self.known_ns {
            Some(known) => known.value(row),
            None if self.value.is_valid(row) => length_ns.max(1),
            None => 0,
        };
        Window::new(self.mono_ns.value(row), length_ns, known_ns)
    }

    /// What a row with a value says of its share; `None` where lines are of all owners.
    pub(super) fn claim(&self, row: usize, value: f64) -> Option<Claim> {
        let of = self.divided?;
        let window = (self.counter.value(row), self.mono_ns.value(row), self.window_ns.value(row));
        let total = get(of.total, row).unwrap_or(value);
        let ends = of.interval.and_then(|(low, high)| Some((get(low, row)?, get(high, row)?)));
        let interval = ends.map(|(low, high)| Interval { low, high });
        Some(Claim { interval, ..Claim::new(window, value, total, get(self.confidence, row)) })
    }

    /// The owner of a row; empty where lines are of all owners.
    pub fn owner(&self, row: usize) -> &'a str {
        self.owner.and_then(|owner| owner.get(row)).unwrap_or_default()
    }

    /// The unit of a row.
    pub fn unit(&self, row: usize) -> &'a str {
        self.unit.get(row).unwrap_or_default()
    }

    /// The link of a row by its place, and the direction; none where lines are of events, or its
    /// counter is on no link.
    pub fn link(&self, row: usize) -> Option<(usize, Direction)> {
        self.links?.on(self.counter.value(row))
    }

    /// Whether the row is in a line: of links, those whose counter is on one.
    pub fn is_wanted(&self, row: usize) -> bool {
        self.links.is_none() || self.link(row).is_some()
    }

    /// What the row is of: its event, or its link and direction.
    pub fn what(&self, row: usize) -> String {
        let of = self.link(row).zip(self.links);
        of.map_or_else(
            || self.event(row),
            |((place, direction), links)| links.label(place, direction),
        )
    }

    /// The event of a row with its filter in brackets. By port, the filter's ports are `*`: what
    /// was counted of all ports at once stays apart, or it would be counted twice.
    pub fn event(&self, row: usize) -> String {
        let event = self.event.get(row).unwrap_or_default();
        match self.filter.get(row).unwrap_or_default() {
            "" => event.to_owned(),
            filter if self.by == By::Port => format!("{event}[{}]", any_port(filter)),
            filter => format!("{event}[{filter}]"),
        }
    }

    /// What the row's line is keyed by and called.
    pub fn key(&self, row: usize) -> String {
        let owner = self.owner(row);
        let name = self.name.and_then(|name| name.get(row));
        match self.by {
            By::Pmu => name.unwrap_or_default().to_owned(),
            By::Port => port(name.unwrap_or_default(), self.filter.get(row).unwrap_or_default()),
            By::Cgroup if owner == "task" => match (name, self.depth) {
                (Some(path), Some(depth)) => ancestor(path, depth).to_owned(),
                (Some(path), None) => path.to_owned(),
                (None, _) => self
                    .cgroup_id
                    .and_then(|ids| ids.get(row))
                    .map_or_else(|| "(no cgroup)".to_owned(), |id| format!("(cgroup id {id})")),
            },
            By::Container | By::Pod if owner == "task" => {
                name.map_or_else(|| format!("(no {})", self.by.name()), str::to_owned)
            }
            By::Pid if owner == "task" => {
                let comm = name.unwrap_or("?");
                self.pid
                    .and_then(|pids| get(pids, row))
                    .map_or_else(|| "(no pid)".to_owned(), |pid| format!("{comm} ({pid})"))
            }
            By::Pid => name.unwrap_or(owner).to_owned(),
            By::Device if owner == "device" => name.unwrap_or(owner).to_owned(),
            By::Owner | By::Cgroup | By::Container | By::Pod | By::Device => owner.to_owned(),
        }
    }

    /// The dictionaries that keys of [`Self::quick`] point into.
    pub(super) fn dictionaries(&self) -> Vec<&'a StringArray> {
        let always = [self.event, self.filter, self.unit, self.method];
        let comm = self.divided.map(|of| of.comm);
        let some = [self.owner, self.name, comm].into_iter().flatten();
        always.into_iter().chain(some).map(|words| words.dictionary()).collect()
    }

    /// See [`Quick`].
    pub fn quick(&self, row: usize) -> Quick {
        let name = self.name.map_or(0, |name| name.key(row));
        let number = match (self.pid, self.cgroup_id) {
            (Some(pids), _) => get(pids, row).map_or(-1, i64::from),
            (_, Some(ids)) if name == -1 => ids.get(row).map_or(-1, |id| id as i64),
            _ => -1,
        };
        let event = match self.link(row) {
            Some((place, direction)) => [place as i32, direction as i32, -1],
            None => [self.event.key(row), self.filter.key(row), self.unit.key(row)],
        };
        let owner = self.owner.map_or(0, |owner| owner.key(row));
        let cause = self.divided.map_or((0, None), |of| (of.comm.key(row), get(of.socket, row)));
        (event, owner, name, number, cause, self.method.key(row))
    }
}

/// `TERM=VALUE` of a filter that chooses ports.
fn is_port(term: &str) -> bool {
    let name = term.split_once('=').map_or(term, |(name, _)| name);
    PORT_TERMS.contains(&name)
}

/// The filter with `*` for the ports.
fn any_port(filter: &str) -> String {
    let terms = filter.split(',').map(|term| match term.split_once('=') {
        Some((name, _)) if is_port(term) => format!("{name}=*"),
        _ => term.to_owned(),
    });
    terms.collect::<Vec<_>>().join(",")
}

/// `PMU/TERM=VALUE`, or the PMU alone where it is one port or all are counted together.
fn port(pmu: &str, filter: &str) -> String {
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
                (port("pcie_0", filter), any_port(filter)),
                (key.to_owned(), event.to_owned())
            );
        }
    }
}
