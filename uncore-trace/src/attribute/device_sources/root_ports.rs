//! What counters of root ports, and of other links to devices, count in each tick.
//!
//! Their methods `io` and `held` say whose their bytes are, in the same windows. Until then they are
//! those of the device.

use foldhash::HashMap;

use crate::attribute::counter::TrackedCounter;
use crate::attribute::device_bytes::{BytePlacement, DeviceBytes, DeviceShares};
use crate::attribute::device_source::{DeviceSource, DeviceSourceSetup, SocketOfSet};
use crate::attribute::method::Method;
use crate::attribute::share::Share;
use crate::attribute::traffic_source::DeviceTraffic;
use crate::catalog::source::TrafficCause;
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
    /// The bytes that were assumed since its last count, and for how many ticks.
    assumed_bytes: f64,
    assumed_ticks: u32,
}

/// A counter without a count for longer than this is taken to count nothing: it takes turns in less.
const MAX_ASSUMED_TICKS: u32 = 100;

impl CountedPort {
    /// Before its first tick.
    const fn new(counter_index: usize, socket: SocketOfSet, traffic: DeviceTraffic) -> Self {
        Self { counter_index, socket, traffic, bytes: 0.0, assumed_bytes: 0.0, assumed_ticks: 0 }
    }

    /// Takes the bytes that were counted up to the end of a tick. Without a count, as of a counter
    /// that takes turns or that was read late, the tick has as many bytes as the one before, and the
    /// next count has the rest. All of them in one tick would say that the bytes came at once.
    fn take_count(&mut self, counted_bytes: Option<f64>) {
        if let Some(counted_bytes) = counted_bytes {
            let rest = counted_bytes - self.assumed_bytes;
            self.bytes = rest.max(0.0);
            (self.assumed_bytes, self.assumed_ticks) = ((-rest).max(0.0), 0);
        } else if self.assumed_ticks < MAX_ASSUMED_TICKS {
            self.assumed_bytes += self.bytes;
            self.assumed_ticks += 1;
        } else {
            self.bytes = 0.0;
        }
    }
}

/// The counters of links to devices.
#[derive(Debug)]
pub(super) struct CountedPorts(Vec<CountedPort>);

/// Whether a counter counts the bytes of devices alone, and those of no other counter.
pub(super) fn counts_devices(track: &TrackedCounter) -> bool {
    let Counter { cause, unit, part_of, role, .. } = &track.counter;
    matches!(track.planned_method, Method::Io | Method::Source)
        && *cause == Some(TrafficCause::Device)
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
            ports.push(CountedPort::new(counter_index, track.counter.socket, traffic));
        }
        Self(ports)
    }
}

impl DeviceSource for CountedPorts {
    fn take_tick(&mut self, tick: u64, tracks: &mut [TrackedCounter]) {
        for port in &mut self.0 {
            let Some(track) = tracks.get_mut(port.counter_index) else { continue };
            port.take_count(track.tick_count(tick).map(|count| count * track.counter.scale));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_takes_turns_has_its_bytes_in_all_ticks() {
        let traffic = DeviceTraffic { number: 0, direction: IoDirection::Read };
        let mut port = CountedPort::new(0, None, traffic);
        let mut take = |counted_bytes| {
            port.take_count(counted_bytes);
            port.bytes as u32
        };
        assert_eq!([Some(10.0), None, None, Some(36.0)].map(&mut take), [10, 10, 10, 16]);
        // What was assumed too much is taken from later counts.
        assert_eq!([None, Some(10.0), Some(10.0)].map(&mut take), [16, 0, 4]);
        assert_eq!(take(Some(5.0)), 5);
        let assumed: u32 = (0..1000).map(|_| take(None)).sum();
        assert_eq!(assumed, 5 * MAX_ASSUMED_TICKS);
    }
}
