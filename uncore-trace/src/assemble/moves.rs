//! Bytes that devices moved, by tick and owner.
//!
//! Guarantee: whatever is spread over ticks sums to the reported bytes exactly. The part of a
//! request that lies in closed ticks goes to the first open tick. Bytes that an interface received
//! belong to the task that reads them, in the tick of the read. Bytes that no task
//! reads within [`UNREAD_NS`] belong to the device.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;

use crate::entries::{MovedBytes, Owner, MovedSum};
use crate::plan::IoDirection;

/// Time within which received bytes must be read, ns; bytes read later, or never, belong to the
/// device. Traffic that is forwarded, or read without a copy, is reported
/// this much later.
pub(super) const UNREAD_NS: u64 = 100_000_000;

/// How the owner of bytes is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// The bytes belong to the given owner.
    Direct,
    /// An interface received the bytes; their owner is known when they are read.
    Received,
    /// The owner read bytes that the interface had received.
    Taken,
}

/// Received and unread data, oldest first: tick, bytes, packets.
type Unread = VecDeque<(u64, u64, u64)>;

/// The open ticks.
#[derive(Debug)]
pub(super) struct Transfers {
    tick_ns: u64,
    /// Transfers before this time are not counted.
    start: u64,
    /// End of the last closed tick.
    closed: u64,
    /// By the end of the tick.
    open: BTreeMap<u64, OpenTick>,
    unread: BTreeMap<Rc<str>, Unread>,
}

#[derive(Debug, Default)]
struct OpenTick {
    direct: MovedSum,
    received: HashMap<Rc<str>, (u64, u64)>,
    taken: MovedSum,
}

impl Transfers {
    /// Starts with the tick that begins at `start`, a multiple of `tick_ns`.
    pub(super) const fn new(tick_ns: u64, start: u64) -> Self {
        Self { tick_ns, start, closed: start, open: BTreeMap::new(), unread: BTreeMap::new() }
    }

    /// Adds a transfer: to the tick that ends at `boundary`, or spread evenly over `span`. The part
    /// before the start is ignored.
    pub(super) fn add(
        &mut self,
        flow: Flow,
        moved: &MovedBytes,
        boundary: u64,
        span: Option<(u64, u64)>,
    ) {
        let Some((begin, end)) = span.filter(|(begin, end)| begin < end) else {
            if boundary > self.start {
                self.put(flow, moved, boundary.max(self.closed + self.tick_ns));
            }
            return;
        };
        let mut from = begin.max(self.start);
        let mut given = portion(moved.bytes, from.min(end) - begin, end - begin);
        while from < end {
            // The part in closed ticks goes to the first open tick.
            let until = self.tick_after(from.max(self.closed)).min(end);
            let bytes = portion(moved.bytes, until - begin, end - begin) - given;
            given += bytes;
            let requests = if until == end { moved.requests } else { 0 };
            if bytes > 0 || requests > 0 {
                let part = MovedBytes { bytes, requests, ..moved.clone() };
                self.put(flow, &part, self.tick_after((until - 1).max(self.closed)));
            }
            from = until;
        }
    }

    /// End of the tick that contains `time`.
    const fn tick_after(&self, time: u64) -> u64 {
        (time / self.tick_ns + 1) * self.tick_ns
    }

    fn put(&mut self, flow: Flow, moved: &MovedBytes, tick: u64) {
        let open = self.open.entry(tick).or_default();
        match flow {
            Flow::Direct => open.direct.add_moved(moved),
            Flow::Taken => open.taken.add_moved(moved),
            Flow::Received => {
                let (bytes, packets) = open.received.entry(Rc::clone(&moved.device)).or_default();
                *bytes += moved.bytes;
                *packets += moved.requests;
            }
        }
    }

    /// Closes the tick that ends at `tick`. With the last tick, unread data goes to the device at
    /// once.
    pub(super) fn close(&mut self, tick: u64, is_last: bool) -> Vec<MovedBytes> {
        self.closed = tick;
        let mut open = self.open.remove(&tick).unwrap_or_default();
        for (device, (bytes, packets)) in open.received.drain() {
            self.unread.entry(device).or_default().push_back((tick, bytes, packets));
        }
        for mut moved in open.taken.take_all() {
            let unread = self.unread.get_mut(&moved.device);
            moved.bytes = unread.map_or(0, |unread| read(unread, moved.bytes));
            if moved.bytes > 0 {
                open.direct.add_moved(&moved);
            }
        }
        let old = if is_last { u64::MAX } else { tick.saturating_sub(UNREAD_NS) };
        for (device, unread) in &mut self.unread {
            while let Some((_, bytes, requests)) = unread.pop_front_if(|(time, ..)| *time <= old) {
                let (device, who) = (Rc::clone(device), Owner::Device);
                open.direct.add_moved(&MovedBytes {
                    device,
                    direction: IoDirection::Read,
                    owner: who,
                    bytes,
                    requests,
                });
            }
        }
        self.unread.retain(|_, unread| !unread.is_empty());
        open.direct.take_all()
    }

