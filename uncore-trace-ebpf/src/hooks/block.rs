//! Block requests: their owner at the start, and the bytes they moved at the completion.
//!
//! `block_io_start(struct request *rq)` (Linux >= 6.5) is called in the context of the submitter.
//! On older kernels `block_rq_insert` and `block_rq_issue`, with the same argument, are used; they
//! run in it unless a worker of the block layer comes first. `block_rq_complete(struct request *rq,
//! blk_status_t error, unsigned int nr_bytes)` is called where `blk_account_io_completion` adds the
//! same bytes to the disk's statistics (`blk_update_request` and `blk_complete_request`,
//! block/blk-mq.c, Linux 6.1 to 7.2), several times for a request that completes in parts.
//! `block_rq_merge(struct request *rq)` names a request that became a part of another one.

use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::macros::{btf_map, raw_tracepoint};
use aya_ebpf::programs::RawTracePointContext;
use uncore_trace_common::record::{CONTEXT_TASK, IO_READ, IO_WRITE, Task};

use crate::globals::{
    BIO_BLKG, BLKCG_CGROUP, BLKG_BLKCG, CGROUP_KN, CGROUP_ROOT, DISK_NAME, KERNFS_ID, OP_DRV_IN,
    OP_DRV_OUT, OP_ZONE_APPEND, QUEUE_DISK, REQUEST_BIO, REQUEST_FLAGS, REQUEST_LEN, REQUEST_QUEUE,
    ROOT_HIERARCHY, TASK_FLAGS,
};
use crate::helpers::{current_task, monotonic_ns};
use crate::io::{self, IoOwner, MovedBytes, NO_TASK};
use crate::kernel::{follow_pointer, read_field, read_text};
use crate::{emit, task};

/// A request that is under way.
#[repr(C)]
#[derive(Clone, Copy)]
struct PendingRequest {
    begin: u64,
    task: Task,
}

/// The requests under way, by address, which is unique until a request has ended.
#[btf_map]
static REQUESTS: HashMap<u64, PendingRequest, 1> = HashMap::new();

/// `BPF_ANY` and `BPF_NOEXIST`, include/uapi/linux/bpf.h.
const ANY: u64 = 0;
const FIRST: u64 = 1;

/// `PF_KTHREAD`, include/linux/sched.h, Linux 6.1 to 7.2.
const PF_KTHREAD: u32 = 0x0020_0000;

/// `REQ_OP_MASK`, `REQ_OP_READ` and `REQ_OP_WRITE`, include/linux/blk_types.h, Linux 6.1 to 7.2.
const OP_MASK: u32 = 0xff;
const OP_READ: u64 = 0;
const OP_WRITE: u64 = 1;

#[raw_tracepoint(tracepoint = "block_io_start")]
fn block_io_start(ctx: RawTracePointContext) -> i32 {
    begin_request(ctx.arg(0), ANY);
    0
}

#[raw_tracepoint(tracepoint = "block_rq_insert")]
fn block_rq_insert(ctx: RawTracePointContext) -> i32 {
    begin_request(ctx.arg(0), FIRST);
    0
}

#[raw_tracepoint(tracepoint = "block_rq_issue")]
fn block_rq_issue(ctx: RawTracePointContext) -> i32 {
    begin_request(ctx.arg(0), FIRST);
    0
}

#[raw_tracepoint(tracepoint = "block_rq_merge")]
fn block_rq_merge(ctx: RawTracePointContext) -> i32 {
    // It may have begun before the recording.
    let _gone = REQUESTS.remove(ctx.arg::<u64>(0));
    0
}

#[raw_tracepoint(tracepoint = "block_rq_complete")]
fn block_rq_complete(ctx: RawTracePointContext) -> i32 {
    let request: *const u8 = ctx.arg(0);
    let bytes: u32 = ctx.arg(2);
    if bytes != 0
        && let Some(io_kind) = request_direction(request)
    {
        complete_request(request, io_kind, bytes);
    }
    0
}

