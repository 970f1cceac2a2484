//! Bytes that devices moved, by tick and owner.
//!
//! Guarantee: whatever is spread over ticks sums to the reported bytes exactly. The part of a
//! request that lies in closed ticks goes to the first open tick. Bytes that an interface received
//! belong to the task that reads them, in the tick of the read. Bytes that no task
//! reads within [`UNREAD_NS`] belong to the device.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;

use super::span::proportion;
use crate::clock::TimeSpan;
use crate::entries::{DeviceTransfer, MovedSum, Owner};
use crate::plan::IoDirection;

/// Time within which received bytes must be read, ns; bytes read later, or never, belong to the
/// device. Traffic that is forwarded, or read without a copy, is reported
/// this much later.
pub(super) const UNREAD_NS: u64 = 100_000_000;

/// How the owner of bytes is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferFlow {
    /// The bytes belong to the given owner.
    Direct,
    /// An interface received the bytes; their owner is known when they are read.
    Received,
    /// The owner read bytes that the interface had received.
    Taken,
}

/// Received and unread data, oldest first.
type Unread = VecDeque<ReceivedData>;

/// What an interface received in a tick, and no task has read.
#[derive(Clone, Copy, Debug, Default)]
struct ReceivedData {
    tick_end_ns: u64,
    bytes: u64,
    packets: u64,
}

/// The transfers of the ticks that are open.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    tick_ns: u64,
    /// Transfers before this time are not counted.
    start_ns: u64,
    /// End of the last closed tick.
    closed_ns: u64,
    /// By the end of the tick.
    open_ticks: BTreeMap<u64, OpenTick>,
    unread: BTreeMap<Rc<str>, Unread>,
}

#[derive(Debug, Default)]
struct OpenTick {
    direct: MovedSum,
    received: HashMap<Rc<str>, ReceivedData>,
    read_by_tasks: MovedSum,
}

impl Transfers {
    /// Starts with the tick that begins at `start_ns`, a multiple of `tick_ns`.
    pub(super) fn new(tick_ns: u64, start_ns: u64) -> Self {
        Self { tick_ns, start_ns, closed_ns: start_ns, ..Self::default() }
    }

    /// Adds a transfer: to the tick that ends at `tick_end_ns`, or spread evenly over `span`. The
    /// part before the start is ignored.
    pub(super) fn add_transfer(
        &mut self,
        flow: TransferFlow,
        moved: &DeviceTransfer,
        tick_end_ns: u64,
        span: Option<TimeSpan>,
    ) {
        let Some(span) = span.filter(|span| span.begin_ns < span.end_ns) else {
            if tick_end_ns > self.start_ns {
                self.add_to_tick(flow, moved, tick_end_ns.max(self.closed_ns + self.tick_ns));
            }
            return;
        };
        let portion =
            |until_ns: u64| proportion(moved.bytes, until_ns - span.begin_ns, span.len_ns());
        let mut from_ns = span.begin_ns.max(self.start_ns);
        let mut assigned_bytes = portion(from_ns.min(span.end_ns));
        while from_ns < span.end_ns {
            // The part in closed ticks goes to the first open tick.
            let until_ns = self.tick_after(from_ns.max(self.closed_ns)).min(span.end_ns);
            let bytes = portion(until_ns) - assigned_bytes;
            assigned_bytes += bytes;
            let requests = if until_ns == span.end_ns { moved.requests } else { 0 };
            if bytes > 0 || requests > 0 {
                let piece = DeviceTransfer { bytes, requests, ..moved.clone() };
                self.add_to_tick(flow, &piece, self.tick_after((until_ns - 1).max(self.closed_ns)));
            }
            from_ns = until_ns;
        }
    }

    /// End of the tick that contains `time_ns`.
    const fn tick_after(&self, time_ns: u64) -> u64 {
        (time_ns / self.tick_ns + 1) * self.tick_ns
    }

    fn add_to_tick(&mut self, flow: TransferFlow, moved: &DeviceTransfer, tick_end_ns: u64) {
        let open = self.open_ticks.entry(tick_end_ns).or_default();
        match flow {
            TransferFlow::Direct => open.direct.add_moved(moved),
            TransferFlow::Taken => open.read_by_tasks.add_moved(moved),
            TransferFlow::Received => {
                let received = open.received.entry(Rc::clone(&moved.device)).or_default();
                received.tick_end_ns = tick_end_ns;
                received.bytes += moved.bytes;
                received.packets += moved.requests;
            }
        }
    }

