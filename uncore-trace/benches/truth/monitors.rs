//! What monitors of the hardware measure of a drawn machine: the bytes of the largest tenants, and
//! of all CPUs, at each socket's memory.
//!
//! The tenants with the most credited bytes have the groups, as with `record --monitor`, and one
//! group of four goes from tenant to tenant if there are more tenants than groups. They are chosen
//! every 5 s, for the first time after 5 s. A group counts what the threads of its tenant moved in
//! a window, with an error of 2 % of each window (normal). Interrupts count for the default group
//! only, and bytes that come without CPU time for none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uncore_trace::attribute::Attributor;
use uncore_trace::entries::{EntryConsumer as _, Monitored};

use super::random::Random;
use super::scores;
use super::ticks::{ByteMover, DrawnTick};
use super::{SOCKETS, TICK_NS};

const NOISE: f64 = 0.02;
const STAYS_NS: u64 = 5_000_000_000;
/// One of this number of groups goes from tenant to tenant.
const ROTATES: usize = 4;
/// Credited bytes are summed from this time on.
const FIRST_NS: u64 = 100_000_000;
/// Lists of the largest tenants are made once a second.
const RANKS_NS: u64 = 1_000_000_000;

pub(crate) struct Monitors<'a> {
    limit: usize,
    tenant_of: &'a [usize],
    measured: BTreeSet<Arc<str>>,
    /// When each tenant had a group last, ns.
    turns: BTreeMap<Arc<str>, u64>,
    /// Bytes of the window, by socket and tenant; `None`: all.
    moved: BTreeMap<(usize, Option<usize>), f64>,
    random: Random,
}

impl<'a> Monitors<'a> {
    pub(crate) fn new(limit: usize, tenant_of: &'a [usize], random: Random) -> Self {
        let (measured, turns, moved) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        Self { limit, tenant_of, measured, turns, moved, random }
    }

    /// Counts what was moved in a tick.
    pub(crate) fn count_tick(&mut self, tick: &DrawnTick) {
        for moved_part in tick.moved_parts.iter().filter(|candidate| candidate.ns > 0) {
            *self.moved.entry((moved_part.counter, None)).or_default() += moved_part.bytes;
            if let ByteMover::Process(process) = moved_part.mover {
                let tenant = Some(self.tenant_of[process as usize]);
                *self.moved.entry((moved_part.counter, tenant)).or_default() += moved_part.bytes;
            }
        }
    }

    /// Chooses the tenants that have a group after this number of ticks.
    pub(crate) fn choose_tenants(&mut self, ticks: usize, attributor: &mut Attributor) {
        let time = ticks as u64 * TICK_NS;
        if time != FIRST_NS && !time.is_multiple_of(RANKS_NS) {
            return;
        }
        let mut largest = attributor.largest_cgroups();
        if time.is_multiple_of(STAYS_NS) {
            largest.retain(|path| &**path != "/");
            self.turns
                .extend(std::mem::take(&mut self.measured).into_iter().map(|path| (path, time)));
            let rotating =
                if largest.len() > self.limit { self.limit.div_ceil(ROTATES) } else { 0 };
            let mut smaller = largest.split_off(largest.len().min(self.limit - rotating));
            // Those that have waited for longest, and of these the largest. The sort is stable.
            smaller.sort_by_key(|path| self.turns.get(path).copied().unwrap_or_default());
            self.measured = largest.into_iter().chain(smaller.into_iter().take(rotating)).collect();
        }
    }

    /// Ends a window: what was measured in it.
    pub(crate) fn end_window(&mut self) -> Vec<Monitored> {
        let moved = std::mem::take(&mut self.moved);
        let mut monitored = Vec::new();
        for socket in 0..SOCKETS {
            let bytes_of = |tenant| moved.get(&(socket, tenant)).copied().unwrap_or_default();
            let mut read = |cgroup, bytes: f64| {
                let bytes = (bytes * self.random.normal(1.0, NOISE)).max(0.0) as u64;
                monitored.push(Monitored { cgroup, socket: socket as i16, bytes });
            };
            read(None, bytes_of(None));
            let tenants: BTreeSet<usize> = self.tenant_of.iter().copied().collect();
            for tenant in tenants {
                let path: Arc<str> = scores::cgroup_path(tenant).into();
                if self.measured.contains(&path) {
                    read(Some(path), bytes_of(Some(tenant)));
                }
            }
        }
        monitored
    }
}
