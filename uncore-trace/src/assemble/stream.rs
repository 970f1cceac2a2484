//! What the streams of the time line do, and what they are given.
//!
//! A stream makes the entries and the rows of a raw table, from records of the rings or from
//! readings of a source beside them. [`super::streams`] has the list.

use std::collections::BTreeMap;

use super::TimelineSetup;
use super::io::BinTransfers;
use super::loss::Ledger;
use super::output::EntryOutput;
use super::sink::Sink;
use super::span::{TickTime, TimelineSpan};
use super::streams::Streams;
use super::unnamed_cgroups::UnnamedCgroups;
use crate::clock::TimeSpan;
use crate::drain::{DrainedRecord, Peek};
use crate::entries::{EntryConsumer, Owner};
use crate::identity::names::TaskNames;
use crate::open::CpuSetChange;

/// The entries and rows of one raw table, or of a few that have the same source.
///
/// A method that a stream does not have does nothing. All calls are direct, so a stream costs
/// nothing for records that are not its own.
pub(super) trait RawStream: Sized {
    /// The stream before its first bin.
    fn start_stream(start: &StreamStart<'_>, sink: &mut Sink) -> Self;

    /// Takes a record of the rings. A stream may take out what no other stream needs.
    fn feed_record(&mut self, _record: &mut DrainedRecord, _context: &mut StreamContext<'_>) {}

    /// Applies a change of CPUs and counters. All records from before it have been fed.
    fn apply_change(&mut self, _change: &AppliedChange<'_>, _context: &mut StreamContext<'_>) {}

    /// Ends the recording with the tick that ends here.
    fn stop_at(&mut self, _stop: TickTime) {}

    /// How long after its end a bin waits for what belongs to it, ns.
    fn arrival_delay_ns(&self) -> u64 {
        0
    }

    /// Whether everything has arrived that the bin must not be closed without, unless it is late.
    fn is_complete(&self, _closing: &ClosingBin, _consumer: &dyn EntryConsumer) -> bool {
        true
    }

    /// Makes the entries and rows of a bin. All of its records have been fed.
    fn close_bin(&mut self, _closing: &mut ClosingBin, _context: &mut StreamContext<'_>) {}

    /// Writes the rows of what goes on at the end of the recording. `end_ns` is the end of the
    /// first tick after it.
    fn write_last_rows(&mut self, _end_ns: u64, _context: &mut StreamContext<'_>) {}
}

/// A reading of a source beside the rings, for [`Timeline::feed_reading`].
///
/// [`Timeline::feed_reading`]: super::Timeline::feed_reading
pub trait SourceReading {
    /// Gives the reading to its stream.
    fn feed_stream(&self, streams: &mut Streams, context: &mut StreamContext<'_>);
}

/// What streams are made from.
#[derive(Debug)]
pub(super) struct StreamStart<'a> {
    /// The parameters of the time line.
    pub setup: &'a TimelineSetup<'a>,
    /// Begin of the first tick, ns on `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// Length of a bin, ns.
    pub bin_ns: u64,
    /// Whether the raw tables are written.
    pub raw: bool,
}

/// What all streams share.
#[derive(Debug)]
pub struct StreamContext<'a> {
    /// Names of tasks and cgroups.
    pub(super) names: &'a mut TaskNames,
    /// Cgroups whose names are requested.
    pub(super) unnamed: &'a mut UnnamedCgroups,
    /// The log and the rows.
    pub(super) output: EntryOutput<'a>,
    /// The losses.
    pub(super) ledger: &'a mut Ledger,
    /// First and last tick.
    pub(super) span: TimelineSpan,
}

impl StreamContext<'_> {
    /// Requests the name of an owner, which must be in the log before the bin ends.
    pub(super) fn request_owner_name(&mut self, owner: Owner) {
        if let Owner::Task { cgroup_id, .. } = owner {
            self.request_cgroup_name(cgroup_id);
        }
    }

    /// Requests the name of a cgroup.
    pub(super) fn request_cgroup_name(&mut self, id: u64) {
        if !self.names.cgroups.is_logged(id) {
            self.unnamed.add_cgroup(id);
        }
    }
}

/// A bin that is closed.
#[derive(Debug)]
pub(super) struct ClosingBin {
    /// From the end of the bin before.
    pub span: TimeSpan,
    /// The tick that ends with it.
    pub tick: u64,
    /// Whether a window ends with it.
    pub is_window_end: bool,
    /// Whether the recording ends with it.
    pub is_last: bool,
    /// What devices moved, once the stream of I/O is closed: the statistics are aligned with it.
    pub transfers: Option<BinTransfers>,
}

/// A change of CPUs and counters.
#[derive(Debug)]
pub(super) struct AppliedChange<'a> {
    /// What changed.
    pub change: &'a CpuSetChange,
    /// When, ns on `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// The unsent states of CPUs that went offline.
    pub offline_states: BTreeMap<u32, Peek>,
}
