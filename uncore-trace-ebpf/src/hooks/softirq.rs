//! `softirq_entry` and `softirq_exit`.
//!
//! TP_PROTO(unsigned int vec_nr), include/trace/events/irq.h.

use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use uncore_trace_common::record::{CONTEXT_SOFTIRQ, CONTEXT_TASK, TRIGGER_SOFTIRQ};

use crate::globals::SAMPLE_ON_IRQ;
use crate::{irq, sample};

#[raw_tracepoint(tracepoint = "softirq_entry")]
fn softirq_entry(ctx: RawTracePointContext) -> i32 {
    if SAMPLE_ON_IRQ.load() != 0 {
        sample::read_counters(TRIGGER_SOFTIRQ, CONTEXT_TASK, 0);
    }
    irq::soft_entry(ctx.arg(0));
    0
}

#[raw_tracepoint(tracepoint = "softirq_exit")]
fn softirq_exit(ctx: RawTracePointContext) -> i32 {
    irq::soft_exit();
    if SAMPLE_ON_IRQ.load() != 0 {
        sample::read_counters(TRIGGER_SOFTIRQ, CONTEXT_SOFTIRQ, ctx.arg(0));
    }
    0
}
