//! The sources of traffic whose use is summed, and from which learners explain counts.

use crate::entries::Owner;
use crate::plan::IoDirection;

/// What one device moves in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct DeviceTraffic {
    /// A number that no other device and direction has.
    pub number: u16,
    /// The direction.
    pub direction: IoDirection,
}

/// A possible cause of traffic: an owner on near or on far CPUs, or what a device moves for an
/// owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct TrafficSource {
    /// The owner.
    pub owner: Owner,
    /// Whether it ran on CPUs of another socket; of a device, whether its bytes are expected in the
    /// memory of another socket.
    pub is_far: bool,
    /// The device, if CPUs do not move the bytes.
    pub device: Option<DeviceTraffic>,
}

impl TrafficSource {
    /// An owner on near or on far CPUs.
    pub(super) const fn from_cpus(owner: Owner, is_far: bool) -> Self {
        Self { owner, is_far, device: None }
    }
}
