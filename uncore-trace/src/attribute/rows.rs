//! The rows of `fabric` for a divided window.

use std::borrow::Cow;

use super::Share;
use super::counter::{Divided, Track};
use super::names::Names;
use super::waiting::{Ended, Slot};
use crate::clock::Snapshot;
use crate::entries::{Owner, softirq};
use crate::plan::Counter;
use crate::schema::fabric;
use crate::schema::origin::RecordingOrigin;

/// The names of an owner, besides its kind and ids.
#[derive(Debug, Default)]
struct Label<'a> {
    comm: Option<Cow<'a, str>>,
    cgroup: Option<&'a str>,
    container: Option<&'a str>,
    pod: Option<&'a str>,
    job: Option<&'a str>,
}

impl<'a> Label<'a> {
    fn of(owner: &'a Owner, names: &'a Names) -> Self {
        match *owner {
            Owner::Task { pid, ref comm, cgroup_id } => {
                let cgroup = names.of_cgroup(cgroup_id);
                let known = pid != 0;
                Self {
                    comm: known.then(|| comm.text()),
                    cgroup: cgroup.map(|cgroup| &*cgroup.path),
                    container: cgroup.and_then(|cgroup| cgroup.container.as_deref()),
                    pod: cgroup.and_then(|cgroup| cgroup.pod.as_deref()),
                    job: cgroup.and_then(|cgroup| cgroup.job.as_deref()),
                }
            }
            Owner::Irq(number) => Self { comm: Some(names.irq(number)), ..Self::default() },
            Owner::Softirq(vector) => {
                Self { comm: Some(softirq(vector).into()), ..Self::default() }
            }
            Owner::OtherTasks | Owner::Idle | Owner::Device | Owner::Unattributed => {
                Self::default()
            }
        }
    }
}

/// What all rows of a recording share.
#[derive(Debug)]
pub(super) struct Rows<'a> {
    pub tick_ns: u64,
    pub wall: Snapshot,
    pub origin: &'a RecordingOrigin,
    pub names: &'a Names,
}

/// A row: index of the counter, and index of its share.
type ShareIndex = (u32, u32);

/// Number of rows that are made together.
const CHUNK: usize = 1024;

/// A window whose rows are being made.
#[derive(Debug)]
pub(super) struct Making {
    window: Ended,
    /// Its rows, in order.
    places: Vec<ShareIndex>,
    /// Number of rows that were made.
    made: usize,
}

impl Making {
    /// A window that all counters have divided, before its first row.
    pub(super) fn new(window: Ended, tracks: &[Track]) -> Self {
        let places = places(&divided(&window, tracks));
        Self { window, places, made: 0 }
    }
}

/// The divided counts of a window, for the counters that have rows.
fn divided<'a>(window: &'a Ended, tracks: &'a [Track]) -> Vec<(&'a Counter, &'a Divided)> {
    let slots = tracks.iter().zip(&window.slots);
    let divided = slots.filter_map(|(track, slot)| match slot {
        Slot::Divided(divided) => Some((&track.counter, divided)),
        _ => None,
    });
    divided.collect()
}

/// The shares of a window that become rows.
fn shares(divided: &Divided) -> &[Share] {
    if divided.shares.is_empty() { &NOBODY } else { &divided.shares }
}

/// The rows of a window, in order.
///
/// Rows of one reader CPU and owner are adjacent, so the columns of the owner are runs. This takes
/// 15 % fewer bytes than rows ordered by counter (`-p host` for 12 s on a busy machine with 4
/// CPUs).
fn places(windows: &[(&Counter, &Divided)]) -> Vec<ShareIndex> {
    let of = |(at, (_, divided)): (usize, &(&Counter, &Divided))| {
        (0..shares(divided).len() as u32).map(move |share| (at as u32, share))
    };
    let mut places: Vec<ShareIndex> = windows.iter().enumerate().flat_map(of).collect();
    places.sort_unstable_by_key(|&(at, share)| {
        let (counter, divided) = windows[at as usize];
        (divided.to, counter.cpu, shares(divided)[share as usize].who, at)
    });
    places
}

/// The row of a window that was not divided: its count is 0, or its counter did not run.
const NOBODY: [Share; 1] = [Share::new(Owner::Unattributed, 0.0, 0.0)];

impl Rows<'_> {
    /// Appends rows, one for each share, until `fabric` has `most` rows. `true` if none is left.
    pub(super) fn append(
        &self,
        making: &mut Making,
        tracks: &[Track],
        fabric: &mut fabric::Builder,
        most: usize,
    ) -> bool {
        let windows = divided(&making.window, tracks);
        for chunk in making.places[making.made..].chunks(CHUNK) {
            if fabric.len() >= most {
                return false;
            }
            making.made += chunk.len();
            let share = |(at, share): ShareIndex| &shares(windows[at as usize].1)[share as usize];
            let mut labels: Vec<(&Owner, Label<'_>)> = Vec::new();
            let mut rows: Vec<(ShareIndex, usize)> = Vec::with_capacity(chunk.len());
            for &place in chunk {
                let who = &share(place).who;
                if labels.last().is_none_or(|(last, _)| *last != who) {
                    labels.push((who, Label::of(who, self.names)));
                }
                rows.push((place, labels.len() - 1));
            }
            let row = |&(place, label): &(ShareIndex, usize)| {
                let (counter, window) = windows[place.0 as usize];
                self.row(counter, window, share(place), &labels[label].1)
            };
            fabric.append_all(&rows.iter().map(row).collect::<Vec<_>>());
        }
        true
    }

    fn row<'a>(
        &'a self,
        counter: &'a Counter,
        window: &'a Divided,
        share: &'a Share,
        label: &'a Label<'_>,
    ) -> fabric::Row<'a> {
        let mono_ns = (window.to * self.tick_ns) as i64;
        let is_divided = !window.shares.is_empty();
        let device = counter.io.as_ref().filter(|_| share.who == Owner::Device);
        let ids = share.who.to_columns();
        fabric::Row {
            ts: self.wall.wall_at(mono_ns),
            mono_ns,
            window_ns: ((window.to - window.from) * self.tick_ns) as i64,
            host: &self.origin.host,
            boot_id: &self.origin.boot_id,
            cluster: self.origin.cluster.as_deref(),
            counter: counter.id as i32,
            socket: counter.socket,
            cpu: counter.cpu as i32,
            subsystem: &counter.subsystem,
            pmu: &counter.pmu,
            event: &counter.event,
            filter: &counter.filter,
            unit: &counter.unit,
            owner: ids.kind,
            pid: ids.pid,
            number: ids.number,
            comm: label.comm.as_deref().or(device.map(|io| io.label.as_str())),
            cgroup_id: ids.cgroup_id,
            cgroup: label.cgroup,
            container: label.container,
            pod: label.pod,
            job: label.job,
            value: if is_divided { Some(share.value) } else { window.total },
            total: window.total,
            running: window.running,
            method: share.by.unwrap_or(window.method).name(),
            confidence: is_divided.then_some(share.confidence),
            cgroup_confidence: is_divided.then_some(share.lasting),
            processes: share.processes.map(|number| number as i32),
        }
    }
}
