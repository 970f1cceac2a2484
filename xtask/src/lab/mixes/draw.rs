//! Random draws for the tenants of a mix, from the seed, the machine and its counters.

use fastrand::Rng;

use super::MixCounter;
use crate::lab::machine::LabMachine;
use crate::lab::step::{Move, Phase, Tenant};

/// CPU time between two moves of a tenant, us: a twentieth of a tick, so that a tick's count
/// matches the tenants that ran in it.
const PERIOD_US: u32 = 50;

/// The same on a machine with many CPUs, whose moves would otherwise fill the log.
pub(super) const LONG_PERIOD_US: u32 = 100;
const MANY_CPUS: u32 = 8;

/// The period on a machine.
pub(super) fn period_us(machine: &LabMachine) -> u32 {
    if machine.cpu_count() > MANY_CPUS { LONG_PERIOD_US } else { PERIOD_US }
}

/// What a mix is drawn from.
pub(super) struct Draw<'a> {
    pub rng: Rng,
    pub machine: &'a LabMachine,
    /// Counters of memory, by socket.
    pub memory: &'a [Vec<MixCounter>],
    pub disk: &'a [MixCounter],
    pub duration_ms: u32,
}

impl Draw<'_> {
    pub(super) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.rng.f64()
    }

    /// Log-uniform: as often between 1 and 2 as between 2 and 4.
    pub(super) fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.rng.f64())
    }

    pub(super) fn socket_count(&self) -> u32 {
        self.machine.sockets
    }

    /// The CPUs of a socket.
    pub(super) fn socket_cpus(&self, socket: u32) -> Vec<u32> {
        let cpus_per_socket = self.machine.cpus_per_socket;
        (socket * cpus_per_socket..(socket + 1) * cpus_per_socket).collect()
    }

    pub(super) fn all_cpus(&self) -> Vec<(u32, u32)> {
        (0..self.socket_count())
            .flat_map(|socket| self.socket_cpus(socket).into_iter().map(move |cpu| (socket, cpu)))
            .collect()
    }

    /// A tenant that moves this many GB per second of CPU time, with a random ratio of reads and
    /// writes.
    pub(super) fn draw_tenant(
        &mut self,
        cgroup: &str,
        socket: u32,
        cpus: Vec<u32>,
        rate: f64,
    ) -> Tenant {
        let reads = self.uniform(0.3, 0.9);
        Tenant {
            cgroup: Some(cgroup.to_owned()),
            cpus: Some(cpus),
            flows: self.memory_flows(socket, rate, reads),
            duration_ms: self.duration_ms,
            period_us: period_us(self.machine),
            ..Tenant::default()
        }
    }

    /// Flows of this many GB per second of CPU time in the memory of a socket, with this fraction
    /// of reads.
    pub(super) fn memory_flows(&self, socket: u32, rate: f64, reads: f64) -> Vec<Move> {
        let flows = self.memory.get(socket as usize).into_iter().flatten();
        let flows = flows.zip([reads, 1.0 - reads]).map(|(counted, fraction)| {
            // GB/s are 10^6 bytes per millisecond.
            let amount = rate * fraction * 1e6 / counted.unit;
            Move { amount: amount.round() as u64, ..counted.portion }
        });
        flows.filter(|flow| flow.amount > 0).collect()
    }

    /// The tenant with pauses: it sleeps for part of the time, and runs for 0.5 to 4 ms at a time.
    pub(super) fn with_pauses(&mut self, tenant: Tenant, duty: f64) -> Tenant {
        let stint_us = Some(self.rng.u32(500..4000));
        Tenant { duty, stint_us, ..tenant }
    }

    pub(super) fn random_phases(&mut self, ms: std::ops::Range<u32>, spread: f64) -> Vec<Phase> {
        let count = self.rng.usize(2..5);
        (0..count)
            .map(|_| Phase {
                ms: self.rng.u32(ms.clone()),
                scale: self.log_uniform(1.0 / spread, spread),
            })
            .collect()
    }
}
