//! Decodes ring records. An unknown kind or a record that is too short is an error, which the
//! caller counts. Bytes are never reinterpreted as a type.

use std::borrow::Cow;
use std::fmt;

use bytes::Buf;
use uncore_trace_common::record::{
    CGROUP_ATTACH, CGROUP_MKDIR, CGROUP_RMDIR, CONTEXT_IRQ, CONTEXT_NOBODY, CONTEXT_SOFTIRQ,
    CONTEXT_TASK, FILE_DOUBT, FILE_FORK, FILE_GOT, FILE_LEFT, FILE_SEEN, IO_READ, IO_RECEIVED,
    IO_SENT, IO_TAKEN, IO_WRITE, KIND_CGROUP, KIND_FILE, KIND_IO, KIND_IRQ, KIND_RUN, KIND_SAMPLE,
    KIND_TASK, MAX_PATH, MINOR_BITS, READ_FAILED, TASK_EXEC, TASK_EXIT, TRIGGER_IRQ, TRIGGER_SCHED,
    TRIGGER_SOFTIRQ, TRIGGER_TIMER,
};
use uncore_trace_common::state::MAX_DEVICE;
use uncore_trace_common::{record, state};

use crate::clock::TimeSpan;
use crate::discover::nodes::DeviceNumber;

/// A thread's name as the kernel stores it: up to 15 arbitrary bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Comm(pub [u8; 16]);

impl Comm {
    /// The name as text; invalid UTF-8 is replaced.
    pub fn to_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(until_nul(&self.0))
    }

    /// The name in the form of the tables: its text has at most 15 bytes and converts back to the
    /// same name. The kernel accepts any bytes, and may cut a name in the middle of a character.
    #[must_use]
    pub fn to_table_form(self) -> Self {
        let name = until_nul(&self.0);
        if name.len() <= 15 && std::str::from_utf8(name).is_ok() {
            // Older kernels leave what was behind the end (`bpf_get_current_comm`,
            // kernel/bpf/helpers.c, Linux 6.1); the same names must be equal.
            return Self::from_bytes(name);
        }
        let text = self.to_text();
        let end = (0..=15.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
        Self::from_bytes(text.as_bytes().get(..end.unwrap_or(0)).unwrap_or_default())
    }

    /// A name from text, cut at 15 bytes.
    pub fn from_bytes(name: &[u8]) -> Self {
        let mut comm = [0; 16];
        for (target, byte) in comm.iter_mut().take(15).zip(name) {
            *target = *byte;
        }
        Self(comm)
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_text())
    }
}

/// The identity of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct TaskIdentity {
    /// Thread id; 0 is the idle task.
    pub tid: u32,
    /// Process id.
    pub pid: u32,
    /// Id of its cgroup in the v2 hierarchy.
    pub cgroup_id: u64,
    /// Name of the thread.
    pub comm: Comm,
}

/// The result of reading a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawReading {
    /// Cumulative values since the counter was opened.
    Counted {
        /// Raw count.
        value: u64,
        /// Time enabled, ns.
        enabled: u64,
        /// Time running, ns.
        running: u64,
    },
    /// The kernel's errno.
    Failed(i32),
}

/// What triggered a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleTrigger {
    /// The sampler's timer.
    Timer,
    /// A context switch.
    Sched,
    /// An interrupt handler's entry or exit.
    Irq,
    /// A softirq's entry or exit.
    Softirq,
}

impl SampleTrigger {
    /// The name in the tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timer => "timer",
            Self::Sched => "sched",
            Self::Irq => "irq",
            Self::Softirq => "softirq",
        }
    }
}

/// What a CPU was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuContext {
    /// Running the current task.
    Task,
    /// In the handler of this interrupt.
    Irq(u32),
    /// In the softirq of this vector.
    Softirq(u32),
}

/// The counters that one CPU has read in one sweep: all of its own, those that it reads at every
/// switch, or those that it reads for another CPU. The slots tell which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleRecord {
    /// The CPU that read them.
    pub cpu: u32,
    /// Time before the first read, ns on `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    /// Time after the last read.
    pub end_ns: u64,
    /// Sequence number on its CPU.
    pub sequence: u64,
    /// What triggered it.
    pub trigger: SampleTrigger,
    /// What the CPU was doing before it.
    pub context: CpuContext,
    /// The current task.
    pub task: TaskIdentity,
    /// The slot of the first reading, which identifies the counters.
    pub first_slot: u32,
    /// The readings, in the order of the CPU's slots.
    pub readings: Vec<RawReading>,
}

