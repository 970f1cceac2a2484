//! Scheduling priority of threads.

use rustix::process::{getpriority_process, setpriority_process};

/// Raises the priority of the calling thread above that of the tenants: a recorder that waits for a
/// CPU loses records when the ring is full. The command keeps its own priority, so this is called
/// for each thread (Linux has a nice value for each thread).
pub fn raise_priority() {
    set_nice(-10, "raise the recorder's priority");
}

/// Lowers the priority of the calling thread below that of the tenants: its work can wait, but not
/// until the host is idle. Beside four busy threads, it gets 8 % of a CPU with this value and 0.4 %
/// with 19 (`sched_prio_to_weight`, kernel/sched/core.c: 1024, 335 and 15).
pub fn yield_to_others() {
    set_nice(5, "lower the priority of a thread");
}

/// Gives the calling thread the priority of the tenants, if it has a higher one: its work is waited
/// for.
pub fn lower() {
    if getpriority_process(None).is_ok_and(|nice| nice < 0) {
        set_nice(0, "lower the priority of a thread");
    }
}

/// Sets the nice value of the calling thread; `action` says for what.
fn set_nice(nice: i32, action: &str) {
    if let Err(error) = setpriority_process(None, nice) {
        log::info!("cannot {action}: {error}");
    }
}
