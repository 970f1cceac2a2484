//! Map values that both sides see.
//!
//! [`CpuState`] is written by the BPF programs of its CPU only. User space reads it without a
//! lock to close a tick on a CPU that made no switch, and trusts the copy only if the content
//! proves itself: `run.next` carries the low half of `run.end`, and the slots' wall times sum to
//! `run.end - run.begin` (see [`Run::is_consistent`]).

use crate::record::{Header, KINDS, Task};

/// Distinct tasks that a CPU keeps before it flushes.
pub const RUN_SLOTS: usize = 16;

/// Distinct interrupt sources of one kind that a CPU keeps before it flushes.
pub const IRQ_SLOTS: usize = 8;

/// Distinct owners, devices and directions of I/O that a CPU keeps before it flushes.
pub const IO_SLOTS: usize = 8;

/// Bytes of a device's name: `DISK_NAME_LEN` (include/linux/blkdev.h); an interface's name is shorter
/// (`IFNAMSIZ`, include/uapi/linux/if.h). Linux 6.1 to 7.2.
pub const MAX_DEVICE: usize = 32;

/// The time that one task ran.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// Who.
    pub task: Task,
    /// Nanoseconds on the CPU, interrupts included.
    pub wall_ns: u64,
    /// Nanoseconds of `wall_ns` that interrupts took.
    pub irq_ns: u64,
    /// Slices combined here.
    pub slices: u32,
    /// Thread id whose slices are combined here, or [`CLOSED`].
    pub key: u32,
}

/// `Slot::key` of a slot that takes no more slices: its task has a new name since.
pub const CLOSED: u32 = u32::MAX;

/// Who ran on a CPU from `begin` to `end`, without a gap. Also a ring record: sent with `len`
/// slots only.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    /// `KIND_RUN`.
    pub header: Header,
    /// `CLOCK_MONOTONIC` at which the first slot began; 0 before the first switch.
    pub begin: u64,
    /// Where the last slot begins if it is a single slice that crosses the end of the tick, else
    /// equal to `end`. The slots before it lie between `begin` and `last`, within one tick.
    pub last: u64,
    /// `CLOCK_MONOTONIC` of the last switch.
    pub end: u64,
    /// The thread that runs since `end`: `tid << 32 | (end & 0xffff_ffff)`.
    pub next: u64,
    /// End of the tick in which `end` lies.
    pub boundary: u64,
    /// Interrupt nanoseconds of this CPU, ever, at `end`.
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

/// The time of one interrupt source.
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

/// The time of one kind of interrupt on a CPU. Also a ring record: sent with `len` slots only.
///
/// Interrupts that begin and end in one tick are combined; one that crosses the end of a tick is
/// sent at once and alone, with its `begin` and `end`, so that the reader can divide it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Irq {
    /// `KIND_IRQ`.
    pub header: Header,
    /// End of the tick in which the slots' time lies.
    pub boundary: u64,
    /// 0, or when the only slot's interrupt began.
    pub begin: u64,
    /// 0, or when the only slot's interrupt ended.
    pub end: u64,
    /// Slots in use.
    pub len: u64,
    /// The slots.
    pub slots: [IrqSlot; IRQ_SLOTS],
}

/// Bytes of an [`Irq`] before its slots.
pub const IRQ_PREFIX: usize = size_of::<Irq>() - size_of::<[IrqSlot; IRQ_SLOTS]>();

/// One kind of interrupt (hard or soft) on one CPU: its slots and the one that runs now.
///
/// The two kinds have a value each because a hard interrupt may interrupt the program of a softirq
/// but never the other way round: no program sees its own data half written.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IrqTrack {
    /// Nanoseconds in this kind of interrupt, ever.
    pub total: u64,
    /// When the one that runs now began, or 0.
    pub begin: u64,
    /// Interrupt number or softirq vector of the one that runs now.
    pub number: u64,
    /// Total of the other kind at `begin` (softirq only).
    pub other_at_begin: u64,
    /// What is not sent yet.
    pub pending: Irq,
}

/// What a device moved for one owner.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IoSlot {
    /// Whose, if `context` is `CONTEXT_TASK`; `tid` and `pid` are 0 where only the cgroup is known.
    pub task: Task,
    /// The disk's or interface's name, NUL-padded, any bytes; all 0 for [`crate::record::IO_TAKEN`].
    pub device: [u8; MAX_DEVICE],
    /// Which device, as long as it exists.
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

/// What was moved in a tick, as far as one CPU saw it. Also a ring record: sent with `len` slots
/// only.
///
/// Requests that begin and end in one tick are combined. One that spans ticks is sent at once and
/// alone, with its `begin` and `end`; so is one that was seen in the middle of another's being
/// combined, by an interrupt.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Io {
    /// `KIND_IO`.
    pub header: Header,
    /// End of the tick in which it lies.
    pub boundary: u64,
    /// 0, or when the only slot's request began.
    pub begin: u64,
    /// 0, or when the only slot's request ended.
    pub end: u64,
    /// Number of the combined record on its CPU, so that one which was looked at before it was sent
    /// is not counted twice; 0 for what was sent at once.
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

/// What one CPU saw being moved and has not sent. Array map, indexed by CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct IoState {
    /// The slots.
    pub pending: Io,
    /// 1 while they are written: a program that interrupts this sends its own at once.
    pub busy: u64,
}

/// What the BPF programs of one CPU know. Array map, indexed by CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuState {
    /// Who ran.
    pub run: Run,
    /// Interrupt handlers.
    pub hard: IrqTrack,
    /// Softirqs, without the interrupts that interrupted them.
    pub soft: IrqTrack,
}

/// What the sampler of one CPU has to do: written by user space as a whole, at any time. Array map,
/// indexed by CPU.
///
/// The slots that the CPU may still be reading are not used again until all it sent of them has
/// been read, so a CPU that sees half a change reads slots that nobody knows by this `first` and
/// `len`, and that sample is dropped.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampler {
    /// First slot of this CPU in the perf event array.
    pub first: u32,
    /// Number of counters of this CPU; 0: not a reader CPU.
    pub len: u32,
    /// How many of them, the first ones, are also read at every switch.
    pub at_switch: u32,
    /// One of the `SAMPLER_` constants; the programs change it where they say so.
    pub state: u32,
    /// What went wrong when the timer was started, as a positive errno.
    pub errno: u32,
}

/// How far the sampler of one CPU is: written by the programs of that CPU only. Array map, indexed
/// by CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Sweep {
    /// When the counters were last read.
    pub last_read: u64,
    /// Number of the last sweep.
    pub sequence: u64,
    /// 1 while a sweep is under way: an interrupt in the middle of it does not begin another.
    pub busy: u64,
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

/// What was dropped on one CPU. Per-CPU array map with one entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Drops {
    /// Records that found the ring full, by kind.
    pub records: [u64; KINDS],
    /// Readings that were due in the middle of another.
    pub nested: u64,
    /// Ticks after which the timer could not be started again.
    pub timer: u64,
    /// Timers of other CPUs that fired here: their CPU went offline.
    pub moved: u64,
    /// Block requests that there was no room to remember the owner of.
    pub unowned: u64,
    /// Switches to the thread that leaves which were not seen.
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
    assert!(size_of::<Sampler>() == 20);
    assert!(size_of::<Sweep>() == 24);
    assert!(size_of::<Drops>() == 8 * (KINDS + 5));
};
