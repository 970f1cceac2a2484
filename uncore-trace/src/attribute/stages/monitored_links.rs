//! `monitor`: bytes of cgroups that the hardware measured (resctrl), which are taken off the
//! counts of the memory before the rest is divided.
//!
//! A link has the counters of a socket's memory, without those of devices alone. `Y` is the sum of
//! their counts in a window, `X` the bytes of all groups, which is what all CPUs moved, and `x`
//! those of one cgroup. The cgroup gets `x` of `Y`, or `x Y / X` if less was counted than
//! measured. Each counter gives it the same part. Its processes share it in the proportions of the
//! counter's own method, and the others share the rest in these proportions. So a cgroup that has
//! no group, the devices and the kernel lose or gain what the method was wrong by.
//!
//! A window is left to the counter's method if a counter of the link was not read at its begin or
//! its end, because the bytes are those of whole windows.
//!
//! Where the bytes are of the memory of all sockets together, they bound what a cgroup has of all
//! counters ([`bounds`]).
//!
//! The methods of the counters learn from what was measured, for windows in which the cgroup has
//! no group.
//!
//! # Confidence
//!
//! The probability that a cgroup's share is within 10 % of the truth is the product of four
//! factors:
//!
//! - `Y` agrees with `X`, as in [`crate::attribute::agreement`], for the part of the bytes
//!   that others moved.
//!   Without the bytes of all groups nothing can agree, and the factor is one half.
//! - `Y / X - 1` may belong to any cgroup, and so may `X / Y - 1` if that is more.
//! - The part of the link's count that the counters of the same direction have: a cgroup's bytes
//!   are measured for reads and writes together, and its parts of them may differ.
//! - The part of the window in which the counter ran.
//!
//! A process has the confidence of its cgroup at most, or that of its own share if it is not
//! alone.

mod bounds;
mod innermost;

use std::sync::Arc;

use foldhash::HashMap;

use self::bounds::{BoundedCounters, CgroupBounds};
use self::innermost::CgroupIndexes;
use crate::attribute::adjustment::{AdjustedWindow, ShareAdjustment};
use crate::attribute::agreement::{ByteAgreement, probability_within};
use crate::attribute::cgroups::cgroup_of_owner;
use crate::attribute::confidence::variance_of;
use crate::attribute::counter::TrackedCounter;
use crate::attribute::measured_part::MeasuredPart;
use crate::attribute::memory_links::{MemoryLink, find_memory_links};
use crate::attribute::method::Method;
use crate::attribute::owner_names::OwnerNames;
use crate::attribute::share::{Share, add_unattributed};
use crate::attribute::stage::{DivisionStage, StageSetup};
use crate::attribute::waiting::{WindowAdjustment, WindowState};
use crate::entries::{ALL_SOCKETS, LogEntry, Monitored, MonitoredSum, Owner};
use crate::schema::link::Direction;

/// The fraction of a counter's count that a cgroup moved.
#[derive(Clone, Debug, PartialEq)]
struct MeasuredFraction {
    /// Path of the cgroup.
    pub cgroup: Arc<str>,
    /// Its fraction of the count, 0 to 1. The fractions of a counter sum to 1 at most.
    pub fraction: f64,
    /// The probability that it is within 10 % of the truth while the counter ran, 0 to 1.
    pub confidence: f64,
}

/// The fractions of a counter's window that were measured.
#[derive(Debug)]
struct MeasuredFractions(Vec<MeasuredFraction>);

impl ShareAdjustment for MeasuredFractions {
    fn measured_parts(
        &self,
        total: f64,
        users: &[(Owner, u64)],
        names: &OwnerNames,
    ) -> Vec<MeasuredPart> {
        let part = |measured: &MeasuredFraction| MeasuredPart {
            cgroup: Arc::clone(&measured.cgroup),
            cgroup_ids: Vec::new(),
            value: measured.fraction * total,
            variance: variance_of(measured.confidence),
        };
        let mut parts: Vec<MeasuredPart> = self.0.iter().map(part).collect();
        let owner_by_cgroup: HashMap<u64, &Owner> =
            users.iter().filter_map(|(owner, _)| Some((cgroup_of_owner(owner)?, owner))).collect();
        let cgroups = CgroupIndexes::new(self.0.iter().map(|measured| &*measured.cgroup));
        for (cgroup_id, owner) in owner_by_cgroup {
            let index = cgroups.find_innermost(owner, names);
            if let Some(part) = index.and_then(|index| parts.get_mut(index)) {
                part.cgroup_ids.push(cgroup_id);
            }
        }
        parts
    }

