//! Bytes that devices moved, by owner and tick, and the rows of `io` that hold them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::sink::Sink;
use super::statistics::Completed;
use super::stream::{AppliedChange, ClosingBin, RawStream, StreamContext, StreamStart};
use crate::assemble::moves::{TransferFlow, Transfers};
use crate::clock::TimeSpan;
use crate::discover::devices;
use crate::discover::pci::join_addresses;
use crate::drain::{DrainedRecord, IoKind, IoRecord, IoTransfer, Mover};
use crate::entries::{DeviceTransfer, LogEntry, Owner};
use crate::identity::names::TaskNames;
use crate::plan::IoDirection;
use crate::schema::io;

/// Bins wait this long for I/O, ns. A request is reported when it ends, later than the other
/// records of its ticks; one that took less than this is still spread over its whole duration.
const LAG_NS: u64 = 50_000_000;

/// Devices and interfaces whose names are cached. Each container may bring an interface. Other
/// names are looked up again when needed.
const MOST_NAMES: usize = 4096;

/// What is known of a device.
#[derive(Debug)]
struct NamedDevice {
    name: Rc<str>,
    /// The PCI functions behind the device, separated by commas.
    functions: Option<String>,
}

/// The I/O of a recording so far.
#[derive(Debug, Default)]
pub(super) struct IoUse {
    root: PathBuf,
    /// Inode of the recorder's own network namespace.
    netns: Option<u64>,
    tick_ns: u64,
    transfers: Transfers,
    devices: HashMap<String, NamedDevice>,
    /// Names by network namespace and interface number.
    interfaces: HashMap<(u32, u32), String>,
    /// By CPU: the combined records that were read from its state and not received since, oldest
    /// first.
    peeked: HashMap<u32, VecDeque<u64>>,
    /// Bytes that requests and packets moved, by the end of the tick in which they ended.
    completed_by_tick: BTreeMap<u64, Completed>,
    /// Reads from interfaces whose name is not known yet, with the ends of their ticks. The CPU
    /// that received the data may send its record later than the reader's CPU.
    unnamed: Vec<(IoTransfer, u64)>,
}

/// What devices moved in a bin.
#[derive(Debug, Default)]
pub(super) struct BinTransfers {
    /// The bytes of requests and packets that ended in it.
    pub completed: Completed,
    /// The bytes by owner, as they are logged.
    pub moved: Vec<DeviceTransfer>,
}

impl RawStream for Option<IoUse> {
    fn start_stream(start: &StreamStart<'_>, _sink: &mut Sink) -> Self {
        let setup = start.setup;
        setup.io.then(|| IoUse::new(setup.root, setup.plan.tick_ns, start.start_ns))
    }

    fn feed_record(&mut self, record: &mut DrainedRecord, context: &mut StreamContext<'_>) {
        if let (Some(io), DrainedRecord::Io(record)) = (self, record) {
            io.feed_record(record, context.names);
        }
    }

    fn apply_change(&mut self, applied: &AppliedChange<'_>, context: &mut StreamContext<'_>) {
        if let Some(io) = self {
            for moved in applied.offline_states.values().filter_map(|state| state.io.as_ref()) {
                io.add_peek(moved, u64::MAX, context.names);
            }
        }
    }

    fn arrival_delay_ns(&self) -> u64 {
        if self.is_some() { LAG_NS } else { 0 }
    }

    fn close_bin(&mut self, closing: &mut ClosingBin, context: &mut StreamContext<'_>) {
        let Some(io) = self else {
            return;
        };
        let end_ns = closing.span.end_ns;
        let moved = io.close_tick(end_ns, closing.is_last, context.names, context.output.sink);
        for transfer in &moved {
            context.request_owner_name(transfer.owner);
            context.output.log_entry(LogEntry::Moved(transfer));
        }
        closing.transfers = Some(BinTransfers { completed: io.take_completed(end_ns), moved });
    }
}

impl IoUse {
    /// Starts before the tick that begins at `start_ns`; sysfs is under `root`.
    pub(super) fn new(root: &Path, tick_ns: u64, start_ns: u64) -> Self {
        let netns = fs::metadata(root.join("proc/self/ns/net"));
        Self {
            root: root.to_owned(),
            netns: netns.ok().map(|file| file.ino()),
            tick_ns,
            transfers: Transfers::new(tick_ns, start_ns),
            ..Self::default()
        }
    }

    /// Takes a record.
    pub(super) fn feed_record(&mut self, io: &IoRecord, names: &mut TaskNames) {
        if let Some((peeked, sequence)) = self.peeked.get_mut(&io.cpu).zip(io.sequence) {
            // Records of a CPU come in order.
            while peeked.pop_front_if(|oldest| *oldest < sequence).is_some() {}
            if peeked.pop_front_if(|oldest| *oldest == sequence).is_some() {
                return;
            }
        }
        self.add_slots(io, names);
    }