/// The time of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSlot {
    /// The task.
    pub task: TaskIdentity,
    /// Time on the CPU, including interrupts.
    pub wall_ns: u64,
    /// The part of it that interrupts took.
    pub irq_ns: u64,
    /// Number of combined slices.
    pub slices: u64,
}

/// Which tasks ran on a CPU from `begin_ns` to `end_ns`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RunRecord {
    /// The CPU.
    pub cpu: u32,
    /// Start of the first slot.
    pub begin_ns: u64,
    /// Begin of the last slot, if that is one slice which crosses the end of its tick; otherwise
    /// `end_ns`.
    pub last_slot_begin: u64,
    /// End of the last slot.
    pub end: u64,
    /// The slots.
    pub slots: Vec<TaskSlot>,
}

impl RunRecord {
    /// Whether the slots fill the time of the record, as those of the programs do. If not, the
    /// record is inconsistent and its time cannot be attributed.
    fn adds_up(&self) -> bool {
        let Self { begin_ns: begin, last_slot_begin: last_begin, end, ref slots, .. } = *self;
        let (combined, crossing) = match slots.split_last() {
            Some((crossing, combined)) if last_begin < end => (combined, crossing.wall_ns),
            _ => (slots.as_slice(), 0),
        };
        let mut walls = combined.iter().map(|slot| slot.wall_ns);
        let sum = walls.try_fold(0, u64::checked_add);
        begin <= last_begin
            && last_begin <= end
            && sum == Some(last_begin - begin)
            && crossing == end - last_begin
    }
}

/// The time of one interrupt source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrqTime {
    /// `CpuContext::Irq` or `CpuContext::Softirq`.
    pub source: CpuContext,
    /// Nanoseconds.
    pub ns: u64,
    /// Number of interrupts.
    pub count: u64,
}

/// Interrupt time on a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct IrqRecord {
    /// The CPU.
    pub cpu: u32,
    /// End of the tick that contains it.
    pub tick_end_ns: u64,
    /// Begin and end of a single interrupt that crosses the end of a tick.
    pub span: Option<TimeSpan>,
    /// The sources.
    pub slots: Vec<IrqTime>,
}

/// An action of a device, as seen by the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// A disk read.
    Read,
    /// A disk wrote.
    Write,
    /// An interface was given a packet to send.
    Sent,
    /// An interface received a packet.
    Received,
    /// A task read what an interface had received.
    Taken,
}

/// The owner of an action, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// A task, in the cgroup that the bytes belong to.
    Task(TaskIdentity),
    /// An unknown task in a cgroup.
    Cgroup(u64),
    /// An interrupt handler or a softirq.
    Interrupt(CpuContext),
    /// Unknown.
    Nobody,
}

/// What a device moved for one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoTransfer {
    /// The action.
    pub kind: IoKind,
    /// The owner.
    pub mover: Mover,
    /// Name of the disk or interface; empty for [`IoKind::Taken`].
    pub device: String,
    /// Network namespace and number of an interface.
    pub interface: (u32, u32),
    /// Bytes.
    pub bytes: u64,
    /// Number of completed requests, of packets, or of reads by a task.
    pub requests: u64,
}

/// I/O that was seen on a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct IoRecord {
    /// The CPU.
    pub cpu: u32,
    /// End of the tick that contains it.
    pub tick_end_ns: u64,
    /// Begin and end of a single request that spans several ticks.
    pub span: Option<TimeSpan>,
    /// Sequence number of the combined record on its CPU; `None` for a record that was sent at
    /// once.
    pub sequence: Option<u64>,
    /// The slots.
    pub slots: Vec<IoTransfer>,
}

/// What happened to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskChange {
    /// It executed a new program; `comm` is the new name.
    Exec,
    /// It exited.
    Exit,
}

/// A task's exec or exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    /// Time, ns.
    pub time_ns: u64,
    /// Kind of the event.
    pub change: TaskChange,
    /// The task.
    pub task: TaskIdentity,
}

/// What happened to a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupChange {
    /// Created.
    Created,
    /// Removed.
    Removed,
    /// This thread, or the process that it leads, was moved into the cgroup.
    Attached(u32),
}

/// A change of the v2 hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupRecord {
    /// Time, ns.
    pub time_ns: u64,
    /// Kind of the change.
    pub change: CgroupChange,
    /// The cgroup.
    pub cgroup_id: u64,
    /// Its path; `None` if it was longer than the record.
    pub path: Option<String>,
}

