//! Reads all counters of this CPU in one sweep, with the times of its begin and end.
//!
//! Counters that are read at every switch are sent only if one of them has counted since the last
//! switch. If the kernel keeps the counts of all of them in memory, a switch looks at these counts,
//! and reads the counters only after one has changed. What the next sent reading has counted since
//! then belongs to one task all the same: the tasks in between have no count.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_perf_event_read_value, bpf_probe_read_kernel};
use uncore_trace_common::config::CAST_CALL;
use uncore_trace_common::record::{
    CONTEXT_SOFTIRQ, CONTEXT_TASK, Header, KIND_SAMPLE, MAX_COUNTERS, READ_FAILED, Reading,
    SAMPLE_PREFIX, Sample, TRIGGER_SCHED, TRIGGER_TIMER,
};
use uncore_trace_common::state::{Sampler, SamplerProgress};

use crate::globals::{
    ARRAY_ENTRIES, ENTRY_EVENT, EVENT_COUNT, EVENT_TYPE, MIN_GAP_NS, SAMPLE_ON_IRQ,
    SAMPLE_ON_SCHED, WATCH_COUNTS,
};
use crate::helpers::{monotonic_ns, this_cpu};
use crate::kernel::read_field;
use crate::maps::{COUNTERS, CPUS, PROGRESS, SAMPLERS, SCRATCH};
use crate::{emit, task, turn};

/// Why and in which context a sweep is made.
#[derive(Clone, Copy)]
struct SweepCause {
    trigger: u32,
    /// The context of the CPU until now.
    context: u32,
    /// Its interrupt or softirq vector.
    number: u32,
    /// At a switch: how counts are read from memory.
    count_access: CountAccess,
}

/// How a count in the kernel's memory is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CountAccess {
    /// By a load, if the kernel has the function `bpf_rdonly_cast` (Linux 6.2 and later).
    Load,
    /// By a helper that copies.
    Copy,
}

/// Reads the counters of this CPU at an interrupt, if it has any and the last reading is not too
/// recent. `context` and `number` are the context of the CPU until now.
#[inline(always)]
pub fn read_counters(trigger: u32, context: u32, number: u32) {
    sweep_counters(
        this_cpu(),
        SweepCause { trigger, context, number, count_access: CountAccess::Copy },
    );
}

/// As [`read_counters`] at a switch, where those that are read at every switch are always read, or
/// looked at.
#[inline(always)]
pub fn read_at_switch(count_access: CountAccess) {
    let trigger = TRIGGER_SCHED;
    sweep_counters(
        this_cpu(),
        SweepCause { trigger, context: CONTEXT_TASK, number: 0, count_access },
    );
}

/// As [`read_counters`], with the number of this CPU.
#[inline(always)]
fn sweep_counters(cpu: u32, cause: SweepCause) {
    let trigger = cause.trigger;
    // User space may change it at any time, so it is read once.
    let Some(&Sampler { first: first_slot, len, at_switch, turn, .. }) = SAMPLERS.get(cpu) else {
        return;
    };
    if len == 0 {
        return;
    }
    let Some(progress) = PROGRESS.get_ptr_mut(cpu) else {
        return;
    };
    // SAFETY: written on this CPU only, and `busy` keeps its programs apart.
    let progress = unsafe { &mut *progress };
    // At a switch, those that count in software are read even where the others are not.
    let reads_some = trigger == TRIGGER_SCHED && at_switch != 0;
    let mut reads_all = may_read_all(trigger, progress);
    if !reads_all && !reads_some {
        return;
    }
    let watched_slots = (u64::from(first_slot) << 32) | u64::from(at_switch);
    if trigger == TRIGGER_SCHED
        && WATCH_COUNTS.load() != 0
        && !reads_all
        && !has_counted(progress, watched_slots, cause.count_access)
    {
        return;
    }
    let mut wanted = if reads_all { len } else { at_switch };
    if is_busy(progress) {
        // The interrupted sweep would be sent after this one, with older readings.
        count_nested();
        return;
    }
    let Some(sample) = SCRATCH.get_ptr_mut(trigger) else {
        return;
    };
    // Before the turn: a program that interrupts this one would find that this CPU has it.
    set_busy(progress, 1);
    let mut has_turn = false;
    if SAMPLE_ON_SCHED.load() != 0 && turn != 0 && wanted == len {
        has_turn = claim_turn(trigger, turn, cpu);
        if !has_turn {
            if trigger == TRIGGER_TIMER {
                count_nested();
            }
            if !reads_some {
                set_busy(progress, 0);
                return;
            }
            reads_all = false;
            wanted = at_switch;
        }
    }
    if trigger == TRIGGER_TIMER && WATCH_COUNTS.load() != 0 {
        find_events(progress, watched_slots);
    }
    // SAFETY: a per-CPU value, and each trigger has its own.
    let sample = unsafe { &mut *sample };
    // Other counters may have had the same values.
    progress.changed_bits = u64::from(sample.first ^ first_slot);
    if reads_all {
        sample.begin = monotonic_ns();
    }
    let read = read_slots(first_slot, wanted, sample, &raw mut progress.changed_bits);
    if WATCH_COUNTS.load() != 0 {
        note_counts(progress, sample);
    }
    if !reads_all {
        if progress.changed_bits == 0 {
            set_busy(progress, 0);
            return;
        }
        // The clock costs as much as a counter, so it is read only if the readings are sent. No
        // other sweep of this CPU can be in between.
        sample.begin = monotonic_ns();
    }
    sample.end = monotonic_ns();
    send_sample(sample, progress, cpu, cause, first_slot, read);
    if wanted == len {
        progress.last_read = sample.begin;
    }
    if has_turn {
        turn::note_read(turn, sample.begin);
        turn::release_turn(turn);
    }
    set_busy(progress, 0);
}

