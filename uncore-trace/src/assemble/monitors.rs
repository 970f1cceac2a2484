//! Readings of hardware monitors, as entries of the windows in which they were made.
//!
//! The monitors are read when a window ends, and their readings arrive before its last tick is
//! closed, which is [`WAIT_NS`] later at least if anything is monitored. Those that arrive later
//! belong to the next window: no bytes are lost.

use std::collections::VecDeque;
use std::sync::Arc;

use super::output::EntryOutput;
use super::sink::Sink;
use super::stream::{ClosingBin, RawStream, SourceReading, StreamContext, StreamStart};
use super::streams::Streams;
use crate::entries::{LogEntry, Monitored};
use crate::schema::monitors;

/// With monitors, ticks are closed with this delay, ns: to read a group takes an interrupt of a CPU
/// in each domain, some microseconds.
const WAIT_NS: u64 = 20_000_000;

/// What was measured between two readings of all monitors.
#[derive(Clone, Debug)]
pub struct MonitorReading {
    /// When the monitors were read, ns on `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Time since they were read before, ns.
    pub span_ns: u64,
    /// The bytes.
    pub bytes: Vec<Monitored>,
    /// What could not be read.
    pub lost: Vec<MonitorLoss>,
}

/// Readings of a group that are missing: their windows are divided without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorLoss {
    /// When it was noticed, ns on `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Time before that without bytes, ns.
    pub span_ns: u64,
    /// Number of readings.
    pub count: u64,
    /// The group, and why.
    pub detail: String,
}

/// The readings of windows that are not closed.
#[derive(Debug)]
pub(super) struct PendingMonitors {
    start_ns: u64,
    window_ns: u64,
    /// Oldest first.
    waiting: VecDeque<Arc<MonitorReading>>,
    /// Whether there was one.
    has_readings: bool,
}

impl SourceReading for Arc<MonitorReading> {
    fn feed_stream(&self, streams: &mut Streams, _context: &mut StreamContext<'_>) {
        streams.monitors.feed_reading(self);
    }
}

impl RawStream for PendingMonitors {
    fn start_stream(start: &StreamStart<'_>, _sink: &mut Sink) -> Self {
        Self::new(start.start_ns, start.setup.plan.window_ns)
    }

    fn arrival_delay_ns(&self) -> u64 {
        if self.has_readings { WAIT_NS } else { 0 }
    }

    fn close_bin(&mut self, closing: &mut ClosingBin, context: &mut StreamContext<'_>) {
        if closing.is_window_end {
            self.close_window(closing.span.end_ns, &mut context.output);
        }
    }
}

impl PendingMonitors {
    /// Before the first window, which begins at `start_ns`.
    pub(super) const fn new(start_ns: u64, window_ns: u64) -> Self {
        Self { start_ns, window_ns, waiting: VecDeque::new(), has_readings: false }
    }

    /// Takes a reading. Readings are in the order of time.
    pub(super) fn feed_reading(&mut self, measured: &Arc<MonitorReading>) {
        self.has_readings = true;
        // One in the first half of the first window is of a window before the recording.
        if measured.time_ns >= self.start_ns + self.window_ns / 2 {
            self.waiting.push_back(Arc::clone(measured));
        }
    }

    /// Logs the readings of the window that ends at `end_ns`: those that arrived, up to the middle
    /// of the next window.
    pub(super) fn close_window(&mut self, end_ns: u64, output: &mut EntryOutput<'_>) {
        let is_due = |next_reading: &mut Arc<MonitorReading>| {
            next_reading.time_ns < end_ns + self.window_ns / 2
        };
        while let Some(measured) = self.waiting.pop_front_if(is_due) {
            for monitored in &measured.bytes {
                output.log_entry(LogEntry::Monitored(monitored));
                if output.raw {
                    output.sink.rows.monitors.append(&monitors::Row {
                        mono_ns: end_ns as i64,
                        read_ns: measured.time_ns as i64,
                        span_ns: measured.span_ns as i64,
                        cgroup: monitored.cgroup.as_deref(),
                        socket: monitored.socket,
                        bytes: monitored.bytes,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::entries::{Accounted, Disorder, EntryConsumer, MissingCount};
    use crate::schema::Builders;
    use crate::schema::columns::{bits_column, i64_column};

    /// Keeps the bytes of monitors, and accounts. Ends of ticks are refused for the reason, if
    /// there is one.
    #[derive(Debug, Default)]
    pub(in super::super) struct Kept(Vec<u64>, pub Vec<Accounted>, pub Option<Disorder>);

    impl EntryConsumer for Kept {
        fn take_entry(&mut self, entry: LogEntry<'_>, _: &mut Builders) -> Result<(), Disorder> {
            match entry {
                LogEntry::Monitored(monitored) => self.0.push(monitored.bytes),
                LogEntry::Account(accounted) => self.1.push(accounted.clone()),
                LogEntry::EndOfTick { .. } => return self.2.map_or(Ok(()), Err),
                _ => {}
            }
            Ok(())
        }

        fn make_rows(&mut self, _: &mut Builders) -> bool {
            true
        }

        fn finish_windows(&mut self, _: &mut Builders) {}

        fn has_waiting_windows(&self) -> bool {
            false
        }

        fn needs_ticks(&self) -> bool {
            false
        }

        fn needs_switches(&self) -> bool {
            false
        }

        fn needs_readings(&self, _: u64) -> bool {
            false
        }

        fn open_tick(&self) -> u64 {
            0
        }

        fn take_missing(&mut self) -> Vec<MissingCount> {
            Vec::new()
        }
    }

    #[test]
    fn a_reading_is_of_the_window_that_ends_before_it() {
        let (mut consumer, mut sink) = (Kept::default(), Sink::default());
        let mut monitors = PendingMonitors::new(1000, 100);
        assert_eq!(monitors.arrival_delay_ns(), 0);
        // One of the window before the first, two of the first, one of the second, and one in the
        // middle of the third, which is of that one.
        for (time, bytes) in [(1001, 1), (1102, 2), (1149, 3), (1201, 4), (1250, 5)] {
            let bytes = vec![Monitored { cgroup: None, socket: 0, bytes }];
            monitors.feed_reading(&Arc::new(MonitorReading {
                time_ns: time,
                span_ns: 100,
                bytes,
                lost: Vec::new(),
            }));
        }
        assert_eq!(monitors.arrival_delay_ns(), WAIT_NS);
        let mut ends = Vec::new();
        for end in [1100, 1200, 1300] {
            let before = consumer.0.len();
            let mut output = EntryOutput { consumer: &mut consumer, sink: &mut sink, raw: true };
            monitors.close_window(end, &mut output);
            ends.extend(vec![end as i64; consumer.0.len() - before]);
        }
        assert_eq!(
            (ends.as_slice(), consumer.0.as_slice()),
            (&[1100, 1100, 1200, 1300][..], &[2, 3, 4, 5][..])
        );
        let rows = sink.rows.monitors.finish();
        let (end, bytes) =
            (i64_column(&rows, "mono_ns").unwrap(), bits_column(&rows, "bytes").unwrap());
        let logged: Vec<_> =
            (0..rows.num_rows()).map(|row| (end.value(row), bytes.value_or_zero(row))).collect();
        assert_eq!(logged, ends.into_iter().zip(consumer.0).collect::<Vec<_>>());
    }
}
