//! Names of processes, cgroups, containers and interrupts.
//!
//! During a recording this is the only reader of procfs, of the files of container runtimes and of
//! what the kubelet says. Each name is read once.

pub mod assignments;
mod cdi;
pub mod cgroups;
pub mod containers;
pub mod guests;
pub mod irqs;
mod jobs;
pub mod kubelet;
mod machines;
pub mod names;
mod qemu;
pub mod runtimes;
pub mod trust;
