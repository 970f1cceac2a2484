//! Map values that the BPF programs and user space share.
//!
//! Only the BPF programs of its CPU write [`CpuState`]. User space reads it without a lock, to
//! close a tick on a CPU without switches. It uses the copy only if the copy is consistent:
//! `run.next` has the low half of `run.end`, and the wall times of the slots sum to
//! `run.end - run.begin` (see [`Run::is_consistent`]).

use crate::record::{Header, KINDS, Task};

/// Different tasks that a CPU combines before it flushes.
pub const RUN_SLOTS: usize = 16;

/// Different interrupt sources of one kind that a CPU combines before it flushes.
pub const IRQ_SLOTS: usize = 8;

/// Different owners, devices and directions of I/O that a CPU combines before it flushes.
pub const IO_SLOTS: usize = 8;

/// Counters whose counts a CPU watches at switches, if the kernel keeps all of them in memory: as
/// many as the catalog has events of that kind.
pub const MAX_WATCHED: usize = 6;

/// Bytes of a device's name: `DISK_NAME_LEN` (include/linux/blkdev.h); an interface's name is
/// shorter (`IFNAMSIZ`, include/uapi/linux/if.h). Linux 6.1 to 7.2.
pub const MAX_DEVICE: usize = 32;

/// Time of one task.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// The task.
    pub task: Task,
    /// Nanoseconds on the CPU, interrupts included.
    pub wall_ns: u64,
    /// Nanoseconds of `wall_ns` that interrupts took.
    pub irq_ns: u64,
    /// Number of slices combined.
    pub slices: u32,
    /// Thread id whose slices are combined here, or [`CLOSED`].
    pub key: u32,
}

/// `Slot::key` of a slot that takes no more slices, because its task has a new name.
pub const CLOSED: u32 = u32::MAX;

/// The tasks that ran on a CPU from `begin` to `end`, without gaps. Also a ring record: sent with
/// only `len` slots.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    /// `KIND_RUN`.
    pub header: Header,
    /// `CLOCK_MONOTONIC` at which the first slot began; 0 before the first switch.
    pub begin: u64,
    /// Begin of the last slot if that is a single slice that crosses the end of the tick, else
    /// equal to `end`. The slots before it lie between `begin` and `last`, within one tick.
    pub last: u64,
    /// `CLOCK_MONOTONIC` of the last switch.
    pub end: u64,
    /// The thread that runs since `end`: `tid << 32 | (end & 0xffff_ffff)`.
    pub next: u64,
    /// End of the tick in which `end` lies.
    pub tick_end_ns: u64,
    /// Total interrupt time of this CPU at `end`, in nanoseconds.
    pub irq_at_end: u64,
    /// Slots in use.
    pub len: u64,
    /// The slots. In slice mode they are in order of time.
    pub slots: [Slot; RUN_SLOTS],
}

/// Bytes of a [`Run`] before its slots.
pub const RUN_PREFIX: usize = size_of::<Run>() - size_of::<[Slot; RUN_SLOTS]>();

impl Run {
    /// Whether a copy taken while the owner may have been writing is one consistent state.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let len = self.len as usize;
        if len > RUN_SLOTS || self.next & 0xffff_ffff != self.end & 0xffff_ffff {
            return false;
        }
        let mut wall = 0u64;
        for slot in self.slots.iter().take(len) {
            wall = wall.wrapping_add(slot.wall_ns);
        }
        wall == self.end.wrapping_sub(self.begin)
    }

    /// The thread that runs since `end`.
    #[must_use]
    pub const fn next_tid(&self) -> u32 {
        (self.next >> 32) as u32
    }
}

/// Time of one interrupt source.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IrqSlot {
    /// `CONTEXT_IRQ` or `CONTEXT_SOFTIRQ`.
    pub context: u32,
    /// Interrupt number or softirq vector.
    pub number: u32,
    /// Nanoseconds spent in it; for a softirq without the interrupts that interrupted it.
    pub ns: u64,
    /// How often it ran.
    pub count: u64,
}

