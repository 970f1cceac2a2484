//! What the allocator keeps of memory that is free.

use std::sync::Once;

/// Free memory that stays with the process. glibc raises its own limit with each large block that is
/// freed, up to 64 MiB (`mallopt(3)`, `M_TRIM_THRESHOLD`); rows that one thread makes and another frees then
/// take up to a third more than they need (docs/cost.md).
#[cfg(target_env = "gnu")]
const KEPT_BYTES: libc::c_int = 1 << 20;

/// Makes the allocator return what is free, from the first call on. Another allocator than glibc's is left
/// as it is.
pub(crate) fn keep_little() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if !limit() {
            log::info!("cannot limit what the allocator keeps");
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
