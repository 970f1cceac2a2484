//! Scheduling priority of threads.

use rustix::process::{getpriority_process, setpriority_process};

/// Raises the priority of the calling thread above that of the tenants: a recorder that waits for a
/// CPU loses records when the ring is full. The command keeps its own priority, so this is called
/// for each thread (Linux has a nice value for each thread).
pub fn raise_priority() {
    const NICE: i32 = -10;
    if let Err(error) = setpriority_process(None, NICE) {
        log::info!("cannot raise the recorder's priority: {error}");
    }
}

/// Lowers the priority of the calling thread below that of the tenants: its work can wait, but not
/// until the host is idle. Beside four busy threads, it gets 8 % of a CPU with this value and 0.4 %
/// with 19 (`sched_prio_to_weight`, kernel/sched/core.c: 1024, 335 and 15).
pub fn yield_to_others() {
    const NICE: i32 = 5;
    if let Err(error) = setpriority_process(None, NICE) {
        log::info!("cannot lower the priority of a thread: {error}");
    }
}

/// Gives the calling thread the priority of the tenants, if it has a higher one: its work is waited
/// for.
pub fn lower() {
    if getpriority_process(None).is_ok_and(|nice| nice < 0)
        && let Err(error) = setpriority_process(None, 0)
    {
        log::info!("cannot lower the priority of a thread: {error}");
    }
}
