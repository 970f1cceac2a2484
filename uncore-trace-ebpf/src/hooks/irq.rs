//! `irq_handler_entry` and `irq_handler_exit`.
//!
//! TP_PROTO(int irq, struct irqaction *action[, int ret]), include/trace/events/irq.h.

use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use uncore_trace_common::record::{CONTEXT_IRQ, CONTEXT_SOFTIRQ, CONTEXT_TASK, TRIGGER_IRQ};

use crate::globals::SAMPLE_ON_IRQ;
use crate::helpers::this_cpu;
use crate::maps::CPUS;
use crate::{irq, sample};

#[raw_tracepoint(tracepoint = "irq_handler_entry")]
fn irq_handler_entry(ctx: RawTracePointContext) -> i32 {
    if SAMPLE_ON_IRQ.load() != 0 {
        let cpu = this_cpu();
        let (context, number) = match CPUS.get(cpu) {
            Some(state) if state.soft.begin != 0 => (CONTEXT_SOFTIRQ, state.soft.number as u32),
            _ => (CONTEXT_TASK, 0),
        };
        sample::read_counters(TRIGGER_IRQ, context, number);
    }
    irq::hard_entry(ctx.arg(0));
    0
}

#[raw_tracepoint(tracepoint = "irq_handler_exit")]
fn irq_handler_exit(ctx: RawTracePointContext) -> i32 {
    irq::hard_exit();
    if SAMPLE_ON_IRQ.load() != 0 {
        sample::read_counters(TRIGGER_IRQ, CONTEXT_IRQ, ctx.arg(0));
    }
    0
}
