//! `cgroup_mkdir`, `cgroup_rmdir` and `cgroup_attach_task`, v2 hierarchy only.
//!
//! TP_PROTO(struct cgroup *cgrp, const char *path) and TP_PROTO(struct cgroup *dst_cgrp,
//! const char *path, struct task_struct *task, bool threadgroup),
//! include/trace/events/cgroup.h. Fields are read at the running kernel's BTF offsets.

use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::helpers::generated::bpf_probe_read_kernel_str;
use aya_ebpf::macros::{btf_map, raw_tracepoint};
use aya_ebpf::programs::RawTracePointContext;
use uncore_trace_common::record::{
    CGROUP_ATTACH, CGROUP_MKDIR, CGROUP_RMDIR, CgroupEvent, Header, KIND_CGROUP, MAX_PATH,
};

use crate::emit;
use crate::globals::{CGROUP_KN, CGROUP_ROOT, KERNFS_ID, ROOT_HIERARCHY, TASK_PID};
use crate::helpers::{monotonic_ns, this_cpu};
use crate::kernel::read_field;

/// Buffer for an event, which is too large for the stack. These events happen in process context
/// under `cgroup_mutex`, one after the other, so one buffer per CPU is enough.
#[btf_map]
static CGROUP_SCRATCH: PerCpuArray<CgroupEvent, 1> = PerCpuArray::new();

#[raw_tracepoint(tracepoint = "cgroup_mkdir")]
fn cgroup_mkdir(ctx: RawTracePointContext) -> i32 {
    send_event(&ctx, CGROUP_MKDIR, 0);
    0
}

#[raw_tracepoint(tracepoint = "cgroup_rmdir")]
fn cgroup_rmdir(ctx: RawTracePointContext) -> i32 {
    send_event(&ctx, CGROUP_RMDIR, 0);
    0
}

#[raw_tracepoint(tracepoint = "cgroup_attach_task")]
fn cgroup_attach_task(ctx: RawTracePointContext) -> i32 {
    let task: *const u8 = ctx.arg(2);
    // SAFETY: a checked read of kernel memory; a wrong address is an error, not a fault.
    if let Ok(tid) = unsafe { read_field::<u32>(task, TASK_PID.load()) } {
        send_event(&ctx, CGROUP_ATTACH, tid);
    }
    0
}

#[inline(always)]
fn send_event(ctx: &RawTracePointContext, change: u32, tid: u32) {
    let cgroup: *const u8 = ctx.arg(0);
    let path: *const u8 = ctx.arg(1);
    // SAFETY: checked reads of kernel memory.
    let ids = unsafe {
        (
            read_field::<*const u8>(cgroup, CGROUP_ROOT.load())
                .and_then(|root| read_field::<u32>(root, ROOT_HIERARCHY.load())),
            read_field::<*const u8>(cgroup, CGROUP_KN.load())
                .and_then(|kn| read_field::<u64>(kn, KERNFS_ID.load())),
        )
    };
    let (Ok(0), Ok(cgroup_id)) = ids else {
        return;
    };
    let Some(event) = CGROUP_SCRATCH.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: a per-CPU value, see CGROUP_SCRATCH.
    let event = unsafe { &mut *event };
    let (time, cpu) = (monotonic_ns(), this_cpu());
    event.header = Header { kind: KIND_CGROUP, cpu };
    event.time = time;
    event.what = change;
    event.tid = tid;
    event.cgroup_id = cgroup_id;
    // SAFETY: the helper writes at most MAX_PATH bytes, terminated.
    let copied = unsafe {
        bpf_probe_read_kernel_str(event.path.as_mut_ptr().cast(), MAX_PATH as u32, path.cast())
    };
    if copied < 0 {
        event.path[0] = 0;
    }
    // SAFETY: the whole value.
    unsafe { emit::send_record(KIND_CGROUP, &raw const *event, size_of::<CgroupEvent>() as u64) };
}
