//! Readings of disks and interfaces, aligned with what the programs saw.
//!
//! The kernel's statistics are read now and then, at any time; the programs' records say in which
//! tick bytes were moved. So the count of a device at the end of a tick is the sum of the bytes
//! that were seen until then and those that are known to be unseen: by how much the statistics have
//! grown more than the sum. What moved in the ticks of a reading may be before or after it, so the
//! unseen bytes lie between two bounds. As they never decrease, the highest lower bound so far
//! holds for all later times.
//!
//! Guarantees: a count never decreases. Over a recording it is what was seen, and unseen bytes that
//! the statistics prove; they are never more than that. Bytes that are seen and that the statistics
//! leave out are in the count: requests of a passthrough command, packets that a driver sends
//! twice.

use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

use super::io::BinTransfers;
use super::loss::Ledger;
use super::reading_output::{ReadingColumns, ReadingOutput};
use super::sink::Sink;
use super::stream::{ClosingBin, RawStream, SourceReading, StreamContext, StreamStart};
use super::streams::Streams;
use crate::entries::{CounterReading, CounterValue, DeviceTransfer, ReadingTrigger};
use crate::open::{StatisticsSample, StopCause};
use crate::plan::{IoDirection, Plan};
use crate::schema::loss::LossCause;
use crate::schema::readings;

/// Bytes that ended by device and direction.
pub(super) type Completed = HashMap<DeviceDirection, u64>;

/// A device in one direction.
type DeviceDirection = (Rc<str>, IoDirection);

/// Readings from which the unseen bytes at the begin are taken. The first one in whose tick nothing
/// moved tells them exactly.
const FIRST: u32 = 10;

/// If all upper bounds in this time are below the unseen bytes, ns, the programs see more than the
/// statistics count, and only the growth from there is unseen. A driver may count a packet when it
/// was sent, some milliseconds after the program saw it.
const SEEN_MORE_NS: u64 = 1_000_000_000;

/// All counters that are read from statistics.
#[derive(Debug)]
pub(super) struct StatisticCounters {
    tick_ns: u64,
    counters: Vec<StatisticCounter>,
    /// Readings of ticks that are not closed, oldest first.
    waiting: VecDeque<WaitingReading>,
}

/// A reading whose last tick is not closed yet: it may take longer than a tick, and a device moves
/// bytes meanwhile.
#[derive(Debug)]
struct WaitingReading {
    sample: StatisticsSample,
    /// By counter: bytes that ended before the tick in which it began; empty if that was before the
    /// first tick, and until it is closed.
    seen_before: Vec<u64>,
}

/// One counter.
#[derive(Debug)]
struct StatisticCounter {
    id: u32,
    cpu: u32,
    key: DeviceDirection,
    /// Bytes of the closed ticks, by the entries.
    logged: u64,
    /// Bytes that ended in the closed ticks.
    completed: u64,
    /// The last reading, and what was added to readings because the device began anew at 0.
    last_reading: Option<(u64, i64)>,
    unseen: Unseen,
    /// Whether each request is seen, so that unseen bytes are a loss.
    is_disk: bool,
    /// Unseen bytes that were reported.
    reported: u64,
    state: ReadState,
}

/// Whether a device's statistics can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadState {
    Counting,
    /// They could not be read at this time, ns.
    Failed(u64),
    /// That is in the log.
    Stopped,
}

/// Bounds of the unseen bytes, relative to the device's statistics.
#[derive(Debug, Default)]
struct Unseen {
    /// Number of readings so far.
    readings: u32,
    /// The lowest upper bound at the begin.
    first_upper_bound: i64,
    /// The highest lower bound so far.
    lower_bound: i64,
    /// The upper bounds of the last second, by time.
    recent: VecDeque<(u64, i64)>,
}

impl SourceReading for StatisticsSample {
    fn feed_stream(&self, streams: &mut Streams, _context: &mut StreamContext<'_>) {
        streams.statistics.feed_reading(self);
    }
}

impl RawStream for StatisticCounters {
    fn start_stream(start: &StreamStart<'_>, _sink: &mut Sink) -> Self {
        Self::new(start.setup.plan, start.setup.opened)
    }

