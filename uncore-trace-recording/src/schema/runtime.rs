//! `runtime`: the time of each task on each CPU in each tick, combined in the kernel.
//!
//! Guarantee: together with `irqs`, the rows of one (CPU, tick) sum to the length of the tick.
//! Encodings: few tasks run in a tick, so ids and names are dictionaries; times are deltas.

use super::column_type::{Bits, I32, I64, Null, Word, table};

table! {
    "runtime", "on-CPU time of each task in each tick", sorted by [], in order of "mono_ns";
    Ends("mono_ns");
    mono_ns: I64 => Delta, "End of the tick, `CLOCK_MONOTONIC`, ns.";
    tick_ns: I64 => Delta, "Length of time the row's tick covers, ns.";
    cpu: I32 => Dict, "CPU.";
    owner: Word => Dict, "Who used the time: task, `other_tasks` (of cgroups that were not selected), idle; unattributed: not seen; offline: the CPU was offline.";
    tid: I32 => Dict, "Thread; 0 where the owner is no task.";
    pid: I32 => Dict, "Process.";
    comm: Word => Dict, "Thread name.";
    cgroup_id: Bits => Dict, "Cgroup of the task.";
    run_ns: I64 => Delta, "Time on the CPU, ns, with interrupt time taken out.";
    slices: I32 => Dict, "How many slices of the thread ended in the tick: its context switches.";
    process: Null<Word> => Dict, "Name of the process; null where the owner is no task with a row of its own.";
    owner_cgroup_id: Null<Bits> => Dict, "Cgroup that the time is given to: `cgroup_id`, or its ancestor with `--cgroup-depth`; null where the owner is no task with a row of its own.";
}

/// `owner` of time for which a CPU was offline.
pub const OFFLINE: &str = "offline";
