//! `cpus`: the location of each CPU, and the counters that are read on it.
//!
//! Guarantee: each possible CPU has a row for the begin of the recording, and another one whenever
//! it goes online or offline or its counters change.

use super::column_type::{I16, I32, I64, Null, Text, Word, table};

table! {
    "cpus", "state of each CPU, and the counters that it reads", sorted by [];
    Holds { since: Some("mono_ns"), key: &["cpu"], last_row: None };
    mono_ns: I64 => Delta, "Begin of the state, `CLOCK_MONOTONIC`, ns. Changes are noticed when the ring is drained, up to some 100 ms after they happened.";
    cpu: I32 => Plain, "CPU.";
    state: Word => Dict, "online or offline.";
    socket: Null<I16> => Plain, "Socket; null where the machine does not say.";
    node: Null<I32> => Plain, "NUMA node; null where the machine does not say.";
    core: Null<I32> => Plain, "Core within the socket, as the kernel numbers it: hardware threads of one core have the same number; null where the machine does not say.";
    counters: Text => Plain, "Counters that are read on this CPU, a list such as `0-3,7`; empty where it reads none.";
}

/// `state` of a CPU that is online.
pub const ONLINE: &str = "online";
/// `state` of a CPU that is offline.
pub const OFFLINE: &str = "offline";
