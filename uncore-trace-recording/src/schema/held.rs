//! `held`: how long each owner holds a PCI function whose traffic is counted, in each tick.
//!
//! Guarantee: a row is written in the tick in which the number changes, so the table is complete up
//! to its last row also if the recorder was killed. Owners that only manage a device are left out
//! while others use it. Encodings: few rows, so dictionaries for names and ids.

use super::column_type::{Bits, I32, I64, Null, Word, table};

table! {
    "held", "which owner holds which PCI function, from which tick on, and for how much of each tick", sorted by [], in order of "mono_ns";
    Holds { since: Some("mono_ns"), key: &["bdf", "owner", "pid", "comm", "cgroup_id"], last_row: None };
    mono_ns: I64 => Delta, "End of the first tick with this `ns`, `CLOCK_MONOTONIC`, ns; the row is valid until the next row of the same function and owner.";
    bdf: Word => Dict, "The PCI function.";
    owner: Word => Dict, "task, or `other_tasks` (of cgroups that were not selected).";
    pid: Null<I32> => Dict, "Process; null where the owner is no task.";
    comm: Null<Word> => Dict, "Name of the process; null where the owner is no task.";
    cgroup_id: Null<Bits> => Dict, "Cgroup; null where the owner has none.";
    ns: Bits => Dict, "Nanoseconds of each tick in which the owner holds the function; 0: the owner has released the function.";
}
