//! The time in which devices are held.

use super::Owner;
use crate::discover::pci::PciAddress;

/// How long an owner holds a PCI function in each tick, from the current one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceHold {
    /// The function.
    pub function: PciAddress,
    /// The owner.
    pub owner: Owner,
    /// Nanoseconds of each tick; 0: it holds the function no longer.
    pub ns: u64,
}
