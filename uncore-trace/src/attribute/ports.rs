//! What ports count: the bytes of few CPUs, which are divided among owners before those of all
//! CPUs.
//!
//! A port is divided by the learner of its CPUs, like any counter. Its parts of each tick are then
//! the use of the counters that see these and other CPUs
//! ([`Predictor::Ports`](super::predictor::Predictor)),
//! which the method `ports` learns from ([`super::witnessed`]). A port has divided a tick some time
//! after its end, with the ticks after it; those other counters wait for that and not longer,
//! because the bytes that they count for each byte at a port hardly change.

use std::collections::{BTreeMap, VecDeque};

use super::counter::TrackedCounter;
use super::history::Histories;
use super::learner::DividedCount;
use super::method::Method;
use super::traffic_source::TrafficSource;
use super::usage::CpuSet;

/// A port.
#[derive(Debug)]
struct CpuPort {
    /// Index of its counter.
    counter_index: usize,
    /// Bytes for each of its counter's unit.
    bytes: f64,
    /// Its counts that are not gathered yet, divided.
    divided_counts: VecDeque<DividedCount>,
}

/// The ports of a recording.
#[derive(Debug)]
pub(super) struct Ports {
    by_cpu: Vec<CpuPort>,
    /// For each set of CPUs that is divided by them: the set, and the ports with whether they are
    /// far.
    sets: Vec<(usize, Vec<(usize, bool)>)>,
    /// The tick up to which their counts were gathered.
    pub(super) gathered_tick: u64,
}

impl Ports {
    /// Those of the counters that were opened. A set of CPUs is divided by ports only if each of
    /// its CPUs has one.
    pub(super) fn new(tracks: &[TrackedCounter], sets: &[CpuSet], start_tick: u64) -> Self {
        let is_port = |track: &TrackedCounter| track.counter.is_port() && track.learns;
        let ports = tracks.iter().enumerate().filter(|(_, track)| is_port(track));
        let cpu_ports: Vec<CpuPort> = ports
            .map(|(counter_index, track)| CpuPort {
                counter_index,
                bytes: track.counter.witness_bytes.unwrap_or(1.0) / track.counter.scale,
                divided_counts: VecDeque::new(),
            })
            .collect();
        let ports_of_set = |(set_index, set): (usize, &CpuSet)| {
            let mut users = tracks.iter();
            let user = users.find(|user_track| {
                user_track.set == set_index && user_track.planned_method == Method::Ports
            })?;
            let port_of = |(port_index, cpu_port): (usize, &CpuPort)| {
                let counter = &tracks.get(cpu_port.counter_index)?.counter;
                let is_far = set.is_far(counter.sees.first_cpu()?)?;
                user.counter.has_port(counter).then_some((port_index, is_far))
            };
            let ports: Vec<(usize, bool)> =
                cpu_ports.iter().enumerate().filter_map(port_of).collect();
            let counters = ports
                .iter()
                .filter_map(|(port, _)| tracks.get(cpu_ports.get(*port)?.counter_index));
            let cpus: usize = counters.map(|port| port.counter.sees.len()).sum();
            (cpus == set.cpus.len()).then_some((set_index, ports))
        };
        let sets = sets.iter().enumerate().filter_map(ports_of_set).collect();
        Self { by_cpu: cpu_ports, sets, gathered_tick: start_tick }
    }

    /// Whether a set of CPUs is divided by ports.
    pub(super) fn divides_set(&self, set: usize) -> bool {
        self.sets.iter().any(|(port_set, _)| *port_set == set)
    }

    /// The indexes of the ports' counters.
    pub(super) fn counter_indexes(&self) -> Vec<usize> {
        self.by_cpu.iter().map(|port| port.counter_index).collect()
    }

    /// Notes how sure the port at this index is of the windows that it has divided.
    pub(super) fn note_confidence(
        &self,
        counter_index: usize,
        track: &mut TrackedCounter,
        histories: &mut [Option<Histories>],
    ) {
        let windows = track.take_port_shares();
        for (set, ports) in &self.sets {
            let ports_of_set = ports.iter().filter_map(|(port, _)| self.by_cpu.get(*port));
            let Some(port) =
                ports_of_set.into_iter().find(|port| port.counter_index == counter_index)
            else {
                continue;
            };
            let Some(Some(histories)) = histories.get_mut(*set) else { continue };
            for (tick, shares) in &windows {
                let confidence = histories.port_confidence.entry(*tick).or_default();
                for share in shares {
                    confidence.add_share(share, share.value * port.bytes);
                }
            }
        }
    }

    /// Gives each set of CPUs the bytes of the ticks up to `last_tick`, which all ports divided.
    pub(super) fn gather_ticks(
        &mut self,
        last_tick: u64,
        tracks: &mut [TrackedCounter],
        histories: &mut [Option<Histories>],
    ) {
        for port in &mut self.by_cpu {
            if let Some(track) = tracks.get_mut(port.counter_index) {
                port.divided_counts.extend(track.take_divided_counts());
            }
        }
        for tick in self.gathered_tick + 1..=last_tick {
            let take_amounts = |port: &mut CpuPort| {
                while port.divided_counts.pop_front_if(|divided| divided.tick < tick).is_some() {}
                port.divided_counts
                    .pop_front_if(|divided| divided.tick == tick)
                    .and_then(|divided| divided.amounts)
            };
            let amounts: Vec<_> = self.by_cpu.iter_mut().map(take_amounts).collect();
            for (set, ports) in &self.sets {
                let mut bytes_by_source: BTreeMap<TrafficSource, f64> = BTreeMap::new();
                let mut is_complete = true;
                for (port, is_far) in ports {
                    let (Some(port), Some(owner_amounts)) =
                        (self.by_cpu.get(*port), amounts.get(*port))
                    else {
                        continue;
                    };
                    is_complete &= owner_amounts.is_some();
                    for (owner, value) in owner_amounts.iter().flatten() {
                        let source = TrafficSource::from_cpus(*owner, *is_far);
                        *bytes_by_source.entry(source).or_default() += value * port.bytes;
                    }
                }
                if let Some(Some(histories)) = histories.get_mut(*set) {
                    histories.push_port_bytes(tick, bytes_by_source, is_complete);
                }
            }
        }
        self.gathered_tick = self.gathered_tick.max(last_tick);
    }
}

#[cfg(test)]
mod tests;
