//! The kernel/user ABI of `uncore-trace` and nothing else.
//!
//! Three kinds of data cross the boundary, one file each:
//!
//! - [`record`]: what the BPF programs put into the ring buffer,
//! - [`state`]: the map values that both sides read or write,
//! - [`config`]: the globals that the loader sets before the programs are loaded.
//!
//! Every type is `repr(C)`, made of fixed-width integers, padded by hand and asserted to have no
//! implicit padding, so that no byte of kernel memory leaks and no bit pattern is invalid. Record
//! kinds are integers, not enums: an unknown kind is counted by the reader, never transmuted.
#![no_std]

pub mod config;
pub mod record;
pub mod state;

/// Marks ABI types as plain old data for aya's typed maps.
#[cfg(feature = "user")]
mod pod {
    #![expect(unsafe_code, reason = "aya::Pod is an unsafe marker trait")]

    use crate::state::{CpuState, Drops, IoState, Sampler};

    // SAFETY: `repr(C)`, integers and arrays of integers only, asserted to have no padding.
    unsafe impl aya::Pod for CpuState {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Sampler {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Drops {}
    // SAFETY: as above.
    unsafe impl aya::Pod for IoState {}
}
