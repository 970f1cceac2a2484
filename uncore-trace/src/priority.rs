//! Who goes first when CPUs are short.

use rustix::process::setpriority_process;

/// Puts the calling thread before the tenants it watches: a recorder that waits for its CPU loses
/// records when the ring is full. The command it runs keeps its own priority, which is why this is
/// asked for thread by thread (Linux gives every thread a nice value of its own).
pub(crate) fn raise_priority() {
    const NICE: i32 = -10;
    if let Err(error) = setpriority_process(None, NICE) {
        log::info!("cannot raise the recorder's priority: {error}");
    }
}

/// Puts the calling thread behind the tenants: its work can wait.
pub(crate) fn yield_to_others() {
    const NICE: i32 = 19;
    if let Err(error) = setpriority_process(None, NICE) {
        log::info!("cannot lower the priority of a thread: {error}");
    }
}
