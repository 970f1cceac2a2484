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

/// The use of a source: nanoseconds, ticks of one CPU, misses or bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SourceUse<T = f64> {
    /// The source.
    pub source: TrafficSource,
    /// The amount.
    pub amount: T,
    /// The part of a time in which a sibling thread was busy; 0 for other amounts.
    pub beside_busy: T,
}

impl<T: Default> SourceUse<T> {
    /// Use that is no time, or beside which no sibling thread was busy.
    pub(super) fn new(source: TrafficSource, amount: T) -> Self {
        Self { source, amount, beside_busy: T::default() }
    }
}

/// The misses of a tick on a set of CPUs.
#[derive(Debug)]
pub(super) struct TickMisses {
    /// By source, sorted.
    pub by_source: Vec<SourceUse<u64>>,
    /// Whether they are all; if not, the rest comes with the next tick.
    pub is_complete: bool,
}

impl TrafficSource {
    /// An owner on near or on far CPUs.
    pub(super) const fn from_cpus(owner: Owner, is_far: bool) -> Self {
        Self { owner, is_far, device: None }
    }
}