/// Time of one kind of interrupt on a CPU. Also a ring record: sent with only `len` slots.
///
/// Interrupts that begin and end in one tick are combined. One that crosses the end of a tick is
/// sent at once as the only slot, with `begin` and `end`, so that the reader can divide it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Irq {
    /// `KIND_IRQ`.
    pub header: Header,
    /// End of the tick in which the slots' time lies.
    pub tick_end_ns: u64,
    /// 0, or the begin of the only slot's interrupt.
    pub begin: u64,
    /// 0, or the end of the only slot's interrupt.
    pub end: u64,
    /// Slots in use.
    pub len: u64,
    /// The slots.
    pub slots: [IrqSlot; IRQ_SLOTS],
}

/// Bytes of an [`Irq`] before its slots.
pub const IRQ_PREFIX: usize = size_of::<Irq>() - size_of::<[IrqSlot; IRQ_SLOTS]>();

/// One kind of interrupt (hard or soft) on one CPU: its slots and the interrupt that runs now.
///
/// Each kind has a value of its own. A hard interrupt may interrupt the program of a softirq, but
/// not vice versa, so no program sees its own data half written.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IrqTrack {
    /// Total nanoseconds in this kind of interrupt.
    pub total: u64,
    /// Begin of the interrupt that runs now, or 0.
    pub begin: u64,
    /// Interrupt number or softirq vector of the interrupt that runs now.
    pub number: u64,
    /// Total of the other kind at `begin` (softirq only).
    pub other_at_begin: u64,
    /// Slots that are not sent yet.
    pub pending: Irq,
}

/// Bytes that a device moved for one owner.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IoSlot {
    /// The task, if `context` is `CONTEXT_TASK`; `tid` and `pid` are 0 if only the cgroup is known.
    pub task: Task,
    /// The disk's or interface's name, NUL-padded, any bytes; all 0 for
    /// [`crate::record::IO_TAKEN`].
    pub device: [u8; MAX_DEVICE],
    /// Identifies the device while it exists.
    pub key: u64,
    /// Bytes.
    pub bytes: u64,
    /// Requests that ended, packets, or reads by a task.
    pub requests: u32,
    /// One of the `IO_` constants.
    pub what: u32,
    /// One of the `CONTEXT_` constants.
    pub context: u32,
    /// Interrupt number or softirq vector of `context`, else 0.
    pub number: u32,
    /// Number of the interface in its network namespace, or 0.
    pub ifindex: u32,
    /// Inode number of that namespace, or 0.
    pub netns: u32,
}

/// Bytes that devices moved in a tick, as seen on one CPU. Also a ring record: sent with only
/// `len` slots.
///
/// Requests that begin and end in one tick are combined. A request that spans ticks is sent at once
/// as the only slot, with `begin` and `end`. So is a request that an interrupt sees while the
/// interrupted program writes the slots.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Io {
    /// `KIND_IO`.
    pub header: Header,
    /// End of the tick in which the slots' bytes were moved.
    pub tick_end_ns: u64,
    /// 0, or the begin of the only slot's request.
    pub begin: u64,
    /// 0, or the end of the only slot's request.
    pub end: u64,
    /// Number of the combined record on its CPU, so that slots that were peeked at before they were
    /// sent are not counted twice; 0 for a slot that was sent at once.
    pub sequence: u64,
    /// Slots in use.
    pub len: u64,
    /// Bytes of all slots.
    pub total: u64,
    /// The slots.
    pub slots: [IoSlot; IO_SLOTS],
}

/// Bytes of an [`Io`] before its slots.
pub const IO_PREFIX: usize = size_of::<Io>() - size_of::<[IoSlot; IO_SLOTS]>();

impl Io {
    /// Whether a copy taken while its CPU may have been writing is one consistent state.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let mut total = 0u64;
        for slot in self.slots.iter().take(self.len as usize) {
            total = total.wrapping_add(slot.bytes);
        }
        self.len as usize <= IO_SLOTS && total == self.total
    }
}

/// Bytes that were seen on one CPU and are not sent yet. Array map, indexed by CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IoState {
    /// The slots.
    pub pending: Io,
    /// 1 while the slots are written: a program that interrupts this sends its own at once.
    pub busy: u64,
}

/// State of the BPF programs of one CPU. Array map, indexed by CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuState {
    /// The tasks that ran.
    pub run: Run,
    /// Interrupt handlers.
    pub hard: IrqTrack,
    /// Softirqs, without the interrupts that interrupted them.
    pub soft: IrqTrack,
}

