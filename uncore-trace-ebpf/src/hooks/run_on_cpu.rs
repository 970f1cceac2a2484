//! The sampler on kernels without pinned timers. It is never attached: `BPF_PROG_TEST_RUN` with
//! `BPF_F_TEST_RUN_ON_CPU` (Linux >= 5.10) runs it on each reader CPU once per tick.

use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;

use crate::helpers::this_cpu;
use crate::sample;

#[raw_tracepoint(tracepoint = "sched_switch")]
fn run_on_cpu(_ctx: RawTracePointContext) -> i32 {
    sample::read_on_timer(this_cpu());
    0
}
