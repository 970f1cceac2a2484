//! `tasks`: the events of tasks: first seen, exec, move to a cgroup, exit.
//!
//! Guarantee: every task that another table names has a row here, however short it lived.

use super::column_type::{Bits, I32, I64, Word, table};

table! {
    "tasks", "events in the life of each task", sorted by [];
    Holds { since: Some("mono_ns"), key: &["tid"], last_row: Some(("what", "exit")) };
    mono_ns: I64 => Delta, "Time of the event, `CLOCK_MONOTONIC`, ns.";
    pid: I32 => Delta, "Process.";
    tid: I32 => Delta, "Thread.";
    comm: Word => Dict, "Name from then on.";
    cgroup_id: Bits => Dict, "Cgroup from then on.";
    what: Word => Dict, "What happened: seen (the first slice of the thread in the recording), exec, exit, or move (to another cgroup).";
}
