//! Reads every counter that this CPU owns, in one sweep, and stamps the sweep's begin and end.

use aya_ebpf::helpers::{
    bpf_get_smp_processor_id, bpf_ktime_get_ns, generated::bpf_perf_event_read_value,
};
use uncore_trace_common::{
    record::{
        CONTEXT_SOFTIRQ, CONTEXT_TASK, Header, KIND_SAMPLE, MAX_COUNTERS, READ_FAILED, Reading,
        SAMPLE_PREFIX, Sample, TRIGGER_TIMER,
    },
    state::Sampler,
};

use crate::{
    emit,
    globals::{MIN_GAP_NS, SAMPLE_ON_IRQ},
    maps::{COUNTERS, CPUS, DROPS, SAMPLERS, SCRATCH},
    task,
};

/// Reads the counters of this CPU, if it owns any and the last reading is not too recent.
/// `context` and `number` say what the CPU was doing until now.
#[inline(always)]
pub fn read(trigger: u32, context: u32, number: u32) {
    // SAFETY: plain helpers.
    let (now, cpu) = unsafe { (bpf_ktime_get_ns(), bpf_get_smp_processor_id()) };
    let Some(sampler) = SAMPLERS.get_ptr_mut(cpu) else {
        return;
    };
    // SAFETY: `last_read` and `sequence` are written on this CPU only; the rest by user space before it starts.
    let sampler = unsafe { &mut *sampler };
    if sampler.len == 0 {
        return;
    }
    if trigger != TRIGGER_TIMER && now - sampler.last_read < MIN_GAP_NS.load() {
        return;
    }
    if sampler.busy != 0 {
        // The sweep that was interrupted would be sent after this one, with older readings.
        if let Some(drops) = DROPS.get_ptr_mut(0) {
            // SAFETY: a per-CPU value.
            unsafe { (*drops).nested += 1 };
        }
        return;
    }
    let Some(sample) = SCRATCH.get_ptr_mut(trigger) else {
        return;
    };
    sampler.busy = 1;
    // SAFETY: a per-CPU value, and each trigger has its own.
    let sample = unsafe { &mut *sample };
    sample.header = Header { kind: KIND_SAMPLE, cpu };
    sample.trigger = trigger;
    sample.context = context;
    sample.number = number;
    task::fill(&mut sample.task);
    // SAFETY: plain helper.
    sample.begin = unsafe { bpf_ktime_get_ns() };
    let len = sweep(sampler, sample);
    // SAFETY: plain helper.
    sample.end = unsafe { bpf_ktime_get_ns() };
    sample.len = len;
    sampler.last_read = sample.begin;
    sampler.sequence += 1;
    sample.sequence = sampler.sequence;
    let size = SAMPLE_PREFIX as u64 + u64::from(len) * size_of::<Reading>() as u64;
    // SAFETY: `sweep` returns at most MAX_COUNTERS, so `size` lies inside the map value.
    unsafe { emit::send(KIND_SAMPLE, sample, size) };
    sampler.busy = 0;
}

/// A reading by the sampler's timer, which runs inside the softirq that serves timers.
#[inline(always)]
pub fn read_on_timer() {
    let mut context = CONTEXT_TASK;
    let mut number = 0;
    // Only when interrupts are sampled too does the count since the last reading belong to the
    // softirq; else that reading lies before it, in the task's time.
    if SAMPLE_ON_IRQ.load() != 0 {
        // SAFETY: plain helper.
        let cpu = unsafe { bpf_get_smp_processor_id() };
        if let Some(state) = CPUS.get(cpu)
            && state.soft.begin != 0
        {
            context = CONTEXT_SOFTIRQ;
            number = state.soft.number as u32;
        }
    }
    read(TRIGGER_TIMER, context, number);
}

#[inline(always)]
fn sweep(sampler: &Sampler, sample: &mut Sample) -> u32 {
    let mut len = 0;
    for reading in &mut sample.readings {
        if len >= sampler.len {
            break;
        }
        // SAFETY: `reading` is 24 writable bytes with the layout of `struct bpf_perf_event_value`.
        let read = unsafe {
            bpf_perf_event_read_value(
                (&raw const COUNTERS).cast_mut().cast(),
                u64::from(sampler.first + len),
                core::ptr::from_mut(reading).cast(),
                size_of::<Reading>() as u32,
            )
        };
        if read < 0 {
            *reading =
                Reading { value: read.wrapping_neg() as u64, enabled: READ_FAILED, running: 0 };
        }
        len += 1;
    }
    if len > MAX_COUNTERS as u32 { MAX_COUNTERS as u32 } else { len }
}
