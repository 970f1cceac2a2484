//! `loss`: everything that was not recorded, with its time and cause.
//!
//! Guarantees: no loss is reported in log messages only. The sums by cause are in the metadata
//! `uncore_trace.loss`. The cost and the wording of each cause are in the list below and nowhere
//! else.

use std::collections::BTreeMap;

use super::column_type::{I32, I64, Null, Text, Word, table};

table! {
    "loss", "everything that was not seen", sorted by [];
    Own;
    origin;
    mono_ns: I64 => Delta, "Time at which the loss was noticed, `CLOCK_MONOTONIC`, ns.";
    span_ns: I64 => Delta, "Length of the time before `mono_ns` that the loss may affect, ns.";
    cause: Word => Dict, "Cause of the loss: a word of the list below.";
    cpu: Null<I32> => Dict, "CPU; null where the loss is not of one CPU.";
    counter: Null<I32> => Dict, "Counter; null where the loss is not of one counter.";
    count: I64 => Delta, "Number of ticks, windows, readings, records or other things that the cause names.";
    detail: Null<Text> => Plain, "More details, in words.";
}

/// The cost of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCost {
    /// Precision, in time or of shares. Counters are cumulative, so the next reading includes the
    /// count: nothing is missing, and the recording is complete.
    Precision,
    /// Counts, or their owners: the recording is incomplete. The text says what the user can do.
    Counts(&'static str),
}

/// The advice if the ring was too small or was drained too late.
const LARGER_BUFFER: &str = "use a larger --buffer";

/// The advice if a CPU went offline.
const KEEP_ONLINE: &str = "keep all CPUs online while recording";

/// The advice if a counter lost its CPU or its PMU.
const KEEP_ALL: &str =
    "keep all CPUs online, and the drivers of PMUs loaded and bound, while recording";

/// The advice if only `detail` has the reason.
const SEE_DETAIL: &str = "record into a directory (-o DIR/) and see `detail` in its table loss";

/// Defines the causes: the variant, the value in the column `cause`, the words for one and for
/// several, and the cost.
macro_rules! causes {
    ($($(#[$doc:meta])+ $cause:ident = $name:literal, [$singular:literal, $plural:literal], $cost:expr;)+) => {
        /// Cause of a loss.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum LossCause {
            $($(#[$doc])+ $cause,)+
        }

        impl LossCause {
            /// All causes.
            pub const ALL: &[Self] = &[$(Self::$cause,)+];

            /// The value in the column `cause`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$cause => $name,)+
                }
            }

            /// Words after a number of losses.
            const fn words(self, count: u64) -> &'static str {
                match (self, count) {
                    $((Self::$cause, 1) => $singular, (Self::$cause, _) => $plural,)+
                }
            }

            /// The cost of a loss of this cause.
            pub const fn cost(self) -> LossCost {
                match self {
                    $(Self::$cause => $cost,)+
                }
            }
        }
    };
}