    /// The last bin of a window is counted before the counts at the end of the window are logged.
    fn close_bin(&mut self, closing: &mut ClosingBin, context: &mut StreamContext<'_>) {
        let end_ns = closing.span.end_ns;
        if let Some(transfers) = &closing.transfers {
            self.close_tick(end_ns, transfers);
        }
        if closing.is_window_end {
            let StreamContext { output, ledger, .. } = context;
            self.log_counts(end_ns, ledger, output);
        }
    }
}

impl StatisticCounters {
    /// Before the first tick. `opened` has the ids of the open counters.
    pub(super) fn new(plan: &Plan, opened: &HashSet<u32>) -> Self {
        let counters = plan.counters.iter().filter_map(|counter| {
            let io = counter.io.as_ref().filter(|_| counter.is_statistic())?;
            let key = (Rc::from(io.devices.first()?.as_str()), io.direction);
            opened.contains(&counter.id).then(|| StatisticCounter {
                id: counter.id,
                cpu: counter.cpu,
                key,
                logged: 0,
                completed: 0,
                last_reading: None,
                unseen: Unseen::default(),
                is_disk: counter.family == "disk",
                reported: 0,
                state: ReadState::Counting,
            })
        });
        Self { tick_ns: plan.tick_ns, counters: counters.collect(), waiting: VecDeque::new() }
    }

    /// Takes a reading. It is used when its tick is closed.
    pub(super) fn feed_reading(&mut self, sampled: &StatisticsSample) {
        if !self.counters.is_empty() {
            self.waiting
                .push_back(WaitingReading { sample: sampled.clone(), seen_before: Vec::new() });
        }
    }

    /// Counts what was transferred in the tick that ends at `end_ns`.
    fn close_tick(&mut self, end_ns: u64, transfers: &BinTransfers) {
        if self.counters.is_empty() {
            return;
        }
        let completed_before: Vec<u64> =
            self.counters.iter().map(|counter| counter.completed).collect();
        for counter in &mut self.counters {
            counter.completed += transfers.completed.get(&counter.key).copied().unwrap_or_default();
            let (device, direction) = &counter.key;
            let is_of_counter =
                |moved: &&DeviceTransfer| moved.direction == *direction && moved.device == *device;
            let moved = transfers.moved.iter().filter(is_of_counter);
            counter.logged += moved.map(|moved| moved.bytes).sum::<u64>();
        }
        let tick = end_ns.saturating_sub(self.tick_ns)..end_ns;
        let begins_in_tick =
            |reading: &&mut WaitingReading| tick.contains(&reading.sample.begin_ns);
        for reading in self.waiting.iter_mut().filter(begins_in_tick) {
            reading.seen_before.clone_from(&completed_before);
        }
        while let Some(WaitingReading { sample, seen_before }) =
            self.waiting.pop_front_if(|reading| reading.sample.end_ns < end_ns)
        {
            for (index, counter) in self.counters.iter_mut().enumerate() {
                let read = sample.bytes.iter().find(|(id, _)| *id == counter.id);
                let bytes = read.and_then(|(_, bytes)| *bytes);
                let bytes_before = seen_before.get(index).copied().unwrap_or_default();
                counter.take_reading(sample.end_ns, bytes, bytes_before);
            }
        }
    }

    /// Logs the counts at the end of the tick that was closed last, at `end_ns`. Each counter that
    /// could not be read stops here.
    fn log_counts(&mut self, end_ns: u64, ledger: &mut Ledger, log: &mut impl ReadingOutput) {
        let (tick, time) = (end_ns / self.tick_ns, end_ns);
        let (mut read, mut stopped) = (Vec::new(), Vec::new());
        for device_counter in &mut self.counters {
            let (counter, cpu, owner) = (device_counter.id, device_counter.cpu, None);
            let (readings, trigger) = match device_counter.state {
                ReadState::Counting => (&mut read, ReadingTrigger::Timer),
                ReadState::Failed(failed_ns) => {
                    ledger.add_stopped_counter(failed_ns, cpu, counter, StopCause::Pmu, None);
                    device_counter.state = ReadState::Stopped;
                    (&mut stopped, ReadingTrigger::Stop)
                }
                ReadState::Stopped => continue,
            };
            let value = Ok(CounterValue {
                value: device_counter.logged + device_counter.unseen.byte_count(),
                times: None,
            });
            readings.push(CounterReading { tick, time, counter, cpu, trigger, value, owner });
            device_counter.report_unseen(end_ns, ledger);
        }
        for (readings, trigger) in [(read, readings::TIMER), (stopped, readings::STOP)] {
            if !readings.is_empty() {
                let row = ReadingColumns { trigger, ..ReadingColumns::default() };
                log.log_readings(&readings, &row);
            }
        }
    }
}

