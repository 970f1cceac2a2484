//! A source of what devices moved in each tick. Learning knows this interface only; the sources are
//! in [`super::device_sources`].

use std::fmt::Debug;

use super::counter::TrackedCounter;
use super::device_bytes::{DeviceBytes, DeviceShares};
use super::traffic_source::DeviceTraffic;
use crate::entries::DeviceTransfer;
use crate::plan::{IoDirection, Plan};

/// Numbers of devices and their directions.
#[derive(Debug, Default)]
pub(super) struct TrafficNumbers(u16);

impl TrafficNumbers {
    /// A number for a direction of a device; `None` if there are too many.
    pub(super) fn next_traffic(&mut self, direction: IoDirection) -> Option<DeviceTraffic> {
        let number = self.0;
        self.0 = number.checked_add(1)?;
        Some(DeviceTraffic { number, direction })
    }
}

/// What a source is made from.
#[derive(Debug)]
pub(super) struct DeviceSourceSetup<'a> {
    /// The plan of the recording.
    pub plan: &'a Plan,
    /// Its counters, before their first reading.
    pub tracks: &'a mut [TrackedCounter],
    /// The numbers that are in use.
    pub numbers: &'a mut TrafficNumbers,
}

/// The socket of the counters that see a set of CPUs; `None` if it is not known, or they have
/// several.
pub(super) type SocketOfSet = Option<i16>;

/// A source of what devices moved.
pub(super) trait DeviceSource: Debug {
    /// Takes what a device moved in the current tick.
    fn take_transfer(&mut self, _moved: &DeviceTransfer, _numbers: &mut TrafficNumbers) {}

    /// Ends the current tick, whose counts may be known later.
    fn end_tick(&mut self, _tick: u64) {}

    /// Takes the bytes of a tick whose counts are known. Ticks come in order.
    fn take_tick(&mut self, tick: u64, tracks: &mut [TrackedCounter]);

    /// The bytes of the tick that was taken last, for counters of a socket.
    fn bytes_of_tick(&self, socket: SocketOfSet) -> Vec<DeviceBytes>;

    /// Notes whose the bytes are in the window that a counter has divided.
    fn note_shares(
        &self,
        _counter_index: usize,
        _shares: &[super::share::Share],
        _known: &mut DeviceShares,
    ) {
    }
}
