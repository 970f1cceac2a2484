//! Scheduling priority of threads.

use rustix::process::setpriority_process;

/// Raises the priority of the calling thread above that of the tenants: a recorder that waits for a
/// CPU loses records when the ring is full. The command keeps its own priority, so this is called
/// for each thread (Linux has a nice value for each thread).
pub(crate) fn raise_priority() {
    const NICE: i32 = -10;
    if let Err(error) = setpriority_process(None, NICE) {
        log::info!("cannot raise the recorder's priority: {error}");
    }
}

/// Lowers the priority of the calling thread below that of the tenants: its work can wait.
pub(crate) fn yield_to_others() {
    const NICE: i32 = 19;
    if let Err(error) = setpriority_process(None, NICE) {
        log::info!("cannot lower the priority of a thread: {error}");
    }
}