    fn adjust_shares(&self, window: &AdjustedWindow<'_>, shares: &mut Vec<Share>) {
        let AdjustedWindow { method, total, running, names } = *window;
        if method.is_estimate() && method != Method::None {
            apply_measured(total, running, &self.0, names, shares);
        }
    }
}

/// A link whose bytes are measured, if any are.
#[derive(Debug)]
struct MonitoredLink {
    socket: i16,
    /// Indexes of its counters, with their directions.
    members: Vec<(usize, Direction)>,
    agreement: ByteAgreement,
    /// The tick at which `bytes` begin.
    begin_tick: u64,
    bytes: MonitoredSum,
}

/// The links whose bytes are measured.
#[derive(Debug)]
pub(super) struct LinkMonitors {
    links: Vec<MonitoredLink>,
}

impl LinkMonitors {
    /// Before the first tick.
    pub(super) fn new(setup: &StageSetup<'_>) -> Self {
        let links = find_memory_links(setup.plan, setup.tracks).into_iter();
        let monitored = |MemoryLink { socket, members }| MonitoredLink {
            socket,
            members,
            agreement: ByteAgreement::default(),
            begin_tick: setup.start_tick,
            bytes: MonitoredSum::default(),
        };
        Self { links: links.map(monitored).collect() }
    }

    /// Adds bytes of the current window.
    fn add_bytes(&mut self, monitored: &Monitored) {
        let is_seen =
            |link: &&mut MonitoredLink| [link.socket, ALL_SOCKETS].contains(&monitored.socket);
        for link in self.links.iter_mut().filter(is_seen) {
            link.bytes.add_bytes(monitored);
        }
    }
}

impl DivisionStage for LinkMonitors {
    fn take_entry(&mut self, entry: LogEntry<'_>) {
        if let LogEntry::Monitored(monitored) = entry {
            self.add_bytes(monitored);
        }
    }

    /// Notes in each counter's window, which ends at `tick`, the fractions that were measured.
    fn close_window(
        &mut self,
        tick: u64,
        tracks: &[TrackedCounter],
        states: &mut [WindowState],
    ) -> Option<Box<dyn WindowAdjustment>> {
        let mut bounded = BoundedCounters::default();
        for link in &mut self.links {
            let counts: Vec<Option<(u64, f64)>> = link
                .members
                .iter()
                .map(|(counter_index, _)| match states.get(*counter_index) {
                    Some(WindowState::Undivided(span)) => Some((
                        span.begin_tick,
                        tracks.get(*counter_index)?.total_count(span).unwrap_or_default(),
                    )),
                    _ => None,
                })
                .collect();
            // All counters are read together: none of them is in a window that is extended.
            if counts.iter().all(Option::is_none) {
                continue;
            }
            let is_complete = counts.iter().all(|begin_and_count| {
                begin_and_count.is_some_and(|(window_begin, _)| window_begin == link.begin_tick)
            });
            if is_complete {
                let counts: Vec<f64> =
                    counts.into_iter().flatten().map(|(_, count)| count).collect();
                link.note_fractions(&counts, states, &mut bounded);
            }
            link.begin_tick = tick;
            link.bytes.clear_bytes();
        }
        bounded.into_adjustment()
    }
}

impl MonitoredLink {
    /// Notes the fractions in the windows of its counters, which have these counts.
    fn note_fractions(
        &mut self,
        counts: &[f64],
        states: &mut [WindowState],
        bounded: &mut BoundedCounters,
    ) {
        let total: f64 = counts.iter().sum();
        let mut all_bytes = None;
        let mut groups: Vec<(Arc<str>, u64)> = Vec::new();
        for (cgroup, bytes) in self.bytes.of_socket(self.socket) {
            match cgroup {
                Some(cgroup) => groups.push((Arc::clone(cgroup), bytes)),
                None => all_bytes = Some(bytes as f64),
            }
        }
        let fractions = measured_fractions(total, &groups, all_bytes, &mut self.agreement);
        if fractions.is_empty() {
            return self.note_bounds(bounded);
        }
        for (counter_index, direction) in &self.members {
            let same_direction = self
                .members
                .iter()
                .zip(counts)
                .filter(|((_, member_direction), _)| member_direction == direction);
            let direction_fraction = same_direction.map(|(_, count)| count).sum::<f64>() / total;
            if let Some(WindowState::Undivided(span)) = states.get_mut(*counter_index) {
                let scaled = |measured: &MeasuredFraction| MeasuredFraction {
                    confidence: measured.confidence * direction_fraction,
                    ..measured.clone()
                };
                span.add_adjustment(MeasuredFractions(fractions.iter().map(scaled).collect()));
            }
        }
    }

