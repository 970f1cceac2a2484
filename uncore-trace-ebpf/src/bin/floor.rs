//! The floor of `cargo xtask bench overhead`: an empty program on the hook that recording uses.
//! The cost of recording above it is the recorder's own. The cost below it is that of the kernel,
//! which calls a BPF program.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![cfg_attr(
    target_arch = "bpf",
    expect(unsafe_code, reason = "the section and name of a BPF program are unsafe attributes")
)]

#[cfg(target_arch = "bpf")]
use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

/// Does nothing at `sched_switch`.
#[cfg(target_arch = "bpf")]
#[btf_tracepoint(function = "sched_switch")]
fn floor(_ctx: BtfTracePointContext) -> i32 {
    0
}

/// `loop {}`: the verifier then refuses a panic path that is left in a program.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Tracing programs without helpers need no licence; this is that of the other programs.
#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// On a host there is nothing to run: the program exists for the BPF target only.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
