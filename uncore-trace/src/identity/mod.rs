//! Names of processes, cgroups, containers and interrupts.
//!
//! During a recording this is the only reader of procfs and of the files of container runtimes.
//! Each name is read once.

pub mod cgroups;
pub mod containers;
pub mod guests;
pub mod irqs;
mod jobs;
mod machines;
pub mod names;
mod qemu;
pub mod runtimes;
pub mod trust;