/// Whether all counters are read, and not only those that are read at every switch: by the timer
/// always, else if that was asked for and the last reading is not too recent.
#[inline(always)]
fn may_read_all(trigger: u32, progress: &SamplerProgress) -> bool {
    if trigger == TRIGGER_TIMER {
        return true;
    }
    let is_asked_for = trigger != TRIGGER_SCHED || SAMPLE_ON_SCHED.load() != 0;
    is_asked_for && monotonic_ns() - progress.last_read >= MIN_GAP_NS.load()
}

/// Takes the turn at counters that several CPUs read. The timer must read them, so it waits.
#[inline(always)]
fn claim_turn(trigger: u32, turn: u32, cpu: u32) -> bool {
    if trigger == TRIGGER_TIMER {
        turn::wait_for_turn(turn, cpu)
    } else {
        turn::is_due(turn, monotonic_ns(), MIN_GAP_NS.load()) && turn::take_turn(turn, cpu)
    }
}

/// Counts a sweep that another one on this CPU, or the turn of another CPU, prevents.
#[inline(always)]
fn count_nested() {
    // SAFETY: a field of the value that is given.
    emit::count_drop(|drops| unsafe { &raw mut (*drops).nested });
}

/// Sends the readings of a sweep, of which `sample` has the times.
#[inline(always)]
fn send_sample(
    sample: &mut Sample,
    progress: &mut SamplerProgress,
    cpu: u32,
    cause: SweepCause,
    first_slot: u32,
    read: u32,
) {
    sample.header = Header { kind: KIND_SAMPLE, cpu };
    sample.trigger = cause.trigger;
    sample.context = cause.context;
    sample.number = cause.number;
    sample.first = first_slot;
    sample.reserved = 0;
    task::fill_task(&mut sample.task);
    sample.len = read;
    // In the order of sending: a gap is a lost sample.
    progress.sequence += 1;
    sample.sequence = progress.sequence;
    let size = SAMPLE_PREFIX as u64 + u64::from(read) * size_of::<Reading>() as u64;
    // SAFETY: `read_slots` returns at most MAX_COUNTERS, so `size` lies inside the map value.
    unsafe { emit::send_record(KIND_SAMPLE, sample, size) };
}

/// Reads the counters of another CPU that this CPU reads at switches, if it has any, the last
/// reading of any CPU is not too recent, and no CPU reads them now: that reading says the same.
#[inline(always)]
pub fn read_others() {
    let cpu = this_cpu();
    let Some(&Sampler { others: first_slot, others_len, others_turn: turn, .. }) =
        SAMPLERS.get(cpu)
    else {
        return;
    };
    if others_len == 0 || !turn::is_due(turn, monotonic_ns(), MIN_GAP_NS.load()) {
        return;
    }
    let Some(progress) = PROGRESS.get_ptr_mut(cpu) else {
        return;
    };
    // SAFETY: written on this CPU only, and `busy` keeps its programs apart.
    let progress = unsafe { &mut *progress };
    if is_busy(progress) {
        return;
    }
    let Some(sample) = SCRATCH.get_ptr_mut(TRIGGER_SCHED) else {
        return;
    };
    set_busy(progress, 1);
    if !turn::take_turn(turn, cpu) {
        set_busy(progress, 0);
        return;
    }
    // SAFETY: a per-CPU value, and each trigger has its own.
    let sample = unsafe { &mut *sample };
    sample.begin = monotonic_ns();
    let read = read_slots(first_slot, others_len, sample, &raw mut progress.changed_bits);
    sample.end = monotonic_ns();
    turn::note_read(turn, sample.begin);
    let count_access = CountAccess::Copy;
    let cause =
        SweepCause { trigger: TRIGGER_SCHED, context: CONTEXT_TASK, number: 0, count_access };
    send_sample(sample, progress, cpu, cause, first_slot, read);
    turn::release_turn(turn);
    set_busy(progress, 0);
}

/// A reading by the sampler's timer, which runs inside the softirq that serves timers, on `cpu`,
/// which is this CPU.
#[inline(always)]
pub fn read_on_timer(cpu: u32) {
    let mut context = CONTEXT_TASK;
    let mut number = 0;
    // The count since the last reading belongs to the softirq only if interrupts are sampled too;
    // if not, that reading was before the softirq, in the task's time.
    if SAMPLE_ON_IRQ.load() != 0 {
        if let Some(state) = CPUS.get(cpu)
            && state.soft.begin != 0
        {
            context = CONTEXT_SOFTIRQ;
            number = state.soft.number as u32;
        }
    }
    let count_access = CountAccess::Copy;
    sweep_counters(cpu, SweepCause { trigger: TRIGGER_TIMER, context, number, count_access });
}

