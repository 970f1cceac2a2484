//! `monitors`: the bytes that hardware monitors (resctrl) measured in each window.
//!
//! Guarantee: a row has the bytes between two readings of its group. The monitors are read at the
//! end of a window; where that was missed, the row is of a later window and covers more time.
//! Encodings: the same groups come in each window, so names and sockets are dictionaries.

use super::column_type::{Bits, I16, I64, Null, Word, table};

table! {
    "monitors", "bytes that monitors of the hardware measured in each window", sorted by [], in order of "mono_ns";
    Ends("mono_ns");
    mono_ns: I64 => Delta, "End of the window that the bytes are counted in, `CLOCK_MONOTONIC`, ns.";
    read_ns: I64 => Delta, "When the monitors were read, `CLOCK_MONOTONIC`, ns.";
    span_ns: I64 => Delta, "Time since the monitors were read before, ns.";
    cgroup: Null<Word> => Dict, "Path of the cgroup whose tasks are the monitoring group; null for the sum of all groups, which is the traffic of all CPUs.";
    socket: I16 => Dict, "Socket of the memory; -1: of all sockets, where totals alone are counted.";
    bytes: Bits => Delta, "Bytes between the CPUs and this memory: `mbm_total_bytes` on a machine with one socket; with two, `mbm_local_bytes` of the caches of this socket, and `mbm_total_bytes` less `mbm_local_bytes` of the caches of the other socket. Of all sockets: `mbm_total_bytes`.";
}
