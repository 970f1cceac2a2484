//! Starts the timers. It is attached to `sched_switch` only while the loader visits the reader
//! CPUs: a timer is pinned to the CPU that starts it, and up to Linux 6.12 only BTF tracepoint
//! programs may use timers.

use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::warn;
use uncore_trace_common::state::{SAMPLER_ARMED, SAMPLER_FAILED, SAMPLER_WANTED};

use super::timer;
use crate::helpers::this_cpu;
use crate::maps::SAMPLERS;

#[btf_tracepoint(function = "sched_switch")]
fn arm(ctx: BtfTracePointContext) -> i32 {
    let cpu = this_cpu();
    let Some(sampler) = SAMPLERS.get_ptr_mut(cpu) else {
        return 0;
    };
    // SAFETY: user space changes `state` before it visits this CPU and then only reads it.
    let sampler = unsafe { &mut *sampler };
    if sampler.state != SAMPLER_WANTED {
        return 0;
    }
    let started = timer::start_timer(cpu);
    if started < 0 {
        sampler.errno = started.wrapping_neg() as u32;
        sampler.state = SAMPLER_FAILED;
        warn!(&ctx, "bpf_timer_start on CPU {} failed: errno {}", cpu, sampler.errno);
    } else {
        sampler.state = SAMPLER_ARMED;
    }
    0
}
