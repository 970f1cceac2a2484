//! What ports count: the bytes of few CPUs, which are divided among owners before those of all
//! CPUs.
//!
//! A port is divided by the learner of its CPUs, like any counter. Its parts of each tick are then
//! the use of the counters that see these and other CPUs ([`Use::Ports`](super::history::Use)),
//! which the method `ports` learns from ([`super::witnessed`]). A port has divided a tick some time
//! after its end, with the ticks after it; those other counters wait for that and not longer,
//! because the bytes that they count for each byte at a port hardly change.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::counter::Track;
use super::history::{Histories, TrafficSource};
use super::learner::Parted;
use super::usage::CpuSet;
use super::{Method, Share};
use crate::entries::Owner;

/// How sure the ports of a set of CPUs are of each owner in a window.
#[derive(Clone, Debug, Default)]
pub struct Said(HashMap<Owner, Sure>);

/// Sums over the ports of an owner.
#[derive(Clone, Copy, Debug, Default)]
struct Sure {
    bytes: f64,
    /// Of bytes x confidence, and of bytes x lasting confidence.
    now: f64,
    lasting: f64,
}

impl Said {
    fn add(&mut self, share: &Share, bytes: f64) {
        let sum = self.0.entry(share.who).or_default();
        sum.bytes += bytes;
        sum.now += bytes * f64::from(share.confidence);
        sum.lasting += bytes * f64::from(share.lasting);
    }

    /// The mean confidence of an owner's shares, and of its sums over a longer time.
    pub(super) fn of(&self, owner: Owner) -> (f64, f64) {
        let sums = self.0.get(&owner).filter(|sums| sums.bytes > 0.0);
        sums.map_or((0.0, 0.0), |sums| (sums.now / sums.bytes, sums.lasting / sums.bytes))
    }
}

/// A port.
#[derive(Debug)]
struct Port {
    /// Index of its counter.
    place: usize,
    /// Bytes for each of its counter's unit.
    bytes: f64,
    /// Its counts that are not gathered yet, divided.
    parted: VecDeque<Parted>,
}

/// The ports of a recording.
#[derive(Debug)]
pub(super) struct Ports {
    all: Vec<Port>,
    /// For each set of CPUs that is divided by them: the set, and the ports with whether they are
    /// far.
    sets: Vec<(usize, Vec<(usize, bool)>)>,
    /// The tick up to which their parts were gathered.
    to: u64,
}

impl Ports {
    /// Those of the counters that were opened. A set of CPUs is divided by ports only if each of
    /// its CPUs has one.
    pub(super) fn new(tracks: &[Track], sets: &[CpuSet], start_tick: u64) -> Self {
        let is_port = |track: &Track| track.counter.is_port() && track.learns;
        let ports = tracks.iter().enumerate().filter(|(_, track)| is_port(track));
        let all: Vec<Port> = ports
            .map(|(place, track)| Port {
                place,
                bytes: track.counter.witness_bytes.unwrap_or(1.0) / track.counter.scale,
                parted: VecDeque::new(),
            })
            .collect();
        let of_set = |(at, set): (usize, &CpuSet)| {
            let mut users = tracks.iter();
            let user = users.find(|its| its.set == at && its.kind == Method::Ports)?;
            let port_of = |(port, its): (usize, &Port)| {
                let counter = &tracks.get(its.place)?.counter;
                let is_far = set.is_far(counter.sees.first_cpu()?)?;
                user.counter.has_port(counter).then_some((port, is_far))
            };
            let ports: Vec<(usize, bool)> = all.iter().enumerate().filter_map(port_of).collect();
            let counters = ports.iter().filter_map(|(port, _)| tracks.get(all.get(*port)?.place));
            let cpus: usize = counters.map(|port| port.counter.sees.len()).sum();
            let is_whole = cpus == set.cpus.len();
            is_whole.then_some((at, ports))
        };
        let sets = sets.iter().enumerate().filter_map(of_set).collect();
        Self { all, sets, to: start_tick }
    }

    /// Whether a set of CPUs is divided by ports.
    pub(super) fn divide(&self, set: usize) -> bool {
        self.sets.iter().any(|(its, _)| *its == set)
    }

    /// Indexes of their counters.
    pub(super) fn places(&self) -> Vec<usize> {
        self.all.iter().map(|port| port.place).collect()
    }

    /// The last tick that all of them have divided.
    pub(super) const fn to(&self) -> u64 {
        self.to
    }

    /// Notes how sure the port at this index is of the windows that it has divided.
    pub(super) fn note(
        &self,
        place: usize,
        track: &mut Track,
        histories: &mut [Option<Histories>],
    ) {
        let windows = track.take_said();
        for (set, ports) in &self.sets {
            let its = ports.iter().filter_map(|(port, _)| self.all.get(*port));
            let Some(port) = its.into_iter().find(|port| port.place == place) else { continue };
            let Some(Some(histories)) = histories.get_mut(*set) else { continue };
            for (tick, shares) in &windows {
                let said = histories.port_confidence.entry(*tick).or_default();
                for share in shares {
                    said.add(share, share.value * port.bytes);
                }
            }
        }
    }

    /// Gives each set of CPUs the parts of the ticks up to `to`, which all ports have divided.
    pub(super) fn gather(
        &mut self,
        to: u64,
        tracks: &mut [Track],
        histories: &mut [Option<Histories>],
    ) {
        for port in &mut self.all {
            if let Some(track) = tracks.get_mut(port.place) {
                port.parted.extend(track.take_parted());
            }
        }
        for tick in self.to + 1..=to {
            let take = |port: &mut Port| {
                while port.parted.pop_front_if(|its| its.tick < tick).is_some() {}
                port.parted.pop_front_if(|its| its.tick == tick).and_then(|its| its.parts)
            };
            let parts: Vec<_> = self.all.iter_mut().map(take).collect();
            for (set, ports) in &self.sets {
                let mut used: BTreeMap<TrafficSource, f64> = BTreeMap::new();
                let mut is_whole = true;
                for (port, is_far) in ports {
                    let (Some(port), Some(parts)) = (self.all.get(*port), parts.get(*port)) else {
                        continue;
                    };
                    is_whole &= parts.is_some();
                    for (owner, value) in parts.iter().flatten() {
                        let source = TrafficSource { owner: *owner, is_far: *is_far };
                        *used.entry(source).or_default() += value * port.bytes;
                    }
                }
                if let Some(Some(histories)) = histories.get_mut(*set) {
                    histories.push_port_bytes(tick, used, is_whole);
                }
            }
        }
        self.to = self.to.max(to);
    }
}

#[cfg(test)]
mod tests;
