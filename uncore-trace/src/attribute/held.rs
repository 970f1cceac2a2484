//! `held`: traffic of devices goes to those who hold the devices.
//!
//! It divides the part of a count that a counter's method leaves to [`Owner::Device`]: all of it for
//! [`Method::Source`], and for [`Method::Io`] what no request moved. A holder is an owner that has a
//! device file open by which it can give the device work ([`crate::discover::nodes::Access`]).
//!
//! The count of each tick is divided among the functions behind the counter that somebody holds: by the
//! bytes that the functions count themselves, if all of them do, else in equal parts. A function's part
//! is divided among its tenants (cgroups) by the time in which each holds it in the tick, and a tenant's
//! part among its processes in the same way. If the device counts what each process uses, that divides
//! the part among the processes that hold it. Devices' counts are read once a second, and each reading is
//! used until the next. The owner device keeps the part of the time in which no process holds a function.
//! It also keeps the part of a network controller whose interface is in another network namespace while
//! no process holds it ([`crate::plan::Behind::unseen`]).
//!
//! # Confidence
//!
//! The confidence of the device's share by the counter's method, times the probability that nobody but the
//! holders used the devices ([`SEEN`]), times the probability that the holder's part of it is right then.
//! What was counted while one owner alone held all devices is its own. Of what was counted while several
//! held some, any division is equally probable: one part of `k` has the
//! distribution Beta(1, k - 1), the margin of a uniform distribution over all divisions. For two holders
//! that is 0.1, and less for more, before it is multiplied. What devices count themselves does not raise
//! it: how well that agrees with bytes on a link was not tried.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::cgroups::cgroup;
use super::counter::Track;
use super::{Method, Share};
use crate::discover::pci::Address;
use crate::drain::Comm;
use crate::entries::{Accounted, AccountGrowth, DeviceHold, Owner};
use crate::plan::{Behind, IoDirection};
use crate::schema::fabric::RIGHT_WITHIN;

/// The parts of a tick's count. The owner device keeps what they leave.
#[derive(Debug, Default, PartialEq)]
struct Parts {
    /// By owner; `None` for functions without a known holder. Their sum is at most 1.
    of: Vec<(Option<Owner>, f64)>,
    /// Number of owners that hold a function, with those whose part is 0. All functions without a known
    /// holder count as one more.
    owners: usize,
    /// The same for tenants.
    tenants: usize,
}

/// Who holds which function.
#[derive(Debug, Default)]
pub(super) struct Holders {
    tick_ns: u64,
    now: HashMap<Address, BTreeMap<Owner, u64>>,
    /// What devices have counted since it was last used, whether any of that is new, and what is used.
    grown: AccountGrowth,
    is_grown: bool,
    counted: HashMap<Address, SelfCounted>,
    /// The parts of each counter that counts traffic of devices, by its index among the counters; none if
    /// they are not known since the last change.
    parts: Vec<(usize, Option<Arc<Parts>>)>,
    /// The parts in the ticks that were not settled yet.
    ticks: Vec<(u64, Vec<Arc<Parts>>)>,
}

/// What a function counts itself.
#[derive(Debug, Default)]
struct SelfCounted {
    /// Bytes, by direction; those of `None` are all.
    bytes: HashMap<Option<IoDirection>, u64>,
    /// What each process used.
    processes: BTreeMap<u32, u64>,
}

/// What one owner or tenant is given of the counts of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Claim {
    /// Of ticks in which it alone held devices.
    alone: f64,
    /// Of ticks in which others held some too.
    shared: f64,
    /// The whole count of these ticks.
    of: f64,
    /// What it would be given of that if all that held some had equal parts.
    fair: f64,
}

/// What the owners are given of a counter's counts since the last window.
#[derive(Debug, Default)]
pub(super) struct Claims {
    owners: BTreeMap<Option<Owner>, Claim>,
    tenants: HashMap<Option<u64>, Claim>,
    /// The sum of the counts.
    total: f64,
    /// The parts in ticks whose count is not known yet, with the number of such ticks in a row.
    waiting: Vec<(Arc<Parts>, u64)>,
    /// The last parts whose count is known, with the sum of the counts while they were the same.
    last: Option<(Arc<Parts>, f64)>,
}

/// Ticks with different parts that may wait for a count. The parts of more are taken for those of the last.
const MOST_WAITING: usize = 4096;

