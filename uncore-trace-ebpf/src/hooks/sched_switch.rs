//! `sched_switch`: called before the switch, so `current` is the leaving task.
//!
//! TP_PROTO(bool preempt, struct task_struct *prev, struct task_struct *next,
//! unsigned int prev_state), include/trace/events/sched.h, Linux 6.1 to 7.2.
//!
//! A kernel without its own BTF has no BTF tracepoints. There the loader attaches `raw_switch`,
//! which reads the members with a helper. It does so too where the kernel does not compile BPF
//! programs: such a kernel refuses the call of `bpf_rdonly_cast` in `sched_switch`.

use aya_ebpf::macros::{btf_tracepoint, raw_tracepoint};
use aya_ebpf::programs::{BtfTracePointContext, RawTracePointContext};

use crate::globals::{AT_SWITCH, SAMPLE_ON_SCHED, TASK_PID};
use crate::kernel::read_field;
use crate::sample::CountAccess;
use crate::{run, sample};

#[btf_tracepoint(function = "sched_switch")]
fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    sample_switch(CountAccess::Load);
    // SAFETY: trusted pointers to the two tasks; the verifier checks the loads, and the offset is
    // that of `pid` by the running kernel's BTF.
    let (tid, next_tid) = unsafe { (read_tid(ctx.arg(1)), read_tid(ctx.arg(2))) };
    run::account_switch(tid, next_tid);
    0
}

#[raw_tracepoint(tracepoint = "sched_switch")]
fn raw_switch(ctx: RawTracePointContext) -> i32 {
    sample_switch(CountAccess::Copy);
    // SAFETY: checked reads of kernel memory.
    let tids = unsafe {
        (
            read_field::<u32>(ctx.arg(1), TASK_PID.load()),
            read_field::<u32>(ctx.arg(2), TASK_PID.load()),
        )
    };
    if let (Ok(tid), Ok(next_tid)) = tids {
        run::account_switch(tid, next_tid);
    }
    0
}

#[inline(always)]
fn sample_switch(count_access: CountAccess) {
    if SAMPLE_ON_SCHED.load() != 0 || AT_SWITCH.load() != 0 {
        sample::read_at_switch(count_access);
    }
}

/// # Safety
///
/// `task` must be an argument of the tracepoint.
#[inline(always)]
unsafe fn read_tid(task: *const u8) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { task.add(TASK_PID.load() as usize).cast::<u32>().read() }
}