    fn add_slots(&mut self, io: &IoRecord, names: &mut TaskNames) {
        let span = io.span;
        for slot in &io.slots {
            self.add_slot(slot, io.tick_end_ns, span, names);
        }
    }

    /// Adds the unsent state of a CPU, if it belongs to a tick that ends by `end_ns`.
    pub(super) fn add_peek(&mut self, unsent: &IoRecord, end_ns: u64, names: &mut TaskNames) {
        if unsent.tick_end_ns > end_ns || unsent.slots.is_empty() {
            return;
        }
        if let Some(sequence) = unsent.sequence {
            let peeked = self.peeked.entry(unsent.cpu).or_default();
            if peeked.back().is_some_and(|newest| *newest >= sequence) {
                return;
            }
            peeked.push_back(sequence);
        }
        self.add_slots(unsent, names);
    }

    /// The bytes that ended in the ticks up to `end_ns`, since the last call.
    pub(super) fn take_completed(&mut self, end_ns: u64) -> Completed {
        let mut completed = Completed::new();
        while let Some(tick) =
            self.completed_by_tick.first_entry().filter(|tick| *tick.key() <= end_ns)
        {
            for (key, bytes) in tick.remove() {
                *completed.entry(key).or_default() += bytes;
            }
        }
        completed
    }

    fn add_slot(
        &mut self,
        slot: &IoTransfer,
        tick_end_ns: u64,
        span: Option<TimeSpan>,
        names: &mut TaskNames,
    ) {
        let (flow, direction) = match slot.kind {
            IoKind::Read => (TransferFlow::Direct, IoDirection::Read),
            IoKind::Write | IoKind::Sent => (TransferFlow::Direct, IoDirection::Write),
            IoKind::Received => (TransferFlow::Received, IoDirection::Read),
            IoKind::Taken => (TransferFlow::Taken, IoDirection::Read),
        };
        let Some(device) = self.find_device(slot) else {
            self.unnamed.push((slot.clone(), tick_end_ns));
            return;
        };
        if flow != TransferFlow::Taken {
            let completed = self.completed_by_tick.entry(tick_end_ns).or_default();
            *completed.entry((Rc::clone(&device), direction)).or_default() += slot.bytes;
        }
        let moved_ns = span.map_or(tick_end_ns, |span| span.end_ns);
        let owner = match slot.mover {
            Mover::Task(task) => names.task_owner(&task, moved_ns),
            Mover::Cgroup(id) => names.owner_in(id, moved_ns),
            Mover::Interrupt(context) => {
                Owner::of_interrupt(context).unwrap_or(Owner::Unattributed)
            }
            Mover::Nobody => Owner::Unattributed,
        };
        let (bytes, requests) = (slot.bytes, slot.requests);
        let is_on_pci = false;
        let moved = DeviceTransfer { device, is_on_pci, direction, owner, bytes, requests };
        self.transfers.add_transfer(flow, &moved, tick_end_ns, span);
    }

    /// The device of a slot; `None` if nothing was received yet on the interface that was read.
    fn find_device(&mut self, slot: &IoTransfer) -> Option<Rc<str>> {
        let name = match slot.kind {
            IoKind::Taken => self.interfaces.get(&slot.interface)?.clone(),
            IoKind::Read | IoKind::Write => slot.device.clone(),
            IoKind::Sent | IoKind::Received => {
                let (netns, _) = slot.interface;
                // A kernel without network namespaces reports no number.
                let is_own =
                    netns == 0 || self.netns.is_none_or(|own_inode| own_inode == u64::from(netns));
                let name = &slot.device;
                let name = if is_own { name.clone() } else { format!("{name}@{netns}") };
                let known = self.interfaces.entry(slot.interface).or_default();
                if *known != name {
                    known.clone_from(&name);
                }
                name
            }
        };
        let root = &self.root;
        let device = self.devices.entry(name).or_insert_with_key(|name| {
            let functions = join_addresses(devices::functions(root, name));
            NamedDevice { name: name.as_str().into(), functions }
        });
        Some(Rc::clone(&device.name))
    }

    /// Closes the tick that ends at `end_ns`, after all its records have been fed. Returns what was
    /// moved.
    pub(super) fn close_tick(
        &mut self,
        end_ns: u64,
        is_last: bool,
        names: &mut TaskNames,
        sink: &mut Sink,
    ) -> Vec<DeviceTransfer> {
        let due: Vec<_> =
            self.unnamed.extract_if(.., |(_, tick_end_ns)| *tick_end_ns <= end_ns).collect();
        for (slot, unnamed_tick) in due {
            self.add_slot(&slot, unnamed_tick, None, names);
        }
        // Nothing was received on these interfaces, so readers have nothing to take over.
        self.unnamed.retain(|(_, tick_end_ns)| *tick_end_ns > end_ns);
        let mut all_moved = self.transfers.close_tick(end_ns, is_last);
        let wants_rows = sink.wants_table(&io::TABLE);
        for moved in &mut all_moved {
            let device = self.devices.get(&*moved.device);
            let functions = device.and_then(|device| device.functions.as_deref());
            moved.is_on_pci = functions.is_some();
            if wants_rows {
                append_row(moved, end_ns, self.tick_ns, functions, &mut sink.rows.io);
            }
        }
        if self.devices.len() > MOST_NAMES {
            self.devices.clear();
        }
        if self.interfaces.len() > MOST_NAMES {
            self.interfaces.clear();
        }
        all_moved
    }
}

