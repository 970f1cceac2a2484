//! `sums`: what each cgroup and process had of each counter, second by second.
//!
//! `fabric` has the shape of traffic over time; where it would have more rows than were asked for,
//! its windows have the owners with the largest shares only. This table has all cgroups, and the
//! processes with at least `--min-share` of a counter in a second. Bills are sums over it.
//!
//! Guarantees: the `value`s of one (second, counter) sum to its `total`, which is the sum of the
//! totals of the windows of `fabric` that end in the second. Seconds end at multiples of their
//! length on `CLOCK_MONOTONIC`, so that they are the same in all parts of a recording.
//!
//! Encodings are those of [`super::fabric`].

use super::column_type::{Bits, F32, F64, I16, I32, I64, Null, Time, Word, table};
use super::confidence::share_interval;
use super::fabric;

/// Length of a second of this table, ns. Where windows are longer, it is as long as a window.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Length of the seconds of a recording with such windows, ns: a multiple of these.
pub const fn second_length_ns(window_ns: u64) -> u64 {
    SECOND_NS.div_ceil(window_ns) * window_ns
}

/// Where the seconds of a recording begin and end, `CLOCK_MONOTONIC`, ns.
#[derive(Debug, Clone, Copy)]
pub struct SecondGrid {
    second_ns: i64,
}

impl SecondGrid {
    /// The seconds of a recording with windows of this length, at least 1 ns.
    pub const fn from_window(window_ns: u64) -> Self {
        let window_ns = if window_ns == 0 { 1 } else { window_ns };
        Self { second_ns: second_length_ns(window_ns).cast_signed() }
    }

    /// The last end of a second up to a time.
    pub const fn round_down(self, time_ns: i64) -> i64 {
        time_ns.div_euclid(self.second_ns).saturating_mul(self.second_ns)
    }

    /// The first end of a second from a time on.
    pub const fn round_up(self, time_ns: i64) -> i64 {
        self.round_down(time_ns.saturating_add(self.second_ns).saturating_sub(1))
    }
}

table! {
    "sums", "each owner's share of each counter in each second, of all cgroups", sorted by [], in order of "mono_ns";
    Second("mono_ns");
    ts: Time => Plain, "End of the last window of `fabric` in the second, wall clock, in microseconds, UTC.";
    mono_ns: I64 => Plain, "End of the last window of `fabric` in the second, on `CLOCK_MONOTONIC`, ns.";
    window_ns: I64 => Dict, "From the begin of the first of these windows to the end of the last, ns.";
    known_ns: I64 => Dict, "Time of the windows with a count, ns: the time that `value` and `total` cover. A rate is `value / known_ns`.";
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
    unit: Word => Dict, "Unit of `value`, `low`, `high` and `total`.";
    owner: Word => Dict, "Kind of the owner: task, `other_tasks` (all tasks of cgroups that were not selected), irq, softirq, idle, device or unattributed.";
    pid: Null<I32> => Dict, "Process of a task row; null for every other owner, and where a row has several processes or an unknown one.";
    number: Null<I32> => Dict, "Number of the interrupt or softirq vector; null for every other owner.";
    comm: Null<Word> => Dict, "Process name; `irq:NAME`, `softirq:VEC`; null where there is none.";
    cgroup_id: Null<Bits> => Dict, "Inode number of the cgroup's directory; null where the owner has none.";
    cgroup: Null<Word> => Dict, "Cgroup path; null where there is none or it was never learnt.";
    container: Null<Word> => Dict, "Container or virtual machine the cgroup is in, `NAME@ID` or its id alone; null where it is in none.";
    pod: Null<Word> => Dict, "Pod the cgroup is in, `NAMESPACE/NAME@UID` or its uid alone; null where it is in none.";
    value: Null<F64> => Plain, "This owner's part of the count of the second, in `unit`; null when nothing is known of the second.";
    low: Null<F64> => Plain, "Lower end of the 90 % interval of `value`, from `confidence`; null where nothing is claimed.";
    high: Null<F64> => Plain, "Higher end of the 90 % interval of `value`, from `confidence`; null where nothing is claimed.";
    total: Null<F64> => Plain, "The counter's whole scaled count in the second, the same in each of its rows; null as `value`.";
    running: F32 => Dict, "Time running / time enabled, 0 to 1: the mean of the windows of `fabric`, by length.";
    method: Word => Dict, "How the shares were made, as in `fabric`: an owner has a row for each method of the second.";
    confidence: Null<F32> => Dict, "Mean of the confidences of the shares, weighted by value, 0 to 1, in hundredths; null where nothing is claimed.";
    cgroup_confidence: Null<F32> => Plain, "Mean of `cgroup_confidence` of the shares, weighted by value, 0 to 1, in hundredths; null where nothing is claimed.";
    processes: Null<I32> => Dict, "Number of processes that this row sums up, because each is below `--min-share` of the second's total; null where it sums up none.";
    job: Null<Word> => Dict, "Job and step of Slurm that the cgroup is in, as `sacct` names them: `123.0`, `123.batch`, or `123` outside of a step; null where it is in none, or where users other than root may have given the name.";
}

/// A row with the values of the fields of the same names in another, and with further values.
macro_rules! row_from {
    ($source:ident: $($copied:ident)+; $($field:ident: $value:expr,)+) => {
        Self { $($copied: $source.$copied,)+ $($field: $value,)+ }
    };
}

impl<'a> Row<'a> {
    /// A share of a second of which this time is known, ns.
    pub fn from_share(share: fabric::Row<'a>, known_ns: i64) -> Self {
        let claim = share.value.zip(share.total).zip(share.confidence);
        let interval =
            claim.map(|((value, total), confidence)| share_interval(value, total, confidence));
        row_from! {
            share: ts mono_ns window_ns host boot_id cluster counter socket cpu subsystem pmu event
                filter unit owner pid number comm cgroup_id cgroup container pod value total running
                method confidence cgroup_confidence processes job;
            known_ns: known_ns,
            low: interval.map(|(low, _)| low),
            high: interval.map(|(_, high)| high),
        }
    }
}
