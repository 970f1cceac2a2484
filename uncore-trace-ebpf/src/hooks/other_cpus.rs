//! Reads counters of another CPU at every switch of this one. It is attached to `sched_switch` only
//! where the kernel lets several CPUs read them.

use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;

use crate::sample;

#[raw_tracepoint(tracepoint = "sched_switch")]
fn others(_ctx: RawTracePointContext) -> i32 {
    sample::read_others();
    0
}
