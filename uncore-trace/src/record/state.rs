//! What a drain works on: the session, the parts that take records, and what all parts share.

use anyhow::Result;

use super::open_part::CommonState;
use super::open_parts::OpenParts;
use super::side_sources::SideSources;
use crate::drain::{Peek, decode_state};
use crate::open::{CpuSetChange, Session};
use crate::schema::loss::LossCause;

/// What a drain works on. The session is dropped before the parts: its programs do not run while
/// files are finished.
pub(super) struct RecorderState<'a> {
    pub common: CommonState<'a>,
    pub session: Session,
    pub open_parts: OpenParts,
    /// The time up to which all records were fed.
    pub fed_ns: u64,
    /// Whether the recording ends: what is left out does not change any more.
    pub is_ending: bool,
}

impl RecorderState<'_> {
    /// Enters a loss at `time_ns` into the part that it belongs to.
    pub(super) fn note_loss(&mut self, cause: LossCause, time_ns: u64, why: &str) {
        self.open_parts.ledger_at(time_ns).add_explained(cause, time_ns, None, why);
    }

    /// Reads the statistics of disks and interfaces, if they are counted. Returns the time after
    /// that, ns on `CLOCK_MONOTONIC`.
    pub(super) fn read_statistics(&mut self) -> u64 {
        let sample = self.session.statistics().read();
        if !sample.bytes.is_empty() {
            self.open_parts.feed_reading(&sample);
        }
        sample.end_ns
    }

    /// Begins and ends parts, if it is time.
    pub(super) fn rotate_if_due(&mut self, sources: &mut SideSources<'_>) -> Result<()> {
        self.open_parts.rotate_if_due(&self.common, &self.session, sources, self.fed_ns)
    }

    /// Remembers which task runs on each CPU. `false` if a CPU was switching.
    pub(super) fn remember_running(&mut self) -> bool {
        let session = &self.session;
        let mut peek_cpu = |cpu| read_unsent_state(session, cpu).ok()?;
        self.open_parts.live.timeline.remember_running(&mut peek_cpu)
    }

    /// Applies a change that happened at `time_ns` to the parts.
    pub(super) fn apply_change(&mut self, change: &CpuSetChange, time_ns: u64) -> Result<()> {
        let session = &self.session;
        let mut peek_cpu = |cpu| read_unsent_state(session, cpu).ok()?;
        for open_part in self.open_parts.oldest_first() {
            open_part.timeline.apply_change(change, time_ns, &mut open_part.sink, &mut peek_cpu);
            // As at the begin of a part: rows that refer to the current CPUs must come later.
            open_part.sink.hand_over_all(&mut open_part.writer)?;
        }
        self.common.apply_change(change);
        for &cpu in &change.went_offline {
            // Only after all parts have peeked at it.
            self.session.reset_cpu(cpu)?;
        }
        Ok(())
    }

    /// Closes the bins whose records, sent until `horizon_ns`, have been fed; `has_emptied`: the
    /// rings are empty, so that a CPU that sent nothing has nothing to send.
    pub(super) fn close_bins(&mut self, horizon_ns: u64, has_emptied: bool) -> Result<()> {
        let mut failed = None;
        let session = &self.session;
        let mut peek_cpu = |cpu| {
            read_unsent_state(session, cpu).unwrap_or_else(|error| {
                failed = Some(error);
                None
            })
        };
        for open_part in self.open_parts.oldest_first() {
            while !open_part.timeline.close_bins(
                horizon_ns,
                has_emptied,
                &mut open_part.sink,
                &mut peek_cpu,
            ) {
                open_part.sink.hand_over(&mut open_part.writer)?;
            }
            open_part.sink.hand_over(&mut open_part.writer)?;
        }
        failed.map_or(Ok(()), Err)
    }
}

/// A CPU's unsent state; `None` while the CPU writes it.
pub(super) fn read_unsent_state(session: &Session, cpu: u32) -> Result<Option<Peek>> {
    let (state, io) = session.cpu_state(cpu)?;
    Ok(decode_state(cpu, &state, io.as_ref()))
}
