//! Events that a page marks in its plots: marks, losses, and CPUs that went offline or came online.
//!
//! Losses of precision are one line for all of the time; [`crate::view::check`] lists them.
//!
//! Guarantee: memory does not grow with the recording. Losses of one cause that are near each other
//! are one item with their sum, and the numbers of marks and changes of CPUs are limited; further
//! ones are counted.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use super::super::check::facts::MetadataFacts;
use super::super::marks::RecordedMarks;
use super::super::span::SelectedTime;
use crate::schema::columns::{i32_column, i64_column, nullable_value, text_column, word_column};
use crate::schema::cpus;
use crate::schema::loss::{self, Losses};
use crate::schema::marks::MarkKind;
use crate::tables::reader::Recording;
use crate::text::printable;

/// Number of parts of the time; losses of one cause in the same part are summed.
const PARTS: i64 = 100;
/// Most changes of CPUs that are kept.
const CHANGES: usize = 500;
/// Most marks that are kept.
const NAMES: usize = 500;

/// A time span with losses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LossSpan {
    /// How many, and of what.
    pub words: String,
    /// Begin and end of the time that may be affected, `CLOCK_MONOTONIC`, ns; in a file without the
    /// table `loss`, the begin of the first loss.
    pub from_ns: Option<i64>,
    pub to_ns: Option<i64>,
    /// The detail of a row, if it is the only one.
    pub detail: Option<String>,
}

/// A CPU that changed its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CpuChange {
    /// `CLOCK_MONOTONIC`, ns.
    pub ns: i64,
    pub cpu: i32,
    pub state: String,
}

/// A mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedMark {
    /// `CLOCK_MONOTONIC`, ns.
    pub from_ns: i64,
    /// `None` for an instant; a span that was not ended ends with the recording.
    pub to_ns: Option<i64>,
    pub text: String,
}

/// All events to be marked.
#[derive(Debug, Default)]
pub(super) struct PageNotices {
    /// Losses that make the recording incomplete; `None` if losses are not known.
    pub losses: Option<Vec<LossSpan>>,
    /// The sums of the others.
    pub note: Option<String>,
    /// In the order of time.
    pub cpus: Vec<CpuChange>,
    /// Number of changes left out.
    pub more_cpus: u64,
    /// Marks, in the order of time.
    pub named: Vec<NamedMark>,
    /// Number of marks left out.
    pub more_named: u64,
}

impl PageNotices {
    /// The events in the selected time.
    ///
    /// # Errors
    ///
    /// A table of the dataset cannot be read.
    pub(super) fn read_notices(
        recording: &Recording,
        pairs: &BTreeMap<String, String>,
        span: &SelectedTime,
    ) -> Result<Self> {
        let has_table = |def| recording.is_dataset() && recording.has_table(def);
        let mut notices = Self::default();
        if has_table(&loss::TABLE) {
            notices.add_losses(recording, span)?;
        } else {
            notices.add_totals(&MetadataFacts::from_metadata(pairs));
        }
        notices.add_named(&RecordedMarks::read_marks(recording)?, span);
        if has_table(&cpus::TABLE) {
            notices.add_cpus(recording, span)?;
        }
        Ok(notices)
    }

