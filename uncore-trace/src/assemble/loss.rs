//! Losses: each is a row, and counts in the exit message.

use std::collections::{BTreeMap, BTreeSet};

use super::monitors::MonitorLoss;
use super::sink::{DroppedSlices, RefusedEntries, Sink};
use crate::clock::TimeSpan;
use crate::entries::{MissingCount, MissingReason, Relief};
use crate::open::StopCause;
use crate::schema::loss::{LossCause, LossCost, Losses, Row};
use crate::schema::origin::RecordingOrigin;

/// One loss.
#[derive(Clone, Debug)]
struct LossEntry {
    cause: LossCause,
    time_ns: u64,
    span_ns: u64,
    cpu: Option<u32>,
    counter: Option<u32>,
    count: u64,
    detail: Option<String>,
}

impl LossEntry {
    /// One loss at a moment, of no CPU and no counter.
    const fn new(cause: LossCause, time_ns: u64) -> Self {
        let (cpu, counter, detail) = (None, None, None);
        Self { cause, time_ns, span_ns: 0, cpu, counter, count: 1, detail }
    }
}

/// All losses.
#[derive(Debug, Default)]
pub struct Ledger {
    pending: Vec<LossEntry>,
    totals: BTreeMap<LossCause, u64>,
    /// Begin of the first loss of each cause, ns on `CLOCK_MONOTONIC`.
    pub first_begin_ns: BTreeMap<LossCause, u64>,
    /// Counters whose loss does not make the recording incomplete.
    optional: BTreeSet<u32>,
}

impl Ledger {
    /// Declares counters as optional: witnesses, whose failure costs precision only.
    pub fn set_optional(&mut self, counters: impl IntoIterator<Item = u32>) {
        self.optional.extend(counters);
    }

    /// Enters a loss noticed at `time_ns`, covering the `span_ns` nanoseconds before it.
    pub fn add_loss(
        &mut self,
        cause: LossCause,
        time_ns: u64,
        span_ns: u64,
        cpu: Option<u32>,
        counter: Option<u32>,
        count: u64,
    ) {
        self.enter_loss(LossEntry { cause, time_ns, span_ns, cpu, counter, count, detail: None });
    }

    /// Enters the span for which there is no record of `cpu`, if there is one.
    pub(super) fn add_run_gap(&mut self, cpu: u32, gap: Option<TimeSpan>) {
        if let Some(gap) = gap {
            self.add_loss(LossCause::RunGap, gap.end_ns, gap.len_ns(), Some(cpu), None, 1);
        }
    }

    /// Enters that the counters of `cpu` are read on `reader` from `time` on, after `missing` ticks
    /// of `tick_ns` without a reading.
    pub fn add_reader_move(
        &mut self,
        time_ns: u64,
        cpu: u32,
        reader: u32,
        missing: u64,
        tick_ns: u64,
    ) {
        self.enter_loss(LossEntry {
            span_ns: missing * tick_ns,
            cpu: Some(cpu),
            count: missing.max(1),
            detail: Some(format!("its counters are read on CPU {reader} from here")),
            ..LossEntry::new(LossCause::ReaderOffline, time_ns)
        });
    }

    /// Enters rows of `slices` that could not be written in time.
    fn add_dropped_slices(&mut self, dropped: DroppedSlices) {
        self.enter_loss(LossEntry {
            span_ns: dropped.end_ns.abs_diff(dropped.begin_ns),
            count: dropped.rows,
            detail: Some("slices came faster than they could be written".to_owned()),
            ..LossEntry::new(LossCause::SlicesDropped, dropped.end_ns as u64)
        });
    }

    /// Enters readings of a hardware monitor that are missing.
    pub fn add_monitor_loss(&mut self, lost: &MonitorLoss) {
        self.enter_loss(LossEntry {
            span_ns: lost.span_ns,
            count: lost.count,
            detail: Some(lost.detail.clone()),
            ..LossEntry::new(LossCause::MonitorLost, lost.time_ns)
        });
    }

    /// Enters that `cpu` came online at `time` and is not in the plan.
    pub fn add_unplanned_cpu(&mut self, time_ns: u64, cpu: u32) {
        let detail = "the CPU was offline when the recording began: it is not counted".to_owned();
        self.enter_loss(LossEntry {
            cpu: Some(cpu),
            detail: Some(detail),
            ..LossEntry::new(LossCause::CpuNotPlanned, time_ns)
        });
    }

    /// Enters `count` marks that were rejected, for the reason in `detail`.
    pub fn add_rejected_marks(&mut self, time_ns: u64, count: u64, detail: &str) {
        let detail = Some(detail.to_owned());
        self.enter_loss(LossEntry {
            count,
            detail,
            ..LossEntry::new(LossCause::MarkLost, time_ns)
        });
    }

    /// Enters that the recorder leaves out something else than for the `span` ns before `time`.
    pub fn add_relief_change(
        &mut self,
        time_ns: u64,
        span_ns: u64,
        old_relief: Relief,
        new_relief: Relief,
    ) {
        let detail = match old_relief {
            Relief::None => format!("the recorder is late: from here {}", new_relief.in_words()),
            _ => {
                format!("until here {}, from here {}", old_relief.in_words(), new_relief.in_words())
            }
        };
        self.enter_loss(LossEntry {
            span_ns,
            // Rows that say how it ended are not losses of their own.
            count: u64::from(new_relief > old_relief),
            detail: Some(detail),
            ..LossEntry::new(LossCause::Overload, time_ns)
        });
    }

