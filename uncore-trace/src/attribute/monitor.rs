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
//! # Confidence
//!
//! The probability that a cgroup's share is within 10 % of the truth is the product of four
//! factors:
//!
//! - `Y` agrees with `X`, as in [`super::agreement`], for the part of the bytes that others moved.
//!   Without the bytes of all groups nothing can agree, and the factor is one half.
//! - `Y / X - 1` may belong to any cgroup, and so may `X / Y - 1` if that is more.
//! - The part of the link's count that the counters of the same direction have: a cgroup's bytes
//!   are measured for reads and writes together, and its parts of them may differ.
//! - The part of the window in which the counter ran.
//!
//! A process has the confidence of its cgroup at most, or that of its own share if it is not
//! alone.

pub(super) mod bounds;

use std::collections::HashMap;
use std::sync::Arc;

use self::bounds::Bounds;
use super::agreement::{Agreement, within_rest};
use super::counter::{Ended, Track};
use super::names::Names;
use super::{Method, Share, leave_rest};
use crate::entries::{ALL_SOCKETS, Monitored, MonitoredSum, Owner};
use crate::plan::Plan;
use crate::schema::link::{Direction, MEMORY};

/// The part of a counter's count that a cgroup moved.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MeasuredPart {
    /// Path of the cgroup.
    pub cgroup: Arc<str>,
    /// Its part of the count, 0 to 1. The parts of a counter sum to 1 at most.
    pub part: f64,
    /// The probability that it is within 10 % of the truth while the counter ran, 0 to 1.
    pub confidence: f64,
}

/// A link whose bytes are measured, if any are.
#[derive(Debug)]
struct Link {
    socket: i16,
    /// Indexes of its counters, with their directions.
    members: Vec<(usize, Direction)>,
    agreement: Agreement,
    /// The tick at which `bytes` begin.
    since: u64,
    bytes: MonitoredSum,
}

/// What was measured.
#[derive(Debug)]
pub(super) struct Monitors {
    links: Vec<Link>,
}

impl Monitors {
    /// Before the first tick. Counters of traffic that CPUs do not cause, or whose parts are known,
    /// count nothing that is measured.
    pub(super) fn new(plan: &Plan, tracks: &[Track], start_tick: u64) -> Self {
        let is_divided = |track: &Track| !matches!(track.kind, Method::Exact | Method::Source);
        let divided = tracks.iter().enumerate().filter(|(_, track)| is_divided(track));
        let index_of: HashMap<u32, usize> =
            divided.map(|(index, track)| (track.counter.id, index)).collect();
        let links = plan.links.iter().filter(|link| link.kind == MEMORY).filter_map(|link| {
            let of = |both: bool| {
                let its = link.counters.iter();
                let its = its.filter(|its| (its.direction == Direction::Both) == both);
                let index = |counter: u32| index_of.get(&counter).copied();
                its.filter_map(|its| Some((index(its.counter)?, its.direction))).collect::<Vec<_>>()
            };
            // A counter of both directions counts the bytes of the others again.
            let single = of(false);
            let members = if single.is_empty() { of(true) } else { single };
            Some(Link {
                socket: link.socket.filter(|_| !members.is_empty())?,
                members,
                agreement: Agreement::default(),
                since: start_tick,
                bytes: MonitoredSum::default(),
            })
        });
        Self { links: links.collect() }
    }

    /// Whether the counter at this index counts bytes of memory that can be measured.
    pub(super) fn sees(&self, at: usize) -> bool {
        self.links.iter().any(|link| link.members.iter().any(|(member, _)| *member == at))
    }

    /// Takes bytes of the current window.
    pub(super) fn add(&mut self, monitored: &Monitored) {
        let is_seen = |link: &&mut Link| [link.socket, ALL_SOCKETS].contains(&monitored.socket);
        for link in self.links.iter_mut().filter(is_seen) {
            link.bytes.add(monitored);
        }
    }

    /// Notes in each counter's window, which ends at `tick`, the parts that were measured.
    pub(super) fn measure(&mut self, tick: u64, tracks: &[Track], ended: &mut [Ended]) {
        for link in &mut self.links {
            let counts: Vec<Option<(u64, f64)>> = link
                .members
                .iter()
                .map(|(at, _)| match ended.get(*at) {
                    Some(Ended::Read(span)) => {
                        Some((span.from, tracks.get(*at)?.total(span).unwrap_or_default()))
                    }
                    _ => None,
                })
                .collect();
            // All counters are read together: none of them is in a window that is extended.
            if counts.iter().all(Option::is_none) {
                continue;
            }
            let whole = counts.iter().all(|its| its.is_some_and(|(from, _)| from == link.since));
            if whole {
                let counts: Vec<f64> =
                    counts.into_iter().flatten().map(|(_, count)| count).collect();
                link.note(&counts, ended);
            }
            link.since = tick;
            link.bytes.clear();
        }
    }
}