/// Whether a program that was interrupted by this one is reading.
#[inline(always)]
fn is_busy(progress: &SamplerProgress) -> bool {
    // SAFETY: a reference is readable.
    unsafe { (&raw const progress.busy).read_volatile() != 0 }
}

#[inline(always)]
fn set_busy(progress: &mut SamplerProgress, busy: u64) {
    // SAFETY: a reference is writable. Volatile, so that it is set before and cleared after.
    unsafe { (&raw mut progress.busy).write_volatile(busy) };
}

/// Whether one of the counters that are read at every switch may have counted since they were last
/// read. A look at its count takes a small part of the time of a reading.
#[inline(always)]
fn has_counted(progress: &SamplerProgress, slots: u64, count_access: CountAccess) -> bool {
    if progress.watched_slots != slots {
        return true;
    }
    let mut index = 0;
    for watched in &progress.watched {
        if index >= slots as u32 {
            break;
        }
        if look_at_count(watched.event, count_access) != Some(watched.count) {
            return true;
        }
        index += 1;
    }
    false
}

/// The count of a `struct perf_event`. It may be gone, and something else be there: any number then
/// only leads to a reading.
#[inline(always)]
fn look_at_count(event: u64, count_access: CountAccess) -> Option<u64> {
    let offset = EVENT_COUNT.load();
    if event == 0 || count_access == CountAccess::Copy || EVENT_TYPE.load() == 0 {
        // SAFETY: any bit pattern is a number.
        return unsafe { read_field(event as *const u8, offset) }.ok();
    }
    // SAFETY: the loader replaces the call by that of `bpf_rdonly_cast`, which takes any address
    // and the number of a type; the kernel checks each load from its result.
    unsafe {
        let cast: unsafe extern "C" fn(u64, u64) -> *const u8 =
            core::mem::transmute(CAST_CALL as usize);
        Some(cast(event, EVENT_TYPE.load()).add(offset as usize).cast::<u64>().read())
    }
}

/// Finds the events whose counts are watched. The timer does it at each tick: if events are
/// replaced, the addresses of old ones are used for less than a tick.
#[inline(always)]
fn find_events(progress: &mut SamplerProgress, slots: u64) {
    // The verifier lets nobody add to the address of a map, but to any number that was stored.
    let counters = &raw mut progress.counters;
    // SAFETY: a field of a map value.
    let counters = unsafe {
        counters.write_volatile((&raw const COUNTERS) as u64);
        counters.read_volatile()
    };
    let mut entry = counters + ARRAY_ENTRIES.load() + (slots >> 32) * size_of::<u64>() as u64;
    let mut index = 0;
    for watched in &mut progress.watched {
        if index >= slots as u32 {
            break;
        }
        let event = &raw mut watched.event;
        // SAFETY: the helper writes a number into a field of a map value: 0 if there is nothing at
        // the address. No branch, since the verifier would follow both ways.
        unsafe {
            let size = size_of::<u64>() as u32;
            bpf_probe_read_kernel(event.cast(), size, entry as *const c_void);
            let member = event.read_volatile() + ENTRY_EVENT.load();
            bpf_probe_read_kernel(event.cast(), size, member as *const c_void);
        }
        entry += size_of::<u64>() as u64;
        index += 1;
    }
    progress.watched_slots = slots;
}

/// Notes the counts that were read.
#[inline(always)]
fn note_counts(progress: &mut SamplerProgress, sample: &Sample) {
    for (watched, reading) in progress.watched.iter_mut().zip(&sample.readings) {
        watched.count = reading.value;
    }
}

/// Reads `wanted` counters. `changed_bits` gets the bits in which a value differs from that of the last
/// sweep with this trigger.
#[inline(always)]
fn read_slots(first_slot: u32, wanted: u32, sample: &mut Sample, changed_bits: *mut u64) -> u32 {
    let mut len = 0;
    for reading in &mut sample.readings {
        if len >= wanted {
            break;
        }
        let previous = reading.value;
        // SAFETY: `reading` is 24 writable bytes with the layout of `struct bpf_perf_event_value`.
        let read = unsafe {
            bpf_perf_event_read_value(
                (&raw const COUNTERS).cast_mut().cast(),
                u64::from(first_slot + len),
                core::ptr::from_mut(reading).cast(),
                size_of::<Reading>() as u32,
            )
        };
        if read < 0 {
            *reading =
                Reading { value: read.wrapping_neg() as u64, enabled: READ_FAILED, running: 0 };
        }
        // SAFETY: `changed_bits` is a field of a map value. In a register, the verifier would follow its
        // bounds, and so each path through the loop, which are too many.
        unsafe {
            changed_bits.write_volatile(changed_bits.read_volatile() | (previous ^ reading.value))
        };
        len += 1;
    }
    if len > MAX_COUNTERS as u32 { MAX_COUNTERS as u32 } else { len }
}
