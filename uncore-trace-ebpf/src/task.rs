//! Identity of `current`, from helpers only.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::{bpf_get_current_cgroup_id, bpf_get_current_comm};
use uncore_trace_common::record::Task;

/// Thread id, process id and cgroup of `current`, without its name.
#[inline(always)]
pub fn current_ids() -> (u32, u32, u64) {
    let pid_tgid = bpf_get_current_pid_tgid();
    // SAFETY: the helper takes no argument and cannot fail in a tracing program.
    let cgroup_id = unsafe { bpf_get_current_cgroup_id() };
    (pid_tgid as u32, (pid_tgid >> 32) as u32, cgroup_id)
}

/// Writes `current`'s name to `task`.
#[inline(always)]
pub fn fill_name(task: &mut Task) {
    // SAFETY: the helper writes at most the 16 bytes it is told of, and always terminates them.
    unsafe {
        bpf_get_current_comm(task.comm.as_mut_ptr().cast(), 16);
    }
}

/// Writes the identity and name of `current` to `task`.
#[inline(always)]
pub fn fill_task(task: &mut Task) {
    (task.tid, task.pid, task.cgroup_id) = current_ids();
    fill_name(task);
}
