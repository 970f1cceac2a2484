//! `loss`: everything that was not seen, with its time and cause.
//!
//! Guarantees: no drop is only logged; the sums by cause are the file's `uncore_trace.loss`; what a
//! cause costs, and the words for it, are in the list of causes below and nowhere else.

use std::collections::BTreeMap;

use super::kind::{I32, I64, Null, Text, Word, table};
use super::when::When;

table! {
    "loss", "everything that was not seen", sorted by [];
    When::Own;
    host: Word => Dict, "Host name.";
    boot_id: Word => Dict, "Random id of the boot (`/proc/sys/kernel/random/boot_id`): times of `CLOCK_MONOTONIC` and ids compare within one boot.";
    cluster: Null<Word> => Dict, "Cluster the host is in, as `--cluster` named it; null where it was not named.";
    mono_ns: I64 => Delta, "When it was noticed, `CLOCK_MONOTONIC`, ns.";
    span_ns: I64 => Delta, "Length of time before `mono_ns` it may affect, ns.";
    cause: Word => Dict, "Why.";
    cpu: Null<I32> => Dict, "CPU; null where it is not of one.";
    counter: Null<I32> => Dict, "Counter; null where it is not of one.";
    count: I64 => Delta, "How many.";
    detail: Null<Text> => Plain, "Anything more, in words.";
}

/// What a loss takes from a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Precision, in time or of shares. Counters are cumulative, so the next reading has the whole
    /// count: nothing is missing, and the recording is complete.
    Precision,
    /// Counts, or who caused them: the recording is incomplete. What the user can do about it.
    Counts(&'static str),
}

/// What helps where the ring buffer was too small or was emptied too late.
const LARGER_BUFFER: &str = "use a larger --buffer";

/// What helps where a CPU was taken offline.
const KEEP_ONLINE: &str = "keep all CPUs online while recording";

/// What helps where a counter lost its CPU or its PMU.
const KEEP_ALL: &str =
    "keep all CPUs online, and the drivers of PMUs loaded and bound, while recording";

/// What helps where the reason is in the row's `detail` only.
const SEE_DETAIL: &str = "record into a directory (-o DIR/) and see `detail` in its table loss";

/// Defines the causes: for each its variant, its value in the column `cause`, and its cost.
macro_rules! causes {
    ($($(#[$doc:meta])+ $cause:ident = $name:literal, $cost:expr;)+) => {
        /// Why something was not seen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Cause {
            $($(#[$doc])+ $cause,)+
        }

        impl Cause {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$cause,)+];

            /// The word for the `cause` column.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$cause => $name,)+
                }
            }

            /// What a loss of this cause takes from a recording.
            pub const fn cost(self) -> Cost {
                match self {
                    $(Self::$cause => $cost,)+
                }
            }
        }
    };
}

// What costs precision only comes first.
causes! {
    /// The timer skipped ticks. The counts are cumulative: resolution is lost, no count.
    LateTick = "late_tick", Cost::Precision;
    /// A window of `counter` had no reading at its end, `mono_ns`; its count is in the next row.
    NoBoundary = "no_boundary", Cost::Precision;
    /// Readings that were due in the middle of another: an interrupt in a sweep.
    NestedReading = "nested_reading", Cost::Precision;
    /// A thread left a CPU that was not seen to come: the time since the last context switch is its
    /// own, though others may have had a part of it. Also counted where a thread that did not lead
    /// its process leaves its CPU in the middle of an exec, which loses nothing.
    UnseenSwitch = "unseen_switch", Cost::Precision;
    /// The CPU was offline for `span_ns` before `mono_ns`: there was nothing to count.
    CpuOffline = "cpu_offline", Cost::Precision;
    /// A witness could not be opened, was dropped, or was not read: what it would have divided is
    /// divided otherwise, and `detail` says why.
    WitnessLost = "witness_lost", Cost::Precision;
    /// A mark that was not taken: there was no room for it, or a line of `record --marks` was none;
    /// `detail` says which.
    MarkLost = "mark_lost", Cost::Precision;
    /// A record found the ring full.
    RingFull = "ring_full", Cost::Counts(LARGER_BUFFER);
    /// No record accounts for `span_ns` of a CPU's time before `mono_ns`.
    RunGap = "run_gap", Cost::Counts(LARGER_BUFFER);
    /// Readings that the ring refused: counts between two readings have no certain owner.
    LostSample = "lost_sample", Cost::Counts(LARGER_BUFFER);
    /// A reading that the kernel refused.
    ReadFailed = "read_failed", Cost::Counts(SEE_DETAIL);
    /// A counter was opened and enabled but never scheduled in a window.
    NotScheduled = "not_scheduled", Cost::Counts("record fewer events at a time");
    /// A planned counter could not be opened.
    NotOpened = "not_opened", Cost::Counts("leave out the events that cannot be opened");
    /// A record that could not be decoded.
    Undecodable = "undecodable",
        Cost::Counts("build uncore-trace anew: its BPF programs do not fit it");
    /// A timer that could not be started again.
    TimerStopped = "timer_stopped", Cost::Counts("use --timer run-on-cpu");
    /// Counters went to another CPU because their reader CPU went offline. While a driver moves them
    /// they do not count: `perf_pmu_migrate_context`, kernel/events/core.c, Linux 6.18, waits for a
    /// grace period between taking them off one CPU and putting them on the other.
    ReaderOffline = "reader_offline", Cost::Counts(KEEP_ONLINE);
    /// A counter stopped with its CPU, which went offline, or with its PMU, whose driver was unloaded or
    /// taken from its device: what it might have counted until it was opened again. A row with a
    /// `span_ns` says that it counts again.
    CounterStopped = "counter_stopped", Cost::Counts(KEEP_ALL);
    /// A CPU came online that was offline at the start: no counter of it was planned, and no counter
    /// that several CPUs share gives its tasks a part.
    CpuNotPlanned = "cpu_not_planned", Cost::Counts("bring all CPUs online before recording");
    /// What devices moved for an owner who was not seen, or was not seen at all.
    IoUnseen = "io_unseen", Cost::Counts(SEE_DETAIL);
    /// Rows of `slices` that came faster than they could be written.
    SlicesDropped = "slices_dropped",
        Cost::Counts("record without --slices, or to a faster disk; only the table slices lacks rows");
    /// The last windows could not be closed: their readings or their CPUs' time did not come.
    Unfinished = "unfinished", Cost::Counts("record again on a less busy machine");
}

