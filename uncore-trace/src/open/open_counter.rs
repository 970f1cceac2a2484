//! The open counters, and the CPU that reads each of them now.
//!
//! A counter keeps its id and its count during the whole recording. If its event has to be opened
//! again, the count continues from that of the previous event.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use uncore_trace_common::state::MAX_WATCHED;

use super::barrier::{Call, barrier_to_call};
use super::hotplug::{StopCause, Stopped};
use super::perf::{EventRequest, PerfEvent};
use super::session::Unopened;
use crate::count::Count;
use crate::plan::Counter;

/// A counter's entry in a [`Layout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedCounter {
    /// Its id in the plan.
    pub id: u32,
    /// The count to add to its readings.
    pub base: Count,
}

/// The counters that a CPU reads, in the order of its slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The first slot. It identifies the samples of these counters.
    pub first_slot: u32,
    /// The counters. Those that are read at every switch come first.
    pub counters: Vec<PlacedCounter>,
    /// Number of counters that are read at every switch.
    pub at_switch: u32,
    /// Number of counters, the last ones, that other CPUs read at their switches too.
    pub shared: u32,
    /// These CPUs.
    pub other_cpus: Vec<u32>,
}

impl Layout {
    /// The ids of the counters.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.counters.iter().map(|placed| placed.id)
    }

    /// The place of the first counter that other CPUs read too.
    pub const fn first_shared(&self) -> usize {
        self.counters.len().saturating_sub(self.shared as usize)
    }
}

/// What is read at every switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwitchReadings {
    /// No counter.
    Nothing,
    /// Counters of which the kernel keeps the counts in memory, so that these can be watched.
    Watched,
    /// Others too.
    Unwatched,
}

impl SwitchReadings {
    /// What is read of these counters, placed like this.
    pub(super) fn of_counters(counters: &[OpenCounter], layouts: &BTreeMap<u32, Layout>) -> Self {
        let mut read = counters.iter().filter(|counter| counter.at_switch).peekable();
        let fits = |layout: &Layout| layout.at_switch as usize <= MAX_WATCHED;
        if read.peek().is_none() {
            Self::Nothing
        } else if read.all(|counter| counter.request.is_in_memory()) && layouts.values().all(fits) {
            Self::Watched
        } else {
            Self::Unwatched
        }
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
    /// The PMU's directory in sysfs, if it has one.
    pub directory: Option<PathBuf>,
    /// Whether its PMU was missing at the last look.
    pub absent: bool,
    /// Whether it counts its own CPU only.
    pub per_cpu: bool,
    /// Whether it is read at every context switch of that CPU.
    pub at_switch: bool,
    /// Whether other CPUs read it at their switches.
    pub shared: bool,
    /// How it was opened last.
    pub request: EventRequest,
    /// Index of its group leader.
    pub leader: Option<usize>,
    /// The perf event.
    pub event: PerfEvent,
    /// The CPU that reads it, if any.
    pub reader: Option<u32>,
    /// All CPUs that have read it.
    pub past_readers: Vec<u32>,
    /// Whether the plan reads this PMU on one CPU only: it exists once, not once per package.
    pub single: bool,
    /// Package of the plan's reader CPU, if known.
    pub socket: Option<i16>,
    /// The count of the previous events.
    pub base: Count,
    /// Whether the event has stopped for good.
    pub stopped: bool,
    /// Whether it was stopped on purpose; it is not opened again.
    pub retired: bool,
    /// Since when it has not been counting, although it should.
    pub idle: Option<Instant>,
    /// Its slot in the perf event array.
    pub slot: u32,
}

impl OpenCounter {
    /// Its id, and its count so far; `None` if it cannot be read.
    pub(super) fn total_count(&self) -> Option<(u32, Count)> {
        Some((self.id, self.event.read().ok()?.add_earlier(self.base)))
    }

