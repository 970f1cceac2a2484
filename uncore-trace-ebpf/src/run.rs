//! Time of tasks: a small array of combining slots per CPU.
//!
//! At a switch, the time since the last switch is added to the leaving task's slot. The slots are
//! sent as one record when the tick ends or no slot is free, so the volume grows with tasks x
//! ticks, not with switches. With `--slices` a slot has one slice, and the record has every slice
//! in order. A record covers its time without gaps, so a reader notices a lost one.

use uncore_trace_common::record::{Header, KIND_RUN};
use uncore_trace_common::state::{CLOSED, CpuState, RUN_PREFIX, RUN_SLOTS, Run, Slot};

use crate::globals::{IO_WANTED, SLICES, tick_end};
use crate::helpers::{monotonic_ns, this_cpu};
use crate::maps::CPUS;
use crate::{emit, io, irq, task};

/// Index of the 32-bit word of a run's `next` that has the thread's id.
const NEXT_TID: usize = if cfg!(target_endian = "little") { 1 } else { 0 };

/// Accounts for a switch from `current`, whose thread id is `tid`, to `next_tid`.
#[inline(always)]
pub fn account_switch(tid: u32, next_tid: u32) {
    let (now_ns, cpu) = (monotonic_ns(), this_cpu());
    let Some(state) = CPUS.get_ptr_mut(cpu) else {
        return;
    };
    // SAFETY: only programs on this CPU write its value, and `sched_switch` runs with interrupts
    // off, so none of them interrupts this one.
    let state = unsafe { &mut *state };
    let irq_now = state.hard.total + state.soft.total;
    if state.run.end == 0 {
        start_run(&mut state.run, cpu, now_ns);
    } else {
        if state.run.next_tid() != tid {
            // SAFETY: a field of the value that is given.
            emit::count_drop(|drops| unsafe { &raw mut (*drops).switches });
        }
        add_slice(state, tid, now_ns, irq_now);
    }
    state.run.irq_at_end = irq_now;
    state.run.next = (u64::from(next_tid) << 32) | (state.run.end & 0xffff_ffff);
}

/// Handles the first switch on this CPU: time is accounted from here on.
#[inline(always)]
fn start_run(run: &mut Run, cpu: u32, now_ns: u64) {
    run.header = Header { kind: KIND_RUN, cpu };
    run.begin = now_ns;
    run.last = now_ns;
    run.end = now_ns;
    run.tick_end_ns = tick_end(now_ns);
    run.len = 0;
}

/// Adds the slice that ends now, and sends the slots if the tick has ended.
#[inline(always)]
fn add_slice(state: &mut CpuState, tid: u32, now_ns: u64, irq_now: u64) {
    let wall = now_ns - state.run.end;
    let irq = irq_now - state.run.irq_at_end;
    let crosses = now_ns >= state.run.tick_end_ns;
    let alone = crosses || SLICES.load() != 0;
    let mut index = if alone { state.run.len } else { find_slot(&state.run, tid) };
    if index >= RUN_SLOTS as u64 {
        state.run.last = state.run.end;
        flush_slots(&mut state.run);
        index = 0;
    }
    // SAFETY: `index` is below RUN_SLOTS; the unchecked form leaves no panic path.
    let slot = unsafe { state.run.slots.get_unchecked_mut(index as usize) };
    if index == state.run.len {
        begin_slot(slot, tid);
        state.run.len += 1;
    }
    slot.wall_ns += wall;
    slot.irq_ns += irq;
    slot.slices += 1;
    let began = state.run.end;
    state.run.end = now_ns;
    if crosses {
        irq::flush_ended(&mut state.hard, now_ns);
        irq::flush_ended(&mut state.soft, now_ns);
        if IO_WANTED.load() != 0 {
            io::flush_ended(state.run.header.cpu, now_ns);
        }
        state.run.last = began;
        flush_slots(&mut state.run);
        state.run.tick_end_ns = tick_end(now_ns);
    }
}

/// `current` has a new name: its time in this tick so far keeps the old one. A thread that was not
/// the leader of its process has the leader's id from now on.
#[inline(always)]
pub fn close_renamed() {
    let cpu = this_cpu();
    let Some(state) = CPUS.get_ptr_mut(cpu) else {
        return;
    };
    // Programs in interrupts do not write `run`. Since Linux 7.0 this program may be preempted, but
    // a switch in between writes all of `next`, and its own slots.
    let run = unsafe { &mut (*state).run };
    let tid = task::current_ids().0;
    // SAFETY: the upper half of a u64 that is there. `current` runs now, so it is right whenever it
    // is written; the lower half is that of the last switch.
    unsafe { (&raw mut run.next).cast::<u32>().add(NEXT_TID).write(tid) };
    let index = find_slot(run, tid);
    if index < run.len
        && let Some(slot) = run.slots.get_mut(index as usize)
        && slot.key == tid
    {
        slot.key = CLOSED;
    }
}

/// The slot of this task, or the number of used slots if it has none. Only the thread id is
/// compared: name and cgroup are read once per tick, because a helper costs more than this search.
#[inline(always)]
fn find_slot(run: &Run, tid: u32) -> u64 {
    let mut index = 0;
    for slot in &run.slots {
        if index >= run.len || slot.key == tid {
            break;
        }
        index += 1;
    }
    index
}

#[inline(always)]
fn begin_slot(slot: &mut Slot, tid: u32) {
    task::fill_task(&mut slot.task);
    slot.key = tid;
    slot.wall_ns = 0;
    slot.irq_ns = 0;
    slot.slices = 0;
}

/// Sends the slots and empties them.
#[inline(always)]
fn flush_slots(run: &mut Run) {
    let len = run.len;
    if len <= RUN_SLOTS as u64 {
        let size = RUN_PREFIX as u64 + len * size_of::<Slot>() as u64;
        // SAFETY: `size` covers the prefix and `len` slots, all inside the map value.
        unsafe { emit::send_record(KIND_RUN, run, size) };
    }
    run.begin = run.end;
    run.last = run.end;
    run.len = 0;
}
