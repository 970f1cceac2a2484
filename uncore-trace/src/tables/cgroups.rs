//! `cgroups`: the path of each cgroup id, and what it is in.
//!
//! Guarantee: ids are never reused within a recording; the first path seen is kept.

use super::kind::{I64, Null, Text, U64, Word, table};

table! {
    "cgroups", "path of each cgroup, and its container and pod", sorted by [];
    id: U64 => Plain, "Inode number of the cgroup's directory.";
    path: Text => Plain, "Path below the cgroup mount, beginning with a slash.";
    container: Null<Word> => Dict, "Container it is in, as in `fabric`; null where it is in none.";
    pod: Null<Word> => Dict, "Pod it is in, as in `fabric`; null where it is in none.";
    mono_ns: I64 => Plain, "End of the first tick in which `fabric` has the path, `CLOCK_MONOTONIC`, ns.";
}
