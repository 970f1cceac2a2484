//! `holders`: which process had which device open, from when to when.
//!
//! Guarantee: a row is written when the process has left the device, or when the recording ends; of
//! a recorder that was killed, the rows are missing of what was still held. Encodings: short, so
//! dictionaries for words and plain numbers.

use super::column_type::{Bits, I32, I64, Null, Word, table};

table! {
    "holders", "which process had which device open, and when", sorted by [];
    During("begin_ns", "end_ns");
    origin;
    pid: I32 => Plain, "Process (thread group).";
    comm: Word => Dict, "Name of the process.";
    cgroup_id: Bits => Dict, "Cgroup of the process: `id` in `cgroups`. A process that is moved has a row for each cgroup.";
    device: Word => Dict, "Usual path of the device file, such as `/dev/nvidia0`: the process may have it under another name.";
    kind: Word => Dict, "nvidia, `nvidia-uvm`, `nvidia-caps`, dri, kfd, accel, uverbs, vfio or nvme.";
    is_block: I32 => Dict, "1: a block device; 0: a character device.";
    major: I32 => Dict, "Major number of the file.";
    minor: I32 => Dict, "Minor number of the file.";
    bdf: Null<Word> => Dict, "PCI functions behind the file, in ascending order with commas; null where it serves all devices of its driver, as `/dev/nvidiactl` does, or is not on PCI.";
    port: Null<Word> => Dict, "Functions on the root bus above them, their root ports, in ascending order with commas; null as `bdf`.";
    begin_ns: Null<I64> => Plain, "Begin, `CLOCK_MONOTONIC`, ns; null where the device was open before the recording, or before the part of a rotated recording.";
    end_ns: Null<I64> => Plain, "End, `CLOCK_MONOTONIC`, ns; null where the device was open when the recording, or the part, ended.";
    learnt: Word => Dict, "How the begin was learnt: `start` (files that were open when the recording began), open (opened or received), fork (a copy of the parent's file), move (the process came to this cgroup), reread (found when all files were read again: opened at `begin_ns` or before).";
}

/// [`Row::learnt`]: it was open when the recording began.
pub const START: &str = "start";
/// [`Row::learnt`]: it was opened or received.
pub const OPEN: &str = "open";
/// [`Row::learnt`]: it is the copy of a parent's.
pub const FORK: &str = "fork";
/// [`Row::learnt`]: its process came to another cgroup.
pub const MOVE: &str = "move";
/// [`Row::learnt`]: it was found when all files were read again.
pub const REREAD: &str = "reread";

/// All values of `learnt`.
pub const LEARNT: [&str; 5] = [START, OPEN, FORK, MOVE, REREAD];
