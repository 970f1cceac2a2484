//! Random draws for the tenants of a mix, from the seed, the machine and its counters.

use fastrand::Rng;

use super::Counted;
use crate::lab::machine::Machine;
use crate::lab::step::{Move, Phase, Tenant};

/// CPU time between two moves of a tenant, us: a twentieth of a tick, so that a tick's count
/// matches the tenants that ran in it.
const PERIOD_US: u32 = 50;

/// The same on a machine with many CPUs, whose moves would otherwise fill the log.
pub(super) const LONG_PERIOD_US: u32 = 100;
const MANY_CPUS: u32 = 8;

/// The period on a machine.
pub(super) fn period_us(machine: &Machine) -> u32 {
    if machine.cpus() > MANY_CPUS { LONG_PERIOD_US } else { PERIOD_US }
}

/// What a mix is drawn from.
pub(super) struct Draw<'a> {
    pub rng: Rng,
    pub machine: &'a Machine,
    /// Counters of memory, by socket.
    pub memory: &'a [Vec<Counted>],
    pub disk: &'a [Counted],
    pub duration_ms: u32,
}

impl Draw<'_> {
    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.rng.f64()
    }

    /// Log-uniform: as often between 1 and 2 as between 2 and 4.
    pub(super) fn over(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.rng.f64())
    }

    pub(super) fn sockets(&self) -> u32 {
        self.machine.sockets
    }

    /// The CPUs of a socket.
    pub(super) fn cpus(&self, socket: u32) -> Vec<u32> {
        let each = self.machine.cpus_per_socket;
        (socket * each..(socket + 1) * each).collect()
    }

    pub(super) fn all_cpus(&self) -> Vec<(u32, u32)> {
        (0..self.sockets())
            .flat_map(|socket| self.cpus(socket).into_iter().map(move |cpu| (socket, cpu)))
            .collect()
    }

    /// A tenant that moves this many GB per second of CPU time, with a random ratio of reads and
    /// writes.
    pub(super) fn tenant(
        &mut self,
        cgroup: &str,
        socket: u32,
        cpus: Vec<u32>,
        rate: f64,
    ) -> Tenant {
        let reads = self.between(0.3, 0.9);
        Tenant {
            cgroup: Some(cgroup.to_owned()),
            cpus: Some(cpus),
            flows: self.flows(socket, rate, reads),
            duration_ms: self.duration_ms,
            period_us: period_us(self.machine),
            ..Tenant::default()
        }
    }

    /// Flows of this many GB per second of CPU time in the memory of a socket, with this fraction
    /// of reads.
    pub(super) fn flows(&self, socket: u32, rate: f64, reads: f64) -> Vec<Move> {
        let flows = self.memory.get(socket as usize).into_iter().flatten();
        let flows = flows.zip([reads, 1.0 - reads]).map(|(counted, part)| {
            // GB/s are 10^6 bytes per millisecond.
            let amount = rate * part * 1e6 / counted.unit;
            Move { amount: amount.round() as u64, ..counted.portion }
        });
        flows.filter(|flow| flow.amount > 0).collect()
    }

    /// The tenant with pauses: it sleeps for part of the time, and runs for 0.5 to 4 ms at a time.
    pub(super) fn resting(&mut self, tenant: Tenant, duty: f64) -> Tenant {
        let stint_us = Some(self.rng.u32(500..4000));
        Tenant { duty, stint_us, ..tenant }
    }

    pub(super) fn phases(&mut self, ms: std::ops::Range<u32>, spread: f64) -> Vec<Phase> {
        let count = self.rng.usize(2..5);
        (0..count)
            .map(|_| Phase { ms: self.rng.u32(ms.clone()), scale: self.over(1.0 / spread, spread) })
            .collect()
    }
}