    /// Enters that a counter of `cpu` stopped, and why. With `span`, the ns for which it did not
    /// count, enters that it counts again.
    pub fn add_stopped_counter(
        &mut self,
        time_ns: u64,
        cpu: u32,
        counter: u32,
        why: StopCause,
        span_ns: Option<u64>,
    ) {
        let detail = match (span_ns, why) {
            (Some(_), _) => "it counts again",
            (None, StopCause::Pmu) => {
                "its PMU is gone: the driver was unloaded or taken from its device"
            }
            (None, StopCause::Cpu | StopCause::Purpose) => "it went offline with its CPU",
        };
        self.enter_loss(LossEntry {
            span_ns: span_ns.unwrap_or(0),
            cpu: Some(cpu),
            counter: Some(counter),
            // This is one loss, however many rows describe it.
            count: u64::from(span_ns.is_none()),
            detail: Some(detail.to_owned()),
            ..LossEntry::new(LossCause::CounterStopped, time_ns)
        });
    }

    /// Enters a window without a count.
    pub fn add_missing_window(&mut self, missing: &MissingCount) {
        let MissingCount { reason: lack, counter, cpu, time, span_ns } = *missing;
        match lack {
            MissingReason::NoBoundary => {
                self.add_loss(LossCause::NoBoundary, time, span_ns, Some(cpu), Some(counter), 1);
            }
            MissingReason::NotScheduled => {
                self.add_loss(LossCause::NotScheduled, time, span_ns, Some(cpu), Some(counter), 1);
            }
            MissingReason::ReadFailed(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                self.add_explained(LossCause::ReadFailed, time, Some(counter), &error.to_string());
            }
            MissingReason::NoReader => {
                let text = "no online CPU can read the counter";
                self.add_explained(LossCause::ReadFailed, time, Some(counter), text);
            }
        }
    }

    /// Enters a loss with an explanation.
    pub fn add_explained(
        &mut self,
        cause: LossCause,
        time_ns: u64,
        counter: Option<u32>,
        detail: &str,
    ) {
        let detail = Some(detail.to_owned());
        self.enter_loss(LossEntry { counter, detail, ..LossEntry::new(cause, time_ns) });
    }

    fn enter_loss(&mut self, mut entry: LossEntry) {
        let is_optional = entry.counter.is_some_and(|counter| self.optional.contains(&counter));
        if is_optional && entry.cause.cost() != LossCost::Precision {
            entry.cause = LossCause::WitnessLost;
        }
        *self.totals.entry(entry.cause).or_default() += entry.count;
        let begin_ns = entry.time_ns.saturating_sub(entry.span_ns);
        let first_begin = self.first_begin_ns.entry(entry.cause).or_insert(begin_ns);
        *first_begin = begin_ns.min(*first_begin);
        self.pending.push(entry);
    }

    /// Moves all new entries to the table `loss`, including rows that `sink` dropped and entries of
    /// the log that were refused.
    pub fn write_rows(&mut self, sink: &mut Sink) {
        for dropped in std::mem::take(&mut sink.dropped) {
            self.add_dropped_slices(dropped);
        }
        if let Some(RefusedEntries { count, time_ns, why }) = sink.take_refused() {
            let detail = Some(why.to_string());
            let refused = LossEntry::new(LossCause::Disorder, time_ns);
            self.enter_loss(LossEntry { count, detail, ..refused });
        }
        let RecordingOrigin { host, boot_id, cluster } = &sink.origin;
        for entry in self.pending.drain(..) {
            sink.rows.loss.append(&Row {
                host,
                boot_id,
                cluster: cluster.as_deref(),
                mono_ns: entry.time_ns as i64,
                span_ns: entry.span_ns as i64,
                cause: entry.cause.name(),
                cpu: entry.cpu.map(|cpu| cpu as i32),
                counter: entry.counter.map(|counter| counter as i32),
                count: entry.count as i64,
                detail: entry.detail.as_deref(),
            });
        }
    }

    /// Totals by cause.
    pub const fn totals(&self) -> &BTreeMap<LossCause, u64> {
        &self.totals
    }

    /// Totals in two lists: losses of precision, and missing data.
    pub fn loss_summary(&self) -> Losses {
        Losses::from_causes(&self.totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_of_an_optional_counter_costs_precision() {
        let mut ledger = Ledger::default();
        ledger.set_optional([7]);
        ledger.add_stopped_counter(10, 0, 7, StopCause::Cpu, None);
        ledger.add_explained(LossCause::NotOpened, 11, Some(7), "no such event");
        ledger.add_loss(LossCause::NotScheduled, 12, 3, Some(0), Some(7), 1);
        ledger.add_loss(LossCause::NoBoundary, 12, 3, Some(0), Some(7), 1);
        assert!(ledger.loss_summary().is_complete());
        let totals = [(LossCause::NoBoundary, 1), (LossCause::WitnessLost, 3)];
        assert_eq!(ledger.totals().clone(), totals.into());
        ledger.add_stopped_counter(20, 0, 8, StopCause::Cpu, None);
        assert!(!ledger.loss_summary().is_complete());
    }

    #[test]
    fn a_lost_count_makes_the_recording_incomplete_and_a_late_tick_does_not() {
        let mut ledger = Ledger::default();
        ledger.add_loss(LossCause::LateTick, 0, 0, None, None, 12);
        assert!(ledger.loss_summary().is_complete());
        ledger.add_loss(LossCause::RingFull, 0, 0, None, None, 1);
        assert!(!ledger.loss_summary().is_complete());
    }
}
