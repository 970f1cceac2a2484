//! Copies records into the ring of their CPU, and counts those that do not fit.
//!
//! Guarantee: no count of drops is lost, even if a program interrupts another one that counts on
//! the same CPU.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
use aya_ebpf::helpers::generated::bpf_ringbuf_output;

use uncore_trace_common::record::{Header, KINDS};
use uncore_trace_common::state::Drops;

use crate::maps::{DROPS, RINGS};

/// Sends `size` bytes from `record`. User space polls, so nobody is woken.
///
/// # Safety
///
/// `record` must point to `size` readable bytes that begin with a [`Header`], and the verifier must
/// see that it does.
#[inline(always)]
pub unsafe fn send_record<T>(record_kind: u32, record: *const T, size: u64) {
    // SAFETY: as the caller promises.
    unsafe { send_part(record_kind, record, || Some(size)) }
}

/// The same with a size that is known only now; `None` if there is nothing to send. It is asked for
/// right before the call that takes it: the verifier of Linux 6.1 forgets the bound of a number
/// that was put on the stack before it was compared.
///
/// # Safety
///
/// As for [`send_record`].
#[inline(always)]
pub unsafe fn send_part<T>(record_kind: u32, record: *const T, size: impl FnOnce() -> Option<u64>) {
    // SAFETY: the caller vouches for the header.
    let cpu = unsafe { (*record.cast::<Header>()).cpu };
    let sent = RINGS.get(cpu).map(|ring| {
        let Some(size) = size() else { return 0 };
        // SAFETY: the caller vouches for the bytes; the map is a ring buffer.
        unsafe {
            bpf_ringbuf_output(
                core::ptr::from_ref(ring).cast_mut().cast(),
                record.cast_mut().cast(),
                size,
                u64::from(BPF_RB_NO_WAKEUP),
            )
        }
    });
    if sent.is_none_or(|result| result < 0) && (record_kind as usize) < KINDS {
        // SAFETY: `record_kind` is the index of a count in `records`.
        count_drop(|drops| unsafe {
            (&raw mut (*drops).records).cast::<u64>().add(record_kind as usize)
        });
    }
}

/// Adds one to a field of this CPU's drops.
#[inline(always)]
pub fn count_drop(field: impl FnOnce(*mut Drops) -> *mut u64) {
    if let Some(drops) = DROPS.get_ptr_mut(0) {
        // One instruction (BPF_ATOMIC, BPF_ADD): read, add and write would set back what a program
        // that interrupts this one counts in between. `core::sync::atomic` has no `fetch_add` for
        // this target. SAFETY: `field` returns an aligned count inside the map value.
        unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(field(drops), 1) };
    }
}