    /// Notes what cgroups have at most of its counters, if only that is known.
    fn note_bounds(&self, bounded: &mut BoundedCounters) {
        let bound =
            |(cgroup, bytes): (&Option<Arc<str>>, u64)| Some((Arc::clone(cgroup.as_ref()?), bytes));
        let bounds: CgroupBounds = self.bytes.of_socket(ALL_SOCKETS).filter_map(bound).collect();
        for (counter_index, _) in self.members.iter().filter(|_| !bounds.is_empty()) {
            bounded.add_counter(*counter_index, &bounds);
        }
    }
}

/// The fraction of each cgroup in the count of a link; empty if nothing was counted or measured.
fn measured_fractions(
    total: f64,
    groups: &[(Arc<str>, u64)],
    all_bytes: Option<f64>,
    agreement: &mut ByteAgreement,
) -> Vec<MeasuredFraction> {
    let sum: f64 = groups.iter().map(|(_, bytes)| *bytes as f64).sum();
    // The groups are read one after another, so their sum may be a little more than all.
    let measured = all_bytes.unwrap_or_default().max(sum);
    if total <= 0.0 || measured <= 0.0 {
        return Vec::new();
    }
    let ratio = total / measured;
    if all_bytes.is_some() {
        agreement.add_ratio(ratio);
    }
    let disagreement = if ratio < 1.0 { ratio.recip() } else { ratio } - 1.0;
    let fraction_of_group = |(cgroup, bytes): &(Arc<str>, u64)| {
        let bytes = *bytes as f64;
        let agrees = all_bytes.map_or(0.5, |_| agreement.probability(1.0 - bytes / measured));
        MeasuredFraction {
            cgroup: Arc::clone(cgroup),
            fraction: (bytes / measured.max(total)).clamp(0.0, 1.0),
            confidence: agrees * probability_within(disagreement),
        }
    };
    groups.iter().map(fraction_of_group).collect()
}

/// Gives the measured fractions of a count to their cgroups, and divides the rest among others as
/// it was divided. The shares sum to `total` before and after.
///
/// A cgroup without an owner among the shares has no fraction: its bytes remain in the rest.
fn apply_measured(
    total: f64,
    running: f32,
    fractions: &[MeasuredFraction],
    names: &OwnerNames,
    shares: &mut Vec<Share>,
) {
    let cgroups = CgroupIndexes::new(fractions.iter().map(|fraction| &*fraction.cgroup));
    let fraction_indexes: Vec<Option<usize>> =
        shares.iter().map(|share| cgroups.find_innermost(&share.owner, names)).collect();
    let mut sums_before = vec![(0.0, 0_usize); fractions.len()];
    let mut unmeasured_value = 0.0;
    for (share, fraction_index) in shares.iter().zip(&fraction_indexes) {
        match fraction_index.and_then(|index| sums_before.get_mut(index)) {
            Some((sum, count)) => (*sum, *count) = (*sum + share.value, *count + 1),
            None => unmeasured_value += share.value,
        }
    }
    let with_owners = || fractions.iter().zip(&sums_before).filter(|(_, (_, count))| *count > 0);
    if with_owners().next().is_none() {
        return;
    }
    let measured_value: f64 = with_owners().map(|(fraction, _)| fraction.fraction * total).sum();
    let unmeasured_total = (total - measured_value).max(0.0);
    for (share, fraction_index) in shares.iter_mut().zip(&fraction_indexes) {
        let Some((measured, (sum, count))) =
            fraction_index.and_then(|index| fractions.get(index).zip(sums_before.get(index)))
        else {
            share.value *=
                if unmeasured_value > 0.0 { unmeasured_total / unmeasured_value } else { 0.0 };
            continue;
        };
        let fraction_of_cgroup =
            if *sum > 0.0 { share.value / sum } else { (*count as f64).recip() };
        share.value = measured.fraction * total * fraction_of_cgroup;
        let confidence = measured.confidence as f32 * running;
        share.confidence = if *count == 1 { confidence } else { share.confidence.min(confidence) };
        share.lasting = confidence;
        share.method = Some(Method::Monitor);
    }
    add_unattributed(shares, total);
}

#[cfg(test)]
mod tests;