/// The probability that no device is used by a process that is not seen to hold it. The kernel shows no file
/// that is only mapped, on its way in a socket (`SCM_RIGHTS`) or registered with `io_uring`: it is in no
/// process's table of files. 0.9 is a choice, not a measurement: what drives a device usually keeps
/// its file open for as long as it uses it, and nothing of the kernel says when it does not.
const SEEN: f64 = 0.9;

/// Processes of a tenant that have shares of their own in a window. Those of more are united.
const MOST_PROCESSES: usize = 64;

impl Holders {
    /// Before the first tick, for these counters.
    pub(super) fn new(tracks: &mut [Track], tick_ns: u64) -> Self {
        let is_of_devices = |track: &Track| {
            matches!(track.kind, Method::Source | Method::Io) && !track.counter.behind.is_empty()
        };
        let mut parts = Vec::new();
        for (at, track) in tracks.iter_mut().enumerate().filter(|(_, track)| is_of_devices(track)) {
            track.series.keep_ticks();
            parts.push((at, None));
        }
        Self { tick_ns, parts, ..Self::default() }
    }

    /// Whether any counter counts traffic of devices that can be held.
    pub(super) const fn are_needed(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Takes a change, from the current tick on.
    pub(super) fn take(&mut self, held: &DeviceHold) {
        let owners = self.now.entry(held.function).or_default();
        if held.ns > 0 {
            owners.insert(held.owner, held.ns);
        } else {
            owners.remove(&held.owner);
        }
        if owners.is_empty() {
            self.now.remove(&held.function);
        }
        self.parts.iter_mut().for_each(|(_, parts)| *parts = None);
    }

    /// Takes what a device has counted itself.
    pub(super) fn account(&mut self, accounted: &Accounted) {
        self.grown.add_reading(accounted);
        self.is_grown = true;
    }

    /// Uses what was counted since the last time.
    fn count(&mut self, tracks: &[Track]) {
        let its = self.parts.iter().filter_map(|(at, _)| tracks.get(*at));
        let functions: BTreeSet<Address> =
            its.flat_map(|track| &track.counter.behind).map(|its| its.function).collect();
        let grown = &self.grown;
        let of = |function| {
            let ways = [None, Some(IoDirection::Read), Some(IoDirection::Write)];
            let bytes = ways.into_iter().filter_map(|way| Some((way, grown.moved_bytes(function, way)?)));
            let processes = grown.usage_by_process(function);
            (function, SelfCounted { bytes: bytes.collect(), processes })
        };
        self.counted = functions.into_iter().map(of).collect();
        self.grown.restart();
        self.is_grown = false;
        self.parts.iter_mut().for_each(|(_, parts)| *parts = None);
    }

    /// Ends the current tick.
    pub(super) fn end_tick(&mut self, tick: u64, tracks: &[Track]) {
        if self.parts.is_empty() {
            return;
        }
        if self.is_grown {
            self.count(tracks);
        }
        let (now, own, tick_ns) = (&self.now, &self.counted, self.tick_ns);
        let of = |(at, parts): &mut (usize, Option<Arc<Parts>>)| {
            let make = || {
                let Some(Track { counter, kind, .. }) = tracks.get(*at) else {
                    return Arc::default();
                };
                let way = counter.io.as_ref().map(|io| io.direction);
                let behind = (counter.behind.as_slice(), *kind != Method::Io);
                Arc::new(Parts::of(behind, now, (own, way), tick_ns))
            };
            Arc::clone(parts.get_or_insert_with(make))
        };
        let parts = self.parts.iter_mut().map(of).collect();
        self.ticks.push((tick, parts));
    }

    /// Divides the counts of the ticks since the last call.
    pub(super) fn settle(&mut self, tracks: &mut [Track]) {
        for (tick, parts) in std::mem::take(&mut self.ticks) {
            for ((at, _), parts) in self.parts.iter().zip(parts) {
                if let Some(track) = tracks.get_mut(*at) {
                    track.hold(tick, TickParts(parts));
                }
            }
        }
    }
}

/// The parts of one tick, for [`Claims::tick`].
#[derive(Debug)]
pub(super) struct TickParts(Arc<Parts>);

impl Parts {
    fn of(
        (behind, has_requests): (&[Behind], bool),
        holders: &HashMap<Address, BTreeMap<Owner, u64>>,
        (counted, way): (&HashMap<Address, SelfCounted>, Option<IoDirection>),
        tick_ns: u64,
    ) -> Self {
        let mut parts: BTreeMap<Option<Owner>, f64> = BTreeMap::new();
        // Without the method io, the requests of the kernel are in the count, too.
        let claimed = |its: &&Behind| {
            its.unseen || its.requests && has_requests || holders.contains_key(&its.function)
        };
        let claimed: Vec<Address> = behind.iter().filter(claimed).map(|its| its.function).collect();
        let bytes = |function| Some(*counted.get(function)?.bytes.get(&way)? as f64);
        let bytes: Option<Vec<f64>> = claimed.iter().map(bytes).collect();
        let bytes = bytes.filter(|bytes| bytes.iter().sum::<f64>() > 0.0);
        let bytes = bytes.unwrap_or_else(|| vec![1.0; claimed.len()]);
        let all: f64 = bytes.iter().sum();
        for (function, bytes) in claimed.iter().zip(bytes) {
            let each = bytes / all;
            let Some(owners) = holders.get(function) else {
                *parts.entry(None).or_default() += each;
                continue;
            };
            let used = counted.get(function).map(|counted| &counted.processes);
            for (owner, part) in used
                .and_then(|used| by_use(owners, used, tick_ns))
                .unwrap_or_else(|| by_time(owners, tick_ns))
            {
                *parts.entry(Some(owner)).or_default() += each * part;
            }
        }
        let tenants: BTreeSet<_> = parts.keys().map(|who| who.as_ref().map(cgroup)).collect();
        let (owners, tenants) = (parts.len(), tenants.len());
        parts.retain(|_, part| *part > 0.0);
        Self { of: parts.into_iter().collect(), owners, tenants }
    }
}

/// The parts of the holders of a function by what the device counts for each process; `None` if it counts
/// nothing for any of them, or if that is not known of one: it would be charged to the others.
fn by_use(
    owners: &BTreeMap<Owner, u64>,
    used: &BTreeMap<u32, u64>,
    tick_ns: u64,
) -> Option<Vec<(Owner, f64)>> {
    let pid = |owner: &Owner| if let Owner::Task { pid, .. } = owner { Some(*pid) } else { None };
    let own: BTreeSet<u32> = owners.keys().filter_map(pid).collect();
    if own.iter().any(|pid| !used.contains_key(pid)) {
        return None;
    }
    // What is left is of processes that are no owners, if any of these holds the function.
    let others: f64 =
        used.iter().filter(|(pid, _)| !own.contains(pid)).map(|(_, used)| *used as f64).sum();
    let of = |owner: &Owner| match owner {
        Owner::Task { pid, .. } => used.get(pid).map_or(0.0, |used| *used as f64),
        _ => others,
    };
    let all: f64 = owners.keys().map(of).sum();
    let held = *owners.values().max()?.min(&tick_ns) as f64 / tick_ns as f64;
    (all > 0.0).then(|| owners.keys().map(|owner| (*owner, held * of(owner) / all)).collect())
}

/// The parts of the holders of a function by the time in which each holds it.
fn by_time(owners: &BTreeMap<Owner, u64>, tick_ns: u64) -> Vec<(Owner, f64)> {
    // For each tenant, how long the longest of its processes holds it, and all of them together.
    let mut tenants: BTreeMap<Option<u64>, (u64, u64)> = BTreeMap::new();
    for (owner, ns) in owners {
        let (longest, sum) = tenants.entry(cgroup(owner)).or_default();
        *longest = (*longest).max(*ns);
        *sum += ns;
    }
    let sum: u64 = tenants.values().map(|(longest, _)| longest).sum();
    let part = |(owner, ns): (&Owner, &u64)| {
        let (longest, all) = tenants.get(&cgroup(owner))?;
        let of_tenant = *longest as f64 / sum.max(tick_ns) as f64;
        Some((*owner, of_tenant * *ns as f64 / *all as f64))
    };
    owners.iter().filter_map(part).collect()
}

impl Claim {
    /// Adds a part of a tick's count, in which this many held devices.
    fn add(&mut self, part: f64, count: f64, holders: usize) {
        if holders == 1 {
            self.alone += part * count;
        } else {
            self.shared += part * count;
            self.of += count;
            self.fair += count / holders as f64;
        }
    }

