//! Bytes that devices moved, from which counters of memory learn: whose they are, and where they
//! are expected.

use std::collections::HashMap;

use super::share::Share;
use super::traffic_source::DeviceTraffic;
use crate::catalog::source::Cause;
use crate::entries::Owner;
use crate::plan::{Counter, IoDirection, Plan};
use crate::schema::link::{Direction, MEMORY};

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
}

impl DeviceDirections {
    /// Both.
    #[cfg(test)]
    pub(super) const BOTH: Self = Self { reads: true, writes: true };

    /// Those of a counter of bytes of which devices cause a part, as it counts them beside those of
    /// CPUs.
    pub(super) fn from_counter(plan: &Plan, counter: &Counter) -> Self {
        if !counter.causes.contains(&Cause::Device) || counter.unit != "bytes" {
            return Self::default();
        }
        let members = plan.links.iter().filter(|link| link.kind == MEMORY);
        let member =
            members.flat_map(|link| &link.counters).find(|member| member.counter == counter.id);
        match member.map(|member| member.direction) {
            // Memory is written by what a device is read for.
            Some(Direction::In) => Self { reads: false, writes: true },
            Some(Direction::Out) => Self { reads: true, writes: false },
            Some(Direction::Both) | None => Self { reads: true, writes: true },
        }
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
