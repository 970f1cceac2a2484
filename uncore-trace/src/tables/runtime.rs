//! `runtime`: who ran how long on each CPU in each tick, combined in the kernel.
//!
//! Guarantee: with `irqs` the rows of one (CPU, tick) add up to the tick's length. Encodings: few
//! tasks run in a tick, so ids and names are dictionaries; times are deltas.

use super::kind::{I32, I64, Null, U64, Word, table};

table! {
    "runtime", "on-CPU time of each task in each tick", sorted by [];
    mono_ns: I64 => Delta, "End of the tick, `CLOCK_MONOTONIC`, ns.";
    tick_ns: I64 => Delta, "Length of time the row's tick covers, ns.";
    cpu: I32 => Dict, "CPU.";
    tid: I32 => Dict, "Thread; 0 is idle.";
    pid: I32 => Dict, "Process.";
    comm: Word => Dict, "Thread name.";
    cgroup_id: U64 => Dict, "Cgroup of the task.";
    run_ns: I64 => Delta, "Time on the CPU, ns, with interrupt time taken out.";
    slices: I32 => Dict, "In how many slices.";
    process: Null<Word> => Dict, "Name of the process, or in brackets that it has no row of its own; null where it is `comm`.";
}
