//! `held`: traffic of devices goes to those who hold the devices.
//!
//! It divides the part of a count that a counter's method leaves to [`Owner::Device`]: all of it
//! for [`Method::Source`], and for [`Method::Io`] what no request moved. A holder is an owner that
//! has a device file open by which it can give the device work
//! ([`crate::discover::nodes::DeviceAccess`]).
//!
//! The count of each tick is divided among the functions behind the counter that somebody holds: by
//! the bytes that the functions count themselves, if all of them do, else in equal parts. A
//! function's part is divided among its tenants (cgroups) by the time in which each holds it in the
//! tick, and a tenant's part among its processes in the same way. If the device counts what each
//! process uses, that divides the part among the processes that hold it. Devices' counts are read
//! once a second, and each reading is used until the next. The owner device keeps the part of the
//! time in which no process holds a function. It also keeps the part of a network controller whose
//! interface is in another network namespace while no process holds it
//! ([`crate::plan::CountedFunction::unseen`]).
//!
//! # Confidence
//!
//! The confidence of the device's share by the counter's method, times the probability that nobody
//! but the holders used the devices ([`SEEN_PROBABILITY`]), times the probability that its part is
//! right then. What was counted while one owner alone held all devices is its own. Of what was
//! counted while several held some, any division is equally probable: one part of `k` has the
//! distribution Beta(1, k - 1), the margin of a uniform distribution over all divisions. For two
//! holders that is 0.1, and less for more, before it is multiplied. What devices count themselves
//! does not raise it: how well that agrees with bytes on a link was not tried.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::attribute::adjustment::{AdjustedWindow, ShareAdjustment};
use crate::attribute::cgroups::cgroup_of_owner;
use crate::attribute::counter::TrackedCounter;
use crate::attribute::method::Method;
use crate::attribute::share::Share;
use crate::attribute::stage::{DivisionStage, StageSetup};
use crate::attribute::waiting::{WindowAdjustment, WindowState};
use crate::discover::pci::PciAddress;
use crate::drain::Comm;
use crate::entries::{AccountGrowth, Accounted, DeviceHold, LogEntry, Owner};
use crate::plan::{CountedFunction, IoDirection};
use crate::schema::confidence::RIGHT_WITHIN;

/// The fractions of a tick's count that holders are given. The owner device keeps what they leave.
#[derive(Debug, Default, PartialEq)]
struct HolderFractions {
    /// By owner; `None` for functions without a known holder. Their sum is at most 1.
    by_owner: Vec<(Option<Owner>, f64)>,
    /// Number of owners that hold a function, also with a fraction of 0. All functions without a
    /// known holder count as one more.
    owners: usize,
    /// Number of tenants that hold a function, counted in the same way.
    tenants: usize,
}

/// The holders of each function.
#[derive(Debug, Default)]
pub(super) struct DeviceHolders {
    tick_ns: u64,
    held_ns: HashMap<PciAddress, BTreeMap<Owner, u64>>,
    /// The accounts of devices since they were last used, whether any is new, and those in use.
    new_accounts: AccountGrowth,
    has_new_accounts: bool,
    accounts: HashMap<PciAddress, SelfCounted>,
    counters: Vec<HeldCounter>,
    /// The fractions of each counter in the ticks whose counts were not used yet.
    open_ticks: Vec<(u64, Vec<Arc<HolderFractions>>)>,
}