    /// The probability that it is within 10 % of the truth, if nobody else used the devices.
    fn right(&self) -> f64 {
        if self.shared <= 0.0 {
            return 1.0;
        }
        let holders = self.of / self.fair;
        let below =
            |value: f64| 1.0 - (1.0 - (value / self.of).clamp(0.0, 1.0)).powf(holders - 1.0);
        let most = RIGHT_WITHIN * (self.alone + self.shared);
        below(self.shared + most) - below(self.shared - most)
    }
}

impl Claims {
    /// Takes the parts of a tick, and its count; `None` if it is in the count of a later tick.
    pub(super) fn tick(&mut self, parts: TickParts, count: Option<f64>) {
        let is_full = self.waiting.len() >= MOST_WAITING;
        match self.waiting.last_mut() {
            Some((last, ticks)) if is_full || Arc::ptr_eq(last, &parts.0) => *ticks += 1,
            _ => self.waiting.push((parts.0, 1)),
        }
        let Some(count) = count else { return };
        let waiting = std::mem::take(&mut self.waiting);
        let all: u64 = waiting.iter().map(|(_, ticks)| ticks).sum();
        for (parts, ticks) in waiting {
            let count = count * ticks as f64 / all as f64;
            match &mut self.last {
                Some((last, sum)) if Arc::ptr_eq(last, &parts) => *sum += count,
                _ => {
                    self.add_last();
                    self.last = Some((parts, count));
                }
            }
        }
    }

