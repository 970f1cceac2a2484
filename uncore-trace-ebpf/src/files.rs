//! Who has the files of watched devices open.
//!
//! Most files are of no watched device; for them two members are read and one bit is tested. A
//! process that closes a file of a device holds the device still if another file of its table is of
//! the same device: the table is looked through, because counting would miss what is put into it
//! without a call that can be seen (`dup2`).

use core::ffi::c_void;

use aya_ebpf::bindings::seq_file;
use aya_ebpf::btf_maps::{Array, LruHashMap};
use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_loop, bpf_seq_write};
use aya_ebpf::macros::btf_map;
use uncore_trace_common::record::{
    FILE_DOUBT, FILE_FORK, FILE_GOT, FILE_LEFT, FILE_SEEN, FileEvent, Header, KIND_FILE,
    MINOR_BITS, Task,
};

use crate::globals::{
    CGROUP_KN, CSET_CGROUP, FILE_INODE, FILE_MODE, FILES_TABLE, INODE_DEVICE, INODE_MODE,
    KERNFS_ID, TABLE_FILES, TABLE_SIZE, TASK_CGROUPS, TASK_COMM, TASK_FILES, TASK_PID, TASK_TGID,
};
use crate::helpers::{current_task, monotonic_ns, this_cpu};
use crate::io::NO_TASK;
use crate::kernel::{follow_pointer, read_field, read_text};
use crate::{emit, task};

/// Major numbers: 12 bits (`MINORBITS` is 20 of 32, include/linux/kdev_t.h, Linux 6.1 to 7.2).
const MAJORS: u32 = 1 << 12;

/// Words with a bit for each major number: of character devices, then of block devices.
const WORDS: usize = 2 * MAJORS as usize / 64;

/// `S_IFMT`, `S_IFCHR` and `S_IFBLK`, include/uapi/linux/stat.h.
const KIND: u16 = 0o170_000;
const CHARACTER: u16 = 0o020_000;
const BLOCK: u16 = 0o060_000;

/// `FMODE_PATH`, include/linux/fs.h, Linux 6.1 to 7.2: a file that was opened with `O_PATH` is a
/// place, not the device.
const ONLY_PATH: u32 = 1 << 14;

/// Entries of a table that are looked through, some 0.1 ms.
const MOST_FILES: u32 = 1 << 12;

/// The watched major numbers.
#[btf_map]
static WATCHED: Array<u64, WORDS> = Array::new();

/// What was reported as open: see [`WatchedDevice::holder_key`]. What is forgotten is reported
/// again when it is opened again.
#[btf_map]
static HELD: LruHashMap<u64, u32, 1> = LruHashMap::new();

/// Processes that have had the file of a watched device. The copies of one that is forgotten are
/// found when all files are read.
#[btf_map]
static HOLDERS: LruHashMap<u32, u32, 1> = LruHashMap::new();

/// The context of the iterator `task_file` (`struct bpf_iter__task_file`, kernel/bpf/task_iter.c,
/// Linux 6.1 to 7.2).
#[repr(C)]
pub struct TaskFile {
    meta: *const Meta,
    task: *const u8,
    fd: u64,
    file: *const u8,
}

/// The begin of `struct bpf_iter_meta` (include/linux/bpf.h, Linux 6.1 to 7.2).
#[repr(C)]
struct Meta {
    seq: *mut seq_file,
}

/// A device.
#[derive(Clone, Copy)]
struct WatchedDevice {
    number: u32,
    is_block: bool,
}

impl WatchedDevice {
    /// The watched device that the file is of.
    #[inline(always)]
    fn from_file(file: *const u8) -> Option<Self> {
        let inode = follow_pointer(file, FILE_INODE.load())?;
        // SAFETY: a checked read of kernel memory.
        let mode: u16 = unsafe { read_field(inode, INODE_MODE.load()) }.ok()?;
        let is_block = match mode & KIND {
            CHARACTER => false,
            BLOCK => true,
            _ => return None,
        };
        // SAFETY: a checked read of kernel memory.
        let number: u32 = unsafe { read_field(inode, INODE_DEVICE.load()) }.ok()?;
        let major = number >> MINOR_BITS;
        let word = WATCHED.get((u32::from(is_block) * MAJORS + major) / 64)?;
        if word >> (major % 64) & 1 == 0 {
            return None;
        }
        // SAFETY: a checked read of kernel memory.
        let mode: u32 = unsafe { read_field(file, FILE_MODE.load()) }.ok()?;
        (mode & ONLY_PATH == 0).then_some(Self { number, is_block })
    }

    /// The key of a process and this device: numbers of processes have 22 bits (`PID_MAX_LIMIT`,
    /// include/linux/threads.h, Linux 6.1 to 7.2).
    #[inline(always)]
    const fn holder_key(self, pid: u32) -> u64 {
        (self.is_block as u64) << 63 | (pid as u64) << 32 | self.number as u64
    }

    #[inline(always)]
    fn file_event(self, change: u32, task: Task) -> FileEvent {
        let (time, cpu) = (monotonic_ns(), this_cpu());
        FileEvent {
            header: Header { kind: KIND_FILE, cpu },
            time,
            what: change,
            device: self.number,
            block: u32::from(self.is_block),
            parent: 0,
            task,
        }
    }
}

/// The current task gets this file.
#[inline(always)]
pub fn note_gained(file: *const u8) {
    let Some(device) = WatchedDevice::from_file(file) else { return };
    let mut holder = NO_TASK;
    task::fill_task(&mut holder);
    let key = device.holder_key(holder.pid);
    // SAFETY: the value is a number.
    if unsafe { HELD.get(key) }.is_some() {
        return;
    }
    remember_holder(&key, holder.pid);
    send_event(&device.file_event(FILE_GOT, holder));
}

