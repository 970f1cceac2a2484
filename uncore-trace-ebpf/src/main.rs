//! The BPF programs of `uncore-trace`. The hooks, one per file in `hooks`, read their arguments and
//! call one of the modules that keep data:
//!
//! - [`run`]: the time of each task on a CPU,
//! - [`irq`]: the time of interrupts,
//! - [`sample`]: the readings of this CPU's counters,
//! - [`io`]: the bytes that block and network devices moved,
//! - [`files`]: which processes have the files of devices open.
//!
//! All records are sent by [`emit`], the only module that writes to the ring and counts the records
//! that the ring refused.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
// An addition that an interrupt cannot divide: what is stable of it is not there for this target.
#![cfg_attr(target_arch = "bpf", feature(core_intrinsics))]
#![cfg_attr(
    target_arch = "bpf",
    allow(internal_features, reason = "atomic_xadd has no other name")
)]
#![cfg_attr(
    target_arch = "bpf",
    expect(unsafe_code, reason = "BPF helpers, map values and kernel pointers are raw memory")
)]

#[cfg(target_arch = "bpf")]
mod emit;
#[cfg(target_arch = "bpf")]
mod files;
#[cfg(target_arch = "bpf")]
mod globals;
#[cfg(target_arch = "bpf")]
mod helpers;
#[cfg(target_arch = "bpf")]
mod hooks;
#[cfg(target_arch = "bpf")]
mod io;
#[cfg(target_arch = "bpf")]
mod irq;
#[cfg(target_arch = "bpf")]
mod kernel;
#[cfg(target_arch = "bpf")]
mod maps;
#[cfg(target_arch = "bpf")]
mod run;
#[cfg(target_arch = "bpf")]
mod sample;
#[cfg(target_arch = "bpf")]
mod task;
#[cfg(target_arch = "bpf")]
mod turn;

/// `loop {}`, not `unreachable_unchecked`: the verifier refuses a panic path that is left in a
/// program, which would otherwise be undefined behaviour.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The read helpers and the ring buffer are open to GPL-compatible programs only.
#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// On a host this package is its library; the programs exist for the BPF target only.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
