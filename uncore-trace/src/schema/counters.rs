//! `pmus`: every counter of the plan, with what was opened for it and whether that worked.
//!
//! Guarantee: `counter` of `readings` and `loss` is found here, also for counters that failed.

use super::kind::{F64, I32, Null, Text, U64, Word, table};

table! {
    "pmus", "every planned counter and its encoding", sorted by [];
    counter: I32 => Plain, "Id of the counter within the recording.";
    pmu: Word => Dict, "PMU instance.";
    family: Word => Dict, "What the PMU is, whatever its index.";
    attr_type: I32 => Plain, "`perf_event_attr.type`.";
    group: Word => Dict, "What the user asked for.";
    event: Word => Dict, "Event as planned.";
    filter: Word => Dict, "Format terms that narrow the event.";
    unit: Word => Dict, "Unit of the scaled count.";
    scale: F64 => Plain, "Factor from raw counts to `unit`.";
    config: U64 => Plain, "`perf_event_attr.config`.";
    config1: U64 => Plain, "`perf_event_attr.config1`.";
    config2: U64 => Plain, "`perf_event_attr.config2`.";
    config3: U64 => Plain, "`perf_event_attr.config3`.";
    config4: U64 => Plain, "`perf_event_attr.config4`.";
    cpu: I32 => Plain, "Owner CPU.";
    socket: Null<I32> => Plain, "Socket (NUMA node); null where the PMU belongs to none.";
    sees: Text => Plain, "CPU list whose traffic the counter can see.";
    leader: Null<I32> => Plain, "Counter that leads its perf group; null when standalone.";
    role: Word => Dict, "counted: its counts are divided, in `fabric`; weight: others are divided by its counts; both.";
    state: Word => Dict, "opened or failed.";
    error: Null<Text> => Plain, "Why it could not be opened; null when it was.";
}

/// `role` of a counter that has no rows in `fabric`: others are divided by its counts.
pub const WEIGHT: &str = "weight";