/// A counter of traffic of devices that can be held.
#[derive(Debug)]
struct HeldCounter {
    /// Its index among the counters.
    counter_index: usize,
    /// The fractions of its holders; `None` if they are not known since the last change.
    fractions: Option<Arc<HolderFractions>>,
    /// What its holders are given of its counts in the window.
    claims: HolderClaims,
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
struct HolderClaim {
    /// Of ticks in which it alone held devices.
    alone: f64,
    /// Of ticks in which others held some too.
    shared: f64,
    /// The whole count of these ticks.
    shared_count: f64,
    /// What it would be given of that if all that held some had equal parts.
    fair_value: f64,
}

/// What the owners are given of a counter's counts since the last window.
#[derive(Debug, Default)]
struct HolderClaims {
    owners: BTreeMap<Option<Owner>, HolderClaim>,
    tenants: HashMap<Option<u64>, HolderClaim>,
    /// The sum of the counts.
    total: f64,
    /// The fractions in ticks whose count is not known yet, with the number of such ticks in a row.
    waiting: Vec<(Arc<HolderFractions>, u64)>,
    /// The last fractions whose count is known, and the sum of the counts while they stayed.
    last_known: Option<(Arc<HolderFractions>, f64)>,
}

/// Ticks with different fractions that may wait for a count. More ticks count as the last of them.
const MAX_WAITING: usize = 4096;

/// The probability that no device is used by a process that is not seen to hold it. The kernel
/// shows no file that is only mapped, on its way in a socket (`SCM_RIGHTS`) or registered with
/// `io_uring`: it is in no process's table of files. 0.9 is a choice, not a measurement: what
/// drives a device usually keeps its file open for as long as it uses it, and nothing of the kernel
/// says when it does not. Mappings alone could be read (the iterator `task_vma`), but not cheaply:
/// processes have several times to some hundred times as many of them as files, and the iterator
/// takes the lock of each process's address space, for which the process may have to wait.
const SEEN_PROBABILITY: f64 = 0.9;

/// Processes of a tenant that have shares of their own in a window. Those of more are united.
const MAX_PROCESSES: usize = 64;

impl DeviceHolders {
    /// The holders before the first tick.
    pub(super) fn new(setup: &mut StageSetup<'_>) -> Self {
        let is_of_devices = |track: &TrackedCounter| {
            matches!(track.planned_method, Method::Source | Method::Io)
                && !track.counter.behind.is_empty()
        };
        let mut counters = Vec::new();
        let tracks = setup.tracks.iter_mut().enumerate();
        for (counter_index, track) in tracks.filter(|(_, track)| is_of_devices(track)) {
            track.series.keep_ticks();
            let claims = HolderClaims::default();
            counters.push(HeldCounter { counter_index, fractions: None, claims });
        }
        Self { tick_ns: setup.plan.tick_ns, counters, ..Self::default() }
    }

    /// Applies a change of who holds a function, from the current tick on.
    fn apply_change(&mut self, held: &DeviceHold) {
        let owners = self.held_ns.entry(held.function).or_default();
        if held.ns > 0 {
            owners.insert(held.owner, held.ns);
        } else {
            owners.remove(&held.owner);
        }
        if owners.is_empty() {
            self.held_ns.remove(&held.function);
        }
        self.counters.iter_mut().for_each(|held| held.fractions = None);
    }

    /// Adds what a device has counted itself.
    fn add_account(&mut self, accounted: &Accounted) {
        self.new_accounts.add_reading(accounted);
        self.has_new_accounts = true;
    }

    /// Uses what devices counted since the last time.
    fn use_new_accounts(&mut self, tracks: &[TrackedCounter]) {
        let tracks_behind = self.counters.iter().filter_map(|held| tracks.get(held.counter_index));
        let functions: BTreeSet<PciAddress> = tracks_behind
            .flat_map(|track| &track.counter.behind)
            .map(|device| device.function)
            .collect();
        let new_accounts = &self.new_accounts;
        let accounts_of_function = |function| {
            let directions = [None, Some(IoDirection::Read), Some(IoDirection::Write)];
            let bytes = directions.into_iter().filter_map(|direction| {
                Some((direction, new_accounts.moved_bytes(function, direction)?))
            });
            let processes = new_accounts.usage_by_process(function);
            (function, SelfCounted { bytes: bytes.collect(), processes })
        };
        self.accounts = functions.into_iter().map(accounts_of_function).collect();
        self.new_accounts.restart();
        self.has_new_accounts = false;
        self.counters.iter_mut().for_each(|held| held.fractions = None);
    }
}

impl DivisionStage for DeviceHolders {
    fn take_entry(&mut self, entry: LogEntry<'_>) {
        match entry {
            LogEntry::Held(held) => self.apply_change(held),
            LogEntry::Account(accounted) => self.add_account(accounted),
            _ => {}
        }
    }

    fn needs_ticks(&self) -> bool {
        !self.counters.is_empty()
    }