/// Loss totals in two lists: what cost precision only, and what makes the recording incomplete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Cause and how many, of those that cost precision only.
    pub precision: Vec<(String, u64)>,
    /// Cause and how many, of the others. A cause that is not in [`Cause::ALL`], as in a recording of a
    /// later version, is here.
    pub missing: Vec<(String, u64)>,
}

impl Losses {
    /// Sorts totals by cause, e.g. those of the metadata `uncore_trace.loss`; totals of 0 are left
    /// out.
    pub fn sort<N: Into<String>>(totals: impl IntoIterator<Item = (N, u64)>) -> Self {
        let mut lists = Self::default();
        for (cause, count) in totals {
            let cause = cause.into();
            match cost(&cause) {
                _ if count == 0 => {}
                Some(Cost::Precision) => lists.precision.push((cause, count)),
                Some(Cost::Counts(_)) | None => lists.missing.push((cause, count)),
            }
        }
        lists
    }

    /// Sorts totals of causes that are known.
    pub fn of(totals: &BTreeMap<Cause, u64>) -> Self {
        Self::sort(totals.iter().map(|(cause, count)| (cause.name(), *count)))
    }

    /// Whether a recording with these losses is complete.
    pub const fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Words for what cost precision, e.g. `note: 12 late_tick: less precise, no count is missing`. Causes come from a file in most cases: print the line through
    /// [`crate::text::printable`].
    pub fn note(&self) -> Option<String> {
        let counts = Self::list(&self.precision)?;
        Some(format!("note: {counts}: less precise, no count is missing"))
    }

    /// Words for what is missing and what to do, e.g. `incomplete: 3 ring_full: use a larger
    /// --buffer`. To be printed as [`Losses::note`] is.
    pub fn incomplete(&self) -> Option<String> {
        let counts = Self::list(&self.missing)?;
        let mut remedies = Vec::new();
        for (cause, _) in &self.missing {
            if let Some(Cost::Counts(remedy)) = cost(cause)
                && !remedies.contains(&remedy)
            {
                remedies.push(remedy);
            }
        }
        let colon = if remedies.is_empty() { "" } else { ": " };
        Some(format!("incomplete: {counts}{colon}{}", remedies.join("; ")))
    }

    /// Both lists without advice, e.g. `incomplete: 3 ring_full; note: 12 late_tick`; empty where
    /// nothing was lost. To be printed as [`Losses::note`] is.
    pub fn brief(&self) -> String {
        let of = |word, list| Some(format!("{word}: {}", Self::list(list)?));
        let lists = [of("incomplete", &self.missing), of("note", &self.precision)];
        lists.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    fn list(list: &[(String, u64)]) -> Option<String> {
        let words: Vec<_> = list.iter().map(|(cause, count)| format!("{count} {cause}")).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// Whether a loss of this cause holds from its time to the end of the recording. Each part of a recording that is
/// rotated tells of it at its begin.
pub fn does_hold(cause: &str) -> bool {
    let known = Cause::ALL.iter().find(|known| known.name() == cause);
    matches!(
        known,
        Some(Cause::NotOpened | Cause::WitnessLost | Cause::CpuNotPlanned | Cause::IoUnseen)
    )
}

/// Whether a cause cost precision only.
pub fn is_precision(cause: &str) -> bool {
    cost(cause) == Some(Cost::Precision)
}

fn cost(cause: &str) -> Option<Cost> {
    Cause::ALL.iter().find(|known| known.name() == cause).map(|known| known.cost())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_sorted_by_what_they_cost() {
        let totals = [("late_tick", 12), ("lost_sample", 5286), ("run_gap", 1), ("ring_full", 0)];
        let losses = Losses::sort(totals);
        assert!(!losses.is_complete());
        assert_eq!(losses.note().unwrap(), "note: 12 late_tick: less precise, no count is missing");
        assert_eq!(
            losses.incomplete().unwrap(),
            "incomplete: 5286 lost_sample, 1 run_gap: use a larger --buffer"
        );
        assert_eq!(losses.brief(), "incomplete: 5286 lost_sample, 1 run_gap; note: 12 late_tick");
    }

    #[test]
    fn precision_alone_leaves_a_recording_complete_and_an_unknown_cause_does_not() {
        let precise = Losses::sort([("cpu_offline", 1), ("unseen_switch", 3)]);
        assert!(precise.is_complete());
        assert_eq!(precise.incomplete(), None);
        let unknown = Losses::sort([("of_a_later_version", 1)]);
        assert!(!unknown.is_complete());
        assert_eq!(unknown.incomplete().unwrap(), "incomplete: 1 of_a_later_version");
        let none = Losses::sort([("run_gap", 0)]);
        assert_eq!((none.is_complete(), none.note(), none.brief()), (true, None, String::new()));
    }
}
