//! Limits how much free memory the allocator keeps.

use std::sync::Once;

/// Free memory that the allocator keeps, bytes. glibc raises its own limit with each large block
/// that is freed, up to 64 MiB (`mallopt(3)`, `M_TRIM_THRESHOLD`). Rows that one thread allocates
/// and another frees then take up to a third more memory (docs/cost.md).
#[cfg(target_env = "gnu")]
const KEPT_BYTES: libc::c_int = 1 << 20;

/// Makes glibc return free memory, from the first call on. Does nothing with other allocators.
pub(crate) fn keep_little() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if !limit() {
            log::info!("cannot limit the free memory that the allocator keeps");
        }
    });
}

#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "no safe binding sets a limit of the allocator")]
fn limit() -> bool {
    // SAFETY: the call changes a number inside the allocator, which takes its own lock.
    unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES) == 1 }
}

#[cfg(not(target_env = "gnu"))]
const fn limit() -> bool {
    true
}