// Causes that cost only precision come first.
causes! {
    /// The timer skipped ticks. Counts are cumulative: resolution is lost, no count.
    LateTick = "late_tick", ["tick was skipped", "ticks were skipped"], LossCost::Precision;
    /// A window of `counter` had no reading at its end, `mono_ns`. Its count is in the next row.
    NoBoundary = "no_boundary", ["window has no reading at its end", "windows have no reading at their end"], LossCost::Precision;
    /// A reading was due during another one: an interrupt came while counters were read.
    NestedReading = "nested_reading", ["reading came during another one", "readings came during another one"], LossCost::Precision;
    /// A thread left a CPU on which it had not been seen to start. It gets all the time since the
    /// last context switch, though other threads may have run in it. This is also counted if a
    /// thread other than the main thread leaves its CPU during an exec, which loses nothing.
    UnseenSwitch = "unseen_switch", ["context switch was not seen", "context switches were not seen"], LossCost::Precision;
    /// Requests of a disk were not seen: the disk's statistics have more bytes than the requests.
    /// Their bytes are counted and belong to the device. `detail` says how many.
    UnseenRequest = "unseen_request", ["time requests of a disk were not seen", "times requests of a disk were not seen"], LossCost::Precision;
    /// The CPU was offline for `span_ns` before `mono_ns`, so there was nothing to count.
    CpuOffline = "cpu_offline", ["time a CPU was offline", "times a CPU was offline"], LossCost::Precision;
    /// A witness could not be opened, was dropped, or was not read. Counts are divided by another
    /// method, and `detail` says why.
    WitnessLost = "witness_lost", ["witness was lost", "witnesses were lost"], LossCost::Precision;
    /// A group of resctrl could not be read: `Unavailable`, `Unassigned`, an error, a count that
    /// decreases, or a group that is gone. Its windows are divided without it. `detail` has the
    /// group, and why.
    MonitorLost = "monitor_lost", ["reading of a monitor is missing", "readings of monitors are missing"], LossCost::Precision;
    /// The recorder was late. Rates are learnt less often, windows are divided by the last rates or
    /// by residency, or windows are longer; `detail` says which. Counts are complete.
    Overload = "overload", ["time the recorder was late and divided counts less exactly", "times the recorder was late and divided counts less exactly"], LossCost::Precision;
    /// It was not seen who holds which device, for `span_ns` before `mono_ns`: the kernel lacks
    /// what it takes, or records were dropped. What was missed is found when all files are read
    /// again. `detail` says why.
    HolderUnseen = "holder_unseen", ["time it was not seen who holds which device", "times it was not seen who holds which device"], LossCost::Precision;
    /// What a device counts itself was not read, of a source that `detail` names; it says why.
    /// Nothing is said of it again.
    AccountUnread = "account_unread", ["device's own account was not read", "devices' own accounts were not read"], LossCost::Precision;
    /// A mark was rejected: there was no room for it, or a line of `record --marks` was invalid.
    /// `detail` says which.
    MarkLost = "mark_lost", ["mark was refused", "marks were refused"], LossCost::Precision;
    /// The path of a cgroup has the form of a container, pod, virtual machine or job, but others
    /// than root may have named it: `container`, `pod` or `job` is null. `detail` has the path.
    NameRefused = "name_refused", ["name of a container, pod or job was not believed", "names of containers, pods or jobs were not believed"], LossCost::Precision;
    /// No cgroup v2 hierarchy was mounted, so that cgroups had no paths. `detail` has the way out.
    CgroupsUnnamed = "cgroups_unnamed", ["time cgroups had no path, as no cgroup v2 hierarchy was mounted", "times cgroups had no path, as no cgroup v2 hierarchy was mounted"], LossCost::Precision;
    /// The recorder saw a part of the cgroup v2 hierarchy, such as that of a container: the path
    /// `/` is the root of this part, and cgroups outside of it had no paths. `detail` has the way
    /// out.
    CgroupsPartial = "cgroups_partial", ["time the cgroup / was not the root of the host's, and cgroups outside of it had no path", "times the cgroup / was not the root of the host's, and cgroups outside of it had no path"], LossCost::Precision;
    /// A record was dropped because the ring was full.
    RingFull = "ring_full", ["record was dropped", "records were dropped"], LossCost::Counts(LARGER_BUFFER);
    /// There is no record for `span_ns` of a CPU's time before `mono_ns`.
    RunGap = "run_gap", ["gap in the records of a CPU", "gaps in the records of a CPU"], LossCost::Counts(LARGER_BUFFER);
    /// A sample was dropped because the ring was full. Counts between two readings have no certain
    /// owner.
    LostSample = "lost_sample", ["reading was dropped", "readings were dropped"], LossCost::Counts(LARGER_BUFFER);
    /// The kernel returned an error for a reading.
    ReadFailed = "read_failed", ["reading failed", "readings failed"], LossCost::Counts(SEE_DETAIL);
    /// A counter was open and enabled but never scheduled in a window.
    NotScheduled = "not_scheduled", ["time a counter did not run in a window", "times a counter did not run in a window"], LossCost::Counts("record fewer events at a time");
    /// A planned counter could not be opened.
    NotOpened = "not_opened", ["counter could not be opened", "counters could not be opened"], LossCost::Counts("leave out the events that cannot be opened");
    /// A record that could not be decoded.
    Undecodable = "undecodable", ["record could not be decoded", "records could not be decoded"],
        LossCost::Counts("build uncore-trace again: its BPF programs are of another version");
    /// An entry of the log was out of order, and what it says is in no row of `fabric`. `detail`
    /// has the first one.
    Disorder = "disorder", ["entry of the log was out of order", "entries of the log were out of order"], LossCost::Counts(SEE_DETAIL);
    /// A timer could not be restarted.
    TimerStopped = "timer_stopped", ["timer stopped", "timers stopped"], LossCost::Counts("use --timer run-on-cpu");
    /// Counters moved to another CPU because their reader CPU went offline. They do not count while
    /// the driver moves them: `perf_pmu_migrate_context`, kernel/events/core.c, Linux 6.18, waits
    /// for a grace period between removing them from one CPU and installing them on the other.
    ReaderOffline = "reader_offline", ["move of a counter to another CPU", "moves of a counter to another CPU"], LossCost::Counts(KEEP_ONLINE);
    /// A counter stopped because its CPU went offline, or because the driver of its PMU was
    /// unloaded or unbound. What would have been counted until it is opened again is missing. A row
    /// with a `span_ns` says that it counts again.
    CounterStopped = "counter_stopped", ["stop of a counter", "stops of a counter"], LossCost::Counts(KEEP_ALL);
    /// A CPU came online that was offline at the start. No counter of it was planned, and its tasks
    /// get no share of the counters that several CPUs share.
    CpuNotPlanned = "cpu_not_planned", ["CPU came online later", "CPUs came online later"], LossCost::Counts("bring all CPUs online before recording");
    /// Devices moved bytes for an unknown owner, or unseen.
    IoUnseen = "io_unseen", ["time devices moved bytes unseen", "times devices moved bytes unseen"], LossCost::Counts(SEE_DETAIL);
    /// Rows of `slices` were dropped because they came faster than they could be written.
    SlicesDropped = "slices_dropped", ["row of slices was dropped", "rows of slices were dropped"],
        LossCost::Counts("record without --slices, or to a faster disk; only the table slices lacks rows");
    /// The last windows could not be closed: readings or records of their time did not arrive.
    Unfinished = "unfinished", ["window could not be closed", "windows could not be closed"], LossCost::Counts("record again on a less busy machine");
}

