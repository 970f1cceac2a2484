//! What was not seen. Every loss is a row, and counts towards the exit message.

use std::collections::BTreeMap;

use super::sink::{Dropped, Sink};
use crate::attribute::{Lack, Missing};
use crate::tables::loss::Losses;

/// Why something was not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The timer skipped ticks. The counts are cumulative: resolution is lost, no count.
    LateTick,
    /// A record found the ring full.
    RingFull,
    /// A CPU's time that no record told of.
    RunGap,
    /// A reading that the kernel refused.
    ReadFailed,
    /// A window had no reading at its end; its count is in the next row.
    NoBoundary,
    /// A counter was opened and enabled but never scheduled in a window.
    NotScheduled,
    /// A planned counter could not be opened.
    NotOpened,
    /// Sweeps that the ring refused: counts between two readings have no certain owner.
    LostSample,
    /// A record that could not be decoded.
    Undecodable,
    /// A timer that could not be started again.
    TimerStopped,
    /// Readings that were due in the middle of another: an interrupt in a sweep.
    NestedReading,
    /// A thread left a CPU that was not seen to come: the time since the last switch is its own,
    /// though others may have had a part of it. Told of in vain where a thread that did not lead its
    /// process leaves its CPU in the middle of an exec.
    UnseenSwitch,
    /// The CPU was offline: its time is nobody's.
    CpuOffline,
    /// Counters went to another CPU: what moved while their driver moved them is in no count.
    OwnerOffline,
    /// A counter went offline with its CPU: what it might have counted until it was opened again.
    CounterStopped,
    /// A CPU came online that was offline at the start: no counter of it was planned, and no counter
    /// that several CPUs share gives its tasks a part.
    CpuNotPlanned,
    /// What devices moved for somebody who was not seen, or was not seen at all.
    IoUnseen,
    /// Rows of `slices` that came faster than they could be written.
    SlicesDropped,
    /// The last windows could not be closed: their readings or their CPUs' time did not come.
    Unfinished,
}

impl Cause {
    /// The word for the `cause` column.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LateTick => "late_tick",
            Self::RingFull => "ring_full",
            Self::RunGap => crate::tables::loss::RUN_GAP,
            Self::ReadFailed => "read_failed",
            Self::NoBoundary => crate::tables::loss::NO_BOUNDARY,
            Self::NotScheduled => "not_scheduled",
            Self::NotOpened => "not_opened",
            Self::LostSample => "lost_sample",
            Self::Undecodable => "undecodable",
            Self::TimerStopped => "timer_stopped",
            Self::NestedReading => "nested_reading",
            Self::UnseenSwitch => "unseen_switch",
            Self::CpuOffline => crate::tables::loss::CPU_OFFLINE,
            Self::OwnerOffline => "owner_offline",
            Self::CounterStopped => crate::tables::loss::COUNTER_STOPPED,
            Self::CpuNotPlanned => "cpu_not_planned",
            Self::IoUnseen => "io_unseen",
            Self::SlicesDropped => "slices_dropped",
            Self::Unfinished => "unfinished",
        }
    }
}

/// One loss.
#[derive(Clone, Debug)]
struct Entry {
    cause: Cause,
    time: u64,
    span: u64,
    cpu: Option<u32>,
    counter: Option<u32>,
    count: u64,
    detail: Option<String>,
}

/// All losses.
#[derive(Debug, Default)]
pub struct Ledger {
    pending: Vec<Entry>,
    totals: BTreeMap<Cause, u64>,
    first: BTreeMap<Cause, u64>,
}

impl Ledger {
    /// Enters a loss noticed at `time` that covers `span` nanoseconds before it.
    pub fn add(
        &mut self,
        cause: Cause,
        time: u64,
        span: u64,
        cpu: Option<u32>,
        counter: Option<u32>,
        count: u64,
    ) {
        self.enter(Entry { cause, time, span, cpu, counter, count, detail: None });
    }

    /// Enters that the counters of `cpu` are read on `heir` since `time`, after `missing` ticks of
    /// `tick_ns` in which they were not.
    pub fn moved(&mut self, time: u64, cpu: u32, heir: u32, missing: u64, tick_ns: u64) {
        self.enter(Entry {
            cause: Cause::OwnerOffline,
            time,
            span: missing * tick_ns,
            cpu: Some(cpu),
            counter: None,
            count: missing.max(1),
            detail: Some(format!("its counters are read on CPU {heir} from here")),
        });
    }

    /// Enters rows of `slices` that could not be written in time.
    fn dropped(&mut self, dropped: Dropped) {
        self.enter(Entry {
            cause: Cause::SlicesDropped,
            time: dropped.end_ns as u64,
            span: dropped.end_ns.abs_diff(dropped.begin_ns),
            cpu: None,
            counter: None,
            count: dropped.rows,
            detail: Some("slices came faster than they could be written".to_owned()),
        });
    }

