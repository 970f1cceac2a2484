//! Bytes that hardware monitors measured.

use std::collections::BTreeMap;
use std::sync::Arc;

/// For [`Monitored::socket`]: the memory of all sockets together.
pub const ALL_SOCKETS: i16 = -1;

/// Bytes between the CPUs and the memory of a socket, by a monitor of the hardware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitored {
    /// Path of the cgroup whose tasks the monitor's group has, and no others; `None`: the sum of
    /// all groups, which is the traffic of all CPUs.
    pub cgroup: Option<Arc<str>>,
    /// The socket of the memory, or [`ALL_SOCKETS`].
    pub socket: i16,
    /// Bytes since the last reading.
    pub bytes: u64,
}

/// Bytes by socket and cgroup.
#[derive(Debug, Default)]
pub struct MonitoredSum(BTreeMap<(i16, Option<Arc<str>>), u64>);

impl MonitoredSum {
    /// Adds bytes.
    pub fn add_bytes(&mut self, monitored: &Monitored) {
        let Monitored { cgroup, socket, bytes } = monitored;
        let sum = self.0.entry((*socket, cgroup.clone())).or_default();
        *sum = sum.saturating_add(*bytes);
    }

    /// The bytes of a socket by cgroup, the sum of all groups first.
    pub fn of_socket(&self, socket: i16) -> impl Iterator<Item = (&Option<Arc<str>>, u64)> {
        let later_entries = self.0.range((socket, None)..);
        let socket_entries =
            later_entries.take_while(move |((entry_socket, _), _)| *entry_socket == socket);
        socket_entries.map(|((_, cgroup), bytes)| (cgroup, *bytes))
    }

    /// Removes all bytes.
    pub fn clear_bytes(&mut self) {
        self.0.clear();
    }
}
