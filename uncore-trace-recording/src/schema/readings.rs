//! `readings`: raw values of the counters, one row for each reading of a counter.
//!
//! Guarantees: nothing is scaled or derived. Rows of a segment are sorted by counter, so that each
//! column is a steady series of which `Delta` stores only the jitter; the rows of a counter are in
//! time order in the whole file. `mono_ns` and `width_ns` are the same for the counters of a tick.
//! They are plain, so that zstd finds the repetition, which bit packing would hide.
//!
//! Measured on synthetic 60 s of 6 counters at 1 kHz (jitter of +-10 us, two clock-like and four
//! slow counters; a test in `tables` asserts it): a row takes 2.2 bytes with [`stored_times`], of
//! which `value` is 1.1, `mono_ns` 0.8 and `width_ns` 0.3. `BYTE_STREAM_SPLIT` would reduce the
//! last two to 0.4 and 0.2, but Spark 3.5 cannot read it. With `enabled` and `running` in every
//! row, a row takes 6.8 bytes: 2.3 bytes for each, because their low bits are the noise of the
//! kernel's clock. [`stored_times`] leaves them out if they carry no information, that is if the
//! counter was never multiplexed.

use super::column_type::{Bits, I32, I64, Null, Word, table};

table! {
    "readings", "raw value and times of each counter at each tick", sorted by ["counter"];
    Tick("tick");
    mono_ns: I64 => Plain, "When the read began, `CLOCK_MONOTONIC`, ns.";
    tick: I64 => Delta, "Number of the tick the row belongs to; a missing number is a missing tick. Above `mono_ns` divided by the length of a tick where the reading arrived after the end of its tick.";
    counter: I32 => Delta, "Counter: `counter` in `counters`.";
    cpu: I32 => Dict, "CPU the read ran on.";
    value: Null<Bits> => Delta, "Raw count since the counter was opened: its 64 bits as a signed number (two's complement); null when the read failed.";
    enabled: Null<Bits> => Delta, "Time enabled, ns; null beside a known `value`: equal to the time running (never multiplexed).";
    running: Null<Bits> => Delta, "Time running, ns; null beside a known `value`: equal to the time enabled.";
    width_ns: I32 => Plain, "How long the sweep over this CPU's counters took, ns.";
    trigger: Word => Dict, "What caused the row: timer, sched, irq, softirq; stop: the last count of a counter that stopped; start: the counter is read on `cpu` from then on, without a value.";
    error: Null<I32> => Dict, "errno of a failed read, else null; 19 (ENODEV) where the counter stood still because its PMU is gone or moves; 95 (EOPNOTSUPP) where a witness does not count what its owner, a virtual machine, did.";
    pid: Null<I32> => Dict, "Process on the CPU at the read; null where it was not read.";
    tid: Null<I32> => Dict, "Thread on the CPU at the read; null where it was not read.";
    cgroup_id: Null<Bits> => Dict, "Cgroup of this process; null where it was not read.";
    owner: Null<Word> => Dict, "Owner of the count since the last reading: task, `other_tasks`, irq, softirq, idle, device or unattributed; null for counters that are not read at every context switch.";
    process: Null<Word> => Dict, "Name of the owner's process; null where it has none. Its id is `pid`.";
    owner_cgroup_id: Null<Bits> => Dict, "Cgroup of the owner; null where it has none.";
    number: Null<I32> => Dict, "Number of the owner's interrupt or softirq vector; null for every other owner.";
}

/// `enabled` and `running` as a row stores them: both null if they are equal and not 0. Then the
/// scale is exactly 1, and the low bits are clock noise.
pub fn stored_times(enabled: u64, running: u64) -> (Option<u64>, Option<u64>) {
    if enabled == running && enabled > 0 { (None, None) } else { (Some(enabled), Some(running)) }
}

/// [`Row::trigger`] of a reading by the timer.
pub const TIMER: &str = "timer";

/// [`Row::trigger`] of the final count of a counter that stopped.
pub const STOP: &str = "stop";

/// [`Row::trigger`] of a row which says that a counter is read on another CPU, or counts again.
pub const START: &str = "start";