impl StatisticCounter {
    /// Takes a reading that ended at `time_ns`. The bytes beyond `seen_before` ended in its ticks.
    fn take_reading(&mut self, time_ns: u64, bytes: Option<u64>, seen_before: u64) {
        let Some(bytes) = bytes else {
            if self.state == ReadState::Counting {
                self.state = ReadState::Failed(time_ns);
            }
            return;
        };
        let (last_bytes, mut added) = self.last_reading.unwrap_or((bytes, 0));
        if bytes < last_bytes {
            added += (last_bytes - bytes) as i64;
        }
        self.last_reading = Some((bytes, added));
        let bytes = bytes as i64 + added;
        self.unseen.narrow_bounds(
            time_ns,
            bytes - self.completed as i64,
            bytes - seen_before as i64,
        );
    }

    /// Reports requests that were not seen, at `end_ns`.
    fn report_unseen(&mut self, end_ns: u64, ledger: &mut Ledger) {
        let unseen = self.unseen.byte_count();
        if self.is_disk && unseen > self.reported {
            let (device, direction) = &self.key;
            let new = unseen - self.reported;
            self.reported = unseen;
            let detail = format!("{new} bytes, {} {device}", direction.direction_name());
            ledger.add_explained(LossCause::UnseenRequest, end_ns, Some(self.id), &detail);
        }
    }
}

impl Unseen {
    /// They are between `lower` and `upper`, at `time_ns`.
    fn narrow_bounds(&mut self, time_ns: u64, lower: i64, upper: i64) {
        if self.readings == 0 {
            (self.first_upper_bound, self.lower_bound) = (upper, lower);
        }
        if self.readings < FIRST {
            self.first_upper_bound = self.first_upper_bound.min(upper);
        }
        self.readings = self.readings.saturating_add(1);
        self.lower_bound = self.lower_bound.max(lower);
        self.recent.push_back((time_ns, upper));
        let recent_begin_ns = time_ns.saturating_sub(SEEN_MORE_NS);
        let is_full = self.recent.front().is_some_and(|(time, _)| *time <= recent_begin_ns);
        let highest_upper =
            self.recent.iter().map(|(_, recent_upper)| *recent_upper).max().unwrap_or(upper);
        if is_full && highest_upper < self.lower_bound {
            let excess = self.lower_bound - highest_upper;
            self.lower_bound -= excess;
            self.first_upper_bound -= excess;
        }
        while self.recent.pop_front_if(|(time, _)| *time <= recent_begin_ns).is_some() {}
    }