    fn add_losses(&mut self, recording: &Recording, span: &SelectedTime) -> Result<()> {
        let stretch_ns = (span.end_ns.saturating_sub(span.begin_ns) / PARTS).max(1);
        let mut loss_sums: BTreeMap<(i64, String), (u64, LossSpan)> = BTreeMap::new();
        let mut notes: BTreeMap<String, u64> = BTreeMap::new();
        let columns = ["mono_ns", "span_ns", "cause", "cpu", "count", "detail"];
        for batch in recording.open_table(&loss::TABLE)?.scan_columns(&columns)? {
            let batch = batch?;
            let (ends, spans) = (i64_column(&batch, "mono_ns")?, i64_column(&batch, "span_ns")?);
            let (causes, counts) = (word_column(&batch, "cause")?, i64_column(&batch, "count")?);
            let (cpus, details) = (i32_column(&batch, "cpu")?, text_column(&batch, "detail")?);
            for row in 0..batch.num_rows() {
                let cause = causes.get(row).context("a loss row without a cause")?;
                let (to_ns, count) = (ends.value(row), counts.value(row).unsigned_abs());
                let from_ns = to_ns.saturating_sub(spans.value(row));
                if count == 0 || !overlaps_span(span, from_ns, to_ns) {
                    continue;
                }
                if loss::is_precision(cause) {
                    *notes.entry(cause.to_owned()).or_default() += count;
                    continue;
                }
                let has_detail = arrow::array::Array::is_valid(details, row);
                let detail = has_detail.then(|| printable(details.value(row)).into_owned());
                let cpu = nullable_value(cpus, row).map(|cpu| format!("CPU {cpu}"));
                let detail: Vec<String> = cpu.into_iter().chain(detail).collect();
                let stretch = from_ns.saturating_sub(span.begin_ns) / stretch_ns;
                let new = LossSpan {
                    words: String::new(),
                    from_ns: Some(from_ns),
                    to_ns: Some(to_ns),
                    detail: (!detail.is_empty()).then(|| detail.join(", ")),
                };
                let (sum, lost) = loss_sums.entry((stretch, cause.to_owned())).or_insert((0, new));
                if *sum > 0 {
                    lost.detail = None;
                }
                *sum = sum.saturating_add(count);
                lost.from_ns = lost.from_ns.min(Some(from_ns));
                lost.to_ns = lost.to_ns.max(Some(to_ns));
            }
        }
        let in_words = |((_, cause), (count, lost)): ((i64, String), (u64, LossSpan))| LossSpan {
            words: loss_words(&cause, count),
            ..lost
        };
        let mut losses: Vec<LossSpan> = loss_sums.into_iter().map(in_words).collect();
        losses.sort_by_key(|lost| lost.from_ns);
        self.losses = Some(losses);
        self.note =
            Losses::from_totals(notes).precision_text().map(|note| printable(&note).into_owned());
        Ok(())
    }

    /// A file has only the sums, and the first loss of each cause.
    fn add_totals(&mut self, facts: &MetadataFacts) {
        let Ok(totals) = facts.loss.as_ref() else { return };
        let totals = totals.iter().map(|(cause, count)| (cause, count.unsigned_abs()));
        let sums = Losses::from_totals(totals);
        let lost = sums.missing.iter().map(|(cause, count)| LossSpan {
            words: loss_words(cause, *count),
            from_ns: facts.loss_first.get(cause).copied(),
            to_ns: None,
            detail: None,
        });
        self.losses = Some(lost.collect());
        self.note = sums.precision_text().map(|note| printable(&note).into_owned());
    }

    fn add_named(&mut self, marks: &RecordedMarks, span: &SelectedTime) {
        for mark in marks.list.iter().filter(|mark| mark.is_within(span.begin_ns, span.end_ns)) {
            if self.named.len() >= NAMES {
                self.more_named += 1;
                continue;
            }
            self.named.push(NamedMark {
                from_ns: mark.mono_ns,
                to_ns: (mark.kind == MarkKind::Span).then(|| mark.last_ns().min(span.end_ns)),
                text: printable(&mark.text).into_owned(),
            });
        }
        self.more_named += marks.left_out;
    }

    /// Every row after the first of each CPU is a change of its state or its counters.
    fn add_cpus(&mut self, recording: &Recording, span: &SelectedTime) -> Result<()> {
        let mut states: BTreeMap<i32, String> = BTreeMap::new();
        for batch in
            recording.open_table(&cpus::TABLE)?.scan_columns(&["mono_ns", "cpu", "state"])?
        {
            let batch = batch?;
            let (times, numbers) = (i64_column(&batch, "mono_ns")?, i32_column(&batch, "cpu")?);
            let words = word_column(&batch, "state")?;
            for row in 0..batch.num_rows() {
                let (ns, cpu) = (times.value(row), numbers.value(row));
                let state = words.get(row).context("a CPU without a state")?;
                let previous_state = states.insert(cpu, state.to_owned());
                if previous_state.is_none_or(|old_state| old_state == state)
                    || !overlaps_span(span, ns, ns)
                {
                    continue;
                }
                if self.cpus.len() >= CHANGES {
                    self.more_cpus += 1;
                } else {
                    self.cpus.push(CpuChange { ns, cpu, state: printable(state).into_owned() });
                }
            }
        }
        self.cpus.sort_by_key(|change| change.ns);
        Ok(())
    }
}

/// Whether a time span overlaps the shown time.
fn overlaps_span(span: &SelectedTime, from_ns: i64, to_ns: i64) -> bool {
    from_ns <= span.end_ns && to_ns >= span.begin_ns
}

/// Losses in words, escaped.
fn loss_words(cause: &str, count: u64) -> String {
    printable(&loss::loss_in_words(cause, count)).into_owned()
}