/// What the sampler of one CPU reads: user space writes it as a whole, at any time. Array map, indexed
/// by CPU.
///
/// User space reuses slots that the CPU may still read only after all samples from them were read.
/// So a CPU that sees half of a change reads slots that match no known `first` and `len`, and that
/// sample is dropped.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampler {
    /// First slot of this CPU in the perf event array.
    pub first: u32,
    /// Number of counters of this CPU; 0: not a reader CPU.
    pub len: u32,
    /// Number of counters, from the first on, that are also read at every switch.
    pub at_switch: u32,
    /// One of the `SAMPLER_` constants; the programs change some of them, as documented there.
    pub state: u32,
    /// Error of starting the timer, as a positive errno.
    pub errno: u32,
    /// The turn that this CPU needs to read all of its counters: other CPUs read some of them too.
    /// 0: none.
    pub turn: u32,
    /// First slot of the counters of another CPU that this CPU reads at switches.
    pub others: u32,
    /// Number of these counters.
    pub others_len: u32,
    /// The turn that they need.
    pub others_turn: u32,
}

/// Progress of the sampler of one CPU: only the programs of that CPU write it. Array map, indexed
/// by CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SamplerProgress {
    /// When the counters were last read.
    pub last_read: u64,
    /// Number of the last sweep.
    pub sequence: u64,
    /// 1 during a sweep: an interrupt in the middle of it does not begin another one.
    pub busy: u64,
    /// The bits in which a value differs from that of the last sweep with the same trigger: 0 if no
    /// counter has counted since.
    pub changed_bits: u64,
    /// Address of the perf event array in the kernel.
    pub counters: u64,
    /// The counters at `watched`: `first << 32 | at_switch` of their [`Sampler`]; 0: none.
    pub watched_slots: u64,
    /// The counters that are read at every switch, if all of them are the kernel's own.
    pub watched: [WatchedCount; MAX_WATCHED],
}

/// A count that the kernel keeps in memory: whether it has changed is seen without a reading.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WatchedCount {
    /// Address of the `struct perf_event`; 0: none.
    pub event: u64,
    /// Its value when the counter was last read.
    pub count: u64,
}

/// The timer is not wanted.
pub const SAMPLER_OFF: u32 = 0;
/// User space wants the timer of this CPU started.
pub const SAMPLER_WANTED: u32 = 1;
/// The timer runs.
pub const SAMPLER_ARMED: u32 = 2;
/// The timer could not be started; `errno` says why.
pub const SAMPLER_FAILED: u32 = 3;
/// The timer fired on another CPU and was not started again: its own went offline, and the kernel
/// moves the timers of such a CPU.
pub const SAMPLER_MOVED: u32 = 4;

/// Counts of what one CPU dropped. Per-CPU array map with one entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Drops {
    /// Records that found the ring full, by kind.
    pub records: [u64; KINDS],
    /// Readings that were due during another one.
    pub nested: u64,
    /// Ticks after which the timer could not be started again.
    pub timer: u64,
    /// Timers of other CPUs that fired here: their CPU went offline.
    pub moved: u64,
    /// Block requests whose owner could not be stored for lack of room.
    pub unowned: u64,
    /// Switches that were not seen, to the thread that leaves.
    pub switches: u64,
}

const _: () = {
    assert!(size_of::<Slot>() == 32 + 24);
    assert!(RUN_PREFIX == 8 * 8);
    assert!(size_of::<IrqSlot>() == 24);
    assert!(IRQ_PREFIX == 8 * 5);
    assert!(size_of::<IoSlot>() == 32 + MAX_DEVICE + 8 * 2 + 4 * 6);
    assert!(IO_PREFIX == 8 * 7);
    assert!(size_of::<IoState>() == size_of::<Io>() + 8);
    assert!(size_of::<IrqTrack>() == size_of::<Irq>() + 8 * 4);
    assert!(size_of::<CpuState>() == size_of::<Run>() + 2 * size_of::<IrqTrack>());
    assert!(size_of::<Sampler>() == 36);
    assert!(size_of::<WatchedCount>() == 16);
    assert!(size_of::<SamplerProgress>() == 48 + 16 * MAX_WATCHED);
    assert!(size_of::<Drops>() == 8 * (KINDS + 5));
};