    /// Keeps its count: it has stopped, and no CPU reads it.
    pub(super) fn note_stop(&mut self, why: StopCause) -> Stopped {
        if let Some((_, count)) = self.total_count() {
            self.base = count;
        }
        (self.stopped, self.reader, self.idle) = (true, None, None);
        Stopped { id: self.id, count: self.base, why }
    }
}

/// Opens all counters that are perf events, disabled. Also returns those that could not be opened.
pub(super) fn open_counters(counters: &[Counter]) -> (Vec<OpenCounter>, Vec<Unopened>) {
    let (mut opened_counters, mut unopened): (Vec<OpenCounter>, _) = (Vec::new(), Vec::new());
    let mut index_of: BTreeMap<u32, usize> = BTreeMap::new();
    for counter in counters.iter().filter(|counter| !counter.is_statistic()) {
        let leader = counter.leader.map(|leader| index_of.get(&leader).copied());
        let event = match leader {
            Some(None) => Err("the leader of its group could not be opened".to_owned()),
            Some(Some(index)) => {
                open_event(counter, opened_counters.get(index).map(|counter| &counter.event))
            }
            None => open_event(counter, None),
        };
        match event {
            Ok(event) => {
                index_of.insert(counter.id, opened_counters.len());
                opened_counters.push(OpenCounter {
                    id: counter.id,
                    pmu: counter.pmu.clone(),
                    directory: None,
                    absent: false,
                    per_cpu: counter.per_cpu,
                    at_switch: counter.at_switch,
                    shared: false,
                    request: event_request(counter),
                    leader: leader.flatten(),
                    event,
                    reader: Some(counter.cpu),
                    past_readers: vec![counter.cpu],
                    socket: counter.socket,
                    single: counters
                        .iter()
                        .all(|peer| peer.pmu != counter.pmu || peer.cpu == counter.cpu),
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
    (opened_counters, unopened)
}

/// Assigns a slot to every counter that has a reader, from slot `first_slot` on. The counters of a
/// CPU get consecutive slots.
pub(super) fn lay_out(counters: &mut [OpenCounter], first_slot: u32) -> BTreeMap<u32, Layout> {
    let mut layouts: BTreeMap<u32, Layout> = BTreeMap::new();
    let mut slots = first_slot..;
    let readers: BTreeSet<u32> = counters.iter().filter_map(|counter| counter.reader).collect();
    for cpu in readers {
        let mut counters_of_cpu: Vec<&mut OpenCounter> =
            counters.iter_mut().filter(|counter| counter.reader == Some(cpu)).collect();
        counters_of_cpu.sort_by_key(|counter| (!counter.at_switch, counter.shared));
        for counter in counters_of_cpu {
            counter.slot = slots.next().unwrap_or(u32::MAX);
            let empty = Layout { first_slot: counter.slot, ..Layout::default() };
            let layout = layouts.entry(cpu).or_insert(empty);
            layout.counters.push(PlacedCounter { id: counter.id, base: counter.base });
            layout.at_switch += u32::from(counter.at_switch);
            layout.shared += u32::from(counter.shared);
        }
    }
    layouts
}

const fn event_request(counter: &Counter) -> EventRequest {
    EventRequest {
        attr_type: counter.attr_type,
        config: counter.config,
        cpu: counter.cpu,
        exclude_guest: counter.exclude_guest,
        exclusive: counter.exclusive,
    }
}

fn open_event(counter: &Counter, leader: Option<&PerfEvent>) -> Result<PerfEvent, String> {
    PerfEvent::open(&event_request(counter), leader).map_err(|error| {
        format!(
            "perf_event_open of {}/{}/ on CPU {} failed: {}",
            counter.pmu,
            counter.event,
            counter.cpu,
            explain_errno(&error, &counter.pmu, leader.is_some())
        )
    })
}

/// Opens a counter, disabled, and closes it.
///
/// # Errors
///
/// The kernel refuses it.
pub fn try_counter(counter: &Counter) -> io::Result<()> {
    PerfEvent::open(&event_request(counter), None).map(drop)
}

/// What the errno means for a counting event of this PMU, alone or in a group, and what to do about
/// it.
fn explain_errno(error: &io::Error, pmu: &str, is_in_group: bool) -> String {
    if let Some(barrier) = barrier_to_call(Call::Perf, error) {
        return format!("{error}: {barrier}; see `uncore-trace doctor`");
    }
    let hint = match error.raw_os_error() {
        // From Linux 7.2 the driver refuses groups that it could never count as a whole.
        Some(libc::EINVAL) if is_in_group && is_amd_uncore(pmu) => {
            "too many counters at once: its group has more events than the PMU has counters; count \
             fewer together"
        }
        Some(libc::EINVAL) => "the driver refuses this encoding, filter or group",
        Some(libc::ENOENT) => "the PMU has no such event",
        Some(libc::ENODEV) => "the PMU's reader CPU is offline",
        Some(libc::ENOSPC) => "the PMU has no counter left for it",
        Some(libc::EOPNOTSUPP) => {
            "the driver does not support it, or (core PMUs) a virtual machine has the PMU: see \
             /sys/module/kvm_*/parameters/enable_mediated_pmu"
        }
        Some(libc::EMFILE) => "too many open files; raise `ulimit -n`",
        Some(libc::EBUSY) => "another tool holds the PMU",
        _ => return error.to_string(),
    };
    format!("{error}: {hint}")
}

/// Whether a PMU is one of the driver `amd_uncore`.
fn is_amd_uncore(pmu: &str) -> bool {
    ["amd_df", "amd_l3", "amd_umc"].iter().any(|stem| pmu.starts_with(stem))
}

/// Disables all counters that count, one right after the other, and warns of the first failure. The
/// kernel may have revoked an event; the counts of the others are still valid.
pub(super) fn disable_counters(counters: &[OpenCounter]) {
    let counting = counters.iter().filter(|counter| !counter.stopped);
    let failed: Vec<_> = counting
        .filter_map(|candidate| Some((candidate.id, candidate.event.disable().err()?)))
        .collect();
    if let Some((id, error)) = failed.first() {
        let other_failures = failed.len() - 1;
        log::warn!(
            "cannot disable counter {id} (and {other_failures} more): {error}; its count may go on"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_amd_refuses_has_too_many_counters() {
        let error = io::Error::from_raw_os_error(libc::EINVAL);
        for pmu in ["amd_df", "amd_l3_1", "amd_umc_11"] {
            let text = explain_errno(&error, pmu, true);
            assert!(text.contains("too many counters at once"), "{text}");
            assert!(explain_errno(&error, pmu, false).contains("refuses this encoding"), "{pmu}");
        }
        for pmu in ["amd_iommu_0", "uncore_imc_0"] {
            assert!(explain_errno(&error, pmu, true).contains("refuses this encoding"), "{pmu}");
        }
    }
}
