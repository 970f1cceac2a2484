//! I/O bytes: a small array of combining slots per CPU.
//!
//! Bytes of one owner, device and direction within a tick are summed, and sent as one record when
//! the tick has ended or no slot is free. A request that spans ticks is sent at once.

use uncore_trace_common::record::{
    CONTEXT_IRQ, CONTEXT_NOBODY, CONTEXT_SOFTIRQ, CONTEXT_TASK, Header, KIND_IO, Task,
};
use uncore_trace_common::state::{IO_PREFIX, IO_SLOTS, Io, IoSlot, IoState, MAX_DEVICE};

use crate::emit;
use crate::globals::{TICK_NS, tick_end};
use crate::helpers::{monotonic_ns, this_cpu};
use crate::maps::{CPUS, IO};

/// Owner of bytes.
pub struct IoOwner {
    /// One of the `CONTEXT_` constants.
    pub context: u32,
    /// Interrupt number or softirq vector.
    pub number: u32,
    /// The task.
    pub task: Task,
}

/// All fields 0: there is no task.
pub const NO_TASK: Task = Task { tid: 0, pid: 0, cgroup_id: 0, comm: [0; 16] };

impl IoOwner {
    /// The owner is not known.
    pub const NOBODY: Self = Self { context: CONTEXT_NOBODY, number: 0, task: NO_TASK };
}

/// Bytes that were moved.
pub struct MovedBytes {
    /// One of the `IO_` constants.
    pub io_kind: u32,
    /// Identifies the device.
    pub key: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// When it began; 0: now.
    pub begin: u64,
}

/// A record with one slot.
#[repr(C)]
struct Alone {
    header: Header,
    tick_end_ns: u64,
    begin: u64,
    end: u64,
    sequence: u64,
    len: u64,
    total: u64,
    slot: IoSlot,
}

const _: () = assert!(size_of::<Alone>() == IO_PREFIX + size_of::<IoSlot>());

/// Context of this CPU: one of the `CONTEXT_` constants, and its number.
#[inline(always)]
pub fn cpu_context() -> (u32, u32) {
    match CPUS.get(this_cpu()) {
        Some(state) if state.hard.begin != 0 => (CONTEXT_IRQ, state.hard.number as u32),
        Some(state) if state.soft.begin != 0 => (CONTEXT_SOFTIRQ, state.soft.number as u32),
        _ => (CONTEXT_TASK, 0),
    }
}

/// Adds bytes that were just moved; `fill` names the device in a new slot.
#[inline(always)]
pub fn add_moved(event: &MovedBytes, owner: &IoOwner, fill: impl Fn(&mut IoSlot)) {
    let (now_ns, cpu) = (monotonic_ns(), this_cpu());
    let Some(state) = IO.get_ptr_mut(cpu) else {
        return;
    };
    // SAFETY: only programs on this CPU write its value, and `busy` keeps them apart.
    let state = unsafe { &mut *state };
    let tick_end_ns = tick_end(now_ns);
    let spans = event.begin != 0 && event.begin + TICK_NS.load() < tick_end_ns;
    if spans || is_busy(state) {
        let mut record = Alone {
            header: Header { kind: KIND_IO, cpu },
            tick_end_ns,
            begin: if spans { event.begin } else { 0 },
            end: if spans { now_ns } else { 0 },
            sequence: 0,
            len: 1,
            total: event.bytes,
            slot: empty_slot(event, owner),
        };
        fill(&mut record.slot);
        record.slot.bytes = event.bytes;
        record.slot.requests = 1;
        // SAFETY: the whole record, on the stack.
        unsafe {
            emit::send_record(KIND_IO, (&raw const record).cast::<Io>(), size_of::<Alone>() as u64)
        };
        return;
    }
    set_busy(state, 1);
    combine_slot(&mut state.pending, cpu, now_ns, tick_end_ns, event, owner, fill);
    set_busy(state, 0);
}

#[inline(always)]
fn combine_slot(
    pending: &mut Io,
    cpu: u32,
    now_ns: u64,
    tick_end_ns: u64,
    event: &MovedBytes,
    owner: &IoOwner,
    fill: impl Fn(&mut IoSlot),
) {
    if now_ns >= pending.tick_end_ns {
        if pending.len != 0 {
            flush_slots(pending);
        }
        pending.header = Header { kind: KIND_IO, cpu };
        pending.tick_end_ns = tick_end_ns;
    }
    let mut index = find_slot(pending, event, owner);
    if index >= IO_SLOTS as u64 {
        flush_slots(pending);
        index = 0;
    }
    if pending.len == 0 {
        pending.sequence += 1;
    }
    // SAFETY: `index` is below IO_SLOTS; the unchecked form leaves no panic path.
    let slot = unsafe { pending.slots.get_unchecked_mut(index as usize) };
    if index == pending.len {
        *slot = empty_slot(event, owner);
        fill(slot);
        pending.len += 1;
    }
    slot.bytes += event.bytes;
    slot.requests += 1;
    pending.total += event.bytes;
}

/// A slot without bytes.
#[inline(always)]
fn empty_slot(event: &MovedBytes, owner: &IoOwner) -> IoSlot {
    IoSlot {
        task: owner.task,
        device: [0; MAX_DEVICE],
        key: event.key,
        bytes: 0,
        requests: 0,
        what: event.io_kind,
        context: owner.context,
        number: owner.number,
        ifindex: 0,
        netns: 0,
    }
}

/// The slot of this owner, device and direction, or the number of slots in use if it has none.
#[inline(always)]
fn find_slot(pending: &Io, event: &MovedBytes, owner: &IoOwner) -> u64 {
    let mut index = 0;
    for slot in &pending.slots {
        let same = slot.key == event.key
            && slot.what == event.io_kind
            && slot.task.pid == owner.task.pid
            && slot.task.cgroup_id == owner.task.cgroup_id
            && slot.context == owner.context
            && slot.number == owner.number;
        if index >= pending.len || same {
            break;
        }
        index += 1;
    }
    index
}

/// Sends the slots of a tick that has ended, unless a program is writing them.
#[inline(always)]
pub fn flush_ended(cpu: u32, now_ns: u64) {
    let Some(state) = IO.get_ptr_mut(cpu) else {
        return;
    };
    // SAFETY: as in `add_moved`.
    let state = unsafe { &mut *state };
    if state.pending.len != 0 && now_ns >= state.pending.tick_end_ns && !is_busy(state) {
        set_busy(state, 1);
        flush_slots(&mut state.pending);
        set_busy(state, 0);
    }
}

#[inline(always)]
fn flush_slots(pending: &mut Io) {
    let record: *const Io = pending;
    let size = || {
        // SAFETY: a reference is readable.
        let len = unsafe { (&raw const (*record).len).read_volatile() };
        let size = IO_PREFIX as u64 + len * size_of::<IoSlot>() as u64;
        (len <= IO_SLOTS as u64).then_some(size)
    };
    // SAFETY: `size` covers the prefix and `len` slots, all inside the map value.
    unsafe { emit::send_part(KIND_IO, record, size) };
    pending.len = 0;
    pending.total = 0;
}

/// Whether a program that was interrupted or preempted by this one is writing.
#[inline(always)]
fn is_busy(state: &IoState) -> bool {
    // SAFETY: a reference is readable.
    unsafe { (&raw const state.busy).read_volatile() != 0 }
}

#[inline(always)]
fn set_busy(state: &mut IoState, busy: u64) {
    // SAFETY: a reference is writable. Volatile, so that it is set before and cleared after.
    unsafe { (&raw mut state.busy).write_volatile(busy) };
}
