//! `io`: the bytes that each block and network device moved in each tick, by owner.
//!
//! Guarantee: the rows of one (tick, device, direction) sum to the bytes that the device was seen
//! to move in that tick; bytes without a known owner have a row too. Encodings: a tick has few
//! devices and owners, so names and ids are dictionaries; bytes are deltas.

use serde::{Deserialize, Serialize};

use super::column_type::{Bits, I32, I64, Null, Word, table};
use crate::named_values::named_values;

table! {
    "io", "bytes that each device moved in each tick, by owner", sorted by [], in order of "mono_ns";
    Ends("mono_ns");
    mono_ns: I64 => Delta, "End of the tick, `CLOCK_MONOTONIC`, ns.";
    tick_ns: I64 => Delta, "Length of time the row's tick covers, ns.";
    device: Word => Dict, "Disk or network interface; one of another network namespace as NAME@INODE of the namespace.";
    bdf: Null<Word> => Dict, "PCI functions behind the device, in ascending order with commas; null where it is not on PCI.";
    direction: Word => Dict, "read (from the device into memory: a disk's read, a received packet) or write.";
    owner: Word => Dict, "task, `other_tasks` (of cgroups that were not selected), irq, softirq, device (received and read by nobody) or unattributed.";
    pid: Null<I32> => Dict, "Process; null where only its cgroup is known, or the owner is no task.";
    comm: Null<Word> => Dict, "Name of the process, empty where only its cgroup is known; null where the owner is no task.";
    cgroup_id: Null<Bits> => Dict, "Cgroup; null where the owner has none.";
    number: Null<I32> => Dict, "Number of the interrupt or softirq; null where the owner is none.";
    bytes: Bits => Delta, "Bytes moved.";
    requests: Bits => Delta, "Requests or packets that ended in the tick, or a receiver's reads.";
}

/// `direction` of a transfer that writes memory.
pub const READ: &str = "read";
/// `direction` of a transfer that reads memory.
pub const WRITE: &str = "write";

named_values! {
    /// Direction of data, as in the statistics of disks and interfaces.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum IoDirection;
    /// The value in the tables.
    pub fn direction_name;
    /// The device writes memory: a disk is read, a packet is received.
    Read = READ,
    /// The device reads memory: a disk is written, a packet is sent.
    Write = WRITE,
}
