//! `cgroups`: the path of each cgroup id.
//!
//! Guarantee: ids are never reused within a recording; the first path seen is kept.

use super::kind::{I64, Text, U64, table};

table! {
    "cgroups", "path of each cgroup", sorted by [];
    id: U64 => Plain, "Inode number of the cgroup's directory.";
    path: Text => Plain, "Path below the cgroup mount, beginning with a slash.";
    mono_ns: I64 => Plain, "When it was first seen, `CLOCK_MONOTONIC`, ns.";
}
