//! What the requests of each owner moved in each tick on disks and interfaces that no counter of
//! root ports counts.

use std::collections::VecDeque;
use std::rc::Rc;

use foldhash::{HashMap, HashMapExt, HashSet};

use super::root_ports::counts_devices;
use crate::attribute::counter::TrackedCounter;
use crate::attribute::device_bytes::{BytePlacement, DeviceBytes};
use crate::attribute::device_source::{
    DeviceSource, DeviceSourceSetup, SocketOfSet, TrafficNumbers,
};
use crate::attribute::traffic_source::DeviceTraffic;
use crate::entries::{DeviceTransfer, Owner};
use crate::plan::IoDirection;

/// The requests of a recording.
#[derive(Debug)]
pub(super) struct RequestedBytes {
    /// Devices that root ports count.
    counted_names: HashSet<(Rc<str>, IoDirection)>,
    known_traffic: HashMap<(Rc<str>, IoDirection), DeviceTraffic>,
    /// The bytes of the current tick, and those of ticks whose counts are not known yet.
    open_tick: Vec<DeviceBytes>,
    ended_ticks: VecDeque<(u64, Vec<DeviceBytes>)>,
    /// The bytes of the tick that was taken last.
    taken_tick: Vec<DeviceBytes>,
}

impl RequestedBytes {
    /// Before the first request.
    pub(super) fn new(setup: &DeviceSourceSetup<'_>) -> Self {
        let ports = setup.tracks.iter().filter(|track| counts_devices(track));
        let scopes = ports.filter_map(|track| track.counter.io.as_ref());
        let counted_names = scopes.flat_map(|scope| {
            scope.devices.iter().map(|name| (Rc::from(name.as_str()), scope.direction))
        });
        Self {
            counted_names: counted_names.collect(),
            known_traffic: HashMap::new(),
            open_tick: Vec::new(),
            ended_ticks: VecDeque::new(),
            taken_tick: Vec::new(),
        }
    }

    /// The column of what a device moves, if it has one.
    fn find_traffic(
        &mut self,
        moved: &DeviceTransfer,
        numbers: &mut TrafficNumbers,
    ) -> Option<DeviceTraffic> {
        let key = (Rc::clone(&moved.device), moved.direction);
        if let Some(traffic) = self.known_traffic.get(&key) {
            return Some(*traffic);
        }
        if self.counted_names.contains(&key) {
            return None;
        }
        let traffic = numbers.next_traffic(moved.direction)?;
        self.known_traffic.insert(key, traffic);
        Some(traffic)
    }
}

impl DeviceSource for RequestedBytes {
    fn take_transfer(&mut self, moved: &DeviceTransfer, numbers: &mut TrafficNumbers) {
        // What nobody has read is known too late: it is logged when it has waited for a reader.
        if !moved.is_on_pci || moved.owner == Owner::Device {
            return;
        }
        if let Some(traffic) = self.find_traffic(moved, numbers) {
            let (owner, bytes) = (moved.owner, moved.bytes as f64);
            let placement = BytePlacement::OfOwner;
            self.open_tick.push(DeviceBytes { traffic, owner, bytes, placement });
        }
    }

    fn end_tick(&mut self, tick: u64) {
        if !self.open_tick.is_empty() {
            self.ended_ticks.push_back((tick, std::mem::take(&mut self.open_tick)));
        }
    }

    fn take_tick(&mut self, tick: u64, _tracks: &mut [TrackedCounter]) {
        self.taken_tick.clear();
        while let Some((_, bytes)) = self.ended_ticks.pop_front_if(|(ended, _)| *ended <= tick) {
            self.taken_tick.extend(bytes);
        }
    }

    fn bytes_of_tick(&self, _socket: SocketOfSet) -> Vec<DeviceBytes> {
        self.taken_tick.clone()
    }
}
