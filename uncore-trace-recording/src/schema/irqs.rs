//! `irqs`: time in hardware and software interrupts, per tick, CPU and handler.
//!
//! Guarantee: this time is not included in any task's `run_ns`. Names and numbers have few distinct
//! values, so they are dictionaries.

use super::column_type::{I32, I64, Word, table};

table! {
    "irqs", "interrupt time per tick, CPU and handler", sorted by [], in order of "mono_ns";
    Ends("mono_ns");
    mono_ns: I64 => Delta, "End of the tick, `CLOCK_MONOTONIC`, ns.";
    tick_ns: I64 => Delta, "Length of time the row's tick covers, ns.";
    cpu: I32 => Dict, "CPU.";
    owner: Word => Dict, "irq or softirq.";
    number: I32 => Dict, "Interrupt number or softirq vector.";
    name: Word => Dict, "Handler or vector name.";
    ns: I64 => Delta, "Time in the handler, ns, without interrupts nested in it.";
    count: I32 => Dict, "How often the handler ran.";
}
