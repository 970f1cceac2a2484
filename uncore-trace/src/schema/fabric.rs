//! `fabric`: the attributed timeline, the table users query; one row per window, counter, owner.
//!
//! Guarantees of a row set: the `value`s of one (window, counter) sum to its `total`; a null says
//! "not known" and 0 says "known to be nothing". Encodings: a window is hundreds of rows with the
//! same times and names, so dictionaries turn them into runs; `value` and `total` are doubles
//! whose high bytes repeat, which `Split` gathers for zstd; times are written as deltas because
//! every window brings a new one and dictionaries would only grow.

use super::kind::{F32, F64, I16, I32, I64, Null, Time, U64, Word, table};

table! {
    "fabric", "who got which part of each counter in each window", sorted by [];
    ts: Time => Delta, "End of the window, wall clock (a label: intervals come from `mono_ns`).";
    mono_ns: I64 => Delta, "End of the window on `CLOCK_MONOTONIC`, ns; the clock of all raw times.";
    window_ns: I64 => Dict, "Length of the window, ns.";
    socket: Null<I16> => Dict, "Socket (NUMA node) of the PMU; null where it belongs to none.";
    cpu: I32 => Dict, "Owner CPU: where the counter is read.";
    group: Word => Dict, "What the user asked for: mem, cache, pcie, c2c, mesh, latency, core, host.";
    pmu: Word => Dict, "PMU instance as sysfs names it.";
    event: Word => Dict, "Event as planned.";
    filter: Word => Dict, "Format terms that narrow the event; empty where there are none.";
    unit: Word => Dict, "Unit of `value` and `total`.";
    owner: Word => Dict, "task, irq, softirq, idle, device or unattributed.";
    pid: Null<I32> => Dict, "Process of a task row; null for every other owner.";
    comm: Null<Word> => Dict, "Process name; `irq:NAME`, `softirq:VEC`; null where there is none.";
    cgroup_id: Null<U64> => Dict, "Cgroup inode number; null where the owner has none.";
    cgroup: Null<Word> => Dict, "Cgroup path; null where there is none or it was never learnt.";
    container: Null<Word> => Dict, "Container the cgroup is in, `NAME@ID` or its id alone; null where it is in none.";
    pod: Null<Word> => Dict, "Pod the cgroup is in, `NAMESPACE/NAME@UID` or its uid alone; null where it is in none.";
    value: Null<F64> => Split, "This owner's part of the window's count, in `unit`; null when the counter could not be read or never ran in the window.";
    total: Null<F64> => Split, "The counter's whole scaled count in the window, the same in each of its rows; null as `value`.";
    running: F32 => Dict, "Time running / time enabled in the window, 0 to 1; 0: never scheduled.";
    method: Word => Dict, "How the share was made: exact, residency, regression, none.";
    confidence: Null<F32> => Dict, "How far to trust the share, 0 to 1; null where nothing is claimed.";
}

/// `cgroup` of the one row, without a pid, for all tasks outside the cgroups that were asked for.
pub const OTHER_TASKS: &str = "(other)";

/// The words of the `method` column.
pub const METHODS: [&str; 6] = ["exact", "residency", "io", "misses", "regression", "none"];
