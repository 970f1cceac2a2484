//! Ring-buffer records. Each begins with a [`Header`]; `kind` decides the rest.

/// Counters that one reader CPU can carry: the readings of a tick fit one record.
///
/// 192 is what a two-socket server needs when all its memory controllers, I/O stacks and links
/// are read from one CPU of each socket, and keeps the record below 5 KiB.
pub const MAX_COUNTERS: usize = 192;

/// Bytes of a cgroup path that are sent; a longer one is looked up by its id.
pub const MAX_PATH: usize = 256;

/// `Header::kind` of a [`Sample`].
pub const KIND_SAMPLE: u32 = 1;
/// `Header::kind` of a [`crate::state::Run`].
pub const KIND_RUN: u32 = 2;
/// `Header::kind` of a [`crate::state::Irq`].
pub const KIND_IRQ: u32 = 3;
/// `Header::kind` of a [`TaskEvent`].
pub const KIND_TASK: u32 = 4;
/// `Header::kind` of a [`CgroupEvent`].
pub const KIND_CGROUP: u32 = 5;
/// `Header::kind` of a [`crate::state::Io`].
pub const KIND_IO: u32 = 6;
/// `Header::kind` of a [`FileEvent`].
pub const KIND_FILE: u32 = 7;
/// One more than the highest kind.
pub const KINDS: usize = 8;

/// A reading made by the sampler's timer, just after the end of a tick. User space computes from its
/// time which tick that is. Readings with other triggers end no tick.
pub const TRIGGER_TIMER: u32 = 0;
/// A reading made at `sched_switch`, before the switch to the next task.
pub const TRIGGER_SCHED: u32 = 1;
/// A reading made at the entry or exit of an interrupt handler.
pub const TRIGGER_IRQ: u32 = 2;
/// A reading made at the entry or exit of a softirq.
pub const TRIGGER_SOFTIRQ: u32 = 3;
/// One more than the highest trigger.
pub const TRIGGERS: usize = 4;

/// The CPU was running a task (or idle: tid 0).
pub const CONTEXT_TASK: u32 = 0;
/// The CPU was in an interrupt handler.
pub const CONTEXT_IRQ: u32 = 1;
/// The CPU was in a softirq.
pub const CONTEXT_SOFTIRQ: u32 = 2;
/// The owner is not known.
pub const CONTEXT_NOBODY: u32 = 3;

/// A disk's read, from the device into memory.
pub const IO_READ: u32 = 0;
/// A disk's write.
pub const IO_WRITE: u32 = 1;
/// A packet that an interface was given to send.
pub const IO_SENT: u32 = 2;
/// A packet that an interface received.
pub const IO_RECEIVED: u32 = 3;
/// Bytes that a task read from a socket of packets that an interface had received.
pub const IO_TAKEN: u32 = 4;

/// `Reading::enabled` of a reading that failed; `value` is then the errno.
///
/// A counter that is enabled has run for far less than 2^64 ns, so this is no valid time.
pub const READ_FAILED: u64 = u64::MAX;

/// A task has replaced its program; `comm` is the new one.
pub const TASK_EXEC: u32 = 1;
/// A task exits.
pub const TASK_EXIT: u32 = 2;

/// A cgroup of the v2 hierarchy was made.
pub const CGROUP_MKDIR: u32 = 1;
/// A cgroup of the v2 hierarchy was removed.
pub const CGROUP_RMDIR: u32 = 2;
/// A task was moved into a cgroup of the v2 hierarchy.
pub const CGROUP_ATTACH: u32 = 3;

/// A process has the file of a watched device open; only the iterator over all files says so.
pub const FILE_SEEN: u32 = 0;
/// A process has got the file of a watched device: it opened or received it.
pub const FILE_GOT: u32 = 1;
/// A process has closed its last file of a watched device.
pub const FILE_LEFT: u32 = 2;
/// A process has closed a file of a watched device, and has too many files to be looked through.
pub const FILE_DOUBT: u32 = 3;
/// A process that may have files of watched devices has made another, which has copies of them.
pub const FILE_FORK: u32 = 4;

/// In `FileEvent::device`: bits of the minor number, `MINORBITS` of `include/linux/kdev_t.h`, Linux
/// 6.1 to 7.2.
pub const MINOR_BITS: u32 = 20;

/// The begin of every record.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Header {
    /// One of the `KIND_` constants.
    pub kind: u32,
    /// The CPU on which the record was made.
    pub cpu: u32,
}

