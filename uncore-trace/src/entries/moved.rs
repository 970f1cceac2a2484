//! What devices moved.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Owner;
use crate::plan::Direction;

/// Bytes that a device moved for an owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moved {
    /// Name of the device.
    pub device: Rc<str>,
    /// Read or written.
    pub direction: Direction,
    /// For whom: [`Owner::Device`] for what an interface received and no process read,
    /// [`Owner::Unattributed`] where it was not seen.
    pub owner: Owner,
    /// Bytes.
    pub bytes: u64,
    /// Requests or packets that ended, or reads of a receiver.
    pub requests: u64,
}

/// Bytes by device, direction and owner.
#[derive(Debug, Default)]
pub struct Sum(BTreeMap<(Rc<str>, Direction, Owner), (u64, u64)>);

impl Sum {
    /// Adds some.
    pub fn add(&mut self, moved: &Moved) {
        let key = (Rc::clone(&moved.device), moved.direction, moved.owner);
        let (bytes, requests) = self.0.entry(key).or_default();
        *bytes += moved.bytes;
        *requests += moved.requests;
    }

    /// All of it, by device, direction and owner.
    pub fn take(&mut self) -> Vec<Moved> {
        let sum = std::mem::take(&mut self.0).into_iter();
        let moved = sum.map(|((device, direction, owner), (bytes, requests))| Moved {
            device,
            direction,
            owner,
            bytes,
            requests,
        });
        moved.collect()
    }
}