/// What happened to the files of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// It has one of the device.
    Seen,
    /// It got its first one of the device.
    Got,
    /// It left its last one of the device.
    Left,
    /// It left one of the device, and may have others.
    Doubt,
    /// It has copies of those of this process.
    Fork(u32),
}

/// A process got or left the file of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// Time, ns.
    pub time_ns: u64,
    /// Kind of the event.
    pub change: FileChange,
    /// The device.
    pub number: DeviceNumber,
    /// The task; of a copy, the new one.
    pub task: TaskIdentity,
}

/// Any record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainedRecord {
    /// Readings.
    Sample(SampleRecord),
    /// Which tasks ran.
    Run(RunRecord),
    /// Interrupts.
    Irq(IrqRecord),
    /// Exec or exit.
    Task(TaskRecord),
    /// Cgroup change.
    Cgroup(CgroupRecord),
    /// Bytes that devices moved.
    Io(IoRecord),
    /// Files of devices.
    File(FileRecord),
}

impl DrainedRecord {
    /// When it was sent, ns on `CLOCK_MONOTONIC`. The programs send the time of interrupts and the
    /// bytes of devices only when a slot is needed, so their time says nothing about the ring.
    pub const fn sent_ns(&self) -> Option<u64> {
        match self {
            Self::Run(run) => Some(run.end),
            Self::Sample(sample) => Some(sample.end_ns),
            Self::Task(event) => Some(event.time_ns),
            Self::Cgroup(event) => Some(event.time_ns),
            Self::File(event) => Some(event.time_ns),
            Self::Irq(_) | Self::Io(_) => None,
        }
    }
}

/// A record that this program cannot decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// The kind is unknown: the programs are newer.
    #[error("a record of the unknown kind {0}")]
    Kind(u32),
    /// A field has an invalid value.
    #[error("a record of kind {0} with an invalid value")]
    Value(u32),
    /// The record is shorter than its content.
    #[error("a record that is too short")]
    Short,
}

impl From<bytes::TryGetError> for Undecodable {
    fn from(_: bytes::TryGetError) -> Self {
        Self::Short
    }
}

/// Reads consecutive numbers of 32 bits.
fn read_u32s<const N: usize>(data: &mut &[u8]) -> Result<[u32; N], Undecodable> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = data.try_get_u32_ne()?;
    }
    Ok(numbers)
}

/// Reads consecutive numbers of 64 bits.
fn read_u64s<const N: usize>(data: &mut &[u8]) -> Result<[u64; N], Undecodable> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = data.try_get_u64_ne()?;
    }
    Ok(numbers)
}

/// Decodes one record.
pub fn decode_record(mut bytes: &[u8]) -> Result<DrainedRecord, Undecodable> {
    let data = &mut bytes;
    let [record_kind, cpu] = read_u32s(data)?;
    match record_kind {
        KIND_SAMPLE => decode_sample(data, cpu).map(DrainedRecord::Sample),
        KIND_RUN => decode_run(data, cpu).map(DrainedRecord::Run),
        KIND_IRQ => decode_irq(data, cpu).map(DrainedRecord::Irq),
        KIND_TASK => decode_task_event(data).map(DrainedRecord::Task),
        KIND_CGROUP => decode_cgroup_event(data).map(DrainedRecord::Cgroup),
        KIND_IO => decode_io(data, cpu).map(DrainedRecord::Io),
        KIND_FILE => decode_file_event(data).map(DrainedRecord::File),
        unknown => Err(Undecodable::Kind(unknown)),
    }
}

fn decode_sample(data: &mut &[u8], cpu: u32) -> Result<SampleRecord, Undecodable> {
    let [begin_ns, end_ns, sequence] = read_u64s(data)?;
    if end_ns < begin_ns {
        return Err(Undecodable::Value(KIND_SAMPLE));
    }
    let trigger = match data.try_get_u32_ne()? {
        TRIGGER_TIMER => SampleTrigger::Timer,
        TRIGGER_SCHED => SampleTrigger::Sched,
        TRIGGER_IRQ => SampleTrigger::Irq,
        TRIGGER_SOFTIRQ => SampleTrigger::Softirq,
        _ => return Err(Undecodable::Value(KIND_SAMPLE)),
    };
    let [len, first_slot, _reserved] = read_u32s(data)?;
    let context = decode_context(data, KIND_SAMPLE)?;
    let task = decode_task(data)?;
    let readings = decode_list::<record::Reading, _>(data, u64::from(len), decode_reading)?;
    Ok(SampleRecord {
        cpu,
        begin_ns,
        end_ns,
        sequence,
        trigger,
        context,
        task,
        first_slot,
        readings,
    })
}