#[inline(always)]
fn complete_request(request: *const u8, io_kind: u32, bytes: u32) {
    let key = request as u64;
    // SAFETY: the request is not submitted again before this program is over.
    let (begin, owner) = match unsafe { REQUESTS.get(key) } {
        Some(known) => {
            (known.begin, IoOwner { context: CONTEXT_TASK, number: 0, task: known.task })
        }
        None => (0, IoOwner::NOBODY),
    };
    let disk = follow_pointer(request, REQUEST_QUEUE.load())
        .and_then(|queue| follow_pointer(queue, QUEUE_DISK.load()));
    if let Some(disk) = disk {
        let event = MovedBytes { io_kind, key: disk as u64, bytes: u64::from(bytes), begin };
        let name = disk.wrapping_add(DISK_NAME.load() as usize);
        io::add_moved(&event, &owner, |slot| read_text(&mut slot.device, name));
    }
    // SAFETY: any bit pattern is a number.
    let remaining = unsafe { read_field::<u32>(request, REQUEST_LEN.load()) };
    if remaining.is_ok_and(|remaining| remaining > bytes) {
        return;
    }
    // It may have begun before the recording.
    let _gone = REQUESTS.remove(key);
}

/// Stores the owner of a submitted request, if it moves data.
#[inline(always)]
fn begin_request(request: *const u8, flags: u64) {
    if request_direction(request).is_none() {
        return;
    }
    let mut value = PendingRequest { begin: monotonic_ns(), task: NO_TASK };
    task::fill_task(&mut value.task);
    // SAFETY: any bit pattern is a number.
    let kernel = unsafe { read_field::<u32>(current_task(), TASK_FLAGS.load()) };
    if kernel.is_ok_and(|flags| flags & PF_KTHREAD != 0)
        && let Some(id) = cgroup_of(request)
    {
        value.task.cgroup_id = id;
    }
    // -EEXIST: the owner was stored before.
    const KNOWN: i32 = -17;
    match REQUESTS.insert(request as u64, value, flags) {
        Ok(()) | Err(KNOWN) => {}
        // SAFETY: a field of the value that is given.
        Err(_) => emit::count_drop(|drops| unsafe { &raw mut (*drops).unowned }),
    }
}

/// `IO_READ` or `IO_WRITE`; `None` if it moves no data, such as a discard or a flush.
#[inline(always)]
fn request_direction(request: *const u8) -> Option<u32> {
    // SAFETY: any bit pattern is a number.
    let flags = unsafe { read_field::<u32>(request, REQUEST_FLAGS.load()) }.ok()?;
    let op = u64::from(flags & OP_MASK);
    if op == OP_READ || op == OP_DRV_IN.load() {
        Some(IO_READ)
    } else if op == OP_WRITE || op == OP_DRV_OUT.load() || op == OP_ZONE_APPEND.load() {
        Some(IO_WRITE)
    } else {
        None
    }
}

/// The cgroup in the v2 hierarchy that pays for the first bio of a request: the one that dirtied
/// the page, if a worker writes it. It is the nearest ancestor with the io controller.
#[inline(always)]
fn cgroup_of(request: *const u8) -> Option<u64> {
    let bio = follow_pointer(request, REQUEST_BIO.load())?;
    let blkcg = follow_pointer(follow_pointer(bio, BIO_BLKG.load())?, BLKG_BLKCG.load())?;
    let cgroup = follow_pointer(blkcg, BLKCG_CGROUP.load())?;
    let root = follow_pointer(cgroup, CGROUP_ROOT.load())?;
    // SAFETY: any bit pattern is a number.
    let hierarchy = unsafe { read_field::<u32>(root, ROOT_HIERARCHY.load()) };
    if hierarchy != Ok(0) {
        return None;
    }
    // SAFETY: as above.
    unsafe { read_field::<u64>(follow_pointer(cgroup, CGROUP_KN.load())?, KERNFS_ID.load()) }.ok()
}
