//! The log: everything that influences the table `fabric`, as entries in one order.
//!
//! A live recording makes entries from the records of the BPF programs ([`crate::assemble`]);
//! `attribute` makes the same entries from the raw tables ([`crate::replay`]). The attributor
//! ([`crate::attribute`]) sees entries and nothing else, so both make the same `fabric`.
//!
//! | entry | raw table |
//! |---|---|
//! | [`LogEntry::Usage`] | `runtime`, `irqs` |
//! | [`LogEntry::Switches`] | `runtime` |
//! | [`LogEntry::Reading`] | `readings` |
//! | [`LogEntry::Moved`] | `io` |
//! | [`LogEntry::Held`] | `held` |
//! | [`LogEntry::Monitored`] | `monitors` |
//! | [`LogEntry::Account`] | `accounts` |
//! | [`LogEntry::Cgroup`] | `cgroups` |
//! | [`LogEntry::Interrupt`] | `irqs` |
//! | [`LogEntry::EndOfTick`] | one for each tick of `runtime` |
//!
//! Order: the entries of a tick come before its [`LogEntry::EndOfTick`]. Readings of one counter
//! are in the order of time, and their ticks never decrease. A reading that arrives after the end
//! of its tick is logged in a later tick ([`CounterReading::is_late`]): its count is kept, but it
//! ends no window. A reading may be logged before the end of an earlier tick.
//!
//! A reading has these forms on its way:
//!
//! | form | made by | used by |
//! |---|---|---|
//! | `uncore_trace_common::record::Reading` | the BPF programs | the ring buffer |
//! | [`RawReading`](crate::drain::RawReading) | `drain`: in a [`SampleRecord`](crate::drain::SampleRecord) | `assemble/readings.rs` |
//! | [`CounterReading`] with its [`CounterValue`] | `assemble/readers`: of a counter, not of a slot | the log, and the table `readings` |
//! | [`Count`](crate::count::Count) | `attribute/series.rs`: what was counted since the counter was opened | the end of a window |
//!
//! What it is from there on is in the table of `attribute/closing.rs`.

mod account;
mod device_hold;
mod device_transfer;
mod entry_consumer;
mod monitored;
mod owner;
mod relief;

use std::sync::Arc;

pub use self::account::{AccountGrowth, Accounted};
pub use self::device_hold::DeviceHold;
pub use self::device_transfer::{DeviceTransfer, MovedSum};
pub use self::entry_consumer::{EntryConsumer, MissingCount, MissingReason, ROWS_AT_ONCE};
pub use self::monitored::{ALL_SOCKETS, Monitored, MonitoredSum};
pub use self::owner::{Owner, OwnerFields, softirq_label};
pub use self::relief::Relief;
use crate::schema::cgroups::CgroupNames;

/// An entry of the log.
#[derive(Clone, Copy, Debug)]
pub enum LogEntry<'a> {
    /// The use of a CPU in the current tick. An owner may have several parts.
    Usage {
        /// The CPU.
        cpu: u32,
        /// Nanoseconds by owner; [`Owner::Unattributed`] if the owner is unknown.
        usage: &'a [(Owner, u64)],
    },
    /// The context switches of a CPU in the current tick.
    Switches {
        /// The CPU.
        cpu: u32,
        /// Switches by the owner that left the CPU. An owner may have several parts.
        switches: &'a [(Owner, u64)],
    },
    /// A counter was read, stopped or started.
    Reading(CounterReading),
    /// A device moved bytes in the current tick.
    Moved(&'a DeviceTransfer),
    /// How long an owner holds a device in each tick, from the current one on.
    Held(&'a DeviceHold),
    /// A monitor of the hardware measured bytes that ended in the current window.
    Monitored(&'a Monitored),
    /// A device's own account of a function or a process was read, in the current window.
    Account(&'a Accounted),
    /// The path of a cgroup, from the current tick on.
    Cgroup {
        /// Its id.
        id: u64,
        /// Its path, container, pod and job.
        names: &'a Arc<CgroupNames>,
    },
    /// The name of an interrupt.
    Interrupt {
        /// Its number.
        number: u32,
        /// Its name in the tables.
        name: &'a str,
    },
    /// All entries of a tick have been logged.
    EndOfTick {
        /// Number of the tick, which covers the time from `tick - 1` to `tick` tick lengths.
        tick: u64,
        /// Whether the recording ends with it.
        is_last: bool,
    },
}

/// The errno (`ENODEV`) of a reading whose counter stood still: the kernel reads an event that no
/// longer counts without an error.
pub const STANDS_STILL: i32 = libc::ENODEV;

/// The errno (`EOPNOTSUPP`) of a witness's reading when its owner runs a virtual machine: the
/// counter stands still while the machine runs ([`Counter::exclude_guest`]), so it does not say
/// what the owner did.
///
/// [`Counter::exclude_guest`]: crate::plan::Counter::exclude_guest
pub const RAN_GUEST: i32 = libc::EOPNOTSUPP;

/// What triggered a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadingTrigger {
    /// The timer of the sampler.
    Timer,
    /// A context switch or an interrupt.
    Event,
    /// The counter stopped. This is its last count until it starts again.
    Stop,
    /// The counter is read on this CPU from now on.
    Start,
}

/// The value of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterValue {
    /// Raw count since the counter was first enabled.
    pub value: u64,
    /// Time enabled and time running, ns; `None` if they are equal.
    pub times: Option<(u64, u64)>,
}

/// A reading of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterReading {
    /// The tick it is logged in: the last one that ended before its time, or a later one if that was
    /// closed before the reading arrived. The timer's reading comes just after the end of the tick
    /// with this number, and is the count at its end. A reading at a switch is made in the tick
    /// after it: for this reading, the number only says where in the log it is.
    pub tick: u64,
    /// Time at which it began, ns on `CLOCK_MONOTONIC`.
    pub time: u64,
    /// The counter.
    pub counter: u32,
    /// The CPU it was made on.
    pub cpu: u32,
    /// What triggered it.
    pub trigger: ReadingTrigger,
    /// The value, or the errno of the failed read. For [`ReadingTrigger::Start`], which reads
    /// nothing, it is 0.
    pub value: Result<CounterValue, i32>,
    /// The owner of the count since the last reading, if known.
    pub owner: Option<Owner>,
}

impl CounterReading {
    /// Whether it arrived after the end of its tick.
    pub const fn is_late(&self, tick_ns: u64) -> bool {
        self.tick != self.time / tick_ns
    }
}

/// An entry that breaks the order of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disorder {
    /// A tick ended that does not follow the last one.
    #[error("tick {0} ends out of order")]
    Tick(u64),
    /// A reading of this counter is older than the previous one, or is in a tick that has ended.
    #[error("a reading of counter {counter} in tick {tick} is out of order")]
    Reading {
        /// The counter.
        counter: u32,
        /// The tick it is logged in.
        tick: u64,
    },
    /// No counter of the recording has this id.
    #[error("there is no counter {0} in the recording")]
    Counter(u32),
}