fn append_row(
    moved: &DeviceTransfer,
    end_ns: u64,
    tick_ns: u64,
    functions: Option<&str>,
    builder: &mut io::Builder,
) {
    let owner = moved.owner.to_columns();
    builder.append(&io::Row {
        mono_ns: end_ns as i64,
        tick_ns: tick_ns as i64,
        device: &moved.device,
        bdf: functions,
        direction: moved.direction.direction_name(),
        owner: owner.kind,
        pid: owner.pid,
        comm: owner.process.as_deref(),
        cgroup_id: owner.cgroup_id,
        number: owner.number,
        bytes: moved.bytes,
        requests: moved.requests,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::{Comm, TaskIdentity};
    use crate::identity::cgroups::Cgroups;

    #[test]
    fn a_reader_has_its_bytes_though_its_record_comes_first() {
        let root = tempfile::tempdir().unwrap();
        let mut names =
            TaskNames::new(root.path(), Cgroups::new(None, root.path(), Vec::new()), Vec::new());
        let mut moved = IoUse::new(root.path(), 1000, 0);
        let record = |cpu, kind, mover, device: &str| {
            let device = device.to_owned();
            let slot =
                IoTransfer { kind, mover, device, interface: (0, 3), bytes: 64, requests: 1 };
            IoRecord { cpu, tick_end_ns: 1000, slots: vec![slot], ..IoRecord::default() }
        };
        let reader =
            TaskIdentity { tid: 7, pid: 7, cgroup_id: 9, comm: Comm::from_bytes(b"reader") };
        moved.feed_record(&record(1, IoKind::Taken, Mover::Task(reader), ""), &mut names);
        moved.feed_record(&record(0, IoKind::Received, Mover::Nobody, "eth0"), &mut names);
        let rows = moved.close_tick(1000, true, &mut names, &mut Sink::default());
        let found: Vec<_> = rows.iter().map(|row| (&*row.device, row.owner, row.bytes)).collect();
        assert_eq!(found, [("eth0", names.task_owner(&reader, 1000), 64)]);
    }

    #[test]
    fn a_record_counts_once_though_it_was_read_before_it_was_sent() {
        let root = tempfile::tempdir().unwrap();
        let mut names =
            TaskNames::new(root.path(), Cgroups::new(None, root.path(), Vec::new()), Vec::new());
        let mut used = IoUse::new(root.path(), 1000, 0);
        let record = |sequence, tick_end_ns| {
            let (kind, mover, interface) = (IoKind::Read, Mover::Nobody, (0, 0));
            let device = "sda".to_owned();
            let slot = IoTransfer { kind, mover, device, interface, bytes: 64, requests: 1 };
            let sequence = Some(sequence);
            IoRecord { tick_end_ns, sequence, slots: vec![slot], ..IoRecord::default() }
        };
        let (first, second, third) = (record(1, 1000), record(2, 2000), record(3, 3000));
        used.add_peek(&first, 1000, &mut names);
        used.add_peek(&first, 1000, &mut names);
        // The first was sent, and the second is read before the first is received.
        used.add_peek(&second, 2000, &mut names);
        for record in [&first, &second, &third] {
            used.feed_record(record, &mut names);
        }
        let ended: u64 = used.take_completed(3000).values().sum();
        assert_eq!(ended, 3 * 64);
    }

    #[test]
    fn interfaces_that_come_and_go_are_forgotten() {
        let root = tempfile::tempdir().unwrap();
        let mut names =
            TaskNames::new(root.path(), Cgroups::new(None, root.path(), Vec::new()), Vec::new());
        let mut used = IoUse::new(root.path(), 1000, 0);
        for number in 0..2 * MOST_NAMES as u64 {
            let tick_end_ns = (number + 1) * 1_000_000;
            let (kind, mover, interface) = (IoKind::Received, Mover::Nobody, (0, number as u32));
            let device = format!("veth{number}");
            let slot = IoTransfer { kind, mover, device, interface, bytes: 64, requests: 1 };
            let record = IoRecord { tick_end_ns, slots: vec![slot], ..IoRecord::default() };
            used.feed_record(&record, &mut names);
            used.close_tick(tick_end_ns, false, &mut names, &mut Sink::default());
        }
        assert!(used.devices.len() <= MOST_NAMES && used.interfaces.len() <= MOST_NAMES);
        assert!(used.transfers.unread_devices() < 200, "{}", used.transfers.unread_devices());
    }
}
