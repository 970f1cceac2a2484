//! `rollup`: `fabric` in longer windows and without processes, for many hosts and months.
//!
//! It is not part of a recording: `uncore-trace rollup` makes it from recordings, and the agent
//! makes it while recording, one file per hour. It has one row per window, counter, owner and
//! method. The owner of a task's share is its cgroup. A counter is a PMU instance, event and
//! filter; per-CPU counters are added up.
//!
//! Guarantees: the `value`s of one (window, counter) sum to its `total`. A null means "not known".
//! A window that is known in part has the counts of that part, whose length is `known_ns`. The
//! interval of a sum, which is the sum of `low` and of `high` of one owner, contains the true value
//! at least as often as the interval of one row (`view/interval.rs`).
//!
//! Rows of a row group are sorted, so that readers can skip row groups. Unlike in other tables, all
//! words have statistics. Times are plain, as in [`super::fabric`].

use std::collections::BTreeMap;

use super::column_type::{F32, F64, I16, I32, I64, Null, Time, Word, table};
use super::{ROLLUP_VERSION, SCHEMA_VERSION, metadata};

/// Length of the longest window, ns: an hour has twelve.
pub(crate) const LONGEST_WINDOW_NS: i64 = 300_000_000_000;

/// Metadata of a recording about its origin.
const KEPT: [&str; 4] = [metadata::HOST, metadata::KERNEL, metadata::BOOT_ID, metadata::CLUSTER];

/// The metadata of a roll-up file, from those of the recording.
pub fn file_metadata(recorded: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let kept = KEPT.iter().filter_map(|key| recorded.get_key_value(*key));
    let mut pairs: BTreeMap<_, _> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
    for (key, value) in [
        (metadata::SCHEMA_VERSION, SCHEMA_VERSION.to_string()),
        (metadata::ROLLUP_VERSION, ROLLUP_VERSION.to_string()),
        (metadata::TOOL_VERSION, env!("CARGO_PKG_VERSION").to_owned()),
    ] {
        pairs.insert(key.to_owned(), value);
    }
    pairs
}

table! {
    "rollup", "each owner's share of each counter, in windows of a second or longer", sorted in row groups by ["event", "filter", "pmu", "owner", "cgroup", "comm", "number", "mono_ns"], later ["job"];
    Ends("mono_ns");
    ts: Time => Plain, "End of the window, wall clock, in microseconds, UTC. The hour and the date of a file are those of this time.";
    mono_ns: I64 => Plain, "End of the window on `CLOCK_MONOTONIC`, ns.";
    window_ns: I64 => Dict, "Length of the window, ns.";
    known_ns: I64 => Dict, "Time of the window that is known, ns, as in [Sums](#sums): the time that `value` and `total` cover. A rate is `value / known_ns`.";
    host: Word => Dict, "Host name.";
    boot_id: Word => Dict, "Random id of the boot (`/proc/sys/kernel/random/boot_id`): times of `CLOCK_MONOTONIC` compare within one boot.";
    cluster: Null<Word> => Dict, "Cluster the host is in; null where it was not named.";
    socket: Null<I16> => Dict, "Socket (NUMA node) of the PMU; null where it belongs to none.";
    subsystem: Word => Dict, "Group of the counter: mem, cache, pcie, c2c, mesh, latency, energy, core, host, io.";
    link: Null<Word> => Dict, "Link whose bytes the counter counts, unique within the host, e.g. `memory 0`; null where it is on none.";
    direction: Null<Word> => Dict, "in (towards the CPUs of the socket), out, or both; null where there is no link.";
    peak: Null<F64> => Dict, "Peak bandwidth of the link, bytes a second; null where it is not known.";
    peak_direction: Null<Word> => Dict, "Direction that `peak` limits: that of the row, or both: the sum of in and out; null as `peak`.";
    pmu: Word => Dict, "PMU instance as sysfs names it; `disk_NAME` or `net_NAME` for the statistics of a disk or an interface.";
    event: Word => Dict, "Event as planned.";
    filter: Word => Dict, "Format terms that narrow the event; empty where there are none.";
    unit: Word => Dict, "Unit of `value`, `low`, `high` and `total`.";
    owner: Word => Dict, "Kind of the owner: task (all tasks of a cgroup), `other_tasks` (those of the cgroups that got least), irq, softirq, idle, device or unattributed.";
    number: Null<I32> => Dict, "Number of the interrupt or softirq vector; null for every other owner.";
    comm: Null<Word> => Dict, "`irq:NAME`, `softirq:VEC` or the name of a device; null for every other owner.";
    cgroup: Null<Word> => Dict, "Cgroup path; null where the owner has none or it was never learnt.";
    container: Null<Word> => Dict, "Container or virtual machine the cgroup is in, `NAME@ID` or its id alone; null where it is in none.";
    pod: Null<Word> => Dict, "Pod the cgroup is in, `NAMESPACE/NAME@UID` or its uid alone; null where it is in none.";
    value: Null<F64> => Plain, "This owner's part of the count in `known_ns`, in `unit`; null when nothing is known.";
    low: Null<F64> => Plain, "Lower end of the 90 % interval of `value`; null as `value`.";
    high: Null<F64> => Plain, "Higher end of the 90 % interval of `value`; null as `value`.";
    total: Null<F64> => Plain, "The counter's whole count in `known_ns`, the same in each of its rows; null as `value`.";
    running: F32 => Dict, "Time running / time enabled, 0 to 1: the mean of the windows of `fabric`.";
    method: Word => Dict, "How these shares were made: exact, source, monitor, residency, io, held, misses, ports, regression or none.";
    confidence: Null<F32> => Dict, "Part of `value` that is expected in shares within 10 % of the truth, 0 to 1, in hundredths: the mean of their confidences, weighted by value; null where nothing is claimed.";
    job: Null<Word> => Dict, "Job and step of Slurm that the cgroup is in, as `sacct` names them: `123.0`, `123.batch`, or `123` outside of a step; null where it is in none, or where users other than root may have given the name. Older files lack it.";
}