/// Reads `len` items that the programs wrote as `Raw`. `len` is not trusted: memory is reserved
/// only for as many as the record can hold.
fn decode_list<Raw, T>(
    data: &mut &[u8],
    len: u64,
    read: impl Fn(&mut &[u8]) -> Result<T, Undecodable>,
) -> Result<Vec<T>, Undecodable> {
    let max_len = data.len() / size_of::<Raw>();
    let mut items = Vec::with_capacity(usize::try_from(len).unwrap_or(max_len).min(max_len));
    for _ in 0..len {
        items.push(read(data)?);
    }
    Ok(items)
}

fn decode_reading(data: &mut &[u8]) -> Result<RawReading, Undecodable> {
    let [value, enabled, running] = read_u64s(data)?;
    Ok(if enabled == READ_FAILED {
        RawReading::Failed(i32::try_from(value).unwrap_or(i32::MAX))
    } else {
        RawReading::Counted { value, enabled, running }
    })
}

fn decode_context(data: &mut &[u8], record_kind: u32) -> Result<CpuContext, Undecodable> {
    let [context, number] = read_u32s(data)?;
    match context {
        CONTEXT_TASK => Ok(CpuContext::Task),
        CONTEXT_IRQ => Ok(CpuContext::Irq(number)),
        CONTEXT_SOFTIRQ => Ok(CpuContext::Softirq(number)),
        _ => Err(Undecodable::Value(record_kind)),
    }
}

fn decode_task(data: &mut &[u8]) -> Result<TaskIdentity, Undecodable> {
    let [tid, pid] = read_u32s(data)?;
    let cgroup_id = data.try_get_u64_ne()?;
    let mut comm = [0; 16];
    data.try_copy_to_slice(&mut comm)?;
    Ok(TaskIdentity { tid, pid, cgroup_id, comm: Comm(comm) })
}

fn decode_run(data: &mut &[u8], cpu: u32) -> Result<RunRecord, Undecodable> {
    let [begin_ns, last_slot_begin, end_ns, _next, _boundary, _irq_at_end, len] = read_u64s(data)?;
    let slots = decode_list::<state::Slot, _>(data, len, decode_task_slot)?;
    let run = RunRecord { cpu, begin_ns, last_slot_begin, end: end_ns, slots };
    if run.adds_up() { Ok(run) } else { Err(Undecodable::Value(KIND_RUN)) }
}

fn decode_task_slot(data: &mut &[u8]) -> Result<TaskSlot, Undecodable> {
    let task = decode_task(data)?;
    let [wall_ns, irq_ns] = read_u64s(data)?;
    // Only the programs use the key.
    let [slices, _key] = read_u32s(data)?;
    Ok(TaskSlot { task, wall_ns, irq_ns, slices: u64::from(slices) })
}

fn decode_irq(data: &mut &[u8], cpu: u32) -> Result<IrqRecord, Undecodable> {
    let [tick_end_ns, begin_ns, end_ns, len] = read_u64s(data)?;
    let span = (begin_ns != 0 && end_ns > begin_ns).then_some(TimeSpan { begin_ns, end_ns });
    let slots = decode_list::<state::IrqSlot, _>(data, len, decode_irq_time)?;
    Ok(IrqRecord { cpu, tick_end_ns, span, slots })
}

fn decode_irq_time(data: &mut &[u8]) -> Result<IrqTime, Undecodable> {
    let source = decode_context(data, KIND_IRQ)?;
    // Task time is not interrupt time, and has no row in `irqs`.
    if source == CpuContext::Task {
        return Err(Undecodable::Value(KIND_IRQ));
    }
    let [ns, count] = read_u64s(data)?;
    Ok(IrqTime { source, ns, count })
}

fn decode_task_event(data: &mut &[u8]) -> Result<TaskRecord, Undecodable> {
    let time_ns = data.try_get_u64_ne()?;
    let change = match data.try_get_u32_ne()? {
        TASK_EXEC => TaskChange::Exec,
        TASK_EXIT => TaskChange::Exit,
        _ => return Err(Undecodable::Value(KIND_TASK)),
    };
    let _reserved = data.try_get_u32_ne()?;
    Ok(TaskRecord { time_ns, change, task: decode_task(data)? })
}

