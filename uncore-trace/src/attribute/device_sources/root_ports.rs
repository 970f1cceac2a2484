//! What counters of root ports, and of other links to devices, count in each tick.
//!
//! Their methods `io` and `held` say whose their bytes are, in the same windows. Until then they are
//! those of the device.

use std::collections::HashMap;

use crate::attribute::counter::TrackedCounter;
use crate::attribute::device_bytes::{BytePlacement, DeviceBytes, DeviceShares};
use crate::attribute::device_source::{DeviceSource, DeviceSourceSetup, SocketOfSet};
use crate::attribute::method::Method;
use crate::attribute::share::Share;
use crate::attribute::traffic_source::DeviceTraffic;
use crate::catalog::source::Cause;
use crate::entries::Owner;
use crate::plan::{Counter, IoDirection};
use crate::schema::link::Direction;

/// A counter of a link to devices.
#[derive(Debug)]
struct CountedPort {
    counter_index: usize,
    socket: SocketOfSet,
    traffic: DeviceTraffic,
    /// Its bytes in the last tick that was taken.
    bytes: f64,
}

/// The counters of links to devices.
#[derive(Debug)]
pub(super) struct CountedPorts(Vec<CountedPort>);

/// Whether a counter counts the bytes of devices alone, and those of no other counter.
pub(super) fn counts_devices(track: &TrackedCounter) -> bool {
    let Counter { cause, unit, part_of, role, .. } = &track.counter;
    matches!(track.planned_method, Method::Io | Method::Source)
        && *cause == Some(Cause::Device)
        && unit == "bytes"
        && part_of.is_none()
        && role.is_divided()
}

impl CountedPorts {
    /// Those of the counters of one direction that count bytes of a link.
    pub(super) fn new(setup: &mut DeviceSourceSetup<'_>) -> Self {
        let members = setup.plan.links.iter().flat_map(|link| &link.counters);
        let directions: HashMap<u32, IoDirection> = members
            .filter_map(|member| match member.direction {
                Direction::In => Some((member.counter, IoDirection::Read)),
                Direction::Out => Some((member.counter, IoDirection::Write)),
                Direction::Both => None,
            })
            .collect();
        let mut ports = Vec::new();
        for (counter_index, track) in setup.tracks.iter_mut().enumerate() {
            let direction = directions.get(&track.counter.id).filter(|_| counts_devices(track));
            let Some(traffic) = direction.and_then(|known| setup.numbers.next_traffic(*known))
            else {
                continue;
            };
            track.series.keep_ticks();
            let socket = track.counter.socket;
            ports.push(CountedPort { counter_index, socket, traffic, bytes: 0.0 });
        }
        Self(ports)
    }
}

impl DeviceSource for CountedPorts {
    /// A tick that was not read is in the count of the next one.
    fn take_tick(&mut self, tick: u64, tracks: &mut [TrackedCounter]) {
        for port in &mut self.0 {
            let Some(track) = tracks.get_mut(port.counter_index) else { continue };
            port.bytes = track.tick_count(tick).unwrap_or_default() * track.counter.scale;
        }
    }

    fn bytes_of_tick(&self, socket: SocketOfSet) -> Vec<DeviceBytes> {
        let device_bytes = |port: &CountedPort| DeviceBytes {
            traffic: port.traffic,
            owner: Owner::Device,
            bytes: port.bytes,
            placement: BytePlacement::Socket { is_far: port.socket != socket && socket.is_some() },
        };
        self.0.iter().map(device_bytes).collect()
    }

    fn note_shares(&self, counter_index: usize, shares: &[Share], known: &mut DeviceShares) {
        if let Some(port) = self.0.iter().find(|port| port.counter_index == counter_index) {
            known.set_shares(port.traffic, shares);
        }
    }
}