/// Loss totals in two lists: losses of precision, and losses that make the recording incomplete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Cause and number of losses that cost only precision.
    pub precision: Vec<(String, u64)>,
    /// Cause and number of all other losses. Causes that are not in [`LossCause::ALL`], from a
    /// recording of a later version, are included.
    pub missing: Vec<(String, u64)>,
}

impl Losses {
    /// Sorts totals by cause, e.g. those of the metadata `uncore_trace.loss`, into the two lists.
    /// Totals of 0 are left out.
    pub fn from_totals<N: Into<String>>(totals: impl IntoIterator<Item = (N, u64)>) -> Self {
        let mut lists = Self::default();
        for (cause, count) in totals {
            let cause = cause.into();
            match cause_cost(&cause) {
                _ if count == 0 => {}
                Some(LossCost::Precision) => lists.precision.push((cause, count)),
                Some(LossCost::Counts(_)) | None => lists.missing.push((cause, count)),
            }
        }
        lists
    }

    /// Sorts totals of known causes into the two lists.
    pub fn from_causes(totals: &BTreeMap<LossCause, u64>) -> Self {
        Self::from_totals(totals.iter().map(|(cause, count)| (cause.name(), *count)))
    }

    /// Whether a recording with these losses is complete.
    pub const fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// The losses of precision as text, e.g. `note: 12 ticks were skipped: less precise, no count
    /// is missing`. Unknown causes come from a file: print the line through
    /// [`crate::text::printable`].
    pub fn precision_text(&self) -> Option<String> {
        let counts = Self::list_in_words(&self.precision)?;
        Some(format!("note: {counts}: less precise, no count is missing"))
    }