    /// Keeps the fractions of the tick: who holds what may change before its count is known.
    fn end_tick(&mut self, tick: u64, tracks: &[TrackedCounter]) {
        if self.counters.is_empty() {
            return;
        }
        if self.has_new_accounts {
            self.use_new_accounts(tracks);
        }
        let (held_ns, accounts, tick_ns) = (&self.held_ns, &self.accounts, self.tick_ns);
        let fractions_of_counter = |held: &mut HeldCounter| {
            let compute = || {
                let Some(TrackedCounter { counter, planned_method: kind, .. }) =
                    tracks.get(held.counter_index)
                else {
                    return Arc::default();
                };
                let direction = counter.io.as_ref().map(|io| io.direction);
                let behind = (counter.behind.as_slice(), *kind != Method::Io);
                Arc::new(HolderFractions::from_holders(
                    behind,
                    held_ns,
                    (accounts, direction),
                    tick_ns,
                ))
            };
            Arc::clone(held.fractions.get_or_insert_with(compute))
        };
        self.open_ticks.push((tick, self.counters.iter_mut().map(fractions_of_counter).collect()));
    }

    /// Divides the counts of the ticks since the last call among the holders.
    fn use_tick_counts(&mut self, tracks: &mut [TrackedCounter]) {
        for held in &mut self.counters {
            // A restarted counter counts from 0: claims to what it counted before are void.
            if tracks.get(held.counter_index).is_some_and(TrackedCounter::has_restarted) {
                held.claims = HolderClaims::default();
            }
        }
        for (tick, fractions) in std::mem::take(&mut self.open_ticks) {
            for (held, tick_fractions) in self.counters.iter_mut().zip(fractions) {
                if let Some(track) = tracks.get_mut(held.counter_index) {
                    held.claims.add_tick_count(tick_fractions, track.tick_count(tick));
                }
            }
        }
    }