    /// Those since the begin.
    fn byte_count(&self) -> u64 {
        u64::try_from(self.lower_bound - self.first_upper_bound).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TICK: u64 = 1000;

    /// A disk of which these bytes moved, each at a time; unseen ones are not in the records. It is
    /// read at these times, each of which is the begin of a reading, its moment and its end. The
    /// recording begins with time 0.
    fn counted(moved: &[(u64, u64, bool)], reads: &[[u64; 3]], until: u64) -> Vec<u64> {
        let key: DeviceDirection = ("sda".into(), IoDirection::Read);
        let device = StatisticCounter {
            id: 0,
            cpu: 0,
            key: key.clone(),
            logged: 0,
            completed: 0,
            last_reading: None,
            unseen: Unseen::default(),
            is_disk: true,
            reported: 0,
            state: ReadState::Counting,
        };
        let mut statistics =
            StatisticCounters { tick_ns: TICK, counters: vec![device], waiting: VecDeque::new() };
        let before = 5000;
        for &[begin_ns, moment, end_ns] in reads {
            let bytes = moved.iter().filter(|(at, ..)| *at < moment).map(|(_, bytes, _)| bytes);
            let bytes = vec![(0, Some(before + bytes.sum::<u64>()))];
            statistics.feed_reading(&StatisticsSample { begin_ns, end_ns, bytes });
        }
        let mut counts = Vec::new();
        for end in (TICK..=until).step_by(TICK as usize) {
            let its = |(at, _, seen): &&(u64, u64, bool)| *seen && (end - TICK..end).contains(at);
            let bytes: u64 = moved.iter().filter(its).map(|(_, bytes, _)| bytes).sum();
            let entry = DeviceTransfer {
                device: Rc::clone(&key.0),
                is_on_pci: false,
                direction: key.1,
                owner: crate::entries::Owner::Irq(1),
                bytes,
                requests: 1,
            };
            let completed = Completed::from([(key.clone(), bytes)]);
            statistics.close_tick(end, &BinTransfers { completed, moved: vec![entry] });
            let its = &statistics.counters[0];
            counts.push(its.logged + its.unseen.byte_count());
        }
        counts
    }

    /// A reading that takes no time.
    const fn read_at(time: u64) -> [u64; 3] {
        [time; 3]
    }

    #[test]
    fn a_request_is_in_its_tick_though_the_statistics_were_read_later() {
        let moved = [(100, 10, true), (1100, 20, true), (1900, 30, true), (2500, 40, true)];
        assert_eq!(counted(&moved, &[0, 1500, 2100].map(read_at), 3000), [10, 60, 100]);
    }

    /// The recorder waited for a CPU while it read: what moved meanwhile was seen.
    #[test]
    fn what_moves_during_a_long_reading_is_not_unseen() {
        let moved = [(100, 10, true), (1100, 20, true), (2500, 40, true), (3500, 80, true)];
        let reads = [read_at(0), [900, 2900, 3100], read_at(3900)];
        assert_eq!(counted(&moved, &reads, 4000), [10, 30, 70, 150]);
    }

    #[test]
    fn unseen_bytes_are_counted_once_they_are_certain() {
        let moved = [(1100, 20, false), (1900, 30, true), (3500, 40, false)];
        // What was seen in the tick of the first reading may be before or after it.
        assert_eq!(counted(&moved, &[0, 1850].map(read_at), 4000), [0, 30, 30, 30]);
        assert_eq!(counted(&moved, &[0, 1850, 2500, 3600].map(read_at), 4000), [0, 30, 50, 90]);
    }

    #[test]
    fn what_the_programs_see_beyond_the_statistics_hides_nothing_later() {
        let mut unseen = Unseen::default();
        for time in 0..u64::from(FIRST) {
            unseen.narrow_bounds(time, 10, 10);
        }
        unseen.narrow_bounds(20, 12, 14);
        assert_eq!(unseen.byte_count(), 2);
        // The programs see more than the device counts for a second, and then something unseen.
        for time in 1..=20 {
            unseen.narrow_bounds(time * SEEN_MORE_NS / 10, 2, 3);
        }
        assert_eq!(unseen.byte_count(), 2);
        unseen.narrow_bounds(3 * SEEN_MORE_NS, 8, 9);
        assert_eq!(unseen.byte_count(), 7);
    }

    proptest! {
        /// Never less than what was seen, never more than what moved, and all of it in the end.
        #[test]
        fn a_count_lies_between_what_was_seen_and_what_moved(
            moved in prop::collection::vec((0u64..20_000, 1u64..100, any::<bool>()), 0..60),
            reads in prop::collection::vec((0u64..20_000, 0u64..1500, 0u64..1500), 0..20),
        ) {
            let times_of_reading =
                |(begin, wait, rest): &(u64, u64, u64)| [*begin, begin + wait, begin + wait + rest];
            let mut times: Vec<u64> = reads.iter().flat_map(times_of_reading).collect();
            times.sort_unstable();
            let mut reads = vec![read_at(0)];
            reads.extend(times.as_chunks::<3>().0);
            reads.push(read_at(23_500));
            let counts = counted(&moved, &reads, 24_000);
            for (tick, count) in counts.iter().enumerate() {
                let end = (tick as u64 + 1) * TICK;
                let sum = |seen: bool| -> u64 {
                    let its = moved.iter().filter(|(at, _, was)| *at < end && (*was || !seen));
                    its.map(|(_, bytes, _)| bytes).sum()
                };
                prop_assert!((sum(true)..=sum(false)).contains(count), "tick {tick}: {count}");
            }
            prop_assert!(counts.is_sorted());
            let all: u64 = moved.iter().map(|(_, bytes, _)| bytes).sum();
            prop_assert_eq!(counts.last(), Some(&all));
        }
    }
}