    /// What was counted so far; parts whose count is not known stay.
    pub(super) fn take(&mut self) -> Self {
        self.add_last();
        let waiting = std::mem::take(&mut self.waiting);
        std::mem::replace(self, Self { waiting, ..Self::default() })
    }

    fn add_last(&mut self) {
        let Some((parts, count)) = self.last.take() else { return };
        self.total += count;
        let mut tenants: BTreeMap<Option<u64>, f64> = BTreeMap::new();
        for (who, part) in &parts.of {
            self.owners.entry(*who).or_default().add(*part, count, parts.owners);
            if let Some(who) = who {
                *tenants.entry(cgroup(who)).or_default() += part;
            }
        }
        for (tenant, part) in tenants {
            self.tenants.entry(tenant).or_default().add(part, count, parts.tenants);
        }
    }

    /// Gives the holders their parts of the share of the devices. The shares sum to the same total
    /// before and after.
    pub(super) fn apply(&self, shares: &mut Vec<Share>) {
        let Some(at) = shares.iter().position(|share| share.who == Owner::Device) else { return };
        let device = shares[at];
        if self.total <= 0.0 || self.owners.keys().all(Option::is_none) {
            return;
        }
        let mut rest = device.value;
        let mut of_tenants: BTreeMap<Option<u64>, Vec<Share>> = BTreeMap::new();
        for (who, claim) in &self.owners {
            let value = device.value * (claim.alone + claim.shared) / self.total;
            let Some(who) = who.filter(|_| value > 0.0) else { continue };
            rest -= value;
            let tenant = self.tenants.get(&cgroup(&who)).copied().unwrap_or(*claim);
            let confidence = device.confidence * (SEEN * claim.right()) as f32;
            let lasting = device.lasting * (SEEN * tenant.right()) as f32;
            let by = Some(Method::Held);
            let share = Share { who, value, confidence, lasting, by, processes: None };
            of_tenants.entry(cgroup(&who)).or_default().push(share);
        }
        for (cgroup, its) in of_tenants {
            match cgroup {
                Some(id) if its.len() > MOST_PROCESSES => shares.extend(united(id, &its)),
                _ => shares.extend(its),
            }
        }
        if rest > device.value * 1e-12 {
            let nobody = self.owners.get(&None).copied().unwrap_or_default();
            let share = &mut shares[at];
            share.value = rest;
            share.confidence *= nobody.right() as f32;
            share.lasting *= nobody.right() as f32;
        } else {
            shares.remove(at);
        }
    }
}

/// One share for the processes of a cgroup.
fn united(cgroup_id: u64, shares: &[Share]) -> Option<Share> {
    let who = Owner::Task { pid: 0, comm: Comm::default(), cgroup_id };
    let value = shares.iter().map(|share| share.value).sum();
    let processes = Some(shares.len() as u32);
    // How the processes divide it does not matter.
    shares.first().map(|one| Share { who, value, confidence: one.lasting, processes, ..*one })
}

#[cfg(test)]
mod tests;
