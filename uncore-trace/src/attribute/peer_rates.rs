//! Rates on near CPUs that counters of the same event have learnt at other sockets.
//!
//! A process moves about as much wherever its memory is. So what it moves from far CPUs is expected
//! to be a part of what the counter of the memory near to these CPUs has learnt of it. A cgroup that
//! runs on one socket only has no rate on near CPUs in the counters of the others.

use std::collections::BTreeMap;

use super::counter::TrackedCounter;
use super::near_rates::NearRates;
use crate::plan::Counter;

/// The rates of all counters that have peers.
#[derive(Debug)]
pub(super) struct PeerRates {
    /// Indexes of the peers of each counter. Where a socket has several counters of an event, one
    /// for each channel, the first one has the first one of the other socket.
    peers: Vec<Vec<usize>>,
    /// What each counter has learnt last.
    learnt: Vec<NearRates>,
}

impl PeerRates {
    /// Nothing was learnt yet.
    pub(super) fn new(tracks: &[TrackedCounter]) -> Self {
        let mut indexes_by_event: BTreeMap<_, BTreeMap<i16, Vec<usize>>> = BTreeMap::new();
        for (index, track) in tracks.iter().enumerate().filter(|(_, track)| track.learns) {
            let Counter { family, event, filter, unit, socket, far, .. } = &track.counter;
            if let Some(socket) = socket.filter(|_| !far.is_empty()) {
                let by_socket = indexes_by_event.entry([family, event, filter, unit]).or_default();
                by_socket.entry(socket).or_default().push(index);
            }
        }
        let mut peers = vec![Vec::new(); tracks.len()];
        for by_socket in indexes_by_event.values() {
            for (socket, indexes) in by_socket {
                let others = || by_socket.iter().filter(move |(other, _)| *other != socket);
                for (position, index) in indexes.iter().enumerate() {
                    let peer = |(_, indexes): (_, &Vec<usize>)| indexes.get(position).copied();
                    peers[*index] = others().filter_map(peer).collect();
                }
            }
        }
        Self { peers, learnt: vec![NearRates::default(); tracks.len()] }
    }

    /// What the peers of a counter have learnt; empty if it has none.
    pub(super) fn rates_of_peers(&self, counter_index: usize) -> Vec<&NearRates> {
        self.peers[counter_index].iter().map(|peer| &self.learnt[*peer]).collect()
    }

    /// Notes what a counter has learnt.
    pub(super) fn note_rates(&mut self, counter_index: usize, rates: NearRates) {
        self.learnt[counter_index] = rates;
    }
}
