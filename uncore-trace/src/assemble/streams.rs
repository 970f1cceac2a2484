//! The streams of the time line, one for each raw table.

use super::accounts::PendingAccounts;
use super::assignments::Assignments;
use super::cgroups::CgroupStream;
use super::cpus::CpuStates;
use super::holders::HolderTable;
use super::io::IoUse;
use super::monitors::PendingMonitors;
use super::readings::ReadingStream;
use super::sink::Sink;
use super::slices::SliceStream;
use super::span::TickTime;
use super::statistics::StatisticCounters;
use super::stream::{AppliedChange, ClosingBin, RawStream, StreamContext, StreamStart};
use super::tasks::TaskStream;
use super::usage::UsageStream;
use crate::drain::DrainedRecord;
use crate::entries::EntryConsumer;

/// Defines the streams. A line adds one.
macro_rules! streams {
    ($($(#[doc = $doc:literal])+ $name:ident: $stream:ty,)+) => {
        /// All streams. Every call reaches them in this order, which is that of the log.
        #[derive(Debug)]
        pub struct Streams {
            $($(#[doc = $doc])+ pub(super) $name: $stream,)+
        }

        impl Streams {
            /// The streams before the first bin.
            pub(super) fn start_all(start: &StreamStart<'_>, sink: &mut Sink) -> Self {
                Self { $($name: RawStream::start_stream(start, sink),)+ }
            }

            /// Gives a record to each stream.
            pub(super) fn feed_record(
                &mut self,
                record: &mut DrainedRecord,
                context: &mut StreamContext<'_>,
            ) {
                $(self.$name.feed_record(record, context);)+
            }

            /// Applies a change of CPUs and counters.
            pub(super) fn apply_change(
                &mut self,
                change: &AppliedChange<'_>,
                context: &mut StreamContext<'_>,
            ) {
                $(self.$name.apply_change(change, context);)+
            }

            /// Ends the recording with the tick that ends here.
            pub(super) fn stop_at(&mut self, stop: TickTime) {
                $(self.$name.stop_at(stop);)+
            }

            /// How long a bin waits for the slowest stream, ns.
            pub(super) fn arrival_delay_ns(&self) -> u64 {
                [$(self.$name.arrival_delay_ns(),)+].into_iter().max().unwrap_or_default()
            }

            /// Whether no stream waits for what belongs to the bin.
            pub(super) fn are_complete(
                &self,
                closing: &ClosingBin,
                consumer: &dyn EntryConsumer,
            ) -> bool {
                $(self.$name.is_complete(closing, consumer))&&+
            }

            /// Makes the entries and rows of a bin.
            pub(super) fn close_bin(
                &mut self,
                closing: &mut ClosingBin,
                context: &mut StreamContext<'_>,
            ) {
                $(self.$name.close_bin(closing, context);)+
            }

            /// Writes the rows of what goes on at the end of the recording.
            pub(super) fn write_last_rows(&mut self, end_ns: u64, context: &mut StreamContext<'_>) {
                $(self.$name.write_last_rows(end_ns, context);)+
            }
        }
    };
}

// The order of the log within a bin. `replay` reads the tables in the same order, but for the
// readings, which name their tick.
streams! {
    /// Who used the CPUs: `runtime` and `irqs`. First, because it takes out of a record what no
    /// other stream may count.
    usage: UsageStream,
    /// `tasks`.
    tasks: TaskStream,
    /// `slices`.
    slices: SliceStream,
    /// `readings` of counters, which are logged when they are fed.
    readings: ReadingStream,
    /// `io`. Before the statistics, which are aligned with the bytes that it saw in the bin.
    io: Option<IoUse>,
    /// `holders` and `held`.
    holders: Option<HolderTable>,
    /// `readings` of disks and interfaces, at the end of a window.
    statistics: StatisticCounters,
    /// `monitors`, at the end of a window.
    monitors: PendingMonitors,
    /// `accounts`, at the end of a window.
    accounts: PendingAccounts,
    /// `assignments`.
    assignments: Assignments,
    /// `cpus`.
    cpus: CpuStates,
    /// `cgroups`. Last, because the attributor names its rows at the end of a bin: the names of
    /// all owners that the other streams logged come before that. A record that changes a name is
    /// for the time after it, so the other streams take it under the old name.
    cgroups: CgroupStream,
}
