//! `counters`: every counter of the plan, its encoding, and whether it could be opened.
//!
//! Guarantee: each `counter` of `fabric`, `readings` and `loss` has a row here, including counters
//! that failed.

use super::column_type::{F64, Hex, I32, Null, Text, Word, table};

table! {
    "counters", "every planned counter and its encoding", sorted by [], later ["functions", "part_of"];
    Holds { since: None, key: &["counter"], last_row: None };
    origin;
    counter: I32 => Plain, "Id of the counter within the recording.";
    pmu: Word => Dict, "PMU instance.";
    family: Word => Dict, "Family of the PMU, the same for all its instances.";
    attr_type: I32 => Plain, "`perf_event_attr.type`; 2147418112 and more for the statistics of a disk or an interface, which are no perf event and are read on any CPU.";
    subsystem: Word => Dict, "Group of the counter: mem, cache, pcie, c2c, mesh, latency, energy, core, host, io.";
    event: Word => Dict, "Event as planned.";
    filter: Word => Dict, "Format terms that narrow the event.";
    unit: Word => Dict, "Unit of the scaled count.";
    scale: F64 => Plain, "Factor from raw counts to `unit`.";
    config: Hex => Plain, "`perf_event_attr.config`, hexadecimal, e.g. `0x1f`.";
    config1: Hex => Plain, "`perf_event_attr.config1`, hexadecimal, e.g. `0x1f`.";
    config2: Hex => Plain, "`perf_event_attr.config2`, hexadecimal, e.g. `0x1f`.";
    config3: Hex => Plain, "`perf_event_attr.config3`, hexadecimal, e.g. `0x1f`.";
    config4: Hex => Plain, "`perf_event_attr.config4`, hexadecimal, e.g. `0x1f`.";
    cpu: I32 => Plain, "Reader CPU.";
    socket: Null<I32> => Plain, "Socket (NUMA node); null where the PMU belongs to none.";
    sees: Text => Plain, "CPU list whose traffic the counter can see.";
    leader: Null<I32> => Plain, "Counter that leads its perf group; null where it is in no group.";
    role: Word => Dict, "counted: its counts are divided among owners, in `fabric`; weight: other counters are divided by its counts; both.";
    state: Word => Dict, "opened or failed.";
    error: Null<Text> => Plain, "Why the counter could not be opened; null where it was opened.";
    functions: Null<Text> => Plain, "PCI functions, with commas, if the counter counts only their traffic (`--per device`); null for all other counters.";
    part_of: Null<I32> => Plain, "Counter that includes the traffic of this counter; null where there is none.";
}

/// Lowest `attr_type` of the statistics of a device; the next devices have the next numbers. No PMU
/// has such a type: the kernel numbers them from `PERF_TYPE_MAX` upwards (`perf_pmu_register`,
/// kernel/events/core.c, Linux 7.2).
pub const STATISTICS: u32 = 0x7fff_0000;

/// `role` of a counter without rows in `fabric`: its counts serve to divide others.
pub const WEIGHT: &str = "weight";
