//! Bytes that devices moved.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Owner;
use crate::plan::IoDirection;

/// Bytes that a device moved for an owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceTransfer {
    /// Name of the device.
    pub device: Rc<str>,
    /// Whether it is on PCI, so that it moves bytes to and from memory itself. Sums do not say it.
    pub is_on_pci: bool,
    /// Read or written.
    pub direction: IoDirection,
    /// The owner: [`Owner::Device`] for received data that no process read, [`Owner::Unattributed`]
    /// if the owner is unknown.
    pub owner: Owner,
    /// Bytes.
    pub bytes: u64,
    /// Number of completed requests or packets, or of reads by a receiver.
    pub requests: u64,
}

/// Bytes by device, direction and owner.
#[derive(Debug, Default)]
pub struct MovedSum(BTreeMap<(Rc<str>, IoDirection, Owner), (u64, u64)>);

impl MovedSum {
    /// Adds bytes.
    pub fn add_moved(&mut self, moved: &DeviceTransfer) {
        let key = (Rc::clone(&moved.device), moved.direction, moved.owner);
        let (bytes, requests) = self.0.entry(key).or_default();
        *bytes += moved.bytes;
        *requests += moved.requests;
    }

    /// Removes and returns all bytes, by device, direction and owner.
    pub fn take_all(&mut self) -> Vec<DeviceTransfer> {
        let sum = std::mem::take(&mut self.0).into_iter();
        let moved = sum.map(|((device, direction, owner), (bytes, requests))| DeviceTransfer {
            device,
            is_on_pci: false,
            direction,
            owner,
            bytes,
            requests,
        });
        moved.collect()
    }
}
