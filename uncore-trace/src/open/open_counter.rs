//! The counters that are held open, and which CPU reads each at the moment.
//!
//! A counter keeps its id and its count for as long as the recording lasts, whatever becomes of its
//! event: one that had to be opened again goes on from what the one before it had counted.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::perf::{Event, Request};
use super::session::Unopened;
use crate::count::Count;
use crate::plan::Counter;

/// A counter's place in a [`Layout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its id in the plan.
    pub id: u32,
    /// To be added to its readings.
    pub base: Count,
}

/// The counters that a CPU reads, in the order of its slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The first slot: a sample with this one is of these counters.
    pub first: u32,
    /// The counters; those that are read at every switch come first.
    pub counters: Vec<Placed>,
    /// How many are read at every switch.
    pub at_switch: u32,
}

impl Layout {
    /// The counters that are read there.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.counters.iter().map(|placed| placed.id)
    }
}

/// One counter that could be opened.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct OpenCounter {
    /// Its id in the plan.
    pub id: u32,
    /// The PMU instance.
    pub pmu: String,
    /// The PMU's place in sysfs, where it has one.
    pub place: Option<PathBuf>,
    /// There was no such PMU at the last look.
    pub absent: bool,
    /// Whether it counts its own CPU and nothing else.
    pub per_cpu: bool,
    /// Whether it is read at every switch of that CPU.
    pub at_switch: bool,
    /// How it was last opened.
    pub request: Request,
    /// Index of the leader of its group.
    pub leader: Option<usize>,
    /// The event.
    pub event: Event,
    /// The CPU that reads it, if there is one.
    pub reader: Option<u32>,
    /// The CPUs that ever did.
    pub past_readers: Vec<u32>,
    /// The plan reads this PMU on one CPU: it is one unit, and not one of each package.
    pub single: bool,
    /// Package of the reader CPU of the plan, where the machine tells.
    pub socket: Option<i16>,
    /// What the events before this one had counted.
    pub base: Count,
    /// The event never counts again.
    pub stopped: bool,
    /// It was stopped on purpose, and is not opened again.
    pub retired: bool,
    /// Since when it has been standing still, although it should count.
    pub idle: Option<Instant>,
    /// Its slot in the perf event array.
    pub slot: u32,
}

/// Opens all counters, disabled.
pub(super) fn open(counters: &[Counter]) -> (Vec<OpenCounter>, Vec<Unopened>) {
    let (mut all, mut unopened): (Vec<OpenCounter>, _) = (Vec::new(), Vec::new());
    let mut index_of: BTreeMap<u32, usize> = BTreeMap::new();
    for counter in counters {
        let leader = counter.leader.map(|leader| index_of.get(&leader).copied());
        let event = match leader {
            Some(None) => Err("the leader of its group could not be opened".to_owned()),
            Some(Some(index)) => open_one(counter, all.get(index).map(|counter| &counter.event)),
            None => open_one(counter, None),
        };
        match event {
            Ok(event) => {
                index_of.insert(counter.id, all.len());
                all.push(OpenCounter {
                    id: counter.id,
                    pmu: counter.pmu.clone(),
                    place: None,
                    absent: false,
                    per_cpu: counter.per_cpu,
                    at_switch: counter.at_switch,
                    request: request(counter),
                    leader: leader.flatten(),
                    event,
                    reader: Some(counter.cpu),
                    past_readers: vec![counter.cpu],
                    socket: counter.socket,
                    single: counters
                        .iter()
                        .all(|other| other.pmu != counter.pmu || other.cpu == counter.cpu),
                    base: Count::default(),
                    stopped: false,
                    retired: false,
                    idle: None,
                    slot: 0,
                });
            }
            Err(reason) => unopened.push(Unopened { counter: counter.id, reason }),
        }
    }
    (all, unopened)
}

/// Gives every counter that has an reader a slot, those of a CPU side by side, from `first` on.
pub(super) fn lay_out(all: &mut [OpenCounter], first: u32) -> BTreeMap<u32, Layout> {
    let mut layouts: BTreeMap<u32, Layout> = BTreeMap::new();
    let mut slots = first..;
    let readers: BTreeSet<u32> = all.iter().filter_map(|counter| counter.reader).collect();
    for cpu in readers {
        let mut own: Vec<&mut OpenCounter> =
            all.iter_mut().filter(|counter| counter.reader == Some(cpu)).collect();
        own.sort_by_key(|counter| !counter.at_switch);
        for counter in own {
            counter.slot = slots.next().unwrap_or(u32::MAX);
            let empty = Layout { first: counter.slot, ..Layout::default() };
            let layout = layouts.entry(cpu).or_insert(empty);
            layout.counters.push(Placed { id: counter.id, base: counter.base });
            layout.at_switch += u32::from(counter.at_switch);
        }
    }
    layouts
}

const fn request(counter: &Counter) -> Request {
    Request { attr_type: counter.attr_type, config: counter.config, cpu: counter.cpu }
}

fn open_one(counter: &Counter, leader: Option<&Event>) -> Result<Event, String> {
    Event::open(&request(counter), leader).map_err(|error| {
        format!(
            "perf_event_open of {}/{}/ on CPU {} failed: {}",
            counter.pmu,
            counter.event,
            counter.cpu,
            explain(&error)
        )
    })
}

/// What the errno means for a counting event, and the way out.
fn explain(error: &io::Error) -> String {
    let hint = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "root, or CAP_PERFMON, is needed; see `uncore-trace doctor`"
        }
        Some(libc::EINVAL) => "the driver refuses this encoding, filter or group",
        Some(libc::ENOENT) => "the PMU has no such event",
        Some(libc::ENODEV) => "the PMU's reader CPU is offline",
        Some(libc::ENOSPC) => "the PMU has no counter left for it",
        Some(libc::EOPNOTSUPP) => "the driver does not support it",
        Some(libc::EMFILE) => "too many open files; raise `ulimit -n`",
        Some(libc::EBUSY) => "another tool holds the PMU",
        _ => return error.to_string(),
    };
    format!("{error}: {hint}")
}

/// One descriptor a counter and some to spare; the soft limit may be raised up to the hard one.
/// Where that is not enough, opening says so.
pub(super) fn raise_file_limit(counters: usize) {
    let wanted = counters as u64 + 256;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let current = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let raised = Rlimit { current: Some(current), maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            log::info!("cannot raise the limit of open files to {current}: {error}");
        }
    }
}

/// Disables all that count, one right after the other, and warns of the first that cannot be: a failure,
/// which is that of an event the kernel has revoked, does not take the counts of the others along.
pub(super) fn disable(counters: &[OpenCounter]) {
    let counting = counters.iter().filter(|counter| !counter.stopped);
    let failed: Vec<_> =
        counting.filter_map(|its| Some((its.id, its.event.disable().err()?))).collect();
    if let Some((id, error)) = failed.first() {
        let others = failed.len() - 1;
        log::warn!("cannot disable counter {id} (and {others} more): {error}; its count may go on");
    }
}
