//! Checks whether a counter can be read on this CPU. It is never attached: `BPF_PROG_TEST_RUN` runs
//! it on a CPU, with the slot as first argument. When a CPU goes offline, a PMU's driver moves its
//! counters to another CPU, and not every driver shows to which.

use aya_ebpf::helpers::generated::bpf_perf_event_read_value;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use uncore_trace_common::record::Reading;

use crate::maps::COUNTERS;

#[raw_tracepoint(tracepoint = "sched_switch")]
fn probe(ctx: RawTracePointContext) -> i32 {
    let slot: u64 = ctx.arg(0);
    let mut reading = Reading { value: 0, enabled: 0, running: 0 };
    // SAFETY: `reading` is 24 writable bytes with the layout of `struct bpf_perf_event_value`.
    let read = unsafe {
        bpf_perf_event_read_value(
            (&raw const COUNTERS).cast_mut().cast(),
            slot & 0xffff_ffff,
            (&raw mut reading).cast(),
            size_of::<Reading>() as u32,
        )
    };
    read as i32
}
