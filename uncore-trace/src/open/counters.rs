//! The perf event array that the BPF programs read the counters from.
//!
//! aya sizes such an array by the number of CPUs, which is too small if a CPU reads many counters,
//! and it cannot be given an existing map. So the array is created here, and replaces aya's array
//! under the same descriptor before the programs that use it are loaded.
#![expect(unsafe_code, reason = "bpf(2) has no safe wrapper for these commands")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// `BPF_MAP_TYPE_PERF_EVENT_ARRAY`, include/uapi/linux/bpf.h.
const PERF_EVENT_ARRAY: u32 = 4;
/// `BPF_MAP_CREATE` and `BPF_MAP_UPDATE_ELEM`, include/uapi/linux/bpf.h.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;

/// The first fields of `union bpf_attr` for `BPF_MAP_CREATE`.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct MapCreateAttr {
    pub map_type: u32,
    pub key_size: u32,
    pub value_size: u32,
    pub max_entries: u32,
    pub map_flags: u32,
}

/// The fields of `union bpf_attr` for `BPF_MAP_UPDATE_ELEM`.
#[repr(C)]
struct MapUpdateAttr {
    map_fd: u32,
    reserved: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// A perf event array. Its entries live as long as this descriptor or a duplicate of it.
#[derive(Debug)]
pub(super) struct CounterArray(OwnedFd);

impl CounterArray {
    /// Makes an array with `slots` empty slots.
    pub(super) fn create(slots: u32) -> io::Result<Self> {
        let (map_type, max_entries) = (PERF_EVENT_ARRAY, slots.max(1));
        let attr =
            MapCreateAttr { map_type, key_size: 4, value_size: 4, max_entries, map_flags: 0 };
        create_map(attr).map(Self)
    }

    /// Puts a counter into a slot. The slot keeps the event open.
    pub(super) fn insert(&self, slot: u32, event: BorrowedFd<'_>) -> io::Result<()> {
        let value = event.as_raw_fd() as u32;
        let mut attr = MapUpdateAttr {
            map_fd: self.0.as_raw_fd() as u32,
            reserved: 0,
            key: (&raw const slot) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        bpf_call(MAP_UPDATE_ELEM, &mut attr)?;
        Ok(())
    }

    /// Makes `target` a descriptor of this array, and closes its previous file.
    pub(super) fn take_place_of(&self, target: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: both are open descriptors; the owner of `target` keeps a valid one throughout.
        let fd = unsafe { libc::dup3(self.0.as_raw_fd(), target.as_raw_fd(), libc::O_CLOEXEC) };
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for CounterArray {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes a map.
pub(super) fn create_map(mut attr: MapCreateAttr) -> io::Result<OwnedFd> {
    let fd = bpf_call(MAP_CREATE, &mut attr)?;
    // SAFETY: the kernel has just returned this descriptor, nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `attr` is given whole to be changed: some commands write their answer into it
/// (`BPF_PROG_TEST_RUN`: `bpf_test_finish`, `net/bpf/test_run.c`).
pub(super) fn bpf_call<T>(command: libc::c_int, attr: &mut T) -> io::Result<i32> {
    // SAFETY: `attr` has the layout that `command` reads and writes, and its size is given.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}
