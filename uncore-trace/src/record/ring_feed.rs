//! Reads the rings in the order of time and feeds their records to the parts.

use std::time::{Duration, Instant};

use anyhow::Result;
use uncore_trace_common::record::KIND_FILE;

use super::side_sources::{FedRecords, SideSources};
use super::state::RecorderState;
use crate::clock::mono_ns;
use crate::drain::{DrainedRecord, Merge, decode_record};
use crate::open::{DropCounts, Session};
use crate::schema::loss::LossCause;

/// Records of events that happened this long before a drain are in the ring. The delay allows for a
/// program that the hypervisor preempts before it sends its record.
pub(super) const SETTLE_NS: u64 = 5_000_000;

/// Records that are fed between two readings of the clock, some 50 us.
const RECORDS_AT_ONCE: u64 = 64;

/// What feeding came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct FeedOutcome {
    /// The time up to which all records were fed.
    pub horizon_ns: u64,
    /// Whether the rings were emptied.
    pub has_emptied: bool,
    pub record_count: u64,
}

/// The reader of the rings.
#[derive(Debug)]
pub(super) struct RingFeed {
    /// The order in which the rings are read.
    merge: Merge,
    /// The longest time of one feed.
    longest: Duration,
    /// By ring: bytes that were read since the rings were empty.
    backlog: Vec<u64>,
    /// By CPU: samples in this feed.
    samples_by_cpu: Vec<u64>,
    drops: DropCounts,
}

impl RingFeed {
    /// Reads the rings of `session` for `longest` at a time; CPUs have numbers below `possible`.
    pub(super) fn new(session: &mut Session, longest: Duration, possible: u32) -> Self {
        let ring_count = session.rings().len();
        Self {
            merge: Merge::new(ring_count),
            longest,
            backlog: vec![0; ring_count],
            samples_by_cpu: vec![0; possible as usize],
            drops: DropCounts::default(),
        }
    }

    /// Feeds the records in the rings to the time line, for one drain period at most, so that a
    /// machine that fills the rings faster than they are emptied does not keep the recorder from
    /// its other duties.
    pub(super) fn feed_records(
        &mut self,
        state: &mut RecorderState<'_>,
        sources: &mut SideSources<'_>,
    ) -> Result<FeedOutcome> {
        // Taken before the rings are read: what is sent from here on may be seen or not.
        let mut horizon_ns = (mono_ns() as u64).saturating_sub(SETTLE_NS);
        let begin = Instant::now();
        let mut has_emptied = true;
        let mut record_count = 0;
        self.samples_by_cpu.fill(0);
        let rings = state.session.rings();
        let backlog = &mut self.backlog;
        let mut read_record = |ring: usize| {
            let record = rings.get_mut(ring)?.next()?;
            if let Some(bytes) = backlog.get_mut(ring) {
                *bytes += record.len() as u64;
            }
            Some(decode_record(&record))
        };
        while let Some(decoded) = self.merge.next(&mut read_record) {
            record_count += 1;
            match decoded {
                Ok(record) => {
                    // Counted here and not by a source: this runs millions of times a second.
                    if let DrainedRecord::Sample(sample) = &record
                        && let Some(readings) = self.samples_by_cpu.get_mut(sample.cpu as usize)
                    {
                        *readings += 1;
                    }
                    state.open_parts.feed_record(record);
                }
                Err(error) => {
                    let ledger = state.open_parts.ledger_at(horizon_ns);
                    ledger.add_explained(
                        LossCause::Undecodable,
                        horizon_ns,
                        None,
                        &error.to_string(),
                    );
                }
            }
            if record_count % RECORDS_AT_ONCE == 0 && begin.elapsed() >= self.longest {
                has_emptied = false;
                // The records that are left are newer than those that were fed, except for the
                // disorder of a ring.
                horizon_ns = horizon_ns
                    .min(state.open_parts.live.timeline.newest_time().saturating_sub(SETTLE_NS));
                break;
            }
        }
        state.session.flush_log();
        self.note_drops(horizon_ns, state, sources)?;
        for open_part in state.open_parts.oldest_first() {
            open_part.sink.hand_over(&mut open_part.writer)?;
        }
        Ok(FeedOutcome { horizon_ns, has_emptied, record_count })
    }

    /// What sources are told of a feed.
    pub(super) fn fed_records(&self, outcome: FeedOutcome) -> FedRecords<'_> {
        let FeedOutcome { has_emptied, record_count, .. } = outcome;
        FedRecords { record_count, has_emptied, samples_by_cpu: &self.samples_by_cpu }
    }

    /// Whether more than half of a ring was in use since the rings were empty; together they have
    /// `buffer_bytes`.
    pub(super) fn is_half_full(&self, buffer_bytes: u32) -> bool {
        let ring_bytes = u64::from(buffer_bytes) / self.backlog.len().max(1) as u64;
        self.backlog.iter().any(|bytes| *bytes > ring_bytes / 2)
    }

    /// Notes that the rings are empty.
    pub(super) fn clear_backlog(&mut self) {
        self.backlog.fill(0);
    }

    /// The number of timers that the kernel has moved to another CPU.
    pub(super) const fn timer_moves(&self) -> u64 {
        self.drops.moved
    }

    /// Enters what was dropped since the last call.
    fn note_drops(
        &mut self,
        now_ns: u64,
        state: &mut RecorderState<'_>,
        sources: &mut SideSources<'_>,
    ) -> Result<()> {
        let new_drops = self.drops.advance(state.session.drop_counts()?);
        for (record_kind, lost) in
            new_drops.records.into_iter().enumerate().filter(|(_, lost)| *lost > 0)
        {
            let record_kind = record_kind as u32;
            sources.each_source().for_each(|source| source.note_ring_loss(record_kind));
            let cause = if record_kind == KIND_FILE {
                LossCause::HolderUnseen
            } else {
                LossCause::RingFull
            };
            let detail = format!("{lost} records of kind {record_kind}");
            state.note_loss(cause, now_ns, &detail);
        }
        for (count, cause) in [
            (new_drops.nested, LossCause::NestedReading),
            (new_drops.switches, LossCause::UnseenSwitch),
            (new_drops.timer, LossCause::TimerStopped),
        ] {
            if count > 0 {
                state.open_parts.ledger_at(now_ns).add_loss(cause, now_ns, 0, None, None, count);
            }
        }
        for (count, description) in [
            (new_drops.unowned, "requests whose owners could not be stored"),
            (new_drops.missed, "requests, packets or reads that came in the middle of another"),
        ] {
            if count > 0 {
                state.note_loss(LossCause::IoUnseen, now_ns, &format!("{count} {description}"));
            }
        }
        Ok(())
    }
}
