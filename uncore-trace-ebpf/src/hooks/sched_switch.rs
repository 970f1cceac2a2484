//! `sched_switch`: called before the switch, so `current` is the task that leaves.
//!
//! TP_PROTO(bool preempt, struct task_struct *prev, struct task_struct *next,
//! unsigned int prev_state), include/trace/events/sched.h, Linux 6.1 to 7.2.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use uncore_trace_common::record::{CONTEXT_TASK, TRIGGER_SCHED};

use crate::{
    globals::{SAMPLE_ON_SCHED, TASK_PID},
    run, sample,
};

#[btf_tracepoint(function = "sched_switch")]
fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    if SAMPLE_ON_SCHED.load() != 0 {
        sample::read(TRIGGER_SCHED, CONTEXT_TASK, 0);
    }
    let next: *const u8 = ctx.arg(2);
    // SAFETY: a trusted pointer to the next task; the verifier checks the load, and the offset is
    // that of `pid` by the running kernel's BTF.
    let next_tid = unsafe { next.add(TASK_PID.load() as usize).cast::<u32>().read() };
    run::switch(next_tid);
    0
}