    /// Closes the tick that ends at `tick_end_ns`. With the last tick, unread data goes to the
    /// device at once.
    pub(super) fn close_tick(&mut self, tick_end_ns: u64, is_last: bool) -> Vec<DeviceTransfer> {
        self.closed_ns = tick_end_ns;
        let mut open = self.open_ticks.remove(&tick_end_ns).unwrap_or_default();
        for (device, received) in open.received.drain() {
            self.unread.entry(device).or_default().push_back(received);
        }
        for mut moved in open.read_by_tasks.take_all() {
            let unread = self.unread.get_mut(&moved.device);
            moved.bytes = unread.map_or(0, |unread| take_unread(unread, moved.bytes));
            if moved.bytes > 0 {
                open.direct.add_moved(&moved);
            }
        }
        let unread_limit_ns =
            if is_last { u64::MAX } else { tick_end_ns.saturating_sub(UNREAD_NS) };
        for (device, unread) in &mut self.unread {
            let is_due = |received: &mut ReceivedData| received.tick_end_ns <= unread_limit_ns;
            while let Some(received) = unread.pop_front_if(is_due) {
                open.direct.add_moved(&DeviceTransfer {
                    device: Rc::clone(device),
                    is_on_pci: false,
                    direction: IoDirection::Read,
                    owner: Owner::Device,
                    bytes: received.bytes,
                    requests: received.packets,
                });
            }
        }
        self.unread.retain(|_, unread| !unread.is_empty());
        open.direct.take_all()
    }

    /// Number of devices with received and unread data.
    #[cfg(test)]
    pub(super) fn unread_devices(&self) -> usize {
        self.unread.len()
    }
}

/// Takes up to `wanted` bytes, oldest first. Returns how many there were.
fn take_unread(unread: &mut Unread, wanted: u64) -> u64 {
    let mut remaining = wanted;
    while remaining > 0
        && let Some(oldest) = unread.front_mut()
    {
        let chunk = remaining.min(oldest.bytes);
        oldest.bytes -= chunk;
        remaining -= chunk;
        if oldest.bytes == 0 {
            unread.pop_front();
        }
    }
    wanted - remaining
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TICK: u64 = 1000;

    fn moved(who: Owner, bytes: u64) -> DeviceTransfer {
        DeviceTransfer {
            device: "sda".into(),
            is_on_pci: false,
            direction: IoDirection::Read,
            owner: who,
            bytes,
            requests: 1,
        }
    }

    fn total(rows: &[DeviceTransfer]) -> (u64, u64) {
        rows.iter().fold((0, 0), |sum, row| (sum.0 + row.bytes, sum.1 + row.requests))
    }

    #[test]
    fn a_request_over_two_ticks_is_spread_by_time() {
        let mut transfers = Transfers::new(TICK, 0);
        let flow = TransferFlow::Direct;
        let span = TimeSpan { begin_ns: 750, end_ns: 1750 };
        transfers.add_transfer(flow, &moved(Owner::Irq(1), 1000), 0, Some(span));
        assert_eq!(total(&transfers.close_tick(1000, false)), (250, 0));
        assert_eq!(total(&transfers.close_tick(2000, false)), (750, 1));
    }

    #[test]
    fn what_is_read_is_the_readers_and_the_rest_is_the_devices_in_the_end() {
        let mut transfers = Transfers::new(TICK, 0);
        transfers.add_transfer(TransferFlow::Received, &moved(Owner::Device, 1500), 1000, None);
        let reader = Owner::Irq(9);
        transfers.add_transfer(TransferFlow::Taken, &moved(reader, 1400), 2000, None);
        assert_eq!(transfers.close_tick(1000, false), []);
        assert_eq!(transfers.close_tick(2000, false), [moved(reader, 1400)]);
        // More is read than was received: what came before the recording.
        transfers.add_transfer(TransferFlow::Taken, &moved(reader, 5000), 3000, None);
        assert_eq!(total(&transfers.close_tick(3000, false)).0, 100);
        transfers.add_transfer(TransferFlow::Received, &moved(Owner::Device, 70), 4000, None);
        assert_eq!(transfers.close_tick(4000, false), []);
        let end = 4000 + UNREAD_NS;
        assert_eq!(transfers.close_tick(end - TICK, false), []);
        assert_eq!(transfers.close_tick(end, false), [moved(Owner::Device, 70)]);
    }

    proptest! {
        #[test]
        fn parts_sum_to_the_bytes(
            requests in prop::collection::vec((0u64..20_000, 0u64..9000, 0u64..u64::MAX / 4096), 1..40),
            closed_first in 0u64..12,
        ) {
            let mut transfers = Transfers::new(TICK, 0);
            let flow = TransferFlow::Direct;
            let mut found = (0, 0);
            let mut add = |sum: (u64, u64)| {
                found = (found.0 + sum.0, found.1 + sum.1);
            };
            for tick in 1..=closed_first {
                add(total(&transfers.close_tick(tick * TICK, false)));
            }
            for &(begin, len, bytes) in &requests {
                let end = begin + len;
                let span = (len > 0).then_some(TimeSpan { begin_ns: begin, end_ns: end });
                let tick_end_ns = (end / TICK + 1) * TICK;
                transfers.add_transfer(flow, &moved(Owner::Irq(1), bytes), tick_end_ns, span);
            }
            for tick in closed_first + 1..=40 {
                add(total(&transfers.close_tick(tick * TICK, false)));
            }
            let sent: u64 = requests.iter().map(|(.., bytes)| bytes).sum();
            prop_assert_eq!(found, (sent, requests.len() as u64));
        }
    }
}
