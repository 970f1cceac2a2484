//! `accounts`: what devices, or their drivers, count themselves: bytes of a function, and what a
//! process used of one.
//!
//! Guarantee: the values of an account (the columns from `bdf` to `client`) do not decrease, except
//! `resident_bytes`, until a row without a value. Encodings: the same accounts come in each
//! reading, so words are dictionaries.

use super::column_type::{Bits, I32, I64, Null, Word, table};
use crate::named_values::named_values;

table! {
    "accounts", "counts that devices keep of their own functions and of the processes that use them", sorted by [], in order of "mono_ns";
    Ends("mono_ns");
    mono_ns: I64 => Delta, "End of the window that the reading is logged in, `CLOCK_MONOTONIC`, ns.";
    read_ns: I64 => Delta, "Time of the reading, `CLOCK_MONOTONIC`, ns.";
    bdf: Word => Dict, "PCI function.";
    source: Word => Dict, "Who counts: net (a network interface), rdma (a port of an RDMA device), vf (the physical function of a virtual one), kfd (AMD's driver for compute, in sysfs), drm (the driver of a GPU or accelerator, in `/proc/PID/fdinfo`).";
    name: Word => Dict, "What is counted, as the source calls it: `eth0/rx_bytes`, `mlx5_0/1/port_rcv_data`, `drm-engine-gfx`.";
    direction: Null<Word> => Dict, "read (from the device into memory, such as a received packet) or write; null where it is not known.";
    unit: Word => Dict, "bytes (moved), ns or cycles (in which a part of the device worked), `resident_bytes` (memory that it has at this time).";
    pid: Null<I32> => Dict, "Process; null for an account of the whole function.";
    client: Null<Bits> => Dict, "Number of an open file of the process (`drm-client-id`); null for other sources. A client that several processes share is one account, of one of these processes.";
    value: Null<Bits> => Delta, "Sum since the account exists, in `unit`; for `resident_bytes` the amount. Null: the account is gone, could not be read, or begins anew.";
}

named_values! {
    /// What a value counts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Unit;
    /// The value in the table.
    pub fn unit_name;
    /// Bytes that were moved.
    Bytes = "bytes",
    /// Time in which a part of the device worked, ns.
    Ns = "ns",
    /// Clock cycles in which a part of the device worked.
    Cycles = "cycles",
    /// Bytes of memory that it has: an amount and no sum.
    Resident = "resident_bytes",
}

impl Unit {
    /// Whether values are sums, which do not decrease.
    pub const fn is_sum(self) -> bool {
        !matches!(self, Self::Resident)
    }
}

named_values! {
    /// Who counts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum AccountSource;
    /// The value in the table.
    pub fn source_name;
    /// A network interface.
    Net = "net",
    /// A port of an RDMA device.
    Rdma = "rdma",
    /// The physical function of a virtual one.
    Vf = "vf",
    /// AMD's driver for compute.
    Kfd = "kfd",
    /// The driver of a GPU or accelerator.
    Drm = "drm",
}
