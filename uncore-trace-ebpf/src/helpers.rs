//! Helpers of the kernel that take no pointer: they only return a number, so they are safe to call.

use aya_ebpf::helpers::{bpf_get_current_task, bpf_get_smp_processor_id, bpf_ktime_get_ns};

/// The time, ns on `CLOCK_MONOTONIC`.
#[inline(always)]
pub fn monotonic_ns() -> u64 {
    // SAFETY: the helper takes nothing.
    unsafe { bpf_ktime_get_ns() }
}

/// The CPU that runs the program. It does not change within a program: the kernel disables
/// migration around each.
#[inline(always)]
pub fn this_cpu() -> u32 {
    // SAFETY: the helper takes nothing.
    unsafe { bpf_get_smp_processor_id() }
}

/// The `task_struct` of the current task. Its fields are read with probes only.
#[inline(always)]
pub fn current_task() -> *const u8 {
    // SAFETY: the helper takes nothing.
    unsafe { bpf_get_current_task() as *const u8 }
}