    /// The other losses and the advice as text, e.g. `incomplete: 3 records were dropped: use a
    /// larger --buffer`. Print it like [`Losses::precision_text`].
    pub fn incomplete_text(&self) -> Option<String> {
        let counts = Self::list_in_words(&self.missing)?;
        let mut remedies = Vec::new();
        for (cause, _) in &self.missing {
            if let Some(LossCost::Counts(remedy)) = cause_cost(cause)
                && !remedies.contains(&remedy)
            {
                remedies.push(remedy);
            }
        }
        let colon = if remedies.is_empty() { "" } else { ": " };
        Some(format!("incomplete: {counts}{colon}{}", remedies.join("; ")))
    }

    /// Both lists without advice, e.g. `incomplete: 3 records were dropped; note: 12 ticks were
    /// skipped`; empty if nothing was lost. Print it like [`Losses::precision_text`].
    pub fn brief_text(&self) -> String {
        let labelled = |word, list| Some(format!("{word}: {}", Self::list_in_words(list)?));
        let lists = [labelled("incomplete", &self.missing), labelled("note", &self.precision)];
        lists.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    fn list_in_words(list: &[(String, u64)]) -> Option<String> {
        let words: Vec<_> =
            list.iter().map(|(cause, count)| loss_in_words(cause, *count)).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// A number of losses in words: `12 ticks were skipped`. A cause that is not in [`LossCause::ALL`]
/// stays as it is: print it through [`crate::text::printable`].
pub fn loss_in_words(cause: &str, count: u64) -> String {
    let words = find_cause(cause).map_or(cause, |known| known.words(count));
    format!("{count} {words}")
}

/// Whether a loss of this cause holds from its time to the end of the recording. In a rotated
/// recording, each part repeats it at its begin.
pub fn does_hold(cause: &str) -> bool {
    matches!(
        find_cause(cause),
        Some(
            LossCause::NotOpened
                | LossCause::WitnessLost
                | LossCause::CpuNotPlanned
                | LossCause::IoUnseen
                | LossCause::NameRefused
        )
    )
}

/// Whether losses of this cause cost only precision.
pub fn is_precision(cause: &str) -> bool {
    cause_cost(cause) == Some(LossCost::Precision)
}

fn find_cause(cause: &str) -> Option<LossCause> {
    LossCause::ALL.iter().find(|known| known.name() == cause).copied()
}

fn cause_cost(cause: &str) -> Option<LossCost> {
    find_cause(cause).map(LossCause::cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_totals_are_sorted_by_their_cost() {
        let totals = [("late_tick", 12), ("lost_sample", 5286), ("run_gap", 1), ("ring_full", 0)];
        let losses = Losses::from_totals(totals);
        assert!(!losses.is_complete());
        assert_eq!(
            losses.precision_text().unwrap(),
            "note: 12 ticks were skipped: less precise, no count is missing"
        );
        assert_eq!(
            losses.incomplete_text().unwrap(),
            "incomplete: 5286 readings were dropped, 1 gap in the records of a CPU: use a larger \
             --buffer"
        );
        assert_eq!(
            losses.brief_text(),
            "incomplete: 5286 readings were dropped, 1 gap in the records of a CPU; note: 12 \
             ticks were skipped"
        );
    }

    #[test]
    fn precision_alone_leaves_a_recording_complete_and_an_unknown_cause_does_not() {
        let precise = Losses::from_totals([("cpu_offline", 1), ("unseen_switch", 3)]);
        assert!(precise.is_complete());
        assert_eq!(precise.incomplete_text(), None);
        let unknown = Losses::from_totals([("of_a_later_version", 1)]);
        assert!(!unknown.is_complete());
        assert_eq!(unknown.incomplete_text().unwrap(), "incomplete: 1 of_a_later_version");
        let none = Losses::from_totals([("run_gap", 0)]);
        assert_eq!(
            (none.is_complete(), none.precision_text(), none.brief_text()),
            (true, None, String::new())
        );
    }
}
