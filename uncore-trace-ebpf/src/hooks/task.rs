//! `sched_process_exec` and `sched_process_exit`: `current` is the task itself.

use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use uncore_trace_common::record::{Header, KIND_TASK, TASK_EXEC, TASK_EXIT, Task, TaskEvent};

use crate::helpers::{monotonic_ns, this_cpu};
use crate::{emit, run, task};

#[raw_tracepoint(tracepoint = "sched_process_exec")]
fn sched_process_exec(_ctx: RawTracePointContext) -> i32 {
    run::close_renamed();
    send_event(TASK_EXEC);
    0
}

#[raw_tracepoint(tracepoint = "sched_process_exit")]
fn sched_process_exit(_ctx: RawTracePointContext) -> i32 {
    send_event(TASK_EXIT);
    0
}

#[inline(always)]
fn send_event(change: u32) {
    let (time, cpu) = (monotonic_ns(), this_cpu());
    let mut event = TaskEvent {
        header: Header { kind: KIND_TASK, cpu },
        time,
        what: change,
        reserved: 0,
        task: Task { tid: 0, pid: 0, cgroup_id: 0, comm: [0; 16] },
    };
    task::fill_task(&mut event.task);
    // SAFETY: the whole event, on the stack.
    unsafe { emit::send_record(KIND_TASK, &raw const event, size_of::<TaskEvent>() as u64) };
}
