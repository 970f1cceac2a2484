//! `fabric`: the attributed time line, which users query. One row per window, counter and owner.
//!
//! Guarantees: the `value`s of one (window, counter) sum to its `total`. A null means "not known",
//! and 0 means "known to be 0".
//!
//! Encodings: a window has hundreds of rows with the same times and names, which dictionaries turn
//! into runs. Times are plain, because every window has a new one and dictionaries would grow. As
//! `DELTA_BINARY_PACKED` a file would be 2 % smaller, but fastparquet reads deltas of more than 28
//! bits as other values without an error: the ends of windows of 0.3 s and longer, in ns.
//! `value` and `total` are plain: for 118 771 rows of a busy virtual machine they take 2.1 and 0.6
//! bytes per row with zstd, and 2.4 and 1.1 in a dictionary. Unrounded, `value` would take 6.7
//! (`attribute/grid.rs` rounds it). As integer thousandths of the total it would take 0.7, but
//! every reader would have to multiply. `confidence` takes 0.3 bytes in a dictionary and more
//! without. `cgroup_confidence` is plain: for 124 657 rows of `regression` it takes 0.32 bytes per
//! row, and 0.35 in a dictionary. Within a window, rows of one reader CPU and owner are adjacent
//! (`attribute/rows.rs`). `BYTE_STREAM_SPLIT` is not used because Spark 3.5 cannot read it.

use super::column_type::{Bits, F32, F64, I16, I32, I64, Null, Time, Word, table};

/// The prior of the part of a count that no owner causes, but devices, firmware and the kernel: it
/// is log-normal with this median.
pub const BASELINE_MEDIAN: f64 = 0.05;

/// The standard deviation of the logarithm of that part.
pub const BASELINE_LOG_SD: f64 = 1.0;

/// How much of the part `unattributed` of a count owners may have caused: what is above the prior's
/// median by more than one standard deviation.
pub fn part_of_somebody(unattributed: f64) -> f64 {
    (unattributed - BASELINE_MEDIAN * libm::exp(BASELINE_LOG_SD)).max(0.0)
}

table! {
    "fabric", "each owner's share of each counter in each window", sorted by [], in order of "mono_ns", later ["cgroup_confidence", "processes", "job"];
    Ends("mono_ns");
    ts: Time => Plain, "End of the window, wall clock, in microseconds, UTC (a label: intervals come from `mono_ns`).";
    mono_ns: I64 => Plain, "End of the window on `CLOCK_MONOTONIC`, ns; the clock of all raw times.";
    window_ns: I64 => Dict, "Length of the window, ns.";
    host: Word => Dict, "Host name.";
    boot_id: Word => Dict, "Random id of the boot (`/proc/sys/kernel/random/boot_id`): times of `CLOCK_MONOTONIC` and ids compare within one boot.";
    cluster: Null<Word> => Dict, "Cluster the host is in, as `--cluster` named it; null where it was not named.";
    counter: I32 => Dict, "Id of the counter within the recording: `counter` in `counters`.";
    socket: Null<I16> => Dict, "Socket (NUMA node) of the PMU; null where it belongs to none.";
    cpu: I32 => Dict, "Reader CPU: where the counter is read.";
    subsystem: Word => Dict, "Group of the counter: mem, cache, pcie, c2c, mesh, latency, energy, core, host, io.";
    pmu: Word => Dict, "PMU instance as sysfs names it; `disk_NAME` or `net_NAME` for the statistics of a disk or an interface.";
    event: Word => Dict, "Event as planned.";
    filter: Word => Dict, "Format terms that narrow the event; empty where there are none.";
    unit: Word => Dict, "Unit of `value` and `total`.";
    owner: Word => Dict, "Kind of the owner: task, `other_tasks` (all tasks of cgroups that were not selected or are small), irq, softirq, idle, device or unattributed.";
    pid: Null<I32> => Dict, "Process of a task row; null for every other owner, and where a row has several processes or an unknown one.";
    number: Null<I32> => Dict, "Number of the interrupt or softirq vector; null for every other owner.";
    comm: Null<Word> => Dict, "Process name; `irq:NAME`, `softirq:VEC`; null where there is none.";
    cgroup_id: Null<Bits> => Dict, "Inode number of the cgroup's directory; null where the owner has none.";
    cgroup: Null<Word> => Dict, "Cgroup path; null where there is none or it was never learnt.";
    container: Null<Word> => Dict, "Container or virtual machine the cgroup is in, `NAME@ID` or its id alone; null where it is in none.";
    pod: Null<Word> => Dict, "Pod the cgroup is in, `NAMESPACE/NAME@UID` or its uid alone; null where it is in none.";
    value: Null<F64> => Plain, "This owner's part of the window's count, in `unit`; null when the counter could not be read or never ran in the window.";
    total: Null<F64> => Plain, "The counter's whole scaled count in the window, the same in each of its rows; null as `value`.";
    running: F32 => Dict, "Time running / time enabled in the window, 0 to 1; 0: never scheduled.";
    method: Word => Dict, "How the share was made: exact, source (the hardware counts nothing but this owner), monitor (the hardware measured this cgroup), residency, io, held (by who holds the devices), misses, ports, regression or none.";
    confidence: Null<F32> => Dict, "Probability that the share is within 10 % of the truth, 0 to 1, in hundredths; null where nothing is claimed.";
    cgroup_confidence: Null<F32> => Plain, "Probability that the sum of the shares of this row's cgroup (of this owner, if it has no cgroup) over a longer time is within 10 % of the truth, 0 to 1, in hundredths. The same in all rows of a cgroup, counter and window; null where nothing is claimed. Older recordings lack it: use `confidence`.";
    processes: Null<I32> => Dict, "Number of processes whose shares this row sums up, because each is below `--min-share` of the window's total; null where it sums up none. Older recordings lack it.";
    job: Null<Word> => Dict, "Job and step of Slurm that the cgroup is in, as `sacct` names them: `123.0`, `123.batch`, or `123` outside of a step; null where it is in none, or where users other than root may have given the name. Older recordings lack it.";
}

/// [`Row::method`]: by who holds the devices.
pub const HELD: &str = "held";

/// The values of the column `method`.
pub const METHODS: [&str; 10] = [
    "exact",
    "source",
    "monitor",
    "residency",
    "io",
    HELD,
    "misses",
    "ports",
    "regression",
    "none",
];