    /// A window that is extended keeps its claims.
    fn close_window(
        &mut self,
        _tick: u64,
        _tracks: &[TrackedCounter],
        states: &mut [WindowState],
    ) -> Option<Box<dyn WindowAdjustment>> {
        for held in &mut self.counters {
            if let Some(WindowState::Undivided(span)) = states.get_mut(held.counter_index) {
                span.add_adjustment(held.claims.take_counted());
            }
        }
        None
    }
}

impl ShareAdjustment for HolderClaims {
    fn adjust_shares(&self, _window: &AdjustedWindow<'_>, shares: &mut Vec<Share>) {
        self.apply_to_shares(shares);
    }
}

impl HolderFractions {
    fn from_holders(
        (behind, has_requests): (&[CountedFunction], bool),
        holders: &HashMap<PciAddress, BTreeMap<Owner, u64>>,
        (accounts, direction): (&HashMap<PciAddress, SelfCounted>, Option<IoDirection>),
        tick_ns: u64,
    ) -> Self {
        let mut fractions: BTreeMap<Option<Owner>, f64> = BTreeMap::new();
        // Without the method io, the requests of the kernel are in the count, too.
        let claimed = |device: &&CountedFunction| {
            device.unseen
                || device.requests && has_requests
                || holders.contains_key(&device.function)
        };
        let claimed: Vec<PciAddress> =
            behind.iter().filter(claimed).map(|device| device.function).collect();
        let bytes_of = |function| Some(*accounts.get(function)?.bytes.get(&direction)? as f64);
        let bytes: Option<Vec<f64>> = claimed.iter().map(bytes_of).collect();
        let bytes = bytes.filter(|bytes| bytes.iter().sum::<f64>() > 0.0);
        let bytes = bytes.unwrap_or_else(|| vec![1.0; claimed.len()]);
        let total_bytes: f64 = bytes.iter().sum();
        for (function, bytes) in claimed.iter().zip(bytes) {
            let function_fraction = bytes / total_bytes;
            let Some(owners) = holders.get(function) else {
                *fractions.entry(None).or_default() += function_fraction;
                continue;
            };
            let use_by_pid = accounts.get(function).map(|counted| &counted.processes);
            for (owner, fraction) in use_by_pid
                .and_then(|process_use| divide_by_use(owners, process_use, tick_ns))
                .unwrap_or_else(|| divide_by_time(owners, tick_ns))
            {
                *fractions.entry(Some(owner)).or_default() += function_fraction * fraction;
            }
        }
        let tenants: BTreeSet<_> =
            fractions.keys().map(|holder| holder.as_ref().map(cgroup_of_owner)).collect();
        let (owners, tenants) = (fractions.len(), tenants.len());
        fractions.retain(|_, fraction| *fraction > 0.0);
        Self { by_owner: fractions.into_iter().collect(), owners, tenants }
    }
}

/// The fractions of a function's holders by what the device counts for each process; `None` if it
/// counts nothing for any of them, or if one's is not known: it would be charged to the others.
fn divide_by_use(
    owners: &BTreeMap<Owner, u64>,
    use_by_pid: &BTreeMap<u32, u64>,
    tick_ns: u64,
) -> Option<Vec<(Owner, f64)>> {
    let pid = |owner: &Owner| if let Owner::Task { pid, .. } = owner { Some(*pid) } else { None };
    let holder_pids: BTreeSet<u32> = owners.keys().filter_map(pid).collect();
    if holder_pids.iter().any(|pid| !use_by_pid.contains_key(pid)) {
        return None;
    }
    // What is left is of processes that are no owners, if any of these holds the function.
    let other_use: f64 = use_by_pid
        .iter()
        .filter(|(pid, _)| !holder_pids.contains(pid))
        .map(|(_, amount)| *amount as f64)
        .sum();
    let use_of = |owner: &Owner| match owner {
        Owner::Task { pid, .. } => use_by_pid.get(pid).map_or(0.0, |amount| *amount as f64),
        _ => other_use,
    };
    let total_use: f64 = owners.keys().map(use_of).sum();
    let held_fraction = *owners.values().max()?.min(&tick_ns) as f64 / tick_ns as f64;
    (total_use > 0.0).then(|| {
        owners.keys().map(|owner| (*owner, held_fraction * use_of(owner) / total_use)).collect()
    })
}

/// The fractions of the holders of a function by the time in which each holds it.
fn divide_by_time(owners: &BTreeMap<Owner, u64>, tick_ns: u64) -> Vec<(Owner, f64)> {
    // For each tenant, how long the longest of its processes holds it, and all of them together.
    let mut tenants: BTreeMap<Option<u64>, (u64, u64)> = BTreeMap::new();
    for (owner, ns) in owners {
        let (longest, sum) = tenants.entry(cgroup_of_owner(owner)).or_default();
        *longest = (*longest).max(*ns);
        *sum += ns;
    }
    let sum: u64 = tenants.values().map(|(longest, _)| longest).sum();
    let fraction_of = |(owner, ns): (&Owner, &u64)| {
        let (longest, sum_ns) = tenants.get(&cgroup_of_owner(owner))?;
        Some((*owner, (*longest as f64 / sum.max(tick_ns) as f64) * *ns as f64 / *sum_ns as f64))
    };
    owners.iter().filter_map(fraction_of).collect()
}

impl HolderClaim {
    /// Adds a fraction of a tick's count, in which this many held devices.
    fn add_fraction(&mut self, fraction: f64, count: f64, holders: usize) {
        if holders == 1 {
            self.alone += fraction * count;
        } else {
            self.shared += fraction * count;
            self.shared_count += count;
            self.fair_value += count / holders as f64;
        }
    }

    /// The probability that it is within 10 % of the truth, if nobody else used the devices.
    fn right_probability(&self) -> f64 {
        if self.shared <= 0.0 {
            return 1.0;
        }
        let holders = self.shared_count / self.fair_value;
        let cumulative = |value: f64| {
            1.0 - libm::pow(1.0 - (value / self.shared_count).clamp(0.0, 1.0), holders - 1.0)
        };
        let margin = RIGHT_WITHIN * (self.alone + self.shared);
        cumulative(self.shared + margin) - cumulative(self.shared - margin)
    }
}

impl HolderClaims {
    /// Adds the fractions of a tick, and its count; `None` if it is in the count of a later tick.
    fn add_tick_count(&mut self, tick_fractions: Arc<HolderFractions>, count: Option<f64>) {
        let is_full = self.waiting.len() >= MAX_WAITING;
        match self.waiting.last_mut() {
            Some((last_waiting, ticks))
                if is_full || Arc::ptr_eq(last_waiting, &tick_fractions) =>
            {
                *ticks += 1;
            }
            _ => self.waiting.push((tick_fractions, 1)),
        }
        let Some(count) = count else { return };
        let waiting = std::mem::take(&mut self.waiting);
        let total_ticks: u64 = waiting.iter().map(|(_, ticks)| ticks).sum();
        for (fractions, ticks) in waiting {
            let count = count * ticks as f64 / total_ticks as f64;
            match &mut self.last_known {
                Some((last_fractions, sum)) if Arc::ptr_eq(last_fractions, &fractions) => {
                    *sum += count;
                }
                _ => {
                    self.add_last();
                    self.last_known = Some((fractions, count));
                }
            }
        }
    }