/// The current task has taken this file out of its table.
#[inline(always)]
pub fn note_closed(file: *const u8) {
    let Some(device) = WatchedDevice::from_file(file) else { return };
    let mut holder = NO_TASK;
    task::fill_task(&mut holder);
    let key = device.holder_key(holder.pid);
    // Another thread may get a file of the device meanwhile. If it does so after this removal, it
    // reports that; the report below has a time from before that one. If it does so before, its
    // file is found below, unless it is not in the table yet: this program is called before
    // `fd_install` stores the file, and no lock covers both. Such a file is found when all files
    // are read again.
    let _unknown = HELD.remove(key);
    let mut event = device.file_event(FILE_LEFT, holder);
    match has_device_open(device) {
        Some(true) => return remember_holder(&key, holder.pid),
        Some(false) => {}
        None => event.what = FILE_DOUBT,
    }
    send_event(&event);
}

/// Remembers that a process holds a device.
#[inline(always)]
fn remember_holder(key: &u64, pid: u32) {
    // Nothing is lost without it: see the maps.
    let _full = HELD.insert(key, 1_u32, 0);
    let _full = HOLDERS.insert(pid, 1_u32, 0);
}

/// A search in a table of files.
struct Search {
    files: *const u8,
    device: WatchedDevice,
    is_found: bool,
}

/// Whether a file of the current task's table is of the device; `None` if the table is too large.
#[inline(always)]
fn has_device_open(device: WatchedDevice) -> Option<bool> {
    let task = current_task();
    // A task that exits has no table any more when its files are closed.
    let Some(table) = follow_pointer(task, TASK_FILES.load()) else { return Some(false) };
    let table = follow_pointer(table, FILES_TABLE.load())?;
    // SAFETY: a checked read of kernel memory.
    let size: u32 = unsafe { read_field(table, TABLE_SIZE.load()) }.ok()?;
    let files = follow_pointer(table, TABLE_FILES.load())?;
    if size > MOST_FILES {
        return None;
    }
    let mut search = Search { files, device, is_found: false };
    let step: unsafe extern "C" fn(u64, *mut Search) -> i64 = check_entry;
    // SAFETY: `check_entry` takes a number and the context, which is on the stack of this program.
    unsafe { bpf_loop(size, step as *mut c_void, (&raw mut search).cast(), 0) };
    Some(search.is_found)
}

/// Looks at one entry; 1 ends the search.
unsafe extern "C" fn check_entry(index: u64, search: *mut Search) -> i64 {
    // SAFETY: the context that `has_device_open` passes.
    let search = unsafe { &mut *search };
    let Some(file) = follow_pointer(search.files, (index & 0xffff) * 8) else { return 0 };
    let same = WatchedDevice::from_file(file).is_some_and(|device| {
        device.number == search.device.number && device.is_block == search.device.is_block
    });
    search.is_found = same;
    i64::from(same)
}

/// The current process has made the task `child`.
#[inline(always)]
pub fn note_fork(child: *const u8) {
    let (_, parent, _) = task::current_ids();
    // SAFETY: the value is a number.
    if unsafe { HOLDERS.get(parent) }.is_none() {
        return;
    }
    let child_task = read_identity(child);
    if child_task.pid == parent || child_task.pid == 0 {
        return;
    }
    let _full = HOLDERS.insert(child_task.pid, 1_u32, 0);
    let mut event = WatchedDevice { number: 0, is_block: false }.file_event(FILE_FORK, child_task);
    event.parent = parent;
    send_event(&event);
}

/// Writes the file that the iterator visits, if it is of a watched device.
///
/// # Safety
///
/// `ctx` must be the context of the iterator.
#[inline(always)]
pub unsafe fn write_seen(ctx: *const TaskFile) {
    // SAFETY: as the caller promises; the verifier checks each access.
    let (task, file) = unsafe { ((*ctx).task, (*ctx).file) };
    if task.is_null() || file.is_null() {
        return;
    }
    let Some(device) = WatchedDevice::from_file(file) else { return };
    let holder = read_identity(task);
    remember_holder(&device.holder_key(holder.pid), holder.pid);
    let event = device.file_event(FILE_SEEN, holder);
    // SAFETY: as above; the whole event is on the stack. If the buffer is too small, the kernel
    // enlarges it and visits the file again.
    unsafe {
        bpf_seq_write((*(*ctx).meta).seq, (&raw const event).cast(), size_of::<FileEvent>() as u32);
    }
}

/// Identity of a task that need not be current; fields that cannot be read are 0.
#[inline(always)]
fn read_identity(kernel_task: *const u8) -> Task {
    let mut task = NO_TASK;
    // SAFETY: checked reads of kernel memory.
    unsafe {
        task.tid = read_field(kernel_task, TASK_PID.load()).unwrap_or(0);
        task.pid = read_field(kernel_task, TASK_TGID.load()).unwrap_or(0);
    }
    let cgroup = follow_pointer(kernel_task, TASK_CGROUPS.load())
        .and_then(|set| follow_pointer(set, CSET_CGROUP.load()))
        .and_then(|cgroup| follow_pointer(cgroup, CGROUP_KN.load()));
    if let Some(kn) = cgroup {
        // SAFETY: a checked read of kernel memory.
        task.cgroup_id = unsafe { read_field(kn, KERNFS_ID.load()) }.unwrap_or(0);
    }
    read_text(&mut task.comm, kernel_task.wrapping_add(TASK_COMM.load() as usize));
    task
}

#[inline(always)]
fn send_event(event: &FileEvent) {
    // SAFETY: the whole event, on the stack.
    unsafe { emit::send_record(KIND_FILE, &raw const *event, size_of::<FileEvent>() as u64) };
}