impl Link {
    /// Notes the parts in the windows of its counters, which have these counts.
    fn note(&mut self, counts: &[f64], ended: &mut [Ended]) {
        let total: f64 = counts.iter().sum();
        let mut all = None;
        let mut groups: Vec<(Arc<str>, u64)> = Vec::new();
        for (cgroup, bytes) in self.bytes.of_socket(self.socket) {
            match cgroup {
                Some(cgroup) => groups.push((Arc::clone(cgroup), bytes)),
                None => all = Some(bytes as f64),
            }
        }
        let parts = parts(total, &groups, all, &mut self.agreement);
        if parts.is_empty() {
            return self.note_bounds(ended);
        }
        for (at, direction) in &self.members {
            let same = self.members.iter().zip(counts).filter(|((_, other), _)| other == direction);
            let by = same.map(|(_, count)| count).sum::<f64>() / total;
            if let Some(Ended::Read(span)) = ended.get_mut(*at) {
                let scaled = |its: &MeasuredPart| MeasuredPart {
                    confidence: its.confidence * by,
                    ..its.clone()
                };
                span.measured = parts.iter().map(scaled).collect();
            }
        }
    }
}

impl Link {
    /// Notes in the windows of its counters what cgroups have at most.
    fn note_bounds(&self, ended: &mut [Ended]) {
        let bound =
            |(cgroup, bytes): (&Option<Arc<str>>, u64)| Some((Arc::clone(cgroup.as_ref()?), bytes));
        let bounds: Bounds = self.bytes.of_socket(ALL_SOCKETS).filter_map(bound).collect();
        for (at, _) in self.members.iter().filter(|_| !bounds.is_empty()) {
            if let Some(Ended::Read(span)) = ended.get_mut(*at) {
                span.bounds = Some(Arc::clone(&bounds));
            }
        }
    }
}

/// The part of each cgroup in the count of a link; empty if nothing was counted or measured.
fn parts(
    total: f64,
    groups: &[(Arc<str>, u64)],
    all: Option<f64>,
    agreement: &mut Agreement,
) -> Vec<MeasuredPart> {
    let sum: f64 = groups.iter().map(|(_, bytes)| *bytes as f64).sum();
    // The groups are read one after another, so their sum may be a little more than all.
    let measured = all.unwrap_or_default().max(sum);
    if total <= 0.0 || measured <= 0.0 {
        return Vec::new();
    }
    let ratio = total / measured;
    if all.is_some() {
        agreement.learn(ratio);
    }
    let off = if ratio < 1.0 { ratio.recip() } else { ratio } - 1.0;
    let part = |(cgroup, bytes): &(Arc<str>, u64)| {
        let bytes = *bytes as f64;
        let agrees = all.map_or(0.5, |_| agreement.agree(1.0 - bytes / measured));
        MeasuredPart {
            cgroup: Arc::clone(cgroup),
            part: (bytes / measured.max(total)).clamp(0.0, 1.0),
            confidence: agrees * within_rest(off),
        }
    };
    groups.iter().map(part).collect()
}

/// The innermost of these cgroups that an owner is in.
fn innermost(
    who: &Owner,
    cgroups: impl Iterator<Item: AsRef<str>>,
    names: &Names,
) -> Option<usize> {
    let Owner::Task { cgroup_id, .. } = who else { return None };
    let path = &names.of_cgroup(*cgroup_id)?.path;
    let found = cgroups.enumerate().filter(|(_, cgroup)| is_in(path, cgroup.as_ref()));
    found.max_by_key(|(_, cgroup)| cgroup.as_ref().len()).map(|(number, _)| number)
}

/// Gives the measured parts of a count to their cgroups, and divides the rest among the others as
/// it was divided. The shares sum to `total` before and after.
///
/// A cgroup without an owner among the shares has no part: its bytes remain in the rest.
pub(super) fn apply(
    total: f64,
    running: f32,
    parts: &[MeasuredPart],
    names: &Names,
    shares: &mut Vec<Share>,
) {
    let cgroups = || parts.iter().map(|part| &part.cgroup);
    let places: Vec<Option<usize>> =
        shares.iter().map(|share| innermost(&share.who, cgroups(), names)).collect();
    let mut before = vec![(0.0, 0_usize); parts.len()];
    let mut others = 0.0;
    for (share, place) in shares.iter().zip(&places) {
        match place.and_then(|at| before.get_mut(at)) {
            Some((sum, count)) => (*sum, *count) = (*sum + share.value, *count + 1),
            None => others += share.value,
        }
    }
    let with_owners = || parts.iter().zip(&before).filter(|(_, (_, count))| *count > 0);
    if with_owners().next().is_none() {
        return;
    }
    let given: f64 = with_owners().map(|(part, _)| part.part * total).sum();
    let rest = (total - given).max(0.0);
    for (share, place) in shares.iter_mut().zip(&places) {
        let Some((part, (sum, count))) = place.and_then(|at| parts.get(at).zip(before.get(at)))
        else {
            share.value *= if others > 0.0 { rest / others } else { 0.0 };
            continue;
        };
        let own = if *sum > 0.0 { share.value / sum } else { (*count as f64).recip() };
        share.value = part.part * total * own;
        let confidence = part.confidence as f32 * running;
        share.confidence = if *count == 1 { confidence } else { share.confidence.min(confidence) };
        share.lasting = confidence;
        share.by = Some(Method::Monitor);
    }
    leave_rest(shares, total);
}

/// Whether a cgroup is `above`, or below it.
fn is_in(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests;