    /// Takes what was counted so far; fractions whose count is not known stay.
    fn take_counted(&mut self) -> Self {
        self.add_last();
        let waiting = std::mem::take(&mut self.waiting);
        std::mem::replace(self, Self { waiting, ..Self::default() })
    }

    fn add_last(&mut self) {
        let Some((fractions, count)) = self.last_known.take() else { return };
        self.total += count;
        let mut tenants: BTreeMap<Option<u64>, f64> = BTreeMap::new();
        for (owner, fraction) in &fractions.by_owner {
            self.owners.entry(*owner).or_default().add_fraction(*fraction, count, fractions.owners);
            if let Some(holder) = owner {
                *tenants.entry(cgroup_of_owner(holder)).or_default() += fraction;
            }
        }
        for (tenant, fraction) in tenants {
            self.tenants.entry(tenant).or_default().add_fraction(
                fraction,
                count,
                fractions.tenants,
            );
        }
    }

    /// Gives the holders their parts of the share of the devices. The shares sum to the same total
    /// before and after.
    fn apply_to_shares(&self, shares: &mut Vec<Share>) {
        let Some(device_index) = shares.iter().position(|share| share.owner == Owner::Device)
        else {
            return;
        };
        let device = shares[device_index];
        if self.total <= 0.0 || self.owners.keys().all(Option::is_none) {
            return;
        }
        let mut remaining = device.value;
        let mut shares_by_tenant: BTreeMap<Option<u64>, Vec<Share>> = BTreeMap::new();
        for (holder, claim) in &self.owners {
            let value = device.value * (claim.alone + claim.shared) / self.total;
            let Some(owner) = holder.filter(|_| value > 0.0) else { continue };
            remaining -= value;
            let tenant = self.tenants.get(&cgroup_of_owner(&owner)).copied().unwrap_or(*claim);
            let confidence =
                device.confidence * (SEEN_PROBABILITY * claim.right_probability()) as f32;
            let lasting = device.lasting * (SEEN_PROBABILITY * tenant.right_probability()) as f32;
            let method = Some(Method::Held);
            let share = Share { owner, value, confidence, lasting, method, processes: None };
            shares_by_tenant.entry(cgroup_of_owner(&owner)).or_default().push(share);
        }
        for (cgroup, tenant_shares) in shares_by_tenant {
            match cgroup {
                Some(id) if tenant_shares.len() > MAX_PROCESSES => {
                    shares.extend(unite_processes(id, &tenant_shares));
                }
                _ => shares.extend(tenant_shares),
            }
        }
        if remaining > device.value * 1e-12 {
            let unheld = self.owners.get(&None).copied().unwrap_or_default();
            let share = &mut shares[device_index];
            share.value = remaining;
            share.confidence *= unheld.right_probability() as f32;
            share.lasting *= unheld.right_probability() as f32;
        } else {
            shares.remove(device_index);
        }
    }
}

/// One share for the processes of a cgroup.
fn unite_processes(cgroup_id: u64, shares: &[Share]) -> Option<Share> {
    let owner = Owner::Task { pid: 0, comm: Comm::default(), cgroup_id };
    let value = shares.iter().map(|share| share.value).sum();
    let processes = Some(shares.len() as u32);
    // How the processes divide it does not matter.
    shares.first().map(|first_share| Share {
        owner,
        value,
        confidence: first_share.lasting,
        processes,
        ..*first_share
    })
}

#[cfg(test)]
mod tests;