    /// Enters that `cpu` came online at `time` and is not in the plan.
    pub fn not_planned(&mut self, time: u64, cpu: u32) {
        let detail = "the CPU was offline when the recording began: it is not counted".to_owned();
        self.enter(Entry {
            cause: Cause::CpuNotPlanned,
            time,
            span: 0,
            cpu: Some(cpu),
            counter: None,
            count: 1,
            detail: Some(detail),
        });
    }

    /// Enters that a counter of `cpu` stopped; with the time that it did not count, that it counts
    /// again.
    pub fn stopped(&mut self, time: u64, cpu: u32, counter: u32, span: Option<u64>) {
        let detail =
            if span.is_some() { "it counts again" } else { "it went offline with its CPU" };
        self.enter(Entry {
            cause: Cause::CounterStopped,
            time,
            span: span.unwrap_or(0),
            cpu: Some(cpu),
            counter: Some(counter),
            // One loss, however many rows tell of it.
            count: u64::from(span.is_none()),
            detail: Some(detail.to_owned()),
        });
    }

    /// Enters that a window lacks a count.
    pub fn missing(&mut self, missing: &Missing) {
        let Missing { lack, counter, cpu, time, span_ns } = *missing;
        match lack {
            Lack::NoBoundary => {
                self.add(Cause::NoBoundary, time, span_ns, Some(cpu), Some(counter), 1);
            }
            Lack::NotScheduled => {
                self.add(Cause::NotScheduled, time, span_ns, Some(cpu), Some(counter), 1);
            }
            Lack::ReadFailed(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                self.explain(Cause::ReadFailed, time, Some(counter), &error.to_string());
            }
            Lack::NoReader => {
                let text = "no CPU can read the counter any longer";
                self.explain(Cause::ReadFailed, time, Some(counter), text);
            }
        }
    }

    /// Enters a loss with words.
    pub fn explain(&mut self, cause: Cause, time: u64, counter: Option<u32>, detail: &str) {
        let detail = Some(detail.to_owned());
        self.enter(Entry { cause, time, span: 0, cpu: None, counter, count: 1, detail });
    }

    fn enter(&mut self, entry: Entry) {
        *self.totals.entry(entry.cause).or_default() += entry.count;
        let begin = entry.time.saturating_sub(entry.span);
        let first = self.first.entry(entry.cause).or_insert(begin);
        *first = begin.min(*first);
        self.pending.push(entry);
    }

    /// Moves what was entered to the table, with what `sink` had to drop.
    pub fn rows(&mut self, sink: &mut Sink) {
        for dropped in sink.take_dropped() {
            self.dropped(dropped);
        }
        for entry in self.pending.drain(..) {
            sink.rows.loss.append(&crate::tables::loss::Row {
                mono_ns: entry.time as i64,
                span_ns: entry.span as i64,
                cause: entry.cause.name(),
                cpu: entry.cpu.map(|cpu| cpu as i32),
                counter: entry.counter.map(|counter| counter as i32),
                count: entry.count as i64,
                detail: entry.detail.as_deref(),
            });
        }
    }

    /// Totals by cause.
    pub const fn totals(&self) -> &BTreeMap<Cause, u64> {
        &self.totals
    }

    /// Begin of the first loss of each cause, `CLOCK_MONOTONIC` ns.
    pub const fn first(&self) -> &BTreeMap<Cause, u64> {
        &self.first
    }

    /// Totals in two lists: what cost precision, and what is missing.
    pub fn losses(&self) -> Losses {
        Losses::sort(self.totals.iter().map(|(cause, count)| (cause.name(), *count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::loss::CAUSES;

    /// Every cause; the length fails to compile where one is added and not listed here.
    const ALL: [Cause; Cause::Unfinished as usize + 1] = [
        Cause::LateTick,
        Cause::RingFull,
        Cause::RunGap,
        Cause::ReadFailed,
        Cause::NoBoundary,
        Cause::NotScheduled,
        Cause::NotOpened,
        Cause::LostSample,
        Cause::Undecodable,
        Cause::TimerStopped,
        Cause::NestedReading,
        Cause::UnseenSwitch,
        Cause::CpuOffline,
        Cause::OwnerOffline,
        Cause::CounterStopped,
        Cause::CpuNotPlanned,
        Cause::IoUnseen,
        Cause::SlicesDropped,
        Cause::Unfinished,
    ];

    #[test]
    fn what_each_cause_costs_is_known() {
        for cause in ALL {
            assert!(CAUSES.iter().any(|(name, _)| *name == cause.name()), "{cause:?}");
        }
        assert_eq!(CAUSES.len(), ALL.len());
    }

    #[test]
    fn a_lost_count_makes_the_recording_incomplete_and_a_late_tick_does_not() {
        let mut ledger = Ledger::default();
        ledger.add(Cause::LateTick, 0, 0, None, None, 12);
        assert!(ledger.losses().is_complete());
        ledger.add(Cause::RingFull, 0, 0, None, None, 1);
        assert!(!ledger.losses().is_complete());
    }
}
