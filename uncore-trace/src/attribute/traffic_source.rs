//! The sources of traffic whose use is summed, and from which learners explain counts.

use crate::entries::Owner;

/// A possible cause of traffic: an owner, on near or on far CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct TrafficSource {
    /// The owner.
    pub owner: Owner,
    /// Whether it ran on CPUs of another socket.
    pub is_far: bool,
}
