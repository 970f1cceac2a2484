//! Reads members of kernel structures at offsets that the loader found in the BTF.

use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::bpf_probe_read_kernel_str;
use uncore_trace_common::config::MISSING;

/// Reads the member at `offset` of the structure at `base`.
///
/// # Safety
///
/// None beyond that of `bpf_probe_read_kernel`, which checks the address: a wrong one is an error,
/// not a fault. Any bit pattern must be a valid `T`.
#[inline(always)]
pub unsafe fn read_field<T>(base: *const u8, offset: u64) -> Result<T, i32> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(base.wrapping_add(offset as usize).cast::<T>()) }
}

/// Follows the pointer at `offset`; `None` if it is null, cannot be read, or does not exist in the
/// running kernel.
#[inline(always)]
pub fn follow_pointer(base: *const u8, offset: u64) -> Option<*const u8> {
    if offset == MISSING {
        return None;
    }
    // SAFETY: any bit pattern is a pointer.
    match unsafe { read_field::<*const u8>(base, offset) } {
        Ok(pointer) if !pointer.is_null() => Some(pointer),
        _ => None,
    }
}

/// Copies the text at `address`, cut to the size of `target`, which is unchanged on failure.
#[inline(always)]
pub fn read_text<const LEN: usize>(target: &mut [u8; LEN], address: *const u8) {
    // SAFETY: the helper checks the address, and writes at most `LEN` bytes, terminated.
    unsafe {
        bpf_probe_read_kernel_str(target.as_mut_ptr().cast(), LEN as u32, address.cast());
    }
}
