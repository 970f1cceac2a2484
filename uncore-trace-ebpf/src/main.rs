//! The BPF programs of `uncore-trace`: one hook per file under `hooks`, which only name their
//! event and hand over to the four things that are kept:
//!
//! - [`run`]: who ran on a CPU and how long,
//! - [`irq`]: how long interrupts took,
//! - [`sample`]: the readings of the counters that this CPU owns,
//! - [`io`]: what block and network devices moved.
//!
//! All leave through [`emit`], the only place that writes to the ring and the only one that
//! counts what the ring refused.
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
mod globals;
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

/// `loop {}` and not `unreachable_unchecked`: a panic path that is left in a program is then
/// refused by the verifier instead of being undefined behaviour.
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