/// Identity of a task, as the BPF helpers return it for `current`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Task {
    /// Thread id in the initial PID namespace; 0 is the idle task.
    pub tid: u32,
    /// Process (thread group) id in the initial PID namespace.
    pub pid: u32,
    /// Id of the task's cgroup in the v2 hierarchy.
    pub cgroup_id: u64,
    /// Name of the thread, NUL-padded, any bytes.
    pub comm: [u8; 16],
}

/// One counter as `bpf_perf_event_read_value` returned it, cumulative since it was opened.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Raw count, or the errno if `enabled` is [`READ_FAILED`].
    pub value: u64,
    /// Nanoseconds for which the counter has been enabled.
    pub enabled: u64,
    /// Nanoseconds for which the counter was running.
    pub running: u64,
}

/// All counters of one reader CPU, read in one sweep. Sent with `len` readings only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// `KIND_SAMPLE`.
    pub header: Header,
    /// `CLOCK_MONOTONIC` before the first read.
    pub begin: u64,
    /// `CLOCK_MONOTONIC` after the last read.
    pub end: u64,
    /// Number of this sweep on its CPU; a missing number shows that the ring refused a sweep.
    pub sequence: u64,
    /// One of the `TRIGGER_` constants.
    pub trigger: u32,
    /// Number of readings that follow.
    pub len: u32,
    /// Slot of the first reading in the perf event array. Slot and CPU identify the counters, even
    /// if the CPU has other counters when the record is read.
    pub first: u32,
    /// Zero.
    pub reserved: u32,
    /// Context of the CPU until this reading: one of the `CONTEXT_` constants.
    pub context: u32,
    /// Interrupt number or softirq vector of `context`, else 0.
    pub number: u32,
    /// The task that was current.
    pub task: Task,
    /// The readings, in the order of the CPU's slots in the perf event array.
    pub readings: [Reading; MAX_COUNTERS],
}

/// Bytes of a [`Sample`] before its readings.
pub const SAMPLE_PREFIX: usize = size_of::<Sample>() - size_of::<[Reading; MAX_COUNTERS]>();

/// A task's exec or exit.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TaskEvent {
    /// `KIND_TASK`.
    pub header: Header,
    /// `CLOCK_MONOTONIC` of the event.
    pub time: u64,
    /// `TASK_EXEC` or `TASK_EXIT`.
    pub what: u32,
    /// Zero.
    pub reserved: u32,
    /// The task.
    pub task: Task,
}

/// A cgroup made or removed, or a task moved into one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CgroupEvent {
    /// `KIND_CGROUP`.
    pub header: Header,
    /// `CLOCK_MONOTONIC` of the event.
    pub time: u64,
    /// One of the `CGROUP_` constants.
    pub what: u32,
    /// The thread that was moved, or 0.
    pub tid: u32,
    /// Id of the cgroup.
    pub cgroup_id: u64,
    /// Its path below the hierarchy's root, NUL-terminated, cut off at [`MAX_PATH`].
    pub path: [u8; MAX_PATH],
}

/// A process got or left the file of a device. The iterator over all files writes it too.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FileEvent {
    /// `KIND_FILE`.
    pub header: Header,
    /// `CLOCK_MONOTONIC` of the event.
    pub time: u64,
    /// One of the `FILE_` constants.
    pub what: u32,
    /// The device, as the kernel numbers it: major << [`MINOR_BITS`] | minor. 0 of a fork.
    pub device: u32,
    /// 1 if it is a block device, 0 if it is a character device.
    pub block: u32,
    /// The process that forked, or 0.
    pub parent: u32,
    /// The task; of a fork, the new one.
    pub task: Task,
}

// No implicit padding: a size is the sum of its fields' sizes.
const _: () = {
    assert!(size_of::<Header>() == 8);
    assert!(size_of::<Task>() == 32);
    assert!(size_of::<Reading>() == 24);
    assert!(SAMPLE_PREFIX == 8 + 8 + 8 + 8 + 4 + 4 + 4 + 4 + 4 + 4 + 32);
    assert!(size_of::<TaskEvent>() == 8 + 8 + 8 + 32);
    assert!(size_of::<FileEvent>() == 8 + 8 + 4 * 4 + 32);
    assert!(size_of::<CgroupEvent>() == 8 + 8 + 8 + 8 + MAX_PATH);
};
