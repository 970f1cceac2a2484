//! Interrupt time by source; it is subtracted from the interrupted task.

use uncore_trace_common::record::{CONTEXT_IRQ, CONTEXT_SOFTIRQ, Header, KIND_IRQ};
use uncore_trace_common::state::{CpuState, IRQ_PREFIX, IRQ_SLOTS, Irq, IrqSlot, IrqTrack};

use crate::emit;
use crate::globals::tick_end;
use crate::helpers::{monotonic_ns, this_cpu};
use crate::maps::CPUS;

#[inline(always)]
fn cpu_state() -> Option<(&'static mut CpuState, u32, u64)> {
    let (now_ns, cpu) = (monotonic_ns(), this_cpu());
    let state = CPUS.get_ptr_mut(cpu)?;
    // SAFETY: only programs on this CPU write its value, each kind of interrupt its own part.
    Some((unsafe { &mut *state }, cpu, now_ns))
}

/// An interrupt handler begins.
#[inline(always)]
pub fn hard_entry(number: u32) {
    if let Some((state, _, now_ns)) = cpu_state() {
        state.hard.begin = now_ns;
        state.hard.number = u64::from(number);
    }
}

/// An interrupt handler ends.
#[inline(always)]
pub fn hard_exit() {
    if let Some((state, cpu, now_ns)) = cpu_state() {
        let began = state.hard.begin;
        if began != 0 {
            state.hard.begin = 0;
            add_interrupt(&mut state.hard, CONTEXT_IRQ, cpu, began, now_ns, now_ns - began);
        }
    }
}

/// A softirq begins.
///
/// An interrupt between reading the clock and `total` would count for both kinds. Then the clock is
/// read again. A second interrupt just after the first would make the softirq's time too short.
#[inline(always)]
pub fn soft_entry(vector: u32) {
    if let Some((state, ..)) = cpu_state() {
        let earlier_total = hard_total(state);
        let now_ns = monotonic_ns();
        let total = hard_total(state);
        let begin = if total == earlier_total { now_ns } else { monotonic_ns() };
        state.soft.other_at_begin = total;
        state.soft.number = u64::from(vector);
        state.soft.begin = begin;
    }
}

/// Total nanoseconds in interrupt handlers; one may end at any time while a softirq begins.
#[inline(always)]
fn hard_total(state: &CpuState) -> u64 {
    // SAFETY: a reference is readable.
    unsafe { (&raw const state.hard.total).read_volatile() }
}

/// A softirq ends. Interrupts in between are subtracted from its time.
#[inline(always)]
pub fn soft_exit() {
    if let Some((state, cpu, now_ns)) = cpu_state() {
        let began = state.soft.begin;
        if began != 0 {
            state.soft.begin = 0;
            let hard = state.hard.total - state.soft.other_at_begin;
            let span = now_ns - began;
            // An interrupt between the two reads of the clock and of `total` is counted in
            // `hard` only.
            let ns = if hard < span { span - hard } else { 0 };
            add_interrupt(&mut state.soft, CONTEXT_SOFTIRQ, cpu, began, now_ns, ns);
        }
    }
}

/// Sends the slots of a tick that has ended.
#[inline(always)]
pub fn flush_ended(track: &mut IrqTrack, now_ns: u64) {
    if track.pending.len != 0 && now_ns >= track.pending.tick_end_ns {
        flush_slots(&mut track.pending);
    }
}

#[inline(always)]
fn add_interrupt(track: &mut IrqTrack, context: u32, cpu: u32, began: u64, now_ns: u64, ns: u64) {
    track.total += ns;
    let number = track.number as u32;
    let pending = &mut track.pending;
    let crosses = now_ns >= pending.tick_end_ns;
    if crosses {
        if pending.len != 0 {
            flush_slots(pending);
        }
        pending.header = Header { kind: KIND_IRQ, cpu };
        pending.tick_end_ns = tick_end(now_ns);
    }
    let inside = began + crate::globals::TICK_NS.load() >= pending.tick_end_ns;
    let mut index = if inside { find_slot(pending, number) } else { pending.len };
    if index >= IRQ_SLOTS as u64 {
        flush_slots(pending);
        index = 0;
    }
    // SAFETY: `index` is below IRQ_SLOTS; the unchecked form leaves no panic path.
    let slot = unsafe { pending.slots.get_unchecked_mut(index as usize) };
    if index == pending.len {
        *slot = IrqSlot { context, number, ns: 0, count: 0 };
        pending.len += 1;
    }
    slot.ns += ns;
    slot.count += 1;
    if !inside {
        pending.begin = began;
        pending.end = now_ns;
        flush_slots(pending);
    }
}

/// The slot of this source, or the number of slots in use if it has none.
#[inline(always)]
fn find_slot(pending: &Irq, number: u32) -> u64 {
    let mut index = 0;
    for slot in &pending.slots {
        if index >= pending.len || slot.number == number {
            break;
        }
        index += 1;
    }
    index
}

#[inline(always)]
fn flush_slots(pending: &mut Irq) {
    let len = pending.len;
    if len <= IRQ_SLOTS as u64 {
        let size = IRQ_PREFIX as u64 + len * size_of::<IrqSlot>() as u64;
        // SAFETY: `size` covers the prefix and `len` slots, all inside the map value.
        unsafe { emit::send_record(KIND_IRQ, pending, size) };
    }
    pending.begin = 0;
    pending.end = 0;
    pending.len = 0;
}
