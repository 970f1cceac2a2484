//! Builds the object of the BPF programs, and manages the committed one.
//!
//! A machine with only stable Rust cannot compile for the BPF target, so the object is committed in
//! `object/`, with a stamp of its sources. While these are the same, nothing is compiled. `cargo xtask
//! bpf --check` compares the object with what its sources compile to, with the same versions of the
//! tools.
#![cfg_attr(target_arch = "bpf", no_std)]

#[cfg(not(target_arch = "bpf"))]
pub mod build;
#[cfg(not(target_arch = "bpf"))]
pub mod committed;
#[cfg(not(target_arch = "bpf"))]
pub mod stamp;
