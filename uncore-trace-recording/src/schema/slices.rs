//! `slices`: every time slice of a task on a CPU (`--slices`).
//!
//! Guarantee: the slices of one CPU do not overlap. Rows of a segment are sorted by CPU and begin:
//! on a busy CPU one slice ends where the next begins, so both times are short deltas.

use super::column_type::{Bits, I32, I64, Word, table};

table! {
    "slices", "each stretch of one task on one CPU", sorted by ["cpu"];
    Between("begin_ns", "end_ns");
    cpu: I32 => Dict, "CPU.";
    begin_ns: I64 => Delta, "When the task was switched in, `CLOCK_MONOTONIC`, ns.";
    end_ns: I64 => Delta, "When it was switched out, `CLOCK_MONOTONIC`, ns.";
    tid: I32 => Dict, "Thread; 0 is idle.";
    pid: I32 => Dict, "Process.";
    comm: Word => Dict, "Thread name.";
    cgroup_id: Bits => Dict, "Cgroup of the task.";
    irq_ns: I64 => Dict, "Interrupt time inside the slice, ns; belongs to `irqs`, not to the task.";
}
