//! The host side of the BPF programs: how their object is built, and the one that is committed.
//!
//! A machine with nothing but stable Rust cannot compile for the BPF target, so the object stands
//! in `object/` next to its source, with a stamp of the sources that it was made from. Where a
//! BPF toolchain is found the object is compiled from source instead.
#![cfg_attr(target_arch = "bpf", no_std)]

#[cfg(not(target_arch = "bpf"))]
pub mod build;
#[cfg(not(target_arch = "bpf"))]
pub mod committed;
#[cfg(not(target_arch = "bpf"))]
pub mod stamp;
