//! The way out: copies a record into the ring, and counts it where the ring is full.

use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
use aya_ebpf::helpers::generated::bpf_ringbuf_output;

use crate::maps::{DROPS, RECORDS};

/// Sends `size` bytes from `record`. User space polls, so nobody is woken.
///
/// # Safety
///
/// `record` must point to `size` readable bytes, and the verifier must see that it does.
#[inline(always)]
pub unsafe fn send<T>(kind: u32, record: *const T, size: u64) {
    // SAFETY: the caller vouches for the bytes; the map is a ring buffer.
    let sent = unsafe {
        bpf_ringbuf_output(
            (&raw const RECORDS).cast_mut().cast(),
            record.cast_mut().cast(),
            size,
            u64::from(BPF_RB_NO_WAKEUP),
        )
    };
    if sent < 0
        && let Some(drops) = DROPS.get_ptr_mut(0)
    {
        // SAFETY: a per-CPU value; programs of one CPU that interrupt each other may lose a
        // count here, never more.
        let drops = unsafe { &mut *drops };
        if let Some(count) = drops.records.get_mut(kind as usize) {
            *count += 1;
        }
    }
}
