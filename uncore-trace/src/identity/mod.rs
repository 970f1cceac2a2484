//! IDENTITY: what processes, cgroups, containers and interrupts are called.
//!
//! The only reader of procfs and of the runtimes' state once a recording runs; each name is read
//! once.

pub mod cgroups;
pub mod containers;
pub mod irqs;
pub mod names;
pub mod runtimes;