    /// Number of devices with received and unread data.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.unread.len()
    }
}

/// Takes up to `wanted` bytes, oldest first. Returns how many there were.
fn read(unread: &mut Unread, wanted: u64) -> u64 {
    let mut left = wanted;
    while left > 0
        && let Some((_, bytes, _)) = unread.front_mut()
    {
        let part = left.min(*bytes);
        *bytes -= part;
        left -= part;
        if *bytes == 0 {
            unread.pop_front();
        }
    }
    wanted - left
}

/// `whole` x `part` / `of`, rounded down.
fn portion(whole: u64, part: u64, of: u64) -> u64 {
    (u128::from(whole) * u128::from(part) / u128::from(of)) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TICK: u64 = 1000;

    fn moved(who: Owner, bytes: u64) -> MovedBytes {
        MovedBytes { device: "sda".into(), direction: IoDirection::Read, owner: who, bytes, requests: 1 }
    }

    fn total(rows: &[MovedBytes]) -> (u64, u64) {
        rows.iter().fold((0, 0), |sum, row| (sum.0 + row.bytes, sum.1 + row.requests))
    }

    #[test]
    fn a_request_over_two_ticks_is_spread_by_time() {
        let mut transfers = Transfers::new(TICK, 0);
        let flow = Flow::Direct;
        transfers.add(flow, &moved(Owner::Irq(1), 1000), 0, Some((750, 1750)));
        assert_eq!(total(&transfers.close(1000, false)), (250, 0));
        assert_eq!(total(&transfers.close(2000, false)), (750, 1));
    }

    #[test]
    fn what_is_read_is_the_readers_and_the_rest_is_the_devices_in_the_end() {
        let mut transfers = Transfers::new(TICK, 0);
        transfers.add(Flow::Received, &moved(Owner::Device, 1500), 1000, None);
        let reader = Owner::Irq(9);
        transfers.add(Flow::Taken, &moved(reader, 1400), 2000, None);
        assert_eq!(transfers.close(1000, false), []);
        assert_eq!(transfers.close(2000, false), [moved(reader, 1400)]);
        // More is read than was received: what came before the recording.
        transfers.add(Flow::Taken, &moved(reader, 5000), 3000, None);
        assert_eq!(total(&transfers.close(3000, false)).0, 100);
        transfers.add(Flow::Received, &moved(Owner::Device, 70), 4000, None);
        assert_eq!(transfers.close(4000, false), []);
        let end = 4000 + UNREAD_NS;
        assert_eq!(transfers.close(end - TICK, false), []);
        assert_eq!(transfers.close(end, false), [moved(Owner::Device, 70)]);
    }

    proptest! {
        #[test]
        fn parts_sum_to_the_bytes(
            requests in prop::collection::vec((0u64..20_000, 0u64..9000, 0u64..u64::MAX / 4096), 1..40),
            closed_first in 0u64..12,
        ) {
            let mut transfers = Transfers::new(TICK, 0);
            let flow = Flow::Direct;
            let mut found = (0, 0);
            let mut add = |sum: (u64, u64)| {
                found = (found.0 + sum.0, found.1 + sum.1);
            };
            for tick in 1..=closed_first {
                add(total(&transfers.close(tick * TICK, false)));
            }
            for &(begin, len, bytes) in &requests {
                let end = begin + len;
                let span = (len > 0).then_some((begin, end));
                let boundary = (end / TICK + 1) * TICK;
                transfers.add(flow, &moved(Owner::Irq(1), bytes), boundary, span);
            }
            for tick in closed_first + 1..=40 {
                add(total(&transfers.close(tick * TICK, false)));
            }
            let sent: u64 = requests.iter().map(|(.., bytes)| bytes).sum();
            prop_assert_eq!(found, (sent, requests.len() as u64));
        }
    }
}