fn decode_cgroup_event(data: &mut &[u8]) -> Result<CgroupRecord, Undecodable> {
    let time_ns = data.try_get_u64_ne()?;
    let [change_code, tid] = read_u32s(data)?;
    let change = match change_code {
        CGROUP_MKDIR => CgroupChange::Created,
        CGROUP_RMDIR => CgroupChange::Removed,
        CGROUP_ATTACH => CgroupChange::Attached(tid),
        _ => return Err(Undecodable::Value(KIND_CGROUP)),
    };
    let cgroup_id = data.try_get_u64_ne()?;
    let path = until_nul(data.get(..MAX_PATH).ok_or(Undecodable::Short)?);
    // A path that fills the record may have been cut.
    let path = (!path.is_empty() && path.len() < MAX_PATH - 1)
        .then(|| String::from_utf8_lossy(path).into_owned());
    Ok(CgroupRecord { time_ns, change, cgroup_id, path })
}

fn decode_file_event(data: &mut &[u8]) -> Result<FileRecord, Undecodable> {
    let time_ns = data.try_get_u64_ne()?;
    let [change_code, device, is_block, parent] = read_u32s(data)?;
    let change = match change_code {
        FILE_SEEN => FileChange::Seen,
        FILE_GOT => FileChange::Got,
        FILE_LEFT => FileChange::Left,
        FILE_DOUBT => FileChange::Doubt,
        FILE_FORK => FileChange::Fork(parent),
        _ => return Err(Undecodable::Value(KIND_FILE)),
    };
    let (major, minor) = (device >> MINOR_BITS, device & ((1 << MINOR_BITS) - 1));
    let number = DeviceNumber { is_block: is_block != 0, major, minor };
    Ok(FileRecord { time_ns, change, number, task: decode_task(data)? })
}

fn decode_io(data: &mut &[u8], cpu: u32) -> Result<IoRecord, Undecodable> {
    let [tick_end_ns, begin_ns, end_ns, sequence, len, _total] = read_u64s(data)?;
    let span = (begin_ns != 0 && end_ns > begin_ns).then_some(TimeSpan { begin_ns, end_ns });
    let slots = decode_list::<state::IoSlot, _>(data, len, decode_io_slot)?;
    Ok(IoRecord { cpu, tick_end_ns, span, sequence: (sequence != 0).then_some(sequence), slots })
}

fn decode_io_slot(data: &mut &[u8]) -> Result<IoTransfer, Undecodable> {
    let task = decode_task(data)?;
    let mut device = [0; MAX_DEVICE];
    data.try_copy_to_slice(&mut device)?;
    // The address of the device is used by the programs only.
    let [_key, bytes] = read_u64s(data)?;
    let [requests, kind_code] = read_u32s(data)?;
    let kind = io_kind(kind_code)?;
    let [context, number, ifindex, netns] = read_u32s(data)?;
    let mover = mover_of(context, number, task)?;
    let (device, interface) = (device_name(&device), (netns, ifindex));
    let requests = u64::from(requests);
    Ok(IoTransfer { kind, mover, device, interface, bytes, requests })
}

/// The kind of a slot.
pub(super) fn io_kind(code: u32) -> Result<IoKind, Undecodable> {
    Ok(match code {
        IO_READ => IoKind::Read,
        IO_WRITE => IoKind::Write,
        IO_SENT => IoKind::Sent,
        IO_RECEIVED => IoKind::Received,
        IO_TAKEN => IoKind::Taken,
        _ => return Err(Undecodable::Value(KIND_IO)),
    })
}

/// The owner of a slot.
pub(super) const fn mover_of(
    context: u32,
    number: u32,
    task: TaskIdentity,
) -> Result<Mover, Undecodable> {
    Ok(match context {
        CONTEXT_TASK if task.tid == 0 => Mover::Cgroup(task.cgroup_id),
        CONTEXT_TASK => Mover::Task(task),
        CONTEXT_IRQ => Mover::Interrupt(CpuContext::Irq(number)),
        CONTEXT_SOFTIRQ => Mover::Interrupt(CpuContext::Softirq(number)),
        CONTEXT_NOBODY => Mover::Nobody,
        _ => return Err(Undecodable::Value(KIND_IO)),
    })
}

/// The name of a device up to its first NUL; invalid UTF-8 is replaced.
pub(super) fn device_name(name: &[u8]) -> String {
    String::from_utf8_lossy(until_nul(name)).into_owned()
}

/// The bytes before the first NUL, or all.
fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests;
