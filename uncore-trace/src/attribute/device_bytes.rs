//! Bytes that devices moved, from which counters of memory learn: whose they are, and where they
//! are expected.

use foldhash::HashMap;

use super::share::Share;
use super::traffic_source::DeviceTraffic;
use crate::catalog::source::TrafficCause;
use crate::entries::Owner;
use crate::plan::{Counter, IoDirection, Plan};
use crate::schema::link::{Direction, LinkCounter, MEMORY};

/// In which memory the bytes of a device are expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BytePlacement {
    /// In that of the device's socket.
    Socket {
        /// Whether that is another one.
        is_far: bool,
    },
    /// In that of the socket on which their owner runs.
    OfOwner,
}

/// Bytes that a device moved for an owner in a tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceBytes {
    /// The device and the direction.
    pub traffic: DeviceTraffic,
    /// The owner; [`Owner::Device`] if [`DeviceShares`] will say it.
    pub owner: Owner,
    /// Bytes.
    pub bytes: f64,
    /// Where they are expected.
    pub placement: BytePlacement,
}

/// The shares of what devices counted in a window, by [`DeviceTraffic::number`].
#[derive(Clone, Debug, Default)]
pub struct DeviceShares(HashMap<u16, Vec<Share>>);

impl DeviceShares {
    /// Sets the shares of a device.
    pub(super) fn set_shares(&mut self, traffic: DeviceTraffic, shares: &[Share]) {
        self.0.insert(traffic.number, shares.to_vec());
    }

    /// The shares of a device; `None` if they are not known.
    pub(super) fn shares_of(&self, traffic: DeviceTraffic) -> Option<&[Share]> {
        self.0.get(&traffic.number).map(Vec::as_slice)
    }
}

/// The directions of devices' bytes that a counter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceDirections {
    /// What devices write to memory.
    reads: bool,
    /// What devices read from memory.
    writes: bool,
    /// The number of counters of its memory that count each direction: one of a memory channel
    /// counts so many times less than what a device moves.
    counter_count: usize,
}

impl DeviceDirections {
    /// Both.
    #[cfg(test)]
    pub(super) const BOTH: Self = Self { reads: true, writes: true, counter_count: 1 };

    /// Those of a counter of a memory's bytes of which devices cause a part, as it counts them
    /// beside those of CPUs. Other counters, as of links between sockets, see only some of what a
    /// device moves, and nothing says how much.
    pub(super) fn from_counter(plan: &Plan, counter: &Counter) -> Self {
        if !counter.causes.contains(&TrafficCause::Device) || counter.unit != "bytes" {
            return Self::default();
        }
        let is_counter = |member: &&LinkCounter| member.counter == counter.id;
        let mut memories = plan.links.iter().filter(|link| link.kind == MEMORY);
        let Some((link, direction)) = memories
            .find_map(|link| Some((link, link.counters.iter().find(is_counter)?.direction)))
        else {
            return Self::default();
        };
        let alike = link.counters.iter().filter(|member| member.direction == direction);
        // Memory is written by what a device is read for.
        Self {
            reads: direction != Direction::In,
            writes: direction != Direction::Out,
            counter_count: alike.count(),
        }
    }

    /// The expected bytes of the count for each byte of a device.
    pub(super) fn expected_ratio(self) -> f64 {
        1.0 / self.counter_count.max(1) as f64
    }

    /// Whether the counter counts bytes in this direction.
    pub(super) const fn contain(self, direction: IoDirection) -> bool {
        match direction {
            IoDirection::Read => self.reads,
            IoDirection::Write => self.writes,
        }
    }

    /// Whether it counts any.
    pub(super) const fn are_any(self) -> bool {
        self.reads || self.writes
    }
}
